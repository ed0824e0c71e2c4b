// The group, and the runtime, over the time of the trace.

import { h, s, replace, picture, foldedPart, table, tip, untip, ticks, logTicks } from './dom.js';
import { duration, number, count, bytes, clean, percent, brief, compact, none } from './format.js';
import { causeInfo, causeClass, byOrder } from './causes.js';
import { report, quantileOf } from './model.js';
import { explainButton } from './how.js';
import { view, onChange, go } from './state.js';

function rowsOf(g) {
  return g.blocks.map(b => ({ ...b, p50: quantileOf(b.histogram, 0.5), p99: b.count >= 100 ? quantileOf(b.histogram, 0.99) : null, max: b.histogram.length ? b.histogram[b.histogram.length - 1][0] : null }));
}

// A TimeChart draws rows on one time axis, that of the trace.
class TimeChart {
  constructor(width, end, label) {
    Object.assign(this, { width, end: Math.max(1, end), left: 58, right: 10, y: 4, rows: 0 });
    this.inner = width - this.left - this.right;
    this.svg = s('svg', { role: 'group', 'aria-label': label });
    this.below = s('g');
    this.svg.append(this.below);
  }

  x(t) { return this.left + Math.max(0, Math.min(t, this.end)) / this.end * this.inner; }

  // row adds a row with a title and a key ([class, text]...), and calls draw(top, height).
  row(title, keys, height, draw) {
    const text = s('text', { class: 'axis strong', x: this.left, y: this.y + 12 }, title);
    this.svg.append(text);
    let at = this.left + title.length * 6.6 + 14, y = this.y + 12;
    for (const [cls, name] of keys) {
      const w = 17 + name.length * 6.2 + 14;
      if (at + w > this.width) [at, y] = [this.left, y + 16];
      this.svg.append(cls === 'slowkey' ? s('path', { class: 'slowmark', d: `M${at},${y}h10l-5,-9z` }) : cls.startsWith('line') ? s('line', { class: cls, x1: at, x2: at + 12, y1: y - 4, y2: y - 4 }) : s('rect', { class: cls, x: at, y: y - 9, width: 11, height: 10, rx: 2 }),
        s('text', { class: 'axis', x: at + 16, y }, name));
      at += w;
    }
    const top = y + 8;
    draw(top, height);
    this.y = top + height + 12;
    this.rows++;
  }

  // scale draws the lines of an axis from 0 to max.
  scale(top, height, max, text, n = 3) {
    for (const t of ticks(0, max || 1, n)) {
      const y = top + height - t / (max || 1) * height;
      this.svg.append(s('line', { class: 'grid', x1: this.left, x2: this.left + this.inner, y1: y, y2: y }), s('text', { class: 'axis', x: this.left - 6, y: y + 4, 'text-anchor': 'end' }, text(t)));
    }
  }

  // steps draws values that hold until the next one, the last one until end; a list of [time, value] is one line.
  steps(list, top, height, max, cls, end = this.end) {
    let d = '', was = null;
    for (const [t, v] of list) {
      const y = (top + height - Math.min(v, max) / (max || 1) * height).toFixed(1);
      if (y !== was) d += d ? `H${this.x(t).toFixed(1)}V${y}` : `M${this.x(t).toFixed(1)},${y}`;
      was = y;
    }
    if (d) this.svg.append(s('path', { class: cls, d: d + `H${this.x(end).toFixed(1)}` }));
  }

  // areas stacks lists of [time, value] that have the same times; the first is at the bottom.
  areas(lists, top, height, max) {
    const y = v => (top + height - Math.min(v, max) / (max || 1) * height).toFixed(1);
    let floor = lists[0].list.map(() => 0);
    for (const { list, cls } of lists) {
      const sums = list.map((p, i) => floor[i] + p[1]);
      let up = '', down = '';
      list.forEach(([t], i) => {
        const x1 = this.x(t).toFixed(1), x2 = this.x(i + 1 < list.length ? list[i + 1][0] : this.end).toFixed(1);
        up += (i ? `V${y(sums[i])}H${x2}` : `M${x1},${y(floor[0])}V${y(sums[i])}H${x2}`);
        down = `V${y(floor[i])}H${x1}` + down;
      });
      if (up && sums.some((v, i) => v > floor[i])) this.svg.append(s('path', { class: cls + ' area', d: up + down + 'Z' }));
      floor = sums;
    }
  }

  // intervals draws [start, length] as boxes that are at least a pixel wide.
  intervals(list, top, height, cls, least = 1.2, into = this.svg) {
    for (const [t, d] of list) into.append(s('rect', { class: cls, x: this.x(t), width: Math.max(least, this.x(t + d) - this.x(t)), y: top, height }));
  }

  // over shows text(time) for the time under the pointer, and a line there.
  over(top, height, text) {
    const line = s('line', { class: 'cursor', y1: top, y2: top + height, visibility: 'hidden' }), c = s('rect', { class: 'catch', x: this.left, width: Math.max(0, this.inner), y: top, height });
    c.addEventListener('pointermove', ev => {
      const px = ev.clientX - this.svg.getBoundingClientRect().left;
      for (const [k, v] of Object.entries({ x1: px, x2: px, visibility: 'visible' })) line.setAttribute(k, v);
      tip(ev, text((px - this.left) / this.inner * this.end));
    });
    c.addEventListener('pointerleave', () => { line.setAttribute('visibility', 'hidden'); untip(); });
    this.svg.append(line, c);
  }

  // finish draws the time axis and the background of all rows.
  finish() {
    const bottom = this.y - 4;
    for (const t of ticks(0, this.end, Math.max(2, this.inner / 90))) {
      this.below.append(s('line', { class: 'grid', x1: this.x(t), x2: this.x(t), y1: 18, y2: bottom }));
      const last = this.x(t) > this.width - 24;
      this.svg.append(s('text', { class: 'axis', x: last ? this.width - 2 : this.x(t), y: bottom + 14, 'text-anchor': last ? 'end' : 'middle' }, t ? duration(t) : '0'));
    }
    const height = bottom + 22;
    for (const [k, v] of Object.entries({ width: this.width, height, viewBox: `0 0 ${this.width} ${height}` })) this.svg.setAttribute(k, v);
    return bottom;
  }
}

// at returns the value of a list of [time, value] at t; null before its first.
function at(list, t) {
  let lo = 0, hi = list.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (list[mid][0] <= t) lo = mid + 1;
    else hi = mid;
  }
  return lo ? list[lo - 1][1] : null;
}

function within(list, t) { return list.find(([from, d]) => t >= from && t <= from + d) || null; }

// mean formats thousandths of goroutines.
function mean(v) { return v === null ? none : Number((v / 1e3).toPrecision(3)).toString(); }

function latencyRows(chart, { group: g, open }) {
  const list = rowsOf(g), { svg } = chart, x = t => chart.x(t);
  const cell = (b, top, height, text) => {
    const c = s('rect', { class: 'catch', x: x(b.start_ns), y: top, width: Math.max(1, x(b.start_ns + b.duration_ns) - x(b.start_ns)), height });
    c.addEventListener('pointermove', ev => tip(ev, text()));
    c.addEventListener('pointerleave', untip);
    svg.append(c);
  };
  const wide = b => Math.max(0.8, x(b.start_ns + b.duration_ns) - x(b.start_ns) - (chart.inner / Math.max(1, list.length) > 5 ? 1 : 0));
  const stretch = b => h('strong', null, `${duration(b.start_ns)} to ${duration(b.start_ns + b.duration_ns)}`);
  if (!list.length) return;
  chart.row('Latency', [['p50', 'p50'], ['p99', list.some(b => b.p99) ? 'p99 (max of fewer than 100)' : 'max'], ['slowkey', 'slow requests']], 110, (top, height) => {
    const values = list.flatMap(b => [b.p50, b.p99, b.max]).filter(v => v > 0).concat(g.slowest.map(r => r.latency_ns));
    const lo = Math.min(...values) * 0.8, hi = Math.max(...values) * 1.25, y = v => top + height - Math.log(v / lo) / Math.log(hi / lo) * height;
    for (const t of logTicks(lo, hi, 5)) svg.append(s('line', { class: 'grid', x1: chart.left, x2: chart.left + chart.inner, y1: y(t), y2: y(t) }), s('text', { class: 'axis', x: chart.left - 6, y: y(t) + 4, 'text-anchor': 'end' }, duration(t)));
    for (const b of list) {
      if (!b.p50) continue;
      const high = b.p99 || b.max, w = wide(b);
      svg.append(s('rect', { class: 'spread', x: x(b.start_ns), width: w, y: Math.min(y(high), y(b.p50)), height: Math.max(1, y(b.p50) - y(high)) }),
        s('rect', { class: 'p50', x: x(b.start_ns), width: w, y: y(b.p50) - 1.5, height: 3 }), s('rect', { class: 'p99', x: x(b.start_ns), width: w, y: y(high) - 1, height: 2 }));
      cell(b, top, height, () => [stretch(b), h('br'), count(b.count, 'request'), h('br'), `p50 ${duration(b.p50)}, ${b.p99 ? 'p99 ' + duration(b.p99) : 'max ' + duration(b.max)}`]);
    }
    g.slowest.forEach((r, i) => {
      const px = x(r.start_ns + r.latency_ns), py = y(r.latency_ns);
      const m = s('path', { class: 'slowmark', d: `M${px - 5},${py + 4}h10l-5,-9z`, tabindex: 0, role: 'button', 'data-req': r.id, 'aria-label': `Slow request ${i + 1}: ${duration(r.latency_ns)}` });
      m.addEventListener('click', () => open(r));
      m.addEventListener('keydown', ev => { if (ev.key === 'Enter' || ev.key === ' ') { ev.preventDefault(); open(r); } });
      m.addEventListener('pointermove', ev => tip(ev, h('strong', null, `slow request ${i + 1}: ${duration(r.latency_ns)}`)));
      m.addEventListener('pointerleave', untip);
      svg.append(m);
    });
  });
  chart.row('Time per request, by cause', [], 90, (top, height) => {
    const max = Math.max(...list.map(b => b.count ? b.total_ns / b.count : 0));
    chart.scale(top, height, max, duration);
    for (const b of list) {
      if (!b.count) continue;
      let y = top + height;
      const parts = Object.entries(b.causes).sort((p, q) => byOrder(p[0], q[0]));
      for (const [c, ns] of parts) {
        const part = ns / b.count / (max || 1) * height;
        y -= part;
        svg.append(s('rect', { class: causeClass(c), x: x(b.start_ns), width: wide(b), y, height: Math.max(0, part), 'data-ns': ns }));
      }
      cell(b, top, height, () => [stretch(b), h('table', null, [...parts].sort((p, q) => q[1] - p[1]).slice(0, 7).map(([c, ns]) => h('tr', null, h('td', null, h('i', { class: 'chip ' + causeClass(c) }), causeInfo(c).short), h('td', { class: 'num' }, duration(ns / b.count)))))]);
    }
  });
  chart.row('Requests per second', [], 40, (top, height) => {
    const rate = b => b.count / (b.duration_ns / 1e9), max = Math.max(...list.map(rate));
    chart.scale(top, height, max, v => number(Math.round(v)), 2);
    for (const b of list) {
      svg.append(s('rect', { class: 'rate', x: x(b.start_ns), width: wide(b), y: top + height - rate(b) / (max || 1) * height, height: rate(b) / (max || 1) * height, 'data-count': b.count }));
      cell(b, top, height, () => [stretch(b), h('br'), count(b.count, 'request')]);
    }
  });
}

function runtimeCharts(chart, r) {
  const running = r.running || [], runnable = r.runnable || [], syscall = r.syscall || [], freezes = r.freezes || [];
  const from = chart.y;
  if (running.length) {
    const lists = [{ list: running, cls: 'c-cpu' }, { list: runnable.length === running.length ? runnable : [], cls: 'c-sched' }, { list: syscall.length === running.length ? syscall : [], cls: 'c-syscall quiet' }].filter(x => x.list.length);
    const max = Math.max(...running.map((_, i) => lists.reduce((n, x) => n + x.list[i][1], 0)), ...r.gomaxprocs.map(p => p[1] * 1100), 1000) / 1e3;
    chart.row('Goroutines', [['c-cpu', 'running'], ['c-sched', 'ready, waiting for a CPU'], ['c-syscall quiet', 'in a system call'], ['line procs', 'GOMAXPROCS']], 84, (top, height) => {
      chart.scale(top, height, max, v => compact(Number(v.toPrecision(3))));
      chart.areas(lists.map(x => ({ ...x, list: x.list.map(([t, v]) => [t, v / 1e3]) })), top, height, max);
      chart.steps(r.gomaxprocs, top, height, max, 'line procs');
    });
  }
  if (r.ps_idle.length) {
    chart.row('Share of time in which a P stood idle', [], 36, (top, height) => {
      chart.scale(top, height, 1, v => `${Math.round(v * 100)}%`, 2);
      chart.steps(r.ps_idle.map(([t, v]) => [t, v / 1e6]), top, height, 1, 'line busy');
    });
  }
  if (r.heap_bytes.length) {
    chart.row('Heap', [['line heap', 'in use'], ...(r.goal_bytes.some(p => p[1] > 0) ? [['line goal', 'goal']] : []), ...(r.gc.length ? [['gcband', 'collection under way']] : [])], 76, (top, height) => {
      const max = Math.max(...r.heap_bytes.map(p => p[1]), ...r.goal_bytes.map(p => p[1]), 1);
      chart.intervals(r.gc, top, height, 'gcband', 0.8);
      chart.scale(top, height, max, bytes);
      chart.steps(r.heap_bytes, top, height, max, 'line heap');
      chart.steps(r.goal_bytes.filter(p => p[1] > 0), top, height, max, 'line goal'); // 0: still unknown
    });
  }
  if (r.stw.length) chart.row('Stops of the world', [], 14, (top, height) => chart.intervals(r.stw, top, height, 'c-stw'));
  if (freezes.length) chart.row('Freezes', [['c-throttle', 'all threads held by the CPU quota']], 14, (top, height) => chart.intervals(freezes, top, height, 'c-throttle'));
  chart.over(from, Math.max(0, chart.y - 12 - from), t => {
    const row = (name, value) => value === null || value === none ? null : h('tr', null, h('td', null, name), h('td', { class: 'num' }, value));
    const heap = at(r.heap_bytes, t), goal = at(r.goal_bytes, t), idle = at(r.ps_idle, t), stw = within(r.stw, t), frozen = within(freezes, t), gc = within(r.gc, t);
    return [h('strong', null, duration(t)), h('table', null, row('running', running.length ? mean(at(running, t)) : null), row('in a system call', syscall.length ? mean(at(syscall, t)) : null), row('ready to run', runnable.length ? mean(at(runnable, t)) : null), row('GOMAXPROCS', at(r.gomaxprocs, t)),
      row('a P idle', idle === null ? null : percent(idle / 1e6)), row('heap in use', heap === null ? null : bytes(heap)), row('goal', goal ? bytes(goal) : null), gc ? row('collection', duration(gc[1])) : null, stw ? row('world stopped', duration(stw[1])) : null, frozen ? row('frozen', duration(frozen[1])) : null)];
  });
}

// rates converts amounts since the previous point to amounts per ns until the point.
function rates(list) {
  return list.map(([t, v], i) => i ? [list[i - 1][0], v / Math.max(1, t - list[i - 1][0])] : null).filter(Boolean);
}

function hostCharts(chart, k) {
  const cpu = rates(k.cpu_ns), delay = rates(k.run_delay_ns), throttled = rates(k.throttled_ns);
  const last = Math.max(0, ...k.cpu_ns.map(p => p[0])), max = Math.max(...[cpu, delay, throttled].flatMap(l => l.map(p => p[1])), 1);
  if (cpu.length > 1 || delay.length > 1) {
    chart.row('CPUs, by the kernel', [['line kcpu', 'used'], ['line kdelay', 'waited for'], ...(throttled.some(p => p[1] > 0) ? [['line kthrottle', 'throttled']] : [])], 64, (top, height) => {
      chart.scale(top, height, max, v => compact(Number(v.toPrecision(3))));
      chart.steps(cpu, top, height, max, 'line kcpu', last);
      chart.steps(delay, top, height, max, 'line kdelay', last);
      chart.steps(throttled, top, height, max, 'line kthrottle', last);
      chart.over(top, height, t => [h('strong', null, duration(t)), h('table', null, [['used', cpu], ['waited for', delay], ['throttled', throttled]].map(([name, l]) => l.length && t <= last ? h('tr', null, h('td', null, name), h('td', { class: 'num' }, `${Number((at(l, t) || 0).toPrecision(3))} CPUs`)) : null))]);
    });
  }
  const again = k.retransmitted.filter(p => p[1] > 0);
  if (again.length) chart.row('Segments sent again', [], 14, (top, height) => chart.intervals(again.map(p => [p[0], 0]), top, height, 'c-network', 2));
}

// drawOverTime draws a group and the runtime over the time of a trace. what contains group (or null), request (or null),
// series (or null), host (its series, or null), end (ns) and open(request). It returns a function that marks another request.
export function drawOverTime(box, what, width) {
  const chart = new TimeChart(width, what.end, `${what.group ? clean(what.group.name) + ' and the runtime' : 'The runtime'} over the time of the trace`);
  if (what.group) latencyRows(chart, what);
  if (what.series) runtimeCharts(chart, what.series);
  if (what.host) hostCharts(chart, what.host);
  if (!chart.rows) {
    replace(box, h('p', { class: 'dim' }, 'The report says nothing about the time of the trace.'));
    return () => {};
  }
  const bottom = chart.finish();
  if (what.series) chart.intervals(what.series.freezes || [], 18, bottom - 18, 'freezeband', 0.8, chart.below);
  const here = s('g');
  chart.below.append(here);
  replace(box, chart.svg);
  const choose = r => {
    replace(here);
    if (r) chart.intervals([[r.start_ns, r.latency_ns]], 18, bottom - 18, 'here', 1, here);
    for (const m of chart.svg.querySelectorAll('[data-req]')) m.classList.toggle('selected', !!r && m.dataset.req === r.id);
  };
  choose(what.request);
  return choose;
}

// runtimeRows returns the points and intervals of the runtime's series.
function runtimeRows() {
  const r = report.runtime.series, rows = [];
  for (const [t, v] of r.heap_bytes) rows.push([t, 'heap in use', bytes(v)]);
  for (const [t, v] of r.goal_bytes) rows.push([t, 'heap goal', bytes(v)]);
  for (const [t, v] of r.gomaxprocs) rows.push([t, 'GOMAXPROCS', number(v)]);
  for (const [t, d] of r.gc) rows.push([t, 'mark phase', duration(d)]);
  for (const [t, d] of r.stw) rows.push([t, 'world stopped', duration(d)]);
  for (const [t, d] of r.freezes || []) rows.push([t, 'frozen', duration(d)]);
  for (const [t, v] of r.ps_idle) rows.push([t, 'a P idle', percent(v / 1e6)]);
  for (const [t, v] of r.running || []) rows.push([t, 'goroutines running', mean(v)]);
  for (const [t, v] of r.syscall || []) rows.push([t, 'goroutines in system calls', mean(v)]);
  for (const [t, v] of r.runnable || []) rows.push([t, 'goroutines ready to run', mean(v)]);
  return table('Runtime over time', [{ text: 'At', num: true }, { text: 'What' }, { text: 'Value', num: true }], rows.sort((a, b) => a[0] - b[0]).map(([t, ...rest]) => [duration(t), ...rest]));
}

function overTimeRows(g) {
  const list = rowsOf(g), names = [...new Set(list.flatMap(b => Object.keys(b.causes)))].sort(byOrder);
  return table('Over time', [{ text: 'From', num: true }, { text: 'Length', num: true }, { text: 'Requests', num: true }, { text: 'p50', num: true }, { text: 'p99', num: true }, { text: 'Total', num: true }, ...names.map(c => ({ text: causeInfo(c).short, num: true }))],
    list.map(b => [duration(b.start_ns), duration(b.duration_ns), number(b.count), duration(b.p50), duration(b.p99), duration(b.total_ns), ...names.map(c => duration(b.causes[c] || 0))]));
}

export function overTime() {
  const box = h('div', { class: 'chart', id: 'overtime' }), tab = h('div'), series = report.runtime.series || null;
  const open = r => {
    go({ req: r.id }, true);
    document.getElementById('requests').scrollIntoView();
  };
  let choose = () => {};
  const pic = picture(box, w => { choose = drawOverTime(box, { group: view.group, request: view.request, series, host: report.host ? report.host.series : null, end: report.input.duration_ns, open }, w); });
  const change = () => {
    replace(tab, view.group ? foldedPart('Table over time', () => overTimeRows(view.group)) : null, series ? foldedPart('Table of the runtime over time', runtimeRows) : null);
    pic.again();
  };
  onChange(c => {
    if (c.has('group')) change();
    else if (c.has('request')) choose(view.request);
  });
  change();
  return h('section', { id: 'time' }, h('h2', null, 'Over time ', explainButton('blocks')), h('p', { class: 'dim' }, 'The shaded interval is the chosen request. ', series && series.running ? ['Goroutines by state ', explainButton('goroutines')] : null), h('figure', null, box, tab), runtimeFacts());
}

function runtimeFacts() {
  const rt = report.runtime, d = report.input.duration_ns || 1;
  const fact = (name, value, key) => h('div', { class: 'fact' }, h('dt', null, name, ' ', explainButton(key)), h('dd', null, value));
  const verdicts = { own: 'by its own CPU limit', ancestor: 'by an ancestor’s CPU limit', none: 'none', unknown: 'not known' };
  const t = rt.throttle;
  return [h('dl', { class: 'factrow' },
    fact('GC cycles', number(rt.gc.cycles), 'gc'), fact('Marking', percent(rt.gc.mark_ns / d) + ' of the time', 'gc'), rt.gc.heap_max_bytes ? fact('Heap, max', bytes(rt.gc.heap_max_bytes), 'gc') : null, rt.gc.goal_max_bytes ? fact('Goal, max', bytes(rt.gc.goal_max_bytes), 'gc') : null,
    fact('Goroutines', number(rt.sched.goroutines), 'count'), fact('A P idle', percent(rt.sched.ps_idle) + ' of the time', 'idle'),
    fact('Throttling', [verdicts[t.verdict] || clean(t.verdict), t.lost_wall_ns ? `: ${duration(t.lost_wall_ns)} of the time, ${duration(t.lost_cpu_ns)} of CPU` : '', t.suspect ? `; a CPU quota cannot be excluded: ${clean(t.how)}` : ''], 'throttle')),
  t.how && !report.host ? h('p', { class: 'dim' }, 'Throttling: ', brief(t.how, 600), t.freezes ? `; ${count(t.freezes, 'freeze')}${t.cpus ? ` of up to ${count(t.cpus, 'CPU')}` : ''}${t.n ? `, phase-lock R ${t.r.toFixed(2)} over ${number(t.n)} silences` : ''}` : '', t.period_ns ? `, period ${duration(t.period_ns)}` : '', t.period_ns || t.confidence ? `, confidence ${percent(t.confidence)}` : '') : null,
  rt.stw && rt.stw.length ? [h('h3', null, 'Stops of the world ', explainButton('stw')), table('Stops of the world', [{ text: 'Kind' }, { text: 'Count', num: true }, { text: 'Total', num: true }, { text: 'Longest', num: true }], rt.stw.map(x => [brief(x.kind, 80), number(x.count), duration(x.total_ns), duration(x.max_ns)]))] : null];
}
