// Full timelines: lanes of Ps and goroutines on a canvas. Only the visible part is drawn, from tiles that the server computes for the
// current zoom.

import { h, replace, add, tip, untip, ticks, cut } from './dom.js';
import { duration, count, clean, shortFunc, place, brief, number, siteText, exact, groupName } from './format.js';
import { causeInfo } from './causes.js';
import { report, groupByID } from './model.js';
import { siteButton } from './site.js';
import { tickText, threadWords, threadStates } from './waterfall.js';
import { fetchAnswer, latest, debounce } from './server.js';
import { functionInput } from './allrequests.js';
import { areaNode, procNode, momentText, copies, kindOf, stateWords, marksTable } from './area.js';
import { areaFlame } from './areaflame.js';
import { Tiles, levelFor, tileSpan } from './tiles.js';
import { colors, piecesOn, sumsOn, Pictures, hue, threadKinds } from './paint.js';

const axisHeight = 26, overviewHeight = 44, laneHeight = 22, threadHeight = 7, markHeight = 14, procHeight = 20, gutter = 210, narrowGutter = 110;
const stateNames = ['running', 'ready to run', 'waiting', 'in a system call'];
const closest = 640; // ns: the least time across the view
const lanesAhead = 32; // requested beyond the edge in the direction of scrolling

// laneTitle names a goroutine by the requests that it serves, else by the function that it started with.
function laneTitle(g) {
  const group = g.group && groupByID(g.group);
  return group ? groupName(group) + (g.mixed ? ', …' : '') : shortFunc(g.name || '');
}

// markWords describes regions and log messages, a line each.
export function markWords(marks) { return marks.map(a => [h('br'), a.text ? `log ${clean(a.name)}: ${clean(a.text)}` : `region ${clean(a.name)}, ${duration(a.duration_ns)}`]); }

export class Timelines {
  // options: open(n) opens a request.
  constructor(options) {
    this.options = options;
    this.end = Math.max(1, report.input.duration_ns);
    this.from = 0;
    this.to = this.end;
    this.scroll = 0;
    this.procs = Math.max(report.input.gomaxprocs || 0, 0);
    this.cpus = []; // those that the kernel's events show
    this.first = []; // goroutines at the top: those of a request
    this.order = { sort: 'run', desc: true, function: '', stack: false, from: 0, to: 0 };
    this.total = 0;
    this.pages = new Map();
    this.names = new Map();
    this.chosen = null;
    this.path = null; // a request whose critical path is shown
    this.focus = null;
    this.frames = { count: 0, drawn: [] };
    this.annotated = false; // the trace has regions or log messages
    this.marks = { key: '', byLane: new Map() }; // those in sight
    this.pictures = new Pictures();
    this.down = true; // the list was last scrolled down
    this.out = false; // the view was last zoomed out
    this.tiles = new Tiles(() => this.requestDraw(), text => this.say(text));
    this.build();
    this.reload = latest(signal => this.loadLanes(signal));
  }

  build() {
    this.canvas = h('canvas', { 'aria-hidden': 'true' });
    this.bar = h('div', { class: 'vscroll' });
    this.thumb = h('div');
    this.bar.append(this.thumb);
    this.box = h('div', { class: 'lanes', tabindex: 0, role: 'application', 'aria-label': 'Timelines of Ps and goroutines. Left and right move in time, plus and minus zoom, up and down choose a lane, Enter tells what the lane shows in the middle of the view.' }, this.canvas, this.bar);
    this.where = h('span', { class: 'num where' });
    this.problem = h('p', { class: 'warn', hidden: true });
    this.details = h('div', { class: 'moment', 'aria-live': 'polite', onkeydown: ev => ev.key === 'Escape' && this.key(ev) });
    this.lanesInfo = h('span', { class: 'dim' });
    const sorts = [['run', 'most active here first'], ['pieces', 'most active in the trace first'], ['id', 'by number'], ['born', 'by birth'], ['name', 'by function']];
    this.sortChoice = h('select', { onchange: ev => this.sortBy(ev.target.value) }, sorts.map(([v, t]) => h('option', { value: v }, t)));
    const onStack = h('input', { type: 'checkbox', onchange: ev => { this.order.stack = ev.target.checked; if (this.order.function) this.reload(); } });
    const filter = debounce(() => this.reload(), 250);
    this.onStack = onStack;
    this.tools = h('div', { class: 'filters' },
      h('label', { class: 'field' }, 'Goroutines', this.sortChoice),
      functionInput('Started with', 'data-lanes', t => { this.order.function = t; filter(); }), h('label', { class: 'inline' }, onStack, ' or has it on a stack'),
      h('span', { class: 'zoom' }, this.where, h('button', { type: 'button', 'aria-label': 'zoom in', onclick: () => this.zoom(0.5) }, '+'), h('button', { type: 'button', 'aria-label': 'zoom out', onclick: () => this.zoom(2) }, '−'), h('button', { type: 'button', onclick: () => this.showInterval(0, this.end) }, 'all'),
        h('button', { type: 'button', id: 'torequests', onclick: () => this.options.requestsIn(this.from, this.to), title: 'list the requests that began in the time in view' }, 'requests in view'), h('button', { type: 'button', id: 'sumup', onclick: () => this.select(this.from, this.to, this.lanesBetween(0, this.height)), title: 'add up what the lanes in sight did in the time in view (m)' }, 'sum up')));
    const keys = [['running', 'cpu', 'tk-run'], ['ready to run', 'sched', 'tk-ready'], ['in a system call', 'syscall', 'tk-call'], ['waiting: network', 'network', 'tk-wait'], ['sleep', 'sleep', 'tk-wait'], ['lock', 'lock', 'tk-wait'], ['channel', 'chan', 'tk-wait'], ['other', 'hatch', 'tk-wait']];
    this.legend = h('ul', { class: 'legend', 'aria-label': 'Marks of the timelines' }, keys.map(([t, v, cls]) => h('li', null, h('i', { class: 'tkey ' + cls, style: { '--k': `var(--${v})` } }), t)), h('li', { class: 'dim' }, 'on a P: a colour for each function that goroutines started with'));
    for (const i of this.legend.querySelectorAll('.tkey')) i.style.setProperty('--k', `var(--${keys[[...this.legend.children].indexOf(i.parentNode)][1]})`);
    this.el = h('section', { id: 'timelines' }, h('h2', null, 'Timelines'), this.tools, this.problem, this.legend, h('div', { class: 'dock' }, this.box, this.details),
      h('p', { class: 'dim hint' }, this.lanesInfo, ' ', h('kbd', null, 'Ctrl'), '+wheel zooms, drag or ', h('kbd', null, 'Shift'), '+wheel moves, a click shows all about an interval, ', h('kbd', null, 'Shift'), '+drag adds up an area (', h('kbd', null, 'M'), ': all in sight). Keys: ', ['←', '→', '+', '−', '0', '↑', '↓', 'Enter', 'Esc'].map(k => [h('kbd', null, k), ' ']), 'or ', ['W', 'A', 'S', 'D'].map(k => [h('kbd', null, k), ' '])), this.stacks = h('div'));
    new ResizeObserver(() => { this.size(); }).observe(this.box);
    new MutationObserver(() => this.recolour()).observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.recolour());
    this.box.addEventListener('wheel', ev => this.wheel(ev), { passive: false });
    this.box.addEventListener('pointerdown', ev => this.grab(ev));
    this.box.addEventListener('pointermove', ev => this.hover(ev));
    this.box.addEventListener('pointerleave', untip);
    this.box.addEventListener('keydown', ev => this.key(ev));
    this.box.addEventListener('dblclick', ev => this.zoom(0.25, this.at(ev.clientX - this.left())));
  }

  // showCPUs adds lanes of the CPUs that the kernel's events show, and the states of threads to the goroutines' lanes.
  showCPUs(cpus) {
    if (!cpus.length) return;
    this.cpus = cpus;
    const keys = Object.values(threadStates).map(([words, cause]) => {
      const key = h('i', { class: 'tkey tk-thread' });
      key.style.setProperty('--k', `var(--${cause})`);
      return h('li', null, key, words);
    });
    this.legend.append(h('li', { class: 'dim' }, 'below a goroutine, its thread:'), ...keys, h('li', { class: 'dim' }, 'or, while it waits for a process of this host, what that does'), h('li', { class: 'dim' }, 'on a CPU: the service’s threads, and other processes while one of these waited'));
    this.requestDraw();
  }

  recolour() {
    this.colors = null;
    this.requestDraw();
  }

  say(text) {
    this.problem.textContent = clean(text);
    this.problem.hidden = !text;
  }

  left() { return this.canvas.getBoundingClientRect().left; }

  size() {
    const w = this.box.clientWidth, height = this.box.clientHeight, r = window.devicePixelRatio || 1;
    if (!w || !height) return;
    [this.width, this.height, this.ratio] = [w, height, r];
    this.canvas.width = Math.round(w * r);
    this.canvas.height = Math.round(height * r);
    this.canvas.style.width = w + 'px';
    this.canvas.style.height = height + 'px';
    this.gut = w < 700 ? narrowGutter : gutter;
    this.draw();
  }

  // Lanes: the runtime's, the path of a request, Ps, and goroutines.

  // laneStep is the height of a goroutine's lane. With the kernel's events it has its threads' states below.
  get laneStep() { return this.markStep + laneHeight + (this.cpus.length ? threadHeight : 0); }

  // markStep is the height above a goroutine's lane for its regions and log messages.
  get markStep() { return this.annotated ? markHeight : 0; }

  rows() {
    const fixed = [{ kind: 'runtime', height: 18 }];
    if (this.path) fixed.push({ kind: 'path', height: 26 });
    for (let p = 0; p < this.procs; p++) fixed.push({ kind: 'proc', id: p, key: 'p' + p, height: procHeight });
    for (const n of this.cpus) fixed.push({ kind: 'cpu', id: n, tile: 'c' + n, height: procHeight });
    return fixed;
  }

  laneCount() { return this.first.length + this.total; }

  // laneAt returns the goroutine of a row, undefined until it is loaded.
  laneAt(i) {
    if (i < this.first.length) return this.first[i];
    const k = i - this.first.length, p = this.pages.get(Math.floor(k / 100));
    return p ? p[k % 100] : undefined;
  }

  async loadLanes(signal) {
    this.options.changed();
    this.pages = new Map();
    this.pending = new Set();
    const o = this.order;
    if (o.sort === 'run') [o.from, o.to] = [Math.round(this.from), Math.round(this.to)];
    await this.loadPage(0, signal);
    this.box.dataset.lanes = this.total;
  }

  // needPage requests the page of a row that is not loaded, if there is a list.
  needPage(i) {
    if (this.pages.has(0) && i >= this.first.length) this.loadPage(Math.floor((i - this.first.length) / 100));
  }

  async loadPage(k, signal) {
    if (this.pending.has(k)) return;
    this.pending.add(k);
    const o = this.order, pages = this.pages;
    try {
      const answer = await fetchAnswer('goroutines', { sort: o.sort, desc: o.sort === 'run' || o.sort === 'pieces', function: o.function, stack: o.stack, from: o.sort === 'run' ? o.from : '', to: o.sort === 'run' ? o.to : '', offset: k * 100, limit: 100 }, signal);
      if (pages !== this.pages) return;
      this.total = answer.total;
      pages.set(k, answer.rows);
      for (const g of answer.rows) this.names.set(g.id, g.name);
      this.say('');
      this.lanesInfo.textContent = `${count(this.procs, 'P')} and ${count(this.total, 'goroutine')}${o.sort === 'run' ? ' alive in the time that was in view' : ''}${o.function ? ` with ${brief(o.function)}` : ''}.`;
      this.requestDraw();
    } catch (err) {
      if (err.name !== 'AbortError') this.say(err.message);
    }
  }

  sortBy(sort) {
    this.order.sort = sort;
    this.sortChoice.value = sort;
    this.scroll = 0;
    this.reload();
  }

  // around shows the time around a request, with its goroutines first and its critical path.
  async around(r) {
    this.path = r;
    const ids = [];
    for (const g of [r.goroutine, ...r.segments.map(x => x.goroutine), ...(r.lanes || []).map(l => l.goroutine)]) if (!ids.includes(g) && ids.length < 60) ids.push(g);
    this.focus = new Set([r.goroutine]);
    const pad = Math.max(r.latency_ns * 0.15, 2000);
    this.showInterval(r.start_ns - pad, r.start_ns + r.latency_ns + pad);
    this.scroll = 0;
    this.el.scrollIntoView();
    this.box.focus({ preventScroll: true });
    try {
      const answer = await fetchAnswer('goroutines', { ids: ids.join(',') });
      this.first = answer.rows;
      for (const g of answer.rows) this.names.set(g.id, g.name);
    } catch (err) {
      this.say(err.message);
    }
    this.sortBy('run');
    this.box.dataset.around = r.id;
    this.requestDraw();
  }

  // The view.

  x(t) { return this.gut + (t - this.from) / (this.to - this.from) * (this.width - this.gut); }

  at(px) { return this.from + (px - this.gut) / (this.width - this.gut) * (this.to - this.from); }

  showInterval(from, to) {
    const span = Math.min(this.end, Math.max(closest, to - from)), was = this.to - this.from;
    if (Math.abs(span - was) > was * 1e-6) this.out = span > was;
    this.from = Math.max(0, Math.min(from, this.end - span));
    this.to = this.from + span;
    this.options.changed();
    this.requestDraw();
  }

  zoom(factor, around) {
    const c = around === undefined ? (this.from + this.to) / 2 : around, span = Math.min(this.end, Math.max(closest, (this.to - this.from) * factor));
    const from = c - (c - this.from) / (this.to - this.from) * span;
    this.showInterval(from, from + span);
  }

  pan(ns) { this.showInterval(this.from + ns, this.to + ns); }

  contentHeight() { return this.rows().reduce((n, r) => n + r.height, 0) + this.laneCount() * this.laneStep + 8; }

  viewHeight() { return this.height - axisHeight - overviewHeight; }

  scrollBy(px) {
    this.scroll = Math.max(0, Math.min(this.scroll + px, this.contentHeight() - this.viewHeight()));
    if (px) this.down = px > 0;
    this.requestDraw();
  }

  wheel(ev) {
    const px = ev.clientX - this.left();
    if (ev.ctrlKey || ev.metaKey) { // a pinch on a touch pad sends this as well
      ev.preventDefault();
      this.zoom(Math.exp(Math.max(-60, Math.min(60, ev.deltaY)) * 0.006), this.at(Math.max(px, this.gut)));
    } else if (ev.shiftKey || Math.abs(ev.deltaX) > Math.abs(ev.deltaY)) {
      ev.preventDefault();
      this.pan((ev.deltaX || ev.deltaY) / (this.width - this.gut) * (this.to - this.from));
    } else {
      const before = this.scroll;
      this.scrollBy(ev.deltaY);
      // At the end of the list the wheel scrolls the page.
      if (this.scroll !== before) ev.preventDefault();
    }
    untip();
  }

  grab(ev) {
    if (ev.button !== 0) return;
    const box = this.canvas.getBoundingClientRect(), y = ev.clientY - box.top;
    const inOverview = y < overviewHeight, onBar = ev.clientX - box.left > this.width - 12 && !inOverview;
    let lastX = ev.clientX, lastY = ev.clientY, moved = false;
    const marking = ev.shiftKey && !inOverview && !onBar;
    if (inOverview) this.jump(ev);
    const move = e => {
      if (!moved && Math.abs(e.clientX - ev.clientX) + Math.abs(e.clientY - ev.clientY) < 4) return;
      moved = true;
      untip();
      if (inOverview) this.jump(e);
      else if (marking) {
        this.band = { from: this.at(ev.clientX - box.left), to: this.at(e.clientX - box.left), top: Math.min(y, e.clientY - box.top), bottom: Math.max(y, e.clientY - box.top) };
        this.requestDraw();
      } else if (onBar) this.scrollBy((e.clientY - lastY) / this.viewHeight() * this.contentHeight());
      else {
        this.pan(-(e.clientX - lastX) / (this.width - this.gut) * (this.to - this.from));
        this.scrollBy(lastY - e.clientY);
      }
      [lastX, lastY] = [e.clientX, e.clientY];
    };
    const up = e => {
      removeEventListener('pointermove', move);
      removeEventListener('pointerup', up);
      removeEventListener('pointercancel', up);
      if (marking && moved) {
        const b = this.band;
        this.band = null;
        if (b && e.type === 'pointerup') this.select(Math.min(b.from, b.to), Math.max(b.from, b.to), this.lanesBetween(b.top, b.bottom));
        this.requestDraw();
      } else if (!moved && !inOverview && !onBar && e.type === 'pointerup') this.choose(ev.clientX - box.left, y);
    };
    addEventListener('pointermove', move);
    addEventListener('pointerup', up);
    addEventListener('pointercancel', up);
  }

  // jump moves the view to the time at which the overview was clicked.
  jump(ev) {
    const t = (ev.clientX - this.left() - this.gut) / (this.width - this.gut) * this.end, span = this.to - this.from;
    this.showInterval(t - span / 2, t + span / 2);
  }

  key(ev) {
    if (ev.ctrlKey || ev.metaKey || ev.altKey) return;
    const span = this.to - this.from;
    const act = {
      w: () => this.zoom(0.5), s: () => this.zoom(2), a: () => this.pan(-span / 6), d: () => this.pan(span / 6),
      ArrowLeft: () => this.pan(-span / 6), ArrowRight: () => this.pan(span / 6), '[': () => this.pan(-span / 2), ']': () => this.pan(span / 2),
      '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), '-': () => this.zoom(2), '0': () => this.showInterval(0, this.end),
      ArrowDown: () => this.step(1), ArrowUp: () => this.step(-1), PageDown: () => this.scrollBy(this.viewHeight() * 0.9), PageUp: () => this.scrollBy(-this.viewHeight() * 0.9),
      Home: () => this.scrollBy(-1e12), End: () => this.scrollBy(1e12),
      m: () => this.select(this.from, this.to, this.lanesBetween(0, this.height)),
      Enter: () => this.chosen && this.showDetails(this.chosen, (this.from + this.to) / 2),
      Escape: () => this.release(),
    }[ev.key];
    if (!act) return;
    ev.preventDefault();
    ev.stopPropagation();
    act();
  }

  // release clears the selection and its text.
  release() {
    this.chosen = this.focus = this.mark = this.detailsAt = this.area = null;
    replace(this.details);
    this.box.focus({ preventScroll: true });
    this.options.changed();
    this.requestDraw();
  }

  // shown returns the lanes' parameters of the address; show sets them.
  shown() {
    const o = this.order;
    return {
      time: this.from === 0 && this.to === this.end ? '' : `${Math.round(this.from)}-${Math.round(this.to)}`, sort: o.sort === 'run' ? '' : o.sort,
      function: o.function, stack: o.stack ? '1' : '', first: this.first.map(g => g.id).join(','), at: this.detailsAt || '',
      area: this.area ? `${this.area.from}-${this.area.to}:${this.area.lanes.join(',')}` : '',
    };
  }

  async show(get) {
    const time = /^(\d+)-(\d+)$/.exec(get('time') || ''), at = /^([gp]\d+)@(-?\d+)$/.exec(get('at') || ''), ids = get('first');
    if (time) this.showInterval(Number(time[1]), Number(time[2]));
    if (get('function')) this.order.function = this.el.querySelector('[data-lanes=function]').value = get('function');
    if (get('stack')) this.order.stack = this.onStack.checked = true;
    if (get('sort')) this.order.sort = this.sortChoice.value = get('sort');
    this.reload();
    if (/^\d+(,\d+)*$/.test(ids || '')) {
      try {
        this.first = (await fetchAnswer('goroutines', { ids })).rows;
        for (const g of this.first) this.names.set(g.id, g.name);
      } catch (err) {
        this.say(err.message);
      }
    }
    const area = /^(\d+)-(\d+):([gp]\d+(?:,[gp]\d+)*)$/.exec(get('area') || '');
    if (area) this.select(Number(area[1]), Number(area[2]), area[3].split(','));
    if (at) {
      this.chosen = at[1];
      this.showDetails(at[1], Number(at[2]));
    }
    this.requestDraw();
  }

  // lanesBetween returns the keys of the visible lanes between two heights.
  lanesBetween(top, bottom) {
    const keys = [];
    let y = overviewHeight + axisHeight - this.scroll;
    const take = (key, height) => { if (key && y + height > Math.max(top, overviewHeight + axisHeight) && y < Math.min(bottom, this.height)) keys.push(key); y += height; };
    for (const r of this.rows()) take(r.key, r.height);
    for (let i = 0; i < this.laneCount() && y < this.height; i++) take(this.laneAt(i) && 'g' + this.laneAt(i).id, this.laneStep);
    return keys.slice(0, 128);
  }

  // select sums the lanes' time in an interval: goroutines by state and cause; Ps alone by function.
  select(from, to, lanes) {
    [from, to] = [Math.max(0, Math.floor(from)), Math.ceil(to)];
    const ids = [...new Set(lanes.filter(k => k[0] === 'g').map(k => k.slice(1)))];
    if (!lanes.length || to <= from) return;
    this.selecting ||= latest(async (signal, ids, from, to) => {
      try {
        const a = ids.length ? await fetchAnswer('area', { from, to, g: ids.join(',') }, signal) : { from_ns: from, to_ns: to, ...await fetchAnswer('byfunction', { from, to, sort: 'running', desc: true, limit: 12 }, signal) };
        const buttons = h('p', { class: 'tabs' }, h('button', { type: 'button', onclick: () => this.showInterval(from, to) }, 'Zoom to it'), h('button', { type: 'button', onclick: () => this.options.requestsIn(from, to) }, 'Requests begun in it'),
          h('button', { type: 'button', 'data-area': 'flame', onclick: () => this.showStacks(from, to, ids).catch(err => this.say(err.message)) }, 'Flame graph'));
        replace(this.details, this.closeButton(), ids.length ? areaNode(a, buttons) : procNode(a, name => this.only(name)));
      } catch (err) {
        if (!signal.aborted) this.say(err.message);
      }
    });
    this.area = { from, to, lanes: ids.length ? [...new Set(lanes)].filter(k => k[0] === 'g') : lanes };
    this.detailsAt = this.mark = null;
    this.options.changed();
    this.selecting(ids, from, to);
    this.requestDraw();
  }

  // showStacks shows the flame graph of an area below the lanes, until it is closed or another one is shown.
  async showStacks(from, to, ids) {
    const stacks = await fetchAnswer('areastacks', { from, to, g: ids.join(',') });
    const close = h('button', { type: 'button', class: 'plain', 'aria-label': 'Close the flame graph', onclick: () => replace(this.stacks) }, '✕');
    replace(this.stacks, h('h3', null, `Stacks of ${count(ids.length, 'goroutine')} in ${duration(to - from)} from ${duration(from)} `, close), areaFlame(stacks));
    this.stacks.scrollIntoView({ block: 'nearest' });
  }

  // only shows only the goroutines of a function.
  only(name) {
    this.order.function = this.el.querySelector('[data-lanes=function]').value = name;
    this.order.stack = this.onStack.checked = false;
    this.scroll = 0;
    this.reload();
    this.el.scrollIntoView();
    this.box.focus({ preventScroll: true });
  }

  closeButton() { return h('button', { type: 'button', class: 'plain close', 'aria-label': 'Close (Esc)', onclick: () => this.release() }, '✕'); }

  // placed yields the selectable rows, with the position of each in the content.
  *placed() {
    let y = 0;
    for (const r of this.rows()) {
      if (r.key) yield { key: r.key, y, height: r.height };
      y += r.height;
    }
    const n = this.laneCount();
    for (let i = 0; i < n; i++) yield { index: i, y: y + i * this.laneStep, height: this.laneStep };
  }

  step(by) {
    const procs = this.procs, n = procs + this.laneCount();
    if (!n) return;
    const at = this.chosenRow === undefined ? (by > 0 ? -1 : 0) : this.chosenRow;
    const to = Math.max(0, Math.min(n - 1, at + by));
    const g = to >= procs ? this.laneAt(to - procs) : null;
    if (to >= procs && !g) return;
    this.chosenRow = to;
    this.chosen = g ? 'g' + g.id : 'p' + to;
    this.focus = g ? new Set([g.id]) : null;
    const head = this.rows().reduce((s, r) => s + r.height, 0);
    const y = g ? head + (to - procs) * this.laneStep : head - (procs + this.cpus.length - to) * procHeight;
    if (y < this.scroll) this.scroll = y;
    if (y + this.laneStep > this.scroll + this.viewHeight()) this.scroll = y + this.laneStep - this.viewHeight();
    this.requestDraw();
  }

  // under returns the lane and the time at a point: {row, key, t}.
  under(px, py) {
    if (py < overviewHeight + axisHeight) return null;
    let y = overviewHeight + axisHeight - this.scroll;
    for (const r of this.rows()) {
      if (py >= y && py < y + r.height) return { ...r, t: this.at(px) };
      y += r.height;
    }
    const i = Math.floor((py - y) / this.laneStep), g = i >= 0 && i < this.laneCount() ? this.laneAt(i) : null;
    return g ? { kind: 'goroutine', key: 'g' + g.id, index: i, g, t: this.at(px), onThread: py - y - i * this.laneStep >= this.markStep + laneHeight - 1 } : null;
  }

  // pieceAt returns the interval of a lane at a time, as far as the loaded tiles show it.
  pieceAt(key, t) {
    const level = levelFor((this.to - this.from) / (this.width - this.gut));
    const tile = this.tiles.get(level, Math.floor(t / tileSpan(level)), key);
    if (!tile || !tile.pieces) return null;
    const slack = (this.to - this.from) / (this.width - this.gut);
    return tile.pieces.find(q => q.from <= t && t < q.to) || tile.pieces.find(q => q.from - slack <= t && t < q.to + slack) || null;
  }

  hover(ev) {
    if (ev.buttons || !this.width) return;
    const box = this.canvas.getBoundingClientRect(), px = ev.clientX - box.left, py = ev.clientY - box.top, u = this.under(px, py);
    if (!u) return untip();
    const laneName = u.kind === 'goroutine' ? [h('strong', null, `G${u.g.id} `), clean(u.g.name), u.g.group ? [h('br'), `requests of ${clean(laneTitle(u.g))}`] : null] : u.kind === 'proc' ? h('strong', null, `P${u.id}`) : null;
    if (px < this.gut) return laneName ? tip(ev, laneName, u.kind === 'goroutine' ? [h('br'), h('span', { class: 'dim' }, u.g.born_ns >= 0 ? `born at ${duration(u.g.born_ns)}` : 'older than the trace', u.g.run_ns ? `, ran ${duration(u.g.run_ns)} in the time that was in view` : '')] : null) : untip();
    if (u.kind === 'path') {
      const x = this.path.segments.find(s => s.start_ns <= u.t && u.t < s.start_ns + s.duration_ns);
      return x ? tip(ev, h('strong', null, `${duration(x.duration_ns)} ${causeInfo(x.cause).words}`), h('br'), x.site ? place(x.site) : '', h('br'), h('span', { class: 'dim' }, `critical path, goroutine ${x.goroutine}`)) : untip();
    }
    if (u.kind === 'runtime') return untip();
    if (u.onThread) {
      const x = this.pieceAt('t' + u.g.id, u.t);
      if (!x) return untip();
      const [state, , isPeer] = threadKinds[x.g];
      return tip(ev, h('strong', null, `${duration(x.to - x.from)} ${isPeer ? brief(x.text, 160) : threadWords(state, x.text)}`), h('br'), h('span', { class: 'dim' }, isPeer ? `G${u.g.id} waits for this process` : `the thread of G${u.g.id}`));
    }
    const q = this.pieceAt(u.key || u.tile, u.t);
    if (u.kind === 'cpu') return q ? tip(ev, h('strong', null, `${duration(q.to - q.from)} ${clean(q.text || '')}`), h('br'), h('span', { class: 'dim' }, `had CPU ${u.id}`)) : untip();
    if (!q) return tip(ev, laneName, u.g ? markWords(this.marksAt(u.g.id, u.t)) : null, h('br'), h('span', { class: 'dim' }, `${duration(u.t)} into the trace; zoom in for single intervals`));
    if (u.kind === 'proc') return tip(ev, h('strong', null, `${duration(q.to - q.from)} of G${q.g}`), h('br'), clean(q.text || ''), q.site ? [h('br'), h('span', { class: 'dim' }, place(q.site))] : null);
    tip(ev, h('strong', null, `${duration(q.to - q.from)} ${stateNames[q.state]}`), q.text ? ` (${clean(q.text)})` : '', q.site ? [h('br'), place(q.site)] : null, h('br'), h('span', { class: 'dim' }, `G${u.g.id} ${clean(laneTitle(u.g))}`), markWords(this.marksAt(u.g.id, u.t)));
  }

  choose(px, py) {
    const u = this.under(px, py);
    if (!u || !u.key) return;
    this.chosen = u.key;
    this.chosenRow = u.kind === 'proc' ? u.id : this.procs + u.index;
    if (u.kind === 'goroutine') this.focus = new Set([u.g.id]);
    this.requestDraw();
    if (px >= this.gut) this.showDetails(u.key, u.t);
  }

  // showDetails shows the details of a lane at an instant.
  showDetails(key, t) {
    this.loadDetails ||= latest(async (signal, k, at) => {
      try {
        this.detailsAt = `${k}@${Math.round(at)}`;
        this.area = null;
        this.options.changed();
        const { moment } = await fetchAnswer('moment', { [k[0]]: k.slice(1), t: Math.round(at) }, signal);
        if (moment && this.annotated) moment.annotations = (await fetchAnswer('annotations', { from: moment.start_ns, to: moment.end_ns, g: moment.goroutine }, signal)).rows;
        replace(this.details, this.closeButton(), moment ? this.momentNode(moment) : h('p', { class: 'dim' }, `Nothing on ${k[0] === 'p' ? 'P' : 'goroutine '}${k.slice(1)} at ${duration(at)}.`));
        this.mark = moment && { key: 'g' + moment.goroutine, from: moment.start_ns, to: moment.end_ns };
        if (moment && k[0] === 'p') this.focus = new Set([moment.goroutine]);
        this.requestDraw();
      } catch (err) {
        if (!signal.aborted) this.say(err.message);
      }
    });
    this.loadDetails(key, t);
  }

  momentNode(m) {
    const row = (name, ...value) => [h('dt', null, name), h('dd', null, value)];
    const stack = (list, title) => list && list.length ? h('details', { open: list.length < 12 }, h('summary', null, title), h('ol', { class: 'stack' }, list.map(f => h('li', null, siteButton(f, clean(shortFunc(f.func))), h('span', { class: 'dim' }, ` ${brief(f.file, 200)}:${f.line}`))))) : null;
    const go = (g, text) => h('button', { type: 'button', class: 'plain link', onclick: () => this.goTo(g) }, text);
    return h('div', { class: 'detail', role: 'region', 'aria-label': 'What the lane shows' },
      h('h3', null, h('i', { class: 'chip c-' + kindOf(m.state, m.reason) }), `${m.start_ns < 0 ? 'Since before the trace' : duration(m.end_ns - m.start_ns)} ${stateWords(m.state, m.reason)}`),
      h('dl', null,
        row('goroutine', go(m.goroutine, `G${m.goroutine}`), ' ', h('code', { class: 'wrap' }, clean(m.name))), m.proc !== undefined ? row('on', `P${m.proc}`) : null,
        row('from', m.start_ns < 0 ? 'before the trace' : exact(m.start_ns)), row('to', exact(m.end_ns)), m.assist ? row('in', 'a GC mark assist') : null,
        m.waker ? row(m.state === 'waiting' ? 'ended by' : 'woken by', go(m.waker, `G${m.waker}`), ' ', h('code', { class: 'wrap' }, clean(m.waker_name || ''))) : m.woken || m.state === 'runnable' ? row('woken by', m.creator ? ['born of ', go(m.creator, `G${m.creator}`)] : 'nobody: the poller, a timer, or the scheduler') : null,
        m.requests.length ? row('requests', m.requests.map(r => [h('button', { type: 'button', class: 'plain link', 'data-open': r.n, onclick: () => this.options.open(r.n) }, `${groupByID(r.group) ? groupName(groupByID(r.group)) + ': ' : ''}${duration(r.latency_ns)} from ${duration(r.start_ns)}`), ' '])) : null),
      (m.annotations || []).length ? h('details', { open: true }, h('summary', null, 'Regions and log messages of it'), marksTable(m.annotations)) : null,
      stack(m.stack, `Stack: ${m.stack_of || 'none'}`), stack(m.waker_stack, `The waker’s stack`), copies(momentText(m), m));
  }

  // goTo moves a goroutine's lane to the top and scrolls to it.
  async goTo(g) {
    if (!this.first.some(l => l.id === g)) {
      const answer = await fetchAnswer('goroutines', { ids: g });
      this.first = [...answer.rows, ...this.first].slice(0, 60);
      for (const l of answer.rows) this.names.set(l.id, l.name);
    }
    this.chosen = 'g' + g;
    this.chosenRow = this.procs + this.first.findIndex(l => l.id === g);
    this.focus = new Set([g]);
    this.scroll = 0;
    this.options.changed();
    this.requestDraw();
  }

  // Drawing.

  requestDraw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  draw() {
    if (!this.width) return;
    this.tiles.frame++;
    const began = performance.now(), c = this.canvas.getContext('2d', { alpha: false }), col = this.colors ||= colors();
    this.pictures.begin(col, this.ratio);
    this.scroll = Math.max(0, Math.min(this.scroll, this.contentHeight() - this.viewHeight()));
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = col.card;
    c.fillRect(0, 0, this.width, this.height);
    c.font = '11.5px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';
    c.textBaseline = 'middle';
    const top = overviewHeight + axisHeight, level = levelFor((this.to - this.from) / (this.width - this.gut)), span = tileSpan(level);
    const i0 = Math.max(0, Math.floor(this.from / span)), i1 = Math.floor(Math.min(this.to, this.end) / span), wanted = [];

    c.save();
    c.beginPath();
    c.rect(0, top, this.width, this.height - top);
    c.clip();
    let y = top - this.scroll;
    for (const r of this.rows()) {
      if (y + r.height > top && y < this.height) {
        if (r.kind === 'runtime') this.drawRuntime(c, col, y, r.height);
        else if (r.kind === 'path') this.drawPath(c, col, y, r.height);
        else {
          const key = r.key || r.tile;
          wanted.push(key);
          this.drawLane(c, col, key, `${r.kind === 'cpu' ? 'CPU ' : 'P'}${r.id}`, y, r.height, level, i0, i1, r.id % 2 === 0);
        }
      }
      y += r.height;
    }
    const before = Math.max(0, Math.floor((top - y) / this.laneStep)), n = this.laneCount(), after = Math.min(n, Math.ceil((this.height - y) / this.laneStep));
    for (let i = before; i < after; i++) {
      const g = this.laneAt(i), ly = y + i * this.laneStep;
      if (!g) {
        this.needPage(i);
        c.fillStyle = col.dim;
        c.fillText('…', 6, ly + this.markStep + laneHeight / 2);
        continue;
      }
      const key = 'g' + g.id;
      wanted.push(key);
      if (this.cpus.length) wanted.push('t' + g.id);
      if (this.markStep && i % 2 === 0) {
        c.fillStyle = col.stripe;
        c.fillRect(0, ly, this.width, this.markStep);
      }
      this.drawLane(c, col, key, `G${g.id} ${laneTitle(g)}`, ly + this.markStep, laneHeight, level, i0, i1, i % 2 === 0, i === this.first.length - 1);
    }
    for (let i = before; i < after; i++) if (this.laneAt(i)) this.drawMarks(c, col, this.laneAt(i).id, y + i * this.laneStep);
    this.needMarks(wanted);
    this.drawWakes(c, col, y);
    const area = this.band || this.area;
    if (area) {
      const a = Math.max(this.gut, this.x(Math.min(area.from, area.to))), b = Math.min(this.width, this.x(Math.max(area.from, area.to))), lo = this.band ? this.band.top : top, hi = this.band ? this.band.bottom : this.height;
      if (b > a) {
        c.fillStyle = c.strokeStyle = col.link;
        c.globalAlpha = 0.14;
        c.fillRect(a, lo, b - a, hi - lo);
        c.globalAlpha = 1;
        c.lineWidth = 1;
        c.strokeRect(a + 0.5, lo + 0.5, b - a - 1, hi - lo - 1);
      }
    }
    c.restore();
    this.drawAxis(c, col);
    this.drawOverview(c, col);
    this.drawBar();
    this.showWhere();
    this.lastWanted = wanted;
    // Lanes that become visible next are requested in advance.
    const next = [], by = this.down ? 1 : -1;
    for (let k = 0, i = this.down ? after : before - 1; k < lanesAhead && i >= 0 && i < n; k++, i += by) {
      const g = this.laneAt(i);
      if (g) next.push('g' + g.id, ...this.cpus.length ? ['t' + g.id] : []); else this.needPage(i);
    }
    if (this.pictures.short) this.requestDraw();
    // While the view moves, missing tiles are requested at intervals.
    this.lastView = [level, i0, i1, wanted, next, this.out];
    this.requestTimer ||= setTimeout(() => {
      this.requestTimer = 0;
      this.tiles.want(...this.lastView);
    }, this.tiles.known.size ? 60 : 0);
    this.frames.count++;
    this.frames.drawn.push(performance.now() - began);
    if (this.frames.drawn.length > 2000) this.frames.drawn.splice(0, 1000);
  }

  // needMarks requests the regions and log messages of the lanes in sight, when the view has come to rest.
  needMarks(lanes) {
    if (!this.annotated) return;
    this.marksOf = lanes.filter(k => k[0] === 'g').map(k => k.slice(1)).slice(0, 128);
    this.loadMarks ||= debounce(latest(async signal => {
      const key = `${this.from} ${this.to} ${this.marksOf}`;
      if (key === this.marks.key || !this.marksOf.length) return;
      try {
        const answer = await fetchAnswer('annotations', { from: Math.floor(this.from), to: Math.ceil(this.to), min: Math.floor((this.to - this.from) / this.width), g: this.marksOf.join(',') }, signal);
        const byLane = new Map();
        for (const a of answer.rows) {
          if (!byLane.has(a.goroutine)) byLane.set(a.goroutine, []);
          byLane.get(a.goroutine).push(a);
        }
        this.marks = { key, byLane };
        this.box.dataset.marks = answer.rows.length;
        this.requestDraw();
      } catch (err) {
        this.say(err.message);
      }
    }), 150);
    this.loadMarks();
  }

  // drawMarks draws regions as brackets on top of a lane, and log messages as points.
  drawMarks(c, col, g, y) {
    for (const a of this.marks.byLane.get(g) || []) {
      const from = Math.max(this.x(a.start_ns), this.gut), to = Math.min(this.x(a.start_ns + a.duration_ns), this.width);
      if (to < from) continue;
      c.fillStyle = col.link;
      if (a.text) {
        c.beginPath();
        c.arc(from, y + 5, 3, 0, 7);
        c.fill();
        continue;
      }
      const top = y + 1 + 2 * Math.min(a.depth, 2);
      c.globalAlpha = 0.8;
      c.fillRect(from, top, Math.max(1, to - from), 1.5);
      c.fillRect(from, top, 1, 5);
      c.fillRect(to - 1, top, 1, 5);
      c.globalAlpha = 1;
      if (to - from < 60 || a.depth) continue;
      c.font = '9px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';
      c.fillText(this.fit(c, a.name, to - from - 12, 9), from + 4, y + 10);
    }
  }

  // marksAt returns the regions around a point of a lane and the messages at it.
  marksAt(g, t) {
    const near = 4 * (this.to - this.from) / (this.width - this.gut);
    return (this.marks.byLane.get(g) || []).filter(a => a.text ? Math.abs(a.start_ns - t) <= near : a.start_ns <= t && t <= a.start_ns + a.duration_ns);
  }

  // showWhere shows the visible time, at most a few times a second: a change outside of the canvas costs more than drawing.
  showWhere() {
    this.whereLater ||= setTimeout(() => {
      this.whereLater = 0;
      this.where.textContent = `${duration(this.to - this.from)} from ${duration(this.from)}`;
    }, this.where.textContent ? 120 : 0);
  }

  drawLane(c, col, key, name, y, height, level, i0, i1, striped, last) {
    const kind = key[0], isGoroutine = kind === 'g', whole = isGoroutine ? this.laneStep - this.markStep : height;
    if (striped) {
      c.fillStyle = col.stripe;
      c.fillRect(0, y, this.width, whole);
    }
    this.drawTiles(c, col, key, y, height, level, i0, i1, striped);
    if (whole > height) this.drawTiles(c, col, 't' + key.slice(1), y + height - 1, threadHeight - 2, level, i0, i1, striped);
    if (this.mark && this.mark.key === key) {
      c.strokeStyle = col.ink;
      c.lineWidth = 1.5;
      const a = Math.max(this.gut, this.x(this.mark.from)), b = Math.min(this.width, this.x(this.mark.to));
      if (b > a) c.strokeRect(a, y + 1, Math.max(2, b - a), height - 2);
    }
    if (this.path && isGoroutine) this.drawPathOn(c, col, Number(key.slice(1)), y, height);
    const chosen = this.chosen === key;
    c.fillStyle = striped ? col.stripe : col.card;
    c.fillRect(0, y, this.gut, whole);
    if (chosen) {
      c.fillStyle = col.link;
      c.fillRect(0, y, 3, whole);
    }
    c.fillStyle = chosen || this.focus && this.focus.has(Number(key.slice(1))) && isGoroutine ? col.ink : col.dim;
    c.font = (chosen ? '600 ' : '') + '11.5px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace';
    c.fillText(this.fit(c, name, this.gut - 14, 11.5), 8, y + height / 2 + 0.5);
    if (last) {
      c.fillStyle = col.line;
      c.fillRect(0, y + whole - 1, this.width, 1);
    }
  }

  // drawPathOn draws on a goroutine's lane the critical path where it visits the goroutine, and when bytes arrived for it.
  drawPathOn(c, col, g, y, height) {
    for (const s of this.path.segments) {
      if (s.goroutine !== g) continue;
      const a = Math.max(this.gut, this.x(s.start_ns)), b = Math.min(this.width, this.x(s.start_ns + s.duration_ns));
      if (b < this.gut || a > this.width || b <= a) continue;
      c.fillStyle = col[s.cause] || col.unknown;
      c.fillRect(a, y + height - 4, Math.max(1, b - a), 3);
    }
    c.fillStyle = col.network;
    for (const l of this.path.lanes || []) {
      for (const t of l.goroutine === g && l.arrivals_ns || []) {
        const px = this.x(t);
        if (px < this.gut || px > this.width) continue;
        c.beginPath();
        c.moveTo(px - 4, y);
        c.lineTo(px + 4, y);
        c.lineTo(px, y + 7);
        c.fill();
      }
    }
  }

  // drawTiles draws the content of a lane.
  drawTiles(c, col, key, y, height, level, i0, i1, striped) {
    const kind = key[0], isNarrow = kind === 'p' || kind === 'c', span = tileSpan(level), x = t => this.x(t), focus = kind === 'p' ? this.focus : null;
    // An interval that continues in the next tile has one name.
    const names = [];
    const label = (q, a, w) => {
      const before = names[names.length - 1];
      if (before && Math.abs(before.to - a) < 1 && before.q.g === q.g && before.q.text === q.text && before.q.state === q.state) {
        before.to = a + w;
        return;
      }
      names.push({ q, from: a, to: a + w });
    };
    const write = ({ q, from: a, to }) => {
      const from = Math.max(a, this.gut), room = Math.min(to, this.width) - from - 8;
      if (room < (isNarrow ? 26 : 60)) return;
      const text = kind === 'c' ? q.text : kind === 'p' ? `${q.text ? shortFunc(q.text) : 'G' + q.g}` : `${q.text || ''}${q.site ? ' · ' + place(q.site) : ''}`;
      const px = 11, fit = this.fit(c, text, room, px);
      c.font = `${px}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace`;
      const mid = y + height / 2 + 0.5;
      if (isNarrow) {
        c.fillStyle = focus && !focus.has(q.g) ? col.ink : '#fff';
        c.fillText(fit, from + 4, mid);
      } else {
        // On the thin line of a wait the name has a background.
        const wide = fit.length * 6.7 + 6;
        c.fillStyle = striped ? col.stripe : col.card;
        c.fillRect(from + 5, y + 3, wide, height - 6);
        c.fillStyle = col.dim;
        c.fillText(fit, from + 8, mid);
      }
    };
    c.save();
    c.beginPath();
    c.rect(this.gut, y, this.width - this.gut, height);
    c.clip();
    for (let i = i0; i <= i1; i++) {
      const from = Math.max(i * span, this.from), to = Math.min((i + 1) * span, this.to), tile = this.tiles.get(level, i, key);
      const one = (t, a, b) => {
        a = Math.max(a, from);
        b = Math.min(b, to);
        if (a >= b) return true;
        // Pieces of a lower level are drawn as sums, too, if possible: there are many in a pixel.
        if ((!t.pieces || t.span < span && !focus) && sumsOn(c, this.pictures, t, a, b, x, y, height, kind)) return true;
        if (t.pieces) piecesOn(c, t, a, b, x, y, height, col, kind, focus, label);
        return !!t.pieces;
      };
      // A tile that cannot be drawn yet is replaced in the same way as a missing one.
      if (!tile || !one(tile, from, to)) this.tiles.covering(level, i, key, one);
      if (tile) for (const [a, b] of tile.missing) this.hatch(c, col, x(a), x(b), y, height);
    }
    names.forEach(write);
    c.restore();
  }

  // fit shortens a name in its middle if it is too long; all letters have the same width.
  fit(c, text, px, size) {
    const most = Math.floor(px / (size * 0.605));
    if (text.length <= most) return text;
    if (most < 3) return '';
    const headPart = Math.ceil((most - 1) * 0.45);
    return text.slice(0, headPart) + '…' + text.slice(text.length - (most - 1 - headPart));
  }

  hatch(c, col, a, b, y, height) {
    c.fillStyle = col.grid;
    for (let px = Math.max(this.gut, a); px < Math.min(b, this.width); px += 6) c.fillRect(px, y + 4, 2, height - 8);
  }

  drawRuntime(c, col, y, height) {
    const s = report.runtime && report.runtime.series;
    for (const [list, color, part] of s ? [[s.gc, col['gc-assist'], 0.45], [s.stw, col.accent, 0.9]] : []) {
      c.fillStyle = color;
      for (const [from, d] of list || []) {
        const a = Math.max(this.gut, this.x(from)), b = this.x(from + d);
        if (b < this.gut || a > this.width) continue;
        c.fillRect(a, y + height * (1 - part) / 2, Math.max(1, b - a), height * part);
      }
    }
    c.fillStyle = col.card;
    c.fillRect(0, y, this.gut, height);
    c.fillStyle = col.dim;
    c.fillText(this.gut === narrowGutter ? 'GC, stops' : 'GC marks, world stopped', 8, y + height / 2);
  }

  drawPath(c, col, y, height) {
    c.save();
    c.beginPath();
    c.rect(this.gut, y, this.width - this.gut, height);
    c.clip();
    for (const s of this.path.segments) {
      const a = this.x(s.start_ns), b = this.x(s.start_ns + s.duration_ns);
      if (b < this.gut || a > this.width) continue;
      c.fillStyle = col[s.cause] || col.unknown;
      c.fillRect(a, y + 3, Math.max(0.8, b - a), height - 6);
      const from = Math.max(a, this.gut), room = Math.min(b, this.width) - from - 8;
      if (room > 40) {
        c.fillStyle = col['on-' + s.cause] || col['on-unknown'];
        c.fillText(this.fit(c, `${causeInfo(s.cause).short} ${duration(s.duration_ns)}${s.site ? ' · ' + place(s.site) : ''}`, room, 11.5), from + 5, y + height / 2);
      }
    }
    c.restore();
    c.fillStyle = col.ink;
    c.fillText('critical path', 8, y + height / 2);
  }

  // drawWakes draws the changes of the path between visible lanes.
  drawWakes(c, col, top) {
    if (!this.path) return;
    const row = new Map();
    this.first.forEach((g, i) => row.set(g.id, top + i * this.laneStep + this.markStep + laneHeight / 2));
    c.strokeStyle = c.fillStyle = col.ink;
    c.lineWidth = 1;
    const seg = this.path.segments;
    for (let i = 1; i < seg.length; i++) {
      const a = seg[i - 1], b = seg[i], px = this.x(b.start_ns);
      if (a.goroutine === b.goroutine || px < this.gut || px > this.width || !row.has(a.goroutine) || !row.has(b.goroutine)) continue;
      const y1 = row.get(a.goroutine), y2 = row.get(b.goroutine), dir = y2 > y1 ? 1 : -1;
      c.beginPath();
      c.moveTo(px, y1);
      c.lineTo(px, y2 - dir * 9);
      c.stroke();
      c.beginPath();
      c.moveTo(px - 4, y2 - dir * 10);
      c.lineTo(px + 4, y2 - dir * 10);
      c.lineTo(px, y2 - dir * 3);
      c.fill();
    }
  }

  drawAxis(c, col) {
    const y = overviewHeight;
    c.fillStyle = col.card;
    c.fillRect(0, y, this.width, axisHeight);
    c.font = '11.5px system-ui, sans-serif';
    const base = this.path && this.path.start_ns >= this.from && this.path.start_ns <= this.to ? this.path.start_ns : 0;
    for (const t of ticks(this.from - base, this.to - base, Math.max(2, (this.width - this.gut) / 120))) {
      const px = this.x(base + t);
      c.fillStyle = col.line;
      c.fillRect(px, y + axisHeight - 6, 1, this.height - y - axisHeight + 6 > 0 ? 6 : 0);
      c.globalAlpha = 0.5;
      c.fillRect(px, y + axisHeight, 1, this.height);
      c.globalAlpha = 1;
      c.fillStyle = col.dim;
      const text = tickText(t, this.to - this.from), w = c.measureText(text).width;
      c.fillText(text, Math.max(this.gut, Math.min(px - w / 2, this.width - w - 14)), y + axisHeight / 2 - 1);
    }
    c.fillStyle = col.dim;
    c.fillText(this.gut === narrowGutter ? base ? 'of the request' : 'of the trace' : base ? 'after the request’s start' : 'after the trace’s start', 8, y + axisHeight / 2 - 1);
    c.fillStyle = col.line;
    c.fillRect(0, y + axisHeight - 1, this.width, 1);
  }

  // drawOverview draws the whole trace: how busy the Ps were, and the position of the view.
  drawOverview(c, col) {
    c.fillStyle = col.stripe;
    c.fillRect(0, 0, this.width, overviewHeight);
    const w = this.width - this.gut, level = levelFor(this.end / w), span = tileSpan(level), last = Math.floor(this.end / span), keys = [];
    for (let p = 0; p < Math.min(this.procs, 64); p++) keys.push('p' + p);
    // It is summed again only if tiles were missing and some have arrived.
    const o = this.overview, came = this.tiles.spent.length;
    const kept = o && o.w === w && o.col === col && o.ratio === this.ratio && (!o.missing || o.came === came);
    if (!kept) this.overview = { w, col, ratio: this.ratio, came, ...this.sumOverview(w, level, last, keys), picture: o && o.picture || document.createElement('canvas') };
    const { busy, missing, picture } = this.overview;
    if (!kept) {
      picture.width = Math.max(1, Math.round(w * this.ratio));
      picture.height = Math.round(overviewHeight * this.ratio);
      const p = picture.getContext('2d'), top = Math.max(1, keys.length);
      p.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      p.fillStyle = col.cpu;
      p.globalAlpha = 0.75;
      for (let px = 0; px < busy.length; px++) {
        const v = Math.min(1, busy[px] / top) * (overviewHeight - 10);
        if (v > 0) p.fillRect(px, overviewHeight - 3 - v, 1, v);
      }
    }
    c.drawImage(picture, this.gut, 0, w, overviewHeight);
    c.fillStyle = col.dim;
    c.font = '11.5px system-ui, sans-serif';
    const narrow = this.gut === narrowGutter;
    c.fillText(narrow ? 'whole trace:' : `whole trace, ${duration(this.end)}:`, 8, 14);
    c.fillText(narrow ? 'busy Ps' : 'Ps that run goroutines', 8, 29);
    const a = this.gut + this.from / this.end * w, b = this.gut + this.to / this.end * w;
    c.fillStyle = col.ink;
    c.globalAlpha = 0.1;
    c.fillRect(this.gut, 0, a - this.gut, overviewHeight);
    c.fillRect(b, 0, this.width - b, overviewHeight);
    c.globalAlpha = 1;
    c.strokeStyle = col.ink;
    c.lineWidth = 1.5;
    c.strokeRect(Math.min(a, this.width - 4), 1, Math.max(3, b - a - 1), overviewHeight - 2);
    // The overview's tiles are requested only when no others are.
    if (missing && !this.tiles.busy && !this.overviewTimer) {
      this.overviewTimer = setTimeout(() => {
        this.overviewTimer = 0;
        if (!this.tiles.busy) for (let i = 0; i <= last; i++) {
          const lanes = keys.filter(k => { const t = this.tiles.get(level, i, k); return !t || t.partial; });
          if (lanes.length) this.tiles.queue.push({ level, index: i, lanes });
        }
        this.tiles.pump();
      }, 120);
    }
  }

  // sumOverview sums the Ps' running time, by pixels of the overview.
  sumOverview(w, level, last, keys) {
    const busy = new Float32Array(Math.ceil(w));
    let missing = false;
    for (let i = 0; i <= last; i++) {
      for (const k of keys) {
        const t = this.tiles.get(level, i, k);
        if (!t || t.partial) missing = true;
        if (!t) continue;
        if (t.sums) {
          for (let b = 0; b < t.sums[0].length; b++) {
            const px = Math.floor((t.from + (b + 0.5) * t.bucket) / this.end * w);
            if (px >= 0 && px < busy.length) busy[px] = Math.max(busy[px], 0) + t.sums[0][b] / 255 * (t.bucket / this.end * w);
          }
        } else for (const q of t.pieces) {
          const a = q.from / this.end * w, b = q.to / this.end * w;
          for (let px = Math.floor(a); px <= b && px < busy.length; px++) busy[px] += Math.max(0, Math.min(b, px + 1) - Math.max(a, px));
        }
      }
    }
    return { busy, missing };
  }

  drawBar() {
    const all = this.contentHeight(), seen = this.viewHeight(), long = Math.max(24, seen / all * seen);
    const now = [all <= seen, overviewHeight + axisHeight + 'px', long + 'px', `translateY(${this.scroll / Math.max(1, all - seen) * (seen - long)}px)`];
    if (this.barAt === now.join()) return;
    this.barAt = now.join();
    [this.bar.hidden, this.bar.style.top, this.thumb.style.height, this.thumb.style.transform] = now;
  }
}
