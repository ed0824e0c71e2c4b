// Slow requests one by one, each with its waterfall, its causes, and a typical request of its group for comparison.

import { h, replace, foldedPart, table, add } from './dom.js';
import { duration, percent, exact, count, clean, siteText, place, brief, number } from './format.js';
import { siteButton } from './site.js';
import { causeInfo, causeClass, waitWords, partsOf } from './causes.js';
import { report, concerns, segmentCauses } from './model.js';
import { explainButton } from './how.js';
import { view, onChange, go, current } from './state.js';
import { Waterfall, goroutineOf, segmentRows, spentOn, threadStates, peerStates, threadSpans, holders, holderClass, holdRows } from './waterfall.js';
import { bar } from './verdict.js';
import { legend } from './distribution.js';

// step goes to the next slow request of the group, or of the next group.
export function step(by) {
  const all = report.groups.flatMap(g => g.slowest);
  if (!all.length) return;
  const at = all.indexOf(view.request);
  const next = all[(at + by + all.length) % all.length];
  go({ req: next.id, group: '', band: '' });
}

export function when(r) {
  if (!report.input.start) return `${duration(r.start_ns)} into the trace`;
  const wall = new Date(new Date(report.input.start).getTime() + r.start_ns / 1e6);
  return `${duration(r.start_ns)} into the trace (${wall.toISOString().replace('T', ' ').replace('Z', ' UTC')})`;
}

// ids returns a request's ids in tracing systems, and its status.
export function ids(r) {
  const list = [['came out as', r.status], ['trace', r.trace_id], ['span', r.span_id], ['asked by span', r.parent_span_id], ['Datadog span', r.datadog_span_id]];
  return list.filter(([, id]) => id).flatMap(([name, id]) => [`${name} `, h('code', { class: 'wrap' }, clean(id)), ', ']);
}

export function detail(r, i, longest) {
  const x = r.segments[i];
  const row = (name, ...value) => [h('dt', null, name), h('dd', null, value)];
  return h('div', { class: 'detail', role: 'group', 'aria-label': 'Chosen segment', 'aria-live': 'polite' },
    h('h4', null, h('i', { class: 'chip ' + causeClass(x.cause) }), `${duration(x.duration_ns)} ${spentOn(x)}`, h('span', { class: 'dim' }, ` · ${longest ? 'the longest, ' : ''}segment ${i + 1} of ${r.segments.length}`)),
    h('dl', null,
      row('cause', clean(x.cause), x.kind ? ` (${brief(x.kind)})` : ''), x.call ? row('call', h('code', null, brief(x.call, 200))) : null, x.peer ? row('peer', brief(x.peer, 200)) : null, row('share', `${percent(x.duration_ns / r.latency_ns)} of the request`),
      row('from', `${exact(x.start_ns - r.start_ns)} after its start`), row('lasted', exact(x.duration_ns)), row('goroutine', x.service ? goroutineOf(x) : String(x.goroutine)),
      x.joined ? row('joined', `${count(x.joined.count, 'short segment')}: `, partsOf(x).map(([c, ns], k) => [k ? ', ' : '', causeInfo(c).short, ' ', duration(ns)])) : null,
      x.site ? row('site', siteButton(x.site, siteText(x.site))) : null,
      x.via && x.via.length ? row('via', h('ol', { class: 'via' }, x.via.map(v => h('li', null, clean(waitWords(v)), v.site ? [' at ', siteButton(v.site, siteText(v.site))] : v.service ? null : ' at no place known')))) : null));
}

// waits returns the segments, with adjacent ones in one queue joined: {x, i, ns, n}, where i is the index of the longest of n.
function waits(r) {
  const out = [];
  r.segments.forEach((x, i) => {
    const last = out[out.length - 1];
    if (!last || x.cause !== 'queue' || last.x.cause !== 'queue' || x.kind !== last.x.kind || siteText(x.site) !== siteText(last.x.site)) out.push({ x, i, ns: x.duration_ns, n: 1 });
    else {
      last.ns += x.duration_ns;
      last.n++;
      if (x.duration_ns > r.segments[last.i].duration_ns) last.i = i;
    }
  });
  return out;
}

// longest returns the longest segments, in order of time.
export function longest(r, wf) {
  const all = waits(r), some = all.slice().sort((p, q) => q.ns - p.ns).slice(0, 8).filter(w => w.ns >= r.latency_ns * 0.01).sort((p, q) => p.i - q.i);
  const rest = r.segments.length - some.reduce((n, w) => n + w.n, 0), restNS = r.latency_ns - some.reduce((n, w) => n + w.ns, 0);
  return h('ol', { class: 'chain' }, some.map(({ x, i, ns, n }) => h('li', { 'data-ns': ns },
    h('button', { type: 'button', class: 'plain', onclick: () => wf.select(i, true) },
      h('span', { class: 'num' }, percent(ns / r.latency_ns)), h('span', { class: 'num' }, duration(ns)),
      h('span', null, h('i', { class: 'chip ' + causeClass(x.cause) }), spentOn(x), x.site ? [causeInfo(x.cause).at, h('code', { class: 'site' }, place(x.site))] : null, x.peer ? h('span', { class: 'dim' }, ` · ${brief(x.peer, 120)}`) : null,
        n > 1 ? h('span', { class: 'dim' }, ` in ${count(n, 'segment')}`) : x.via && x.via.length ? h('span', { class: 'dim' }, ` via ${clean(waitWords(x.via[x.via.length - 1]))}`) : null)))),
  rest > 0 ? h('li', { class: 'dim rest', 'data-ns': restNS }, h('span', { class: 'num' }, percent(restNS / r.latency_ns)), h('span', { class: 'num' }, duration(restNS)), h('span', null, `in ${count(rest, 'shorter segment')}`)) : null);
}

function hasThreads(r) { return (r.lanes || []).some(l => (l.threads || []).length); }

// poolLegend explains who held the slots of pools.
function poolLegend(r) {
  const seen = new Set((r.pools || []).flatMap(p => p.slots.flat()).map(x => holderClass(r, x)));
  return seen.size ? h('ul', { class: 'legend states', 'aria-label': 'Holders of slots' }, h('li', { class: 'dim' }, 'slots held by'), Object.entries(holders).filter(([c]) => seen.has(c)).map(([c, words]) => h('li', null, h('i', { class: 'key key-hold ' + c }), words))) : null;
}

// poolTable lists who held the slots.
export function poolTable(r) {
  return (r.pools || []).length ? foldedPart('Table of slots', () => table('Slots', [{ text: 'Queue' }, { text: 'Slot', num: true }, { text: 'From', num: true }, { text: 'Held', num: true }, { text: 'Goroutine' }, { text: 'Holder' }, { text: 'Site' }], holdRows(r))) : null;
}

// threadLegend explains the marks that only the kernel's events give, and those of pools.
export function threadLegend(r) {
  if (!hasThreads(r)) return poolLegend(r);
  const states = (all, of) => {
    const seen = new Set(r.lanes.flatMap(l => (of(l) || []).map(x => x.state)));
    return Object.entries(all).filter(([state]) => seen.has(state)).map(([, [words, cause]]) => h('li', null, h('i', { class: 'chip ' + causeClass(cause) }), words));
  };
  return [h('ul', { class: 'legend states', 'aria-label': 'Marks of threads and CPUs' }, h('li', { class: 'dim' }, 'thin bars, its thread:'),
    states(threadStates, l => l.threads), r.lanes.some(l => (l.peers || []).length) ? [h('li', { class: 'dim' }, 'and in a wait for a peer, the peer:'), states(peerStates, l => l.peers)] : null,
    r.lanes.some(l => (l.arrivals_ns || []).length) ? h('li', null, h('i', { class: 'key key-arrival' }), 'bytes arrived') : null,
    (r.cpus || []).length ? [h('li', null, h('i', { class: 'key key-cpu-own' }), 'CPU: the service’s threads'), h('li', null, h('i', { class: 'key key-cpu-other' }), 'another process, while a thread of the service waited')] : null), poolLegend(r)];
}

export function requests() {
  if (!report.groups.some(g => g.slowest.length)) return null;
  const title = h('h2'), facts = h('p'), side = h('div', { class: 'side' }), chain = h('div'), behind = h('div'), compare = h('div', { class: 'compare' }), key = h('div'), pills = h('div', { class: 'tabs', role: 'group', 'aria-label': 'Slow requests of this group' });
  const marked = x => !!view.finding && concerns(view.finding, x);
  const wf = new Waterfall('Waterfall of the chosen request. Arrow keys choose a segment, plus and minus zoom, 0 shows all.', {
    marked, select: i => {
      const r = view.request, hint = h('p', { class: 'dim hint' }, h('kbd', null, '←'), ' ', h('kbd', null, '→'), ' walk along the path, ', h('kbd', null, '+'), ' ', h('kbd', null, '−'), ' ', h('kbd', null, '0'), ' zoom (or Ctrl and wheel), drag to move.');
      // Until the user selects a segment, the details are those of the longest one.
      const at = i >= 0 ? i : r.segments.reduce((most, x, k) => x.duration_ns > r.segments[most].duration_ns ? k : most, 0);
      replace(side, r.segments.length ? detail(r, at, i < 0) : null, hint);
    },
  });
  let beside = null;
  let sameScale = null; // null until the user sets it: then it depends on whether the shorter request would be visible
  const drawCompare = () => {
    const g = view.group, t = g && g.typical;
    if (!t || t === view.request) {
      replace(compare);
      return;
    }
    beside = new Waterfall('Waterfall of a typical request, for comparison', {});
    const toggle = h('input', { type: 'checkbox', onchange: ev => { sameScale = ev.target.checked; beside.show(t, sameScale ? view.request.latency_ns : 0); } });
    const same = sameScale ?? t.latency_ns >= 0.04 * view.request.latency_ns;
    toggle.checked = same;
    replace(compare, h('h3', null, `A typical one beside it: ${duration(t.latency_ns)} `, explainButton('typical'), h('label', { class: 'inline' }, toggle, ' on the same time scale')), beside.el,
      foldedPart('Table of its segments', () => table('Segments of the typical request', columns, segmentRows(t))));
    beside.show(t, same ? view.request.latency_ns : 0);
  };
  const columns = [{ text: 'From', num: true }, { text: 'Lasted', num: true }, { text: 'Share', num: true }, { text: 'Cause' }, { text: 'Goroutine' }, { text: 'Site' }, { text: 'Via' }];
  const change = () => {
    const g = view.group, r = view.request;
    if (!r) {
      replace(title, 'No request of this group is held in full');
      for (const el of [facts, side, chain, behind, compare, key, pills]) replace(el);
      wf.el.style.display = 'none';
      return;
    }
    wf.el.style.display = '';
    const n = g.slowest.indexOf(r);
    replace(title, n < 0 ? 'A typical request' : n === 0 ? 'The slowest request' : `Slow request ${n + 1} of ${g.slowest.length}`, h('span', { class: 'dim' }, `, ${duration(r.latency_ns)} `), explainButton('segments'));
    replace(pills, g.slowest.map((x, i) => h('a', { class: 'pill', href: current({ req: x.id }), 'aria-current': x === r ? 'true' : null }, `${i + 1}. ${duration(x.latency_ns)}`)),
      g.typical ? h('a', { class: 'pill', href: current({ req: g.typical.id }), 'aria-current': g.typical === r ? 'true' : null }, `typical ${duration(g.typical.latency_ns)}`) : null,
      h('button', { type: 'button', onclick: () => step(-1), title: 'previous slow request (p)' }, '‹ previous'), h('button', { type: 'button', onclick: () => step(1), title: 'next slow request (n)' }, 'next ›'),
      h('span', { class: 'zoom' }, h('button', { type: 'button', 'aria-label': 'zoom in', onclick: () => wf.zoom(0.5, wf.middleOfSelected()) }, '+'), h('button', { type: 'button', 'aria-label': 'zoom out', onclick: () => wf.zoom(2) }, '−'), h('button', { type: 'button', onclick: () => wf.fit() }, 'all')));
    replace(facts, `${when(r)}, goroutine ${r.goroutine}, ${count(r.segments.length, 'segment')} on the critical path, `, ...ids(r), `${count((r.wakes || []).length, 'wake')} between its goroutines `, explainButton('wakes'), h('span', { class: 'dim id' }, ` id ${clean(r.id)}`));
    replace(key, legend(segmentCauses(r).map(c => c[0])), h('ul', { class: 'legend states', 'aria-label': 'Marks of the waterfall' },
      [['path', 'critical path'], ['running', 'running'], ['runnable', 'runnable'], ['waiting', 'waiting'], ['syscall', 'syscall'], ['arrow', 'wake']].map(([c, name]) => h('li', null, h('i', { class: 'key key-' + c }), name))), threadLegend(r));
    wf.show(r);
    wf.options.select(-1);
    replace(chain, h('h3', null, 'Its longest segments, in order'), bar(segmentCauses(r), 'Causes of this request'), longest(r, wf));
    replace(behind, foldedPart('Table of all segments', () => table('Segments of the request', columns, segmentRows(r))),
      (r.wakes || []).length ? foldedPart('Table of wakes', () => table('Wakes', [{ text: 'At', num: true }, { text: 'From' }, { text: 'To' }, { text: 'Site' }], r.wakes.map(w => [exact(w.time_ns - r.start_ns), 'G' + w.from, 'G' + w.to, siteText(w.site)]))) : null,
      (r.lanes || []).length ? foldedPart('Table of goroutines’ states', () => table('States', [{ text: 'Goroutine' }, { text: 'From', num: true }, { text: 'Lasted', num: true }, { text: 'State' }, { text: 'Site' }],
        r.lanes.flatMap(l => l.spans.map(x => [`G${l.goroutine} ${clean(l.name)}`, exact(x.start_ns - r.start_ns), exact(x.duration_ns), clean(x.state) + (x.reason ? ` (${clean(x.reason)})` : ''), siteText(x.site)])))) : null,
      hasThreads(r) ? foldedPart('Table of threads’ states', () => table('Threads', [{ text: 'Goroutine' }, { text: 'From', num: true }, { text: 'Lasted', num: true }, { text: 'Its thread, or the peer' }],
        r.lanes.flatMap(l => threadSpans(l).map(x => [`G${l.goroutine} ${clean(l.name)}`, exact(x.start_ns - r.start_ns), exact(x.duration_ns), (x.process ? brief(x.process, 80) + ': ' : '') + x.words])))) : null,
      poolTable(r),
      (r.cpus || []).length ? foldedPart('Table of what had the CPUs', () => table('CPUs', [{ text: 'CPU', num: true }, { text: 'From', num: true }, { text: 'Lasted', num: true }, { text: 'Process' }],
        r.cpus.flatMap(c => c.spans.map(x => [number(c.cpu), exact(x.start_ns - r.start_ns), exact(x.duration_ns), clean(x.process)])))) : null);
    drawCompare();
  };
  onChange(c => { if (c.has('request') || c.has('group') || c.has('finding')) change(); });
  change();
  const section = h('section', { id: 'requests' }, title, pills, facts);
  return add(section, [h('figure', null, key, wf.el), h('div', { class: 'two' }, chain, side), behind, compare]);
}
