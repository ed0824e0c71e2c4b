// The latency distribution of a group on a logarithmic axis: a histogram whose bars are divided by cause, the empirical
// distribution function, and below, the causes of each latency as shares.

import { h, s, replace, picture, foldedPart, table, tip, untip, ticks, logTicks } from './dom.js';
import { duration, number, compact, percent, count, exact } from './format.js';
import { causeInfo, causeClass, byOrder } from './causes.js';
import { lowerBound } from './model.js';
import { explainButton } from './how.js';
import { view, onChange } from './state.js';
import { requestTable } from './listing.js';

// buckets returns the report's buckets, with their causes if the report has them: {from, to, n, causes: [[cause, ns]...]}.
export function buckets(g) {
  const causes = g.histogram_causes || {}, names = Object.keys(causes).sort(byOrder);
  let last = 0;
  return g.histogram.map(([upper, n], i) => {
    const from = Math.max(last, lowerBound(upper));
    last = upper;
    return { from, to: upper, n, causes: names.map(c => [c, causes[c][i] || 0]).filter(c => c[1] > 0) };
  });
}

// joined joins buckets at fixed borders, perOctave to each doubling.
export function joined(list, perOctave) {
  const out = new Map();
  for (const b of list) {
    const key = Math.floor(Math.log2(Math.max(1, b.from) * (1 + 1e-9)) * perOctave + 1e-6);
    const o = out.get(key);
    if (!o) {
      out.set(key, { from: 2 ** (key / perOctave), to: 2 ** ((key + 1) / perOctave), least: b.from, below: b.to, n: b.n, causes: new Map(b.causes) });
    } else {
      o.n += b.n;
      o.below = b.to;
      for (const [c, ns] of b.causes) o.causes.set(c, (o.causes.get(c) || 0) + ns);
    }
  }
  return [...out.values()].map(o => ({ ...o, causes: [...o.causes].sort((a, b) => byOrder(a[0], b[0])) }));
}

function drawDistribution(box, g, width) {
  const list = buckets(g);
  if (!list.length) {
    replace(box, h('p', { class: 'dim' }, 'No request of this group ended in the trace.'));
    return;
  }
  const left = 48, right = 44, inner = width - left - right;
  let lo = Math.max(1, list[0].from), hi = list[list.length - 1].to;
  // The axis spans at least one doubling, so that a single bucket does not fill it.
  const mid = Math.sqrt(lo * hi), least = Math.SQRT2;
  [lo, hi] = [Math.min(lo / 1.04, mid / least), Math.max(hi * 1.04, mid * least)];
  const octaves = Math.log2(hi / lo), x = v => left + Math.log2(Math.max(v, lo) / lo) / octaves * inner;
  const per = [32, 16, 8, 4, 2, 1].find(p => inner / (octaves * p) >= 5) || 1;
  const bars = per === 32 ? list : joined(list, per);
  const topY = 24, histH = 190, mixY = topY + histH + 34, mixH = 84, hasMix = bars.some(b => b.causes.length);
  const height = hasMix ? mixY + mixH + 8 : topY + histH + 26;
  const max = Math.max(...bars.map(b => b.n)), y = n => topY + histH - n / max * histH;
  const all = list.reduce((n, b) => n + b.n, 0);
  const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Latency distribution of ${number(all)} requests from ${duration(list[0].from)} to ${duration(g.latency_ns.max)}` });
  for (const t of ticks(0, max, 4)) {
    if (Number.isInteger(t)) svg.append(s('line', { class: 'grid', x1: left, x2: left + inner, y1: y(t), y2: y(t) }), s('text', { class: 'axis', x: left - 6, y: y(t) + 4, 'text-anchor': 'end' }, compact(t)));
  }
  for (const t of logTicks(lo, hi, inner / 62)) {
    svg.append(s('line', { class: 'grid', x1: x(t), x2: x(t), y1: topY, y2: topY + histH + 4 }), s('text', { class: 'axis', x: x(t), y: topY + histH + 18, 'text-anchor': 'middle' }, duration(t)));
    if (hasMix) svg.append(s('line', { class: 'grid', x1: x(t), x2: x(t), y1: mixY, y2: mixY + mixH }));
  }
  for (const [q, label] of [[0, '0'], [0.5, '50%'], [0.9, '90%'], [1, '100%']]) {
    svg.append(s('text', { class: 'axis', x: left + inner + 5, y: topY + histH - q * histH + 4 }, label));
  }
  for (const b of bars) {
    const x1 = x(b.from), w = Math.max(1, x(b.to) - x1 - (x(b.to) - x1 > 4 ? 1 : 0)), sum = b.causes.reduce((n, c) => n + c[1], 0);
    const text = () => [h('strong', null, `${duration(b.from)} to ${duration(b.to)}`), h('br'), count(b.n, 'request'), h('table', null,
      [...b.causes].sort((p, q) => q[1] - p[1]).slice(0, 7).map(([c, ns]) => h('tr', null, h('td', null, h('i', { class: 'chip ' + causeClass(c) }), causeInfo(c).short), h('td', { class: 'num' }, percent(ns / sum)), h('td', { class: 'num' }, duration(ns / b.n)))))];
    const bar = s('g', { class: 'bucket', 'data-from': b.from, 'data-to': b.to, 'data-count': b.n });
    let at = y(0);
    if (!sum) bar.append(s('rect', { class: 'c-plain', x: x1, width: w, y: y(b.n), height: y(0) - y(b.n) }));
    for (const [c, ns] of b.causes) {
      const part = ns / sum * (y(0) - y(b.n));
      at -= part;
      bar.append(s('rect', { class: causeClass(c), x: x1, width: w, y: at, height: part, 'data-ns': ns }));
    }
    // One request of a hundred thousand must be visible as well.
    if (y(0) - y(b.n) < 2.5) bar.append(s('path', { class: 'few', d: `M${x1 + w / 2 - 3},${y(0) - 7}h6l-3,5z` }));
    if (hasMix) {
      let m = mixY + mixH;
      for (const [c, ns] of b.causes) {
        const part = ns / sum * mixH;
        m -= part;
        bar.append(s('rect', { class: causeClass(c), x: x1, width: w, y: m, height: part, 'data-mix': ns }));
      }
    }
    bar.append(s('rect', { class: 'catch', x: x1, y: topY, width: Math.max(3, w), height: height - topY - 8 }));
    bar.addEventListener('pointermove', ev => tip(ev, text()));
    bar.addEventListener('pointerleave', untip);
    bar.addEventListener('click', () => requestTable.list?.({ group: g.id, min: b.least ?? b.from, max: (b.below ?? b.to) - 1 }));
    svg.append(bar);
  }
  let seen = 0, d = `M${left},${topY + histH}`;
  for (const b of list) {
    d += `L${x(b.from).toFixed(2)},${(topY + histH - seen / all * histH).toFixed(2)}`;
    seen += b.n;
    d += `L${x(b.to).toFixed(2)},${(topY + histH - seen / all * histH).toFixed(2)}`;
  }
  svg.append(s('path', { class: 'ecdf under', d }), s('path', { class: 'ecdf', d }));
  let lastX = -1e9;
  for (const [name, v] of [['p50', g.latency_ns.p50], ['p90', g.latency_ns.p90], ['p99', g.latency_ns.p99], ['p99.9', g.latency_ns.p999], ['max', g.latency_ns.max]]) {
    if (v === null) continue;
    svg.append(s('line', { class: 'mark', x1: x(v), x2: x(v), y1: topY - 4, y2: topY + histH }));
    if (x(v) - lastX > 34) {
      svg.append(s('text', { class: 'axis strong', x: Math.min(x(v), width - 14), y: topY - 9, 'text-anchor': 'middle' }, name));
      lastX = x(v);
    }
  }
  if (hasMix) {
    svg.append(s('text', { class: 'axis', x: left - 6, y: mixY + 10, 'text-anchor': 'end' }, '100%'), s('text', { class: 'axis', x: left - 6, y: mixY + mixH, 'text-anchor': 'end' }, '0'));
  }
  replace(box, svg);
}

// legend returns the names and colours of a group's causes.
export function legend(names) {
  return h('ul', { class: 'legend', 'aria-label': 'Colours of causes' }, names.map(c => h('li', null, h('i', { class: 'chip ' + causeClass(c) }), causeInfo(c).short)));
}

function distributionRows(g) {
  const list = buckets(g), names = [...new Set(list.flatMap(b => b.causes.map(c => c[0])))].sort(byOrder);
  let seen = 0;
  const all = list.reduce((n, b) => n + b.n, 0);
  return table('Latency distribution', [{ text: 'From', num: true }, { text: 'To', num: true }, { text: 'Requests', num: true }, { text: 'At most this slow', num: true }, ...names.map(c => ({ text: causeInfo(c).short, num: true }))],
    list.map(b => {
      seen += b.n;
      const of = new Map(b.causes);
      return [exact(b.from), exact(b.to), number(b.n), (seen / all * 100).toFixed(2) + '%', ...names.map(c => duration(of.get(c) || 0))];
    }));
}

export function distribution() {
  const box = h('div', { class: 'chart', id: 'distribution' }), key = h('div'), tab = h('div');
  let pic = null;
  const change = () => {
    const g = view.group;
    if (!g) return;
    replace(key, legend([...new Set(buckets(g).flatMap(b => b.causes.map(c => c[0])))].sort(byOrder)));
    replace(tab, foldedPart('Table of the distribution', () => distributionRows(g)));
    if (pic) pic.again();
  };
  pic = picture(box, w => view.group && drawDistribution(box, view.group, w));
  onChange(c => { if (c.has('group')) change(); });
  change();
  return h('figure', null, h('figcaption', null, h('strong', null, 'Requests by latency'), ', bars divided by cause, line: share of requests at most this slow ', explainButton('histogram'),
    h('span', { class: 'dim' }, ' · below: the causes of each latency as shares '), explainButton('mix')), key, box, tab);
}
