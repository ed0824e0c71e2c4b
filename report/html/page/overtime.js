// The group, and the runtime, over the time of the trace.

import { h, s, replace, picture, later, table, tip, untip, ticks, logTicks } from './dom.js';
import { duration, number, count, bytes, clean, percent, brief } from './format.js';
import { about, causeClass, byOrder } from './causes.js';
import { report, quantileOf } from './model.js';
import { asked } from './how.js';
import { view, onChange, go } from './state.js';

function rowsOf(g) {
  return g.blocks.map(b => ({ ...b, p50: quantileOf(b.histogram, 0.5), p99: b.count >= 100 ? quantileOf(b.histogram, 0.99) : null, max: b.histogram.length ? b.histogram[b.histogram.length - 1][0] : null }));
}

function drawOverTime(box, g, width) {
  const list = rowsOf(g), left = 56, right = 8, inner = width - left - right, end = Math.max(1, report.input.duration_ns);
  const x = t => left + t / end * inner;
  const series = report.runtime.series || null;
  const rows = [];
  const svg = s('svg', { role: 'img', 'aria-label': `${clean(g.name)} over the time of the trace` });
  let y0 = 6;
  const row = (title, height, f) => {
    svg.append(s('text', { class: 'axis strong', x: left, y: y0 + 10 }, title));
    const top = y0 + 18;
    f(top, height);
    rows.push([top, height]);
    y0 = top + height + 12;
  };
  const frame = (top, height, max, text, n) => {
    for (const t of ticks(0, max || 1, n || 3)) {
      const y = top + height - t / (max || 1) * height;
      svg.append(s('line', { class: 'grid', x1: left, x2: left + inner, y1: y, y2: y }), s('text', { class: 'axis', x: left - 6, y: y + 4, 'text-anchor': 'end' }, text(t)));
    }
  };
  const cell = (b, top, height, text) => {
    const c = s('rect', { class: 'catch', x: x(b.start_ns), y: top, width: Math.max(1, x(b.start_ns + b.duration_ns) - x(b.start_ns)), height });
    c.addEventListener('pointermove', ev => tip(ev, text()));
    c.addEventListener('pointerleave', untip);
    svg.append(c);
  };
  const wide = b => Math.max(0.8, x(Math.min(end, b.start_ns + b.duration_ns)) - x(b.start_ns) - (inner / Math.max(1, list.length) > 5 ? 1 : 0));

  if (list.length) {
    row('latency: p50, p99 (or max) and slow requests ▲', 110, (top, height) => {
      const values = list.flatMap(b => [b.p50, b.p99, b.max]).filter(v => v > 0).concat(g.slowest.map(r => r.latency_ns));
      const lo = Math.min(...values) * 0.8, hi = Math.max(...values) * 1.25, y = v => top + height - Math.log(v / lo) / Math.log(hi / lo) * height;
      for (const t of logTicks(lo, hi, 5)) svg.append(s('line', { class: 'grid', x1: left, x2: left + inner, y1: y(t), y2: y(t) }), s('text', { class: 'axis', x: left - 6, y: y(t) + 4, 'text-anchor': 'end' }, duration(t)));
      for (const b of list) {
        if (!b.p50) continue;
        const high = b.p99 || b.max, w = wide(b);
        svg.append(s('rect', { class: 'spread', x: x(b.start_ns), width: w, y: Math.min(y(high), y(b.p50)), height: Math.max(1, y(b.p50) - y(high)) }),
          s('rect', { class: 'p50', x: x(b.start_ns), width: w, y: y(b.p50) - 1.5, height: 3 }), s('rect', { class: 'p99', x: x(b.start_ns), width: w, y: y(high) - 1, height: 2 }));
        cell(b, top, height, () => [h('strong', null, `${duration(b.start_ns)} to ${duration(b.start_ns + b.duration_ns)}`), h('br'), count(b.count, 'request'), h('br'), `p50 ${duration(b.p50)}, ${b.p99 ? 'p99 ' + duration(b.p99) : 'max ' + duration(b.max)}`]);
      }
      g.slowest.forEach((r, i) => {
        const px = x(r.start_ns + r.latency_ns), py = y(r.latency_ns);
        const m = s('path', { class: 'slowmark' + (r === view.request ? ' selected' : ''), d: `M${px - 5},${py + 4}h10l-5,-9z`, tabindex: 0, role: 'button', 'aria-label': `Slow request ${i + 1}: ${duration(r.latency_ns)}` });
        const open = () => { go({ req: r.id }, true); document.getElementById('requests').scrollIntoView(); };
        m.addEventListener('click', open);
        m.addEventListener('keydown', ev => { if (ev.key === 'Enter') open(); });
        m.addEventListener('pointermove', ev => tip(ev, h('strong', null, `slow request ${i + 1}: ${duration(r.latency_ns)}`)));
        m.addEventListener('pointerleave', untip);
        svg.append(m);
      });
    });
    row('time per request, by cause', 90, (top, height) => {
      const max = Math.max(...list.map(b => b.count ? b.total_ns / b.count : 0));
      frame(top, height, max, duration);
      for (const b of list) {
        if (!b.count) continue;
        let y = top + height;
        const parts = Object.entries(b.causes).sort((p, q) => byOrder(p[0], q[0]));
        for (const [c, ns] of parts) {
          const part = ns / b.count / (max || 1) * height;
          y -= part;
          svg.append(s('rect', { class: causeClass(c), x: x(b.start_ns), width: wide(b), y, height: Math.max(0, part) }));
        }
        cell(b, top, height, () => [h('strong', null, `${duration(b.start_ns)} to ${duration(b.start_ns + b.duration_ns)}`), h('table', null, parts.sort((p, q) => q[1] - p[1]).slice(0, 7).map(([c, ns]) => h('tr', null, h('td', null, h('i', { class: 'chip ' + causeClass(c) }), about(c).short), h('td', { class: 'num' }, duration(ns / b.count)))))]);
      }
    });
    row('requests per second', 46, (top, height) => {
      const rate = b => b.count / (b.duration_ns / 1e9), max = Math.max(...list.map(rate));
      frame(top, height, max, v => number(Math.round(v)), 2);
      for (const b of list) svg.append(s('rect', { class: 'p50', x: x(b.start_ns), width: wide(b), y: top + height - rate(b) / (max || 1) * height, height: rate(b) / (max || 1) * height }));
    });
  }
  if (series) {
    const points = (list2, top, height, max, cls) => {
      let d = '', last = null;
      for (const [t, v] of list2) {
        const y = top + height - v / (max || 1) * height;
        d += d ? `H${x(t).toFixed(1)}V${y.toFixed(1)}` : `M${x(t).toFixed(1)},${y.toFixed(1)}`;
        last = y;
      }
      if (last !== null) svg.append(s('path', { class: cls, d: d + `H${left + inner}` }));
    };
    if (series.heap_bytes.length) {
      row('heap in use, goal (dashed) and GC (bands)', 80, (top, height) => {
        const max = Math.max(...series.heap_bytes.map(p => p[1]), ...series.goal_bytes.map(p => p[1]), 1);
        for (const [t, d] of series.gc) svg.append(s('rect', { class: 'gcband', x: x(t), width: Math.max(0.8, x(t + d) - x(t)), y: top, height }));
        frame(top, height, max, bytes);
        points(series.heap_bytes, top, height, max, 'line heap');
        points(series.goal_bytes.filter(p => p[1] > 0), top, height, max, 'line goal'); // 0: not known yet
      });
    }
    if (series.ps_idle.length) {
      row('share of time in which at least one P stood idle' + (series.gomaxprocs.length ? `; GOMAXPROCS ${series.gomaxprocs.map(p => p[1]).slice(0, 6).join(' → ')}` : ''), 46, (top, height) => {
        frame(top, height, 1, v => `${Math.round(v * 100)}%`, 2);
        points(series.ps_idle, top, height, 1e6, 'line busy');
        for (const [t] of series.gomaxprocs.slice(1)) svg.append(s('line', { class: 'mark', x1: x(t), x2: x(t), y1: top, y2: top + height }));
      });
    }
    if (series.stw.length) {
      row('stops of the world', 20, (top, height) => {
        for (const [t, d] of series.stw) svg.append(s('rect', { class: 'c-stw', x: x(t), width: Math.max(1.2, x(t + d) - x(t)), y: top, height }));
      });
    }
  }
  if (!rows.length) {
    replace(box, h('p', { class: 'dim' }, 'The report says nothing about the time of the trace.'));
    return;
  }
  for (const t of ticks(0, end, Math.max(2, inner / 90))) {
    svg.insertBefore(s('line', { class: 'grid', x1: x(t), x2: x(t), y1: 18, y2: y0 }), svg.firstChild);
    svg.append(s('text', { class: 'axis', x: Math.min(x(t), width - 16), y: y0 + 10, 'text-anchor': 'middle' }, t ? duration(t) : '0'));
  }
  if (view.request) svg.insertBefore(s('rect', { class: 'here', x: x(view.request.start_ns), width: Math.max(1, x(view.request.latency_ns) - x(0)), y: 18, height: y0 - 18 }), svg.firstChild);
  const height = y0 + 18;
  for (const [k, v] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(k, v);
  replace(box, svg);
}

// runtimeRows are the points and stretches of the runtime's series.
function runtimeRows() {
  const r = report.runtime.series, rows = [];
  for (const [t, v] of r.heap_bytes) rows.push([t, 'heap in use', bytes(v)]);
  for (const [t, v] of r.goal_bytes) rows.push([t, 'heap goal', bytes(v)]);
  for (const [t, v] of r.gomaxprocs) rows.push([t, 'GOMAXPROCS', number(v)]);
  for (const [t, d] of r.gc) rows.push([t, 'mark phase', duration(d)]);
  for (const [t, d] of r.stw) rows.push([t, 'world stopped', duration(d)]);
  for (const [t, v] of r.ps_idle) rows.push([t, 'a P idle', percent(v / 1e6)]);
  return table('Runtime over time', [{ text: 'At', num: true }, { text: 'What' }, { text: 'Value', num: true }], rows.sort((a, b) => a[0] - b[0]).map(([t, ...rest]) => [duration(t), ...rest]));
}

function overTimeRows(g) {
  const list = rowsOf(g), names = [...new Set(list.flatMap(b => Object.keys(b.causes)))].sort(byOrder);
  return table('Over time', [{ text: 'From', num: true }, { text: 'Length', num: true }, { text: 'Requests', num: true }, { text: 'p50', num: true }, { text: 'p99', num: true }, { text: 'Total', num: true }, ...names.map(c => ({ text: about(c).short, num: true }))],
    list.map(b => [duration(b.start_ns), duration(b.duration_ns), number(b.count), duration(b.p50), duration(b.p99), duration(b.total_ns), ...names.map(c => duration(b.causes[c] || 0))]));
}

export function overTime() {
  if (!view.group) return null;
  const box = h('div', { class: 'chart', id: 'overtime' }), tab = h('div');
  const pic = picture(box, w => view.group && drawOverTime(box, view.group, w));
  const change = () => {
    replace(tab, later('Table over time', () => overTimeRows(view.group)), report.runtime.series ? later('Table of the runtime over time', runtimeRows) : null);
    pic.again();
  };
  onChange(c => { if (c.has('group') || c.has('request')) change(); });
  change();
  return h('section', { id: 'time' }, h('h2', null, 'Over time ', asked('blocks')), h('figure', null, box, tab), runtimeFacts());
}

export function runtimeFacts() {
  const rt = report.runtime, d = report.input.duration_ns || 1;
  const fact = (name, value, key) => h('div', { class: 'fact' }, h('dt', null, name, ' ', asked(key)), h('dd', null, value));
  const verdicts = { own: 'by its own CPU limit', ancestor: 'by an ancestor’s CPU limit', none: 'none', unknown: 'not known' };
  const t = rt.throttle;
  return [h('dl', { class: 'factrow' },
    fact('GC cycles', number(rt.gc.cycles), 'gc'), fact('Marking', percent(rt.gc.mark_ns / d) + ' of the time', 'gc'), rt.gc.heap_max_bytes ? fact('Heap, max', bytes(rt.gc.heap_max_bytes), 'gc') : null, rt.gc.goal_max_bytes ? fact('Goal, max', bytes(rt.gc.goal_max_bytes), 'gc') : null,
    fact('Goroutines', number(rt.sched.goroutines), 'count'), fact('A P idle', percent(rt.sched.ps_idle) + ' of the time', 'idle'),
    fact('Throttling', [verdicts[t.verdict] || clean(t.verdict), t.lost_wall_ns ? `: ${duration(t.lost_wall_ns)} of the time, ${duration(t.lost_cpu_ns)} of CPU` : ''], 'throttle')),
  t.how ? h('p', { class: 'dim' }, 'Throttling: ', brief(t.how, 600), t.period_ns ? `, period ${duration(t.period_ns)}, confidence ${percent(t.confidence)}` : '') : null,
  rt.stw && rt.stw.length ? [h('h3', null, 'Stops of the world ', asked('stw')), table('Stops of the world', [{ text: 'Kind' }, { text: 'Count', num: true }, { text: 'Total', num: true }, { text: 'Longest', num: true }], rt.stw.map(x => [brief(x.kind, 80), number(x.count), duration(x.total_ns), duration(x.max_ns)]))] : null];
}
