// Capacity: at which load each resource saturates, and latencies by load.

import { h, s, add, picture, table, foldedPart, logTicks, ticks } from './dom.js';
import { brief, clean, compact, duration, number, percent, rough, place } from './format.js';
import { report } from './model.js';

const perSecond = x => `${number(Number(x.toPrecision(3)))}/s`;
const limitName = l => [clean(l.kind), l.site ? ' ' + place(l.site) : ''];

// drawCurve draws p50 and p99 with their intervals by load, today's load, and the limits as vertical lines.
function drawCurve(box, c, width) {
  const left = 58, right = 10, top = 22, height = 190, inner = width - left - right;
  const limits = c.limits.filter(l => l.saturates_per_s <= 1.6 * c.limits[0].saturates_per_s);
  const most = Math.max(c.load_per_s, ...limits.map(l => l.saturates_per_s)) * 1.05;
  const low = Math.max(1, Math.min(...c.curve.map(p => p.p50.low))), high = Math.max(...c.curve.map(p => p.p99.high)) * 1.2;
  const x = load => left + load / most * inner, y = ns => top + height - Math.log(Math.max(ns, low) / low) / Math.log(high / low) * height;
  const svg = s('svg', { width, height: top + height + 24, role: 'img', 'aria-label': `Latency by load: ${clean(c.text)}` });
  for (const ns of logTicks(low, high, 6)) {
    svg.append(s('line', { class: 'grid', x1: left, x2: left + inner, y1: y(ns), y2: y(ns) }), s('text', { class: 'axis', x: left - 6, y: y(ns) + 4, 'text-anchor': 'end' }, rough(ns)));
  }
  for (const load of ticks(0, most, Math.max(2, Math.floor(inner / 90)))) {
    svg.append(s('text', { class: 'axis', x: x(load), y: top + height + 17, 'text-anchor': 'middle' }, compact(load) + '/s'));
  }
  const path = (points, key) => points.map((p, i) => `${i ? 'L' : 'M'}${x(p.load_per_s).toFixed(1)},${y(key(p)).toFixed(1)}`).join('');
  for (const [name, cls] of [['p50', 'busy'], ['p99', 'procs']]) {
    const back = [...c.curve].reverse().map(p => `L${x(p.load_per_s).toFixed(1)},${y(p[name].low).toFixed(1)}`).join('');
    svg.append(s('path', { class: 'interval', d: path(c.curve, p => p[name].high) + back + 'Z' }), s('path', { class: 'line ' + cls, d: path(c.curve, p => p[name + '_ns']) }));
    const last = c.curve[c.curve.length - 1];
    svg.append(s('text', { class: 'axis strong', x: x(last.load_per_s) - 6, y: y(last[name + '_ns']) - 6, 'text-anchor': 'end' }, name));
  }
  const upright = (load, text, cls, row) => svg.append(s('line', { class: cls, x1: x(load), x2: x(load), y1: top, y2: top + height }),
    s('text', { class: 'axis strong', x: x(load) - 4, y: top + 10 + 13 * row, 'text-anchor': x(load) > left + 80 ? 'end' : 'start' }, text));
  upright(c.load_per_s, 'today', 'grid', 0);
  limits.forEach((l, i) => upright(l.saturates_per_s, clean(l.kind), 'line goal', i + 1));
  box.replaceChildren();
  add(box, [svg]);
}

export function capacity() {
  const c = report.capacity;
  if (!c || !c.limits.length) return null;
  const box = h('div', { class: 'chart', id: 'curve' });
  if (c.curve.length) picture(box, w => drawCurve(box, c, w));
  return h('section', { id: 'capacity' }, h('h2', null, 'Capacity'), h('p', null, brief(c.text, 600)),
    h('figure', null, box, c.curve.length ? foldedPart('Table of latencies by load', () => table('Latency by load', [{ text: 'Load', num: true }, { text: 'p50', num: true }, { text: 'p99', num: true }, { text: 'p99 from', num: true }, { text: 'to', num: true }],
      c.curve.map(p => [perSecond(p.load_per_s), duration(p.p50_ns), duration(p.p99_ns), duration(p.p99.low), duration(p.p99.high)]))) : null),
    table('Limits', [{ text: 'Limit' }, { text: 'In use', num: true }, { text: 'Per request', num: true }, { text: 'Servers', num: true }, { text: 'Saturates at', num: true }, { text: 'from', num: true }, { text: 'to', num: true }, { text: 'Used by' }],
      c.limits.map(l => [limitName(l), percent(l.utilisation), duration(l.demand_ns), number(Number(l.servers.toPrecision(3))), perSecond(l.saturates_per_s), perSecond(l.saturates_low), perSecond(l.saturates_high), l.groups.slice(0, 3).map(g => `${percent(g.share)} ${brief(g.name, 40)}`).join(', ')])),
    h('p', { class: 'dim' }, 'Not judged, each may be a lower limit: ', c.not_judged.map((n, i) => [i ? '; ' : '', n.site ? [place(n.site), ': '] : '', clean(n.reason)]), '.'));
}
