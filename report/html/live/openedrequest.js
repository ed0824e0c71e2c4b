// The request that the user opened from the table of all requests: its waterfall, drawn by the page's code.

import { h, replace, foldedPart, table } from './dom.js';
import { duration, exact, count, clean, groupName } from './format.js';
import { groupByID, segmentCauses } from './model.js';
import { when, detail, longest, threadLegend, poolTable } from './requests.js';
import { Waterfall, segmentRows } from './waterfall.js';
import { bar } from './verdict.js';
import { legend } from './distribution.js';
import { explainButton } from './how.js';
import { fetchAnswer, latest } from './server.js';
import { marksTable } from './area.js';

// openedRequest creates the part. Options: move(n) opens another request, timeline(request) shows the time around it.
export function openedRequest(options) {
  const title = h('h3'), facts = h('p'), tools = h('div', { class: 'tabs' }), side = h('div', { class: 'side' }), chain = h('div'), key = h('div'), marks = h('div'), behind = h('div');
  let shown = null;
  // showMarks shows what the program wrote about the request: regions and log messages of the goroutines that took part.
  const showMarks = latest(async (signal, r) => {
    const ids = [...new Set([r.goroutine, ...r.segments.map(x => x.goroutine), ...(r.lanes || []).map(l => l.goroutine)])].slice(0, 60);
    const { rows } = await fetchAnswer('annotations', { from: r.start_ns, to: r.start_ns + r.latency_ns, g: ids.join(',') }, signal);
    if (rows.length) replace(marks, h('details', { open: rows.length < 13, class: 'annotations' }, h('summary', null, `${count(rows.length, 'region or log message', 'regions and log messages')} of its goroutines`), marksTable(rows, r.start_ns)));
  });
  const wf = new Waterfall('Waterfall of the opened request. Arrow keys choose a segment, plus and minus zoom, 0 shows all.', {
    select: i => {
      const r = shown.request;
      const at = i >= 0 ? i : r.segments.reduce((most, x, k) => x.duration_ns > r.segments[most].duration_ns ? k : most, 0);
      replace(side, r.segments.length ? detail(r, at, i < 0) : null);
    },
  });
  const el = h('div', { id: 'opened', hidden: true, tabindex: -1 }, title, tools, facts, h('figure', null, key, wf.el), marks, h('div', { class: 'two' }, chain, side), behind);
  const button = (text, n, hint) => h('button', { type: 'button', disabled: n < 0, title: hint, onclick: () => options.move(n) }, text);
  return {
    el,
    get neighbours() { return shown; },
    get request() { return shown && shown.request; },
    show(answer) {
      shown = answer;
      const r = answer.request, g = groupByID(answer.group);
      el.hidden = false;
      el.dataset.request = r.id;
      replace(title, `Request of ${duration(r.latency_ns)} `, h('span', { class: 'dim' }, g ? `to ${groupName(g)} ` : ''), explainButton('segments'));
      replace(tools, button('‹ before', answer.before, 'the row before (p)'), button('after ›', answer.after, 'the row after (n)'),
        h('button', { type: 'button', class: 'accent', onclick: () => options.timeline(r) }, 'Show the timelines around it'),
        h('span', { class: 'zoom' }, h('button', { type: 'button', 'aria-label': 'zoom in', onclick: () => wf.zoom(0.5, wf.middleOfSelected()) }, '+'), h('button', { type: 'button', 'aria-label': 'zoom out', onclick: () => wf.zoom(2) }, '−'), h('button', { type: 'button', onclick: () => wf.fit() }, 'all')));
      replace(facts, `${when(r)}, goroutine ${r.goroutine}, ${count(r.segments.length, 'segment')} on the critical path`, h('span', { class: 'dim id' }, ` id ${clean(r.id)}`));
      replace(key, legend(segmentCauses(r).map(c => c[0])), threadLegend(r));
      wf.show(r);
      wf.options.select(-1);
      replace(marks);
      showMarks(r).catch(() => {});
      replace(chain, h('h4', null, 'Its longest segments, in order'), bar(segmentCauses(r), 'Causes of this request'), longest(r, wf));
      replace(behind, foldedPart('Table of all segments', () => table('Segments of the opened request', [{ text: 'From', num: true }, { text: 'Lasted', num: true }, { text: 'Share', num: true }, { text: 'Cause' }, { text: 'Goroutine' }, { text: 'Site' }, { text: 'Via' }], segmentRows(r))), poolTable(r),
        (r.lanes || []).length ? foldedPart('Table of goroutines’ states', () => table('States', [{ text: 'Goroutine' }, { text: 'From', num: true }, { text: 'Lasted', num: true }, { text: 'State' }],
          r.lanes.flatMap(l => l.spans.map(x => [`G${l.goroutine} ${clean(l.name)}`, exact(x.start_ns - r.start_ns), exact(x.duration_ns), clean(x.state) + (x.reason ? ` (${clean(x.reason)})` : '')])))) : null);
    },
  };
}
