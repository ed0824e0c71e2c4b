// The waterfall: one request's critical path over its goroutines. It is SVG, so that it prints sharply, and that the keyboard and tests
// reach every segment. Segments outside the view are not drawn, and segments thinner than a pixel are drawn as one pixel.

import { h, s, replace, picture, tip, untip, ticks, cut } from './dom.js';
import { duration, percent, exact, clean, middle, place, shortFunc, siteText, number, count, brief } from './format.js';
import { causeInfo, causeClass, waitWords, partsOf } from './causes.js';

const head = 26, pathH = 34, gap = 10, laneH = 30, narrowLaneH = 44, cpuH = 22, most = 14;

// The states of threads in words, and the cause whose colour each has.
export const threadStates = {
  'on-cpu': ['on a CPU', 'cpu'], 'cpu-wait': ['waiting for a CPU', 'cpu-wait'], 'throttled': ['held back by a CPU quota', 'throttle'],
  'disk': ['waiting for the disk', 'disk'], 'asleep': ['asleep in the kernel', 'syscall'], 'stopped': ['stopped by a signal or a freezer', 'throttle'],
};

// The states of peers in words, and the cause whose colour each has.
export const peerStates = {
  'running': ['computing', 'cpu'], 'cpu-wait': ['waiting for a CPU', 'cpu-wait'], 'throttled': ['held back by its CPU quota', 'throttle'], 'stopped': ['stopped', 'throttle'],
  'disk': ['waiting for a disk', 'disk'], 'lock': ['waiting for a lock or another of its threads', 'lock'], 'timer': ['asleep until a timer', 'sleep'], 'network': ['waiting for its own network', 'network'],
  'pipe': ['waiting for a pipe', 'chan'], 'process': ['waiting for another process', 'queue'], 'other': ['asleep in the kernel', 'syscall'], 'way': ['on the way', 'sched-wake'], 'arrived': ['the answer arrived, not yet read', 'sched-poll'],
};

// threadWords says what the thread of a goroutine did.
export function threadWords(state, detail) {
  const words = (threadStates[state] || [clean(state)])[0];
  return detail ? `${words}: ${brief(detail, 80)}${state === 'cpu-wait' ? ' had it' : ''}` : words;
}

// threadSpans returns the states of a lane's threads and peers in order of time, with words and the cause whose colour each has.
export function threadSpans(l) {
  return [...(l.threads || []).map(x => ({ ...x, words: threadWords(x.state, x.detail), cause: (threadStates[x.state] || [0, 'unknown'])[1] })),
    ...(l.peers || []).map(x => ({ ...x, words: brief(x.text, 120), cause: (peerStates[x.state] || [0, 'unknown'])[1] }))].sort((a, b) => a.start_ns - b.start_ns);
}

// laneOf identifies the lane of a segment: the goroutine that spent its time, or the service if that is another one.
const laneOf = x => x.service || x.goroutine;

// lanesOf returns the goroutines of a request: its own first, then the others in the order in which the path visits them, then a lane
// for each other service, then the rest. A report may contain segments without lanes.
export function lanesOf(r) {
  const known = new Map((r.lanes || []).map(l => [l.goroutine, l])), out = [];
  const take = g => {
    if (out.some(l => l.goroutine === g)) return;
    out.push(known.get(g) || { goroutine: g, name: '', spans: [] });
  };
  take(r.goroutine);
  for (const x of r.segments) take(laneOf(x));
  out.sort((a, b) => isService(a) - isService(b));
  const onPath = out.length;
  for (const l of known.values()) take(l.goroutine);
  return { lanes: out, onPath };
}

const isService = l => typeof l.goroutine === 'string';

// goroutineOf names the goroutine that spent a segment's time, with its service if that is another one.
export const goroutineOf = x => x.service ? `${x.service_goroutine ? `goroutine ${x.service_goroutine}` : 'a goroutine'} of ${clean(x.service)}` : `goroutine ${x.goroutine}`;

// strongWakes returns the wakes at which the critical path changes to another goroutine.
function strongWakes(r) {
  const hand = new Set();
  for (let i = 1; i < r.segments.length; i++) {
    const a = r.segments[i - 1], b = r.segments[i];
    if (a.goroutine !== b.goroutine) hand.add(`${b.start_ns} ${a.goroutine} ${b.goroutine}`);
  }
  return w => hand.has(`${w.time_ns} ${w.from} ${w.to}`);
}

// A Waterfall shows one request at a time.
export class Waterfall {
  // options: select(segment or -1); marked(segment) reports whether a finding is about the segment; extent is the least time in ns that
  // the whole width represents.
  constructor(label, options) {
    this.options = options || {};
    this.svg = null;
    this.selected = -1;
    this.all = false;
    this.box = h('div', { class: 'chart waterfall', role: 'group', 'aria-label': label, tabindex: 0 });
    this.more = h('div');
    this.el = h('div', null, this.box, this.more);
    this.pic = picture(this.box, w => { this.width = w; this.draw(); });
    this.box.addEventListener('keydown', ev => this.key(ev));
    this.box.addEventListener('wheel', ev => this.wheel(ev), { passive: false });
    this.box.addEventListener('pointerdown', ev => this.grab(ev));
    this.box.addEventListener('pointerleave', untip);
  }

  show(request, extent) {
    this.request = request;
    this.extent = Math.max(request.latency_ns, extent || 0, 1);
    this.selected = -1;
    this.fit();
  }

  fit() {
    this.from = this.request.start_ns;
    this.to = this.from + this.extent;
    this.draw();
  }

  gutter() { return this.width < 640 ? 0 : 196; }

  // x returns the position of an instant. Tests compare the picture with it.
  x(t) {
    const left = this.gutter();
    return left + (t - this.from) / (this.to - this.from) * (this.width - left - 2);
  }

  at(px) {
    const left = this.gutter();
    return this.from + (px - left) / (this.width - left - 2) * (this.to - this.from);
  }

  zoom(factor, around) {
    const whole = this.request.start_ns, end = whole + this.extent;
    const c = around === undefined ? (this.from + this.to) / 2 : around;
    const span = Math.min(this.extent, Math.max(200, (this.to - this.from) * factor));
    let from = c - (c - this.from) / (this.to - this.from) * span;
    from = Math.max(whole, Math.min(from, end - span));
    [this.from, this.to] = [from, from + span];
    this.requestDraw();
  }

  pan(ns) {
    const whole = this.request.start_ns, end = whole + this.extent, span = this.to - this.from;
    this.from = Math.max(whole, Math.min(this.from + ns, end - span));
    this.to = this.from + span;
    this.requestDraw();
  }

  requestDraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  select(i, reveal) {
    this.selected = i;
    if (reveal && i >= 0) {
      const x = this.request.segments[i], span = this.to - this.from;
      if (x.start_ns < this.from || x.start_ns + x.duration_ns > this.to) {
        this.from = Math.max(this.request.start_ns, Math.min(x.start_ns + x.duration_ns / 2 - span / 2, this.request.start_ns + this.extent - span));
        this.to = this.from + span;
      }
    }
    this.draw();
    if (this.options.select) this.options.select(i);
  }

  key(ev) {
    if (ev.ctrlKey || ev.metaKey || ev.altKey || !this.request) return;
    const n = this.request.segments.length, step = (this.to - this.from) / 4;
    const act = {
      ArrowRight: () => this.select(Math.min(n - 1, this.selected + 1), true),
      ArrowLeft: () => this.select(Math.max(0, this.selected - 1), true),
      Home: () => this.select(0, true),
      End: () => this.select(n - 1, true),
      '+': () => this.zoom(0.5, this.middleOfSelected()),
      '=': () => this.zoom(0.5, this.middleOfSelected()),
      '-': () => this.zoom(2),
      '0': () => this.fit(),
      '[': () => this.pan(-step),
      ']': () => this.pan(step),
      Enter: () => this.selected >= 0 && this.zoomTo(this.selected),
      Escape: () => this.select(-1),
    }[ev.key];
    if (!act || !n) return;
    ev.preventDefault();
    ev.stopPropagation();
    act();
  }

  middleOfSelected() {
    const x = this.request.segments[this.selected];
    return x && x.start_ns < this.to && x.start_ns + x.duration_ns > this.from ? x.start_ns + x.duration_ns / 2 : undefined;
  }

  zoomTo(i) {
    const x = this.request.segments[i], span = Math.min(this.extent, Math.max(200, x.duration_ns * 1.6)), c = x.start_ns + x.duration_ns / 2;
    this.from = Math.max(this.request.start_ns, Math.min(c - span / 2, this.request.start_ns + this.extent - span));
    this.to = this.from + span;
    this.draw();
  }

  wheel(ev) {
    if (!this.request) return;
    const px = ev.clientX - this.box.getBoundingClientRect().left;
    if (ev.ctrlKey || ev.metaKey) { // a pinch on a touch pad sends this as well
      ev.preventDefault();
      this.zoom(Math.exp(ev.deltaY * 0.004), this.at(px));
    } else if (Math.abs(ev.deltaX) > Math.abs(ev.deltaY) || ev.shiftKey) {
      ev.preventDefault();
      this.pan((ev.deltaX || ev.deltaY) / this.width * (this.to - this.from));
    }
  }

  grab(ev) {
    if (ev.button !== 0 || !this.request) return;
    let last = ev.clientX, moved = false;
    const move = e => {
      if (!moved && Math.abs(e.clientX - ev.clientX) < 4) return;
      moved = true;
      this.pan(-(e.clientX - last) / (this.width - this.gutter()) * (this.to - this.from));
      last = e.clientX;
    };
    const up = () => {
      removeEventListener('pointermove', move);
      removeEventListener('pointerup', up);
      removeEventListener('pointercancel', up);
      this.dragged = moved;
    };
    addEventListener('pointermove', move);
    addEventListener('pointerup', up);
    addEventListener('pointercancel', up);
  }

  facts(i) {
    const x = this.request.segments[i];
    return [h('i', { class: 'chip ' + causeClass(x.cause) }), h('strong', null, `${duration(x.duration_ns)} ${spentOn(x)}`), x.kind && !leftOut(x) && x.cause !== 'queue' ? h('span', { class: 'kind' }, brief(x.kind, 40)) : null, h('br'),
      x.peer ? [brief(x.peer, 160), h('br')] : null, x.site ? [place(x.site), h('br')] : null, h('span', { class: 'dim' }, `${percent(x.duration_ns / this.request.latency_ns)} of the request, from ${duration(x.start_ns - this.request.start_ns)}, ${goroutineOf(x)}`),
      x.joined ? [h('br'), h('span', { class: 'dim' }, `${count(x.joined.count, 'short segment')}: ${partsOf(x).map(([c, ns]) => `${causeInfo(c).short} ${percent(ns / x.duration_ns)}`).join(', ')}`)] : null,
      (x.via || []).map(v => [h('br'), h('span', { class: 'dim' }, `via ${clean(waitWords(v))} ${place(v.site)}`)]),
      x.behind ? [h('br'), h('span', { class: 'dim' }, `behind others ${causeInfo(x.behind.cause).words}${x.behind.site ? causeInfo(x.behind.cause).at + place(x.behind.site) : ''}`)] : null];
  }

  draw() {
    if (!this.request || !this.width) return;
    const r = this.request, { lanes: every, onPath } = lanesOf(r);
    const shown = this.all || every.length <= most ? every : every.slice(0, Math.max(1, Math.min(onPath, most)));
    const narrow = this.gutter() === 0, rowH = narrow ? narrowLaneH : laneH, left = this.gutter(), right = this.width - 2;
    const cpus = r.cpus || [], top = head + pathH + gap, cpuTop = top + shown.length * rowH + 4, poolTop = cpuTop + cpus.length * cpuH + 2, height = poolTop + (r.pools || []).reduce((n, p) => n + (1 + p.slots.length) * cpuH, 0);
    const row = new Map(shown.map((l, i) => [l.goroutine, i]));
    const mid = i => top + i * rowH + (narrow ? 30 : rowH / 2);
    const svg = s('svg', { width: this.width, height, viewBox: `0 0 ${this.width} ${height}` });
    const clipID = 'clip' + Waterfall.next++;
    svg.append(s('defs', null, s('clipPath', { id: clipID }, s('rect', { x: left, y: 0, width: Math.max(0, right - left), height }))));
    const plot = s('g', { 'clip-path': `url(#${clipID})` });

    const base = r.start_ns, nTicks = Math.max(2, (right - left) / 110);
    for (const t of ticks(this.from - base, this.to - base, nTicks)) {
      const px = this.x(base + t), last = px > right - 30;
      plot.append(s('line', { class: 'grid', x1: px, x2: px, y1: head - 6, y2: height }));
      svg.append(s('text', { class: 'axis', x: last ? right : px, y: 14, 'text-anchor': last ? 'end' : px < left + 12 ? 'start' : 'middle' }, tickText(t, this.to - this.from)));
    }
    if (!narrow) svg.append(s('text', { class: 'lane strong', x: 0, y: head + pathH / 2 + 4 }, 'critical path'));

    // A name on an interval that the path covers would be invisible.
    const covered = (g, from, to) => r.segments.some(x => laneOf(x) === g && x.start_ns < to && x.start_ns + x.duration_ns > from);

    // The lanes: what the goroutines did.
    shown.forEach((l, i) => {
      const y = mid(i), name = l.name ? shortFunc(l.name) : '', label = isService(l) ? clean(l.goroutine) : `G${l.goroutine} ${name}`;
      if (i % 2 === 0) svg.insertBefore(s('rect', { class: 'stripe', x: 0, y: top + i * rowH, width: this.width, height: rowH }), svg.children[1] || null);
      svg.append(s('text', { class: 'lane' + (i === 0 ? ' strong' : ''), x: narrow ? 2 : 0, y: narrow ? y - 16 : y + 4 }, middle(label, narrow ? Math.floor(this.width / 7.2) : 27), s('title', null, isService(l) ? `what ${clean(l.goroutine)} did for it` : `goroutine ${l.goroutine}${l.name ? ', ' + clean(l.name) : ''}`)));
      let done = -1;
      for (const sp of l.spans) {
        const x1 = this.x(sp.start_ns), x2 = this.x(sp.start_ns + sp.duration_ns);
        if (x2 < left || x1 > right || x2 < done + 0.5) continue;
        done = x2;
        const a = Math.max(x1, left - 2), b = Math.min(x2, right + 2), w = Math.max(0.6, b - a), wait = sp.state === 'waiting';
        const el = s('rect', { class: 'st st-' + (states.has(sp.state) ? sp.state : 'other'), x: a, width: w, y: wait ? y - 7 : y - 3, height: wait ? 14 : 6 });
        el.addEventListener('pointermove', ev => tip(ev, h('strong', null, `${duration(sp.duration_ns)} ${clean(sp.state)}`), sp.reason ? ` (${clean(sp.reason)})` : '', h('br'), sp.site ? [place(sp.site), h('br')] : null, h('span', { class: 'dim' }, `goroutine ${l.goroutine}`)));
        el.addEventListener('pointerleave', untip);
        plot.append(el);
        if (wait && w > 90 && sp.site && !covered(l.goroutine, this.at(a), this.at(b))) plot.append(s('text', { class: 'waitname', x: a + 6, y: y + 4 }, cut((sp.reason ? clean(sp.reason) + ' · ' : '') + place(sp.site), w - 12, 11)));
      }
    });

    this.drawThreads(plot, r, shown, mid, left, right);
    this.drawCPUs(svg, plot, cpus, cpuTop, left, right);
    this.drawPools(svg, plot, r, poolTop, left, right);

    // The path: thick, in its own row and on the lanes.
    const marked = this.options.marked || (() => false), divided = new Map(); // by cause, one shape for all
    r.segments.forEach((x, i) => {
      const x1 = this.x(x.start_ns), x2 = this.x(x.start_ns + x.duration_ns);
      if (x2 < left - 1 || x1 > right + 1) return;
      const w = Math.max(0.4, x2 - x1), cls = causeClass(x.cause) + (w > 3 ? ' edged' : ''), hit = marked(x);
      const el = s('g', { class: 'seg' + (i === this.selected ? ' selected' : '') + (hit ? ' marked' : ''), 'data-seg': i, role: w > 1 ? 'img' : null, 'aria-label': w > 1 ? `${duration(x.duration_ns)} ${causeInfo(x.cause).words}${x.site ? causeInfo(x.cause).at + place(x.site) : ''}` : null });
      const lane = row.get(laneOf(x));
      // Joined segments are divided by cause from top to bottom: they show how long each cause is, not when.
      const parts = partsOf(x), boxes = (cls2, y, height) => {
        el.append(s('rect', { class: cls2 + cls, x: x1, width: w, y, height }));
        let at = y;
        for (const [c, ns] of parts.length > 1 ? parts : []) {
          const part = ns / x.duration_ns * height;
          divided.set(c, (divided.get(c) || '') + `M${x1.toFixed(2)},${at.toFixed(2)}h${w.toFixed(2)}v${part.toFixed(2)}h${(-w).toFixed(2)}z`);
          at += part;
        }
      };
      boxes('path ', head, pathH);
      if (lane !== undefined) boxes('onlane ', mid(lane) - 8, 16);
      if (hit) el.append(s('path', { class: 'finger', d: `M${x1},${head - 3}H${x1 + w}` }));
      const a = Math.max(x1, left), vis = Math.min(x2, right) - a;
      if (vis > 34 && parts.length === 1) {
        const time = duration(x.duration_ns);
        el.append(s('text', { class: 'segname on-' + causeClass(x.cause), x: a + 5, y: head + 14 }, cut(short(x), vis - 8, 11.5)));
        el.append(s('text', { class: 'segname on-' + causeClass(x.cause), x: a + 5, y: head + 28 }, timed(time, x.site && vis > 120 ? place(x.site) : '', vis - 8)));
      }
      plot.append(el);
      // At a change to another goroutine the path is one line.
      const next = r.segments[i + 1];
      if (next && laneOf(next) !== laneOf(x) && row.has(laneOf(next)) && lane !== undefined) {
        plot.append(s('line', { class: 'hand', x1: x2, x2, y1: mid(lane), y2: mid(row.get(laneOf(next))) }));
      }
    });

    shown.forEach((l, i) => this.drawArrivals(plot, l, mid(i)));
    for (const [c, d] of divided) plot.append(s('path', { class: 'joined ' + causeClass(c), d }));
    // One listener for all segments: there may be thousands.
    const segAt = ev => { const g = ev.target.closest('[data-seg]'); return g ? +g.dataset.seg : -1; };
    let over = -1;
    plot.addEventListener('pointermove', ev => {
      const i = segAt(ev);
      if (i >= 0) tip(ev, this.facts(i));
      else if (over >= 0) untip();
      over = i;
    });
    plot.addEventListener('pointerleave', untip);
    plot.addEventListener('click', ev => { if (segAt(ev) >= 0 && !this.dragged) this.select(segAt(ev)); });
    plot.addEventListener('dblclick', ev => { if (segAt(ev) >= 0) this.zoomTo(segAt(ev)); });

    const strong = strongWakes(r);
    let faint = 0;
    for (const wk of r.wakes || []) {
      const px = this.x(wk.time_ns);
      if (px < left - 1 || px > right + 1 || !row.has(wk.from) || !row.has(wk.to) || wk.from === wk.to) continue;
      const isStrong = strong(wk);
      if (!isStrong && ++faint > 150) continue;
      const y1 = mid(row.get(wk.from)), y2 = mid(row.get(wk.to)), dir = y2 > y1 ? 1 : -1;
      const el = s('g', { class: 'wake' + (isStrong ? ' strong' : ''), 'data-wake': `${wk.from}-${wk.to}` }, s('line', { x1: px, x2: px, y1, y2: y2 - dir * 13 }), s('path', { d: `M${px - 4},${y2 - dir * 14}h8l-4,${dir * 7}z` }), s('circle', { cx: px, cy: y1, r: 2.5 }), s('line', { class: 'catchline', x1: px, x2: px, y1, y2 }));
      el.addEventListener('pointermove', ev => tip(ev, h('strong', null, `G${wk.from} woke G${wk.to}`), ` at ${duration(wk.time_ns - base)}`, wk.site ? [h('br'), place(wk.site)] : null));
      el.addEventListener('pointerleave', untip);
      plot.append(el);
    }
    const end = this.x(r.start_ns + r.latency_ns);
    if (end < right - 4) plot.append(s('line', { class: 'end', x1: end, x2: end, y1: head - 6, y2: height }), s('text', { class: 'axis', x: end + 6, y: head + pathH / 2 + 4 }, `done after ${duration(r.latency_ns)}`));
    svg.append(plot);
    replace(this.box, svg);
    replace(this.more, every.length > shown.length || this.all && every.length > most ? h('button', { type: 'button', onclick: () => { this.all = !this.all; this.draw(); } },
      this.all ? 'Show the lanes of the path only' : `Show all ${number(every.length)} goroutines (${number(every.length - shown.length)} more)`) : null);
  }

  // bar returns the bar of an interval, null if it is not in the view, or narrower than the rest of the pixel that ends at done.
  bar(from, length, done, left, right, attributes) {
    const x1 = this.x(from), x2 = this.x(from + length);
    if (x2 < left || x1 > right || x2 < done + 0.5) return null;
    const x = Math.max(x1, left - 2), width = Math.max(0.6, Math.min(x2, right + 2) - x);
    return { x, width, end: x2, el: s('rect', { x, width, ...attributes }) };
  }

  // drawThreads draws below each goroutine's states those of its threads, and of the peers for which it waits.
  drawThreads(plot, r, lanes, mid, left, right) {
    lanes.forEach((l, i) => {
      let done = -1;
      for (const t of threadSpans(l)) {
        const b = this.bar(t.start_ns, t.duration_ns, done, left, right, { class: 'thread ' + causeClass(t.cause), [t.process ? 'data-peer' : 'data-thread']: t.state, y: mid(i) + 9, height: 5 });
        if (!b) continue;
        done = b.end;
        hint(b.el, () => [h('strong', null, `${duration(t.duration_ns)} ${t.words}`), h('br'), h('span', { class: 'dim' }, `${t.process ? brief(t.process, 80) : `the thread of goroutine ${l.goroutine}`}, from ${duration(t.start_ns - r.start_ns)}`)]);
        plot.append(b.el);
      }
    });
  }

  // drawArrivals marks on a goroutine's lane when bytes reached a socket that it then read.
  drawArrivals(plot, l, y) {
    for (const t of l.arrivals_ns || []) {
      const px = this.x(t), el = s('path', { class: 'arrival', d: `M${px - 4},${y - 14}h8l-4,7z` });
      hint(el, () => [h('strong', null, 'bytes arrived'), ` after ${duration(t - this.request.start_ns)}`, h('br'), h('span', { class: 'dim' }, `goroutine ${l.goroutine} read them`)]);
      plot.append(el);
    }
  }

  // drawCPUs draws which process had each CPU.
  drawCPUs(svg, plot, cpus, top, left, right) {
    cpus.forEach((cpu, i) => {
      const y = top + i * cpuH;
      let done = -1;
      for (const x of cpu.spans) {
        const own = x.process === ownThreads, b = this.bar(x.start_ns, x.duration_ns, done, left, right, { class: own ? 'cpu-own' : 'cpu-other', y: y + 2, height: cpuH - 6 });
        if (!b) continue;
        done = b.end;
        hint(b.el, () => [h('strong', null, `${duration(x.duration_ns)} ${clean(x.process)}`), h('br'), h('span', { class: 'dim' }, `had CPU ${cpu.cpu}`)]);
        plot.append(b.el);
        if (!own && left && b.width > 60) plot.append(s('text', { class: 'waitname', x: b.x + 4, y: y + 14 }, cut(clean(x.process), b.width - 8, 11)));
      }
      (left ? svg : plot).append(s('text', { class: left ? 'lane' : 'waitname', x: left ? 0 : 2, y: y + 14 }, `CPU ${cpu.cpu}`));
    });
  }

  // drawPools draws who held each slot of the pools in whose queues the request waited.
  drawPools(svg, plot, r, top, left, right) {
    let y = top;
    for (const pool of r.pools || []) {
      svg.append(s('text', { class: 'waitname', x: left ? 0 : 2, y: y + 15 }, cut(`Held while it waited for ${clean(pool.for)}${pool.site ? ` at ${place(pool.site)}` : ''}:`, this.width - 4, 11)));
      y += cpuH;
      pool.slots.forEach((slot, i) => {
        let done = -1;
        for (const x of slot) {
          const b = this.bar(x.start_ns, x.duration_ns, done, left, right, { class: 'hold ' + holderClass(r, x), 'data-hold': x.goroutine, y: y + 2, height: cpuH - 5 });
          if (!b) continue;
          done = b.end;
          hint(b.el, () => [h('strong', null, `${duration(x.duration_ns)} held by goroutine ${x.goroutine}`), h('br'), x.site ? [place(x.site), h('br')] : null, h('span', { class: 'dim' }, `${holders[holderClass(r, x)]}, from ${duration(x.start_ns - r.start_ns)}`)]);
          plot.append(b.el);
          if (b.width > 60) plot.append(s('text', { class: 'holdname', x: Math.max(b.x, left) + 4, y: y + 14 }, cut(`G${x.goroutine}${x.site ? ' ' + place(x.site.called_from || x.site) : ''}`, b.width - 8, 11)));
        }
        if (left) svg.append(s('text', { class: 'lane', x: 0, y: y + 14 }, `slot ${i + 1}`));
        y += cpuH;
      });
    }
  }
}
Waterfall.next = 0;

// The kinds of holders of slots.
export const holders = { own: 'this request', other: 'another request', background: 'a goroutine that serves no request' };

export function holderClass(r, hold) { return hold.background ? 'background' : hold.goroutine === r.goroutine ? 'own' : 'other'; }

// holdRows returns the rows of the table of slots.
export function holdRows(r) {
  return (r.pools || []).flatMap(p => p.slots.flatMap((slot, i) => slot.map(x => [clean(p.for), String(i + 1), exact(x.start_ns - r.start_ns), exact(x.duration_ns), 'G' + x.goroutine, holders[holderClass(r, x)], siteText(x.site)])));
}

const ownThreads = 'its own threads';

// hint shows facts while the pointer is on an element.
function hint(el, facts) {
  el.addEventListener('pointermove', ev => tip(ev, ...facts()));
  el.addEventListener('pointerleave', untip);
}

// timed returns a time and a site in px pixels. It never shortens the time.
function timed(time, where, px) {
  const all = where ? cut(`${time} · ${where}`, px, 11.5) : time;
  return all.startsWith(time) && cut(all, px, 11.5) === all ? all : cut(time, px, 11.5) === time ? time : '';
}

// leftOut reports whether a segment replaces those beyond the limit of a report.
function leftOut(x) { return x.cause === 'unknown' && x.kind === 'left out'; }

function short(x) { return leftOut(x) ? 'the rest, left out' : x.joined && x.cause === 'other' ? 'short ones' : causeInfo(x.cause).short; }

// spentOn describes a segment in words.
export function spentOn(x) {
  if (leftOut(x)) return 'in further segments, left out of the report';
  const where = x.service ? ` in ${brief(x.service, 40)}` : '';
  if (x.way_to) return `on the way to ${brief(x.way_to, 40)} or back`;
  if (x.cause === 'queue' && x.kind) return 'queueing for ' + brief(x.kind, 100) + where;
  return (x.joined && x.cause === 'other' ? 'in short segments, joined' : clean(causeInfo(x.cause).words)) + where;
}

const states = new Set(['running', 'runnable', 'waiting', 'syscall']);

// tickText formats times on the axis with as many digits as the distance of the ticks needs.
export function tickText(t, span) {
  if (t === 0) return '0';
  const [unit, ns] = span >= 2e9 ? ['s', 1e9] : span >= 2e6 ? ['ms', 1e6] : span >= 2e3 ? ['µs', 1e3] : ['ns', 1];
  const digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(span / ns / 10))));
  return (t / ns).toFixed(digits).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '') + unit;
}

// segmentRows returns the rows of the table that belongs to a waterfall.
export function segmentRows(r) {
  return r.segments.map(x => [exact(x.start_ns - r.start_ns), exact(x.duration_ns), percent(x.duration_ns / r.latency_ns), clean(x.cause) + (x.kind ? ` (${clean(x.kind)})` : '') + (x.peer ? ` ${clean(x.peer)}` : '') + (x.joined ? ` (${x.joined.count} joined: ${partsOf(x).map(([c, ns]) => `${clean(c)} ${exact(ns)}`).join(', ')})` : ''), 'G' + x.goroutine, siteText(x.site),
    (x.via || []).map(v => `${clean(v.wait)} ${siteText(v.site)}`).join(' → ')]);
}
