// The comparison of two recordings: percentiles, distributions on one axis, findings that only one of them has.

import { h, s, replace, picture, foldedPart, table, ticks, logTicks } from './dom.js';
import { duration, number, percent, count, clean, groupName, brief } from './format.js';
import { report, pageData, groupByID } from './model.js';
import { buckets, joined } from './distribution.js';
import { groupLink } from './verdict.js';
import { view, onChange, current } from './state.js';

// shares returns the shares of requests by bucket. Buckets have the same borders in both recordings.
function shares(g, per) {
  const list = joined(buckets(g), per), all = list.reduce((n, b) => n + b.n, 0) || 1;
  return list.map(b => ({ from: b.from, to: b.to, share: b.n / all }));
}

function overlay(box, old, g, width) {
  const sides = [old, g].map(x => x.histogram.length ? buckets(x) : []), every = sides.flat();
  if (!sides[0].length || !sides[1].length) {
    replace(box, h('p', { class: 'dim' }, 'One side has no request that ended.'));
    return;
  }
  const left = 48, right = 12, inner = width - left - right, top = 12, height = 190;
  const lo = Math.max(1, Math.min(...every.map(b => Math.max(1, b.from)))) / 1.2, hi = Math.max(...every.map(b => b.to)) * 1.2, octaves = Math.log2(hi / lo);
  const x = v => left + Math.max(0, Math.min(1, Math.log2(Math.max(v, lo) / lo) / octaves)) * inner, per = [8, 4, 2, 1].find(p => inner / (octaves * p) >= 7) || 1;
  const lines = [old, g].map(side => shares(side, per)), most = Math.max(...lines.flat().map(b => b.share)), y = v => top + height - v / most * height;
  const svg = s('svg', { width, height: top + height + 26, viewBox: `0 0 ${width} ${top + height + 26}`, role: 'img', 'aria-label': `Latencies of ${number(old.count)} requests before and ${number(g.count)} after on one axis; the table below has the numbers` });
  for (const t of ticks(0, most, 4)) svg.append(s('line', { class: 'grid', x1: left, x2: left + inner, y1: y(t), y2: y(t) }), s('text', { class: 'axis', x: left - 6, y: y(t) + 4, 'text-anchor': 'end' }, percent(t)));
  for (const t of logTicks(lo, hi, Math.max(3, inner / 80))) svg.append(s('line', { class: 'grid', x1: x(t), x2: x(t), y1: top, y2: top + height }), s('text', { class: 'axis', x: x(t), y: top + height + 18, 'text-anchor': 'middle' }, duration(t)));
  lines.forEach((line, i) => {
    let d = '', last = null;
    for (const b of line) {
      if (last !== null && b.from > last * 1.0001) d += `V${y(0)}H${x(b.from).toFixed(1)}`;
      d += `${d ? '' : `M${x(b.from).toFixed(1)},${y(0)}`}V${y(b.share).toFixed(1)}H${x(b.to).toFixed(1)}`;
      last = b.to;
    }
    svg.append(s('path', { class: i ? 'after' : 'before', d: d + `V${y(0)}` }));
  });
  replace(box, svg);
}

export function compared() {
  const b = pageData.before;
  if (!b) return null;
  const pairs = b.groups.map(old => ({ old, now: groupByID(old.id) }));
  const change = (was, now) => was === null || now === null ? '–' : [h('span', { class: 'dim' }, duration(was)), ' → ', duration(now)];
  const percentiles = ['p50', 'p90', 'p99', 'max'], counts = (was, now) => [h('span', { class: 'dim' }, number(was)), ' → ', number(now)];
  const evidence = changed => b.judged ? [changed ? h('strong', null, 'of a change') : h('span', { class: 'dim' }, 'none')] : [];
  const finding = f => h('li', { 'data-code': f.code }, h('span', { class: 'severity ' + clean(f.severity) }, clean(f.severity)), brief(f.title, 300), f.group ? h('span', { class: 'dim' }, ` ${brief(f.group, 80)}`) : null, ' ', h('code', { class: 'dim' }, clean(f.code)));
  const link = id => {
    const f = report.findings.find(x => x.id === id);
    return f ? h('li', { 'data-code': f.code }, h('a', { href: current({ finding: f.id }) }, brief(f.title, 300)), ' ', h('code', { class: 'dim' }, clean(f.code))) : null;
  };
  const list = (title, items, none) => h('div', null, h('h3', null, title), items.length ? h('ul', { class: 'evidence' }, items) : h('p', { class: 'dim' }, none));
  const box = h('div', { class: 'chart' }), name = h('strong'), tab = h('div');
  const draw = w => {
    const p = pairs.find(x => x.now === view.group);
    name.textContent = view.group ? groupName(view.group) : '';
    if (!p) replace(box, h('p', { class: 'dim' }, 'Before, there was no such group.'));
    else overlay(box, p.old, p.now, w);
    replace(tab, p ? foldedPart('Table of both distributions', () => table('Shares of requests before and after', [{ text: 'Side' }, { text: 'From', num: true }, { text: 'To', num: true }, { text: 'Share', num: true }],
      [['before', p.old], ['after', p.now]].flatMap(([side, g]) => shares(g, 4).map(x => [side, duration(x.from), duration(x.to), percent(x.share)])))) : null);
  };
  const pic = picture(box, draw);
  onChange(c => { if (c.has('group')) pic.again(); });
  return h('section', { id: 'before-after' }, h('h2', null, 'Before and after'), h('p', null, h('strong', null, brief(b.name, 200) || 'another report'), ' → ', h('strong', null, brief(report.input.name, 200))),
    table('Groups before and after', [{ text: 'Group' }, { text: 'Requests', num: true }, { text: 'p50', num: true }, { text: 'p90', num: true }, { text: 'p99', num: true }, { text: 'Max', num: true }, ...(b.judged ? [{ text: 'Evidence' }] : [])],
      [...b.servers.map(x => [h('strong', null, brief(x.name, 80)), counts(x.old_count, x.new_count), ...percentiles.map(q => change(x.old[q], x.new[q])), ...evidence(x.changed)]),
        ...pairs.map(({ old, now }) => [groupLink(now), counts(old.count, now.count), ...percentiles.map(q => change(old.latency_ns[q], now.latency_ns[q])), ...(b.judged && b.moved.includes(now.id) ? [h('span', { class: 'dim' }, 'requests moved')] : evidence(b.changed.includes(now.id)))])]),
    b.vanished.length ? h('p', null, 'Only before: ', b.vanished.map((g, i) => [i ? ', ' : '', `${brief(g.name, 80)} (${count(g.count, 'request')})`])) : null,
    report.groups.length > pairs.length ? h('p', null, 'Only after: ', report.groups.filter(g => !pairs.some(p => p.now === g)).map((g, i) => [i ? ', ' : '', groupLink(g), ` (${count(g.count, 'request')})`])) : null,
    h('figure', null, h('figcaption', null, name, ': shares of requests by latency, ', h('i', { class: 'side-before' }), 'before, ', h('i', { class: 'side-after' }), 'after'), box, tab),
    h('div', { class: 'threefold' }, list('Findings that are gone', b.went.map(finding), 'none'), list('New findings', b.came.map(link), 'none'), list('Findings in both', b.stayed.map(link), 'none')));
}
