// The drawing of lanes on the canvas. States differ by height and position as well as by colour: running is a full bar, a system
// call a lower one, ready to run an outlined one, waiting a thin line in the colour of the wait's cause.

import { threadStates, peerStates } from './waterfall.js';

const variables = ['bg', 'card', 'ink', 'dim', 'line', 'grid', 'stripe', 'run', 'hatch', 'accent', 'link', 'cpu', 'syscall', 'network', 'sleep', 'lock', 'chan', 'queue', 'gc-assist', 'gc-wait', 'stw', 'sched', 'sched-wake', 'sched-poll', 'cpu-wait', 'disk', 'throttle', 'unknown', 'other'];
const causesDrawn = variables.slice(variables.indexOf('cpu'));

// colors returns the style sheet's colours in the current theme, because a canvas cannot use its variables.
export function colors() {
  const probe = document.createElement('span'), out = {};
  document.body.append(probe);
  for (const v of [...variables, ...causesDrawn.map(v => 'on-' + v)]) {
    probe.style.color = `var(--${v})`;
    out[v] = getComputedStyle(probe).color;
  }
  out.dark = getComputedStyle(document.documentElement).colorScheme === 'dark' || (!['light', 'dark'].includes(document.documentElement.dataset.theme) && matchMedia('(prefers-color-scheme: dark)').matches);
  probe.remove();
  return out;
}

// waitKind returns the cause whose colour a wait has.
export function waitKind(reason) {
  if (!reason) return 'hatch';
  if (reason === 'network') return 'network';
  if (reason === 'sleep') return 'sleep';
  if (reason.startsWith('chan') || reason === 'select') return 'chan';
  if (reason.startsWith('sync')) return 'lock';
  if (/GC|sweep/.test(reason)) return 'gc-wait';
  return 'hatch';
}

const hues = new Map();

// hue returns the colour of a function's runs on a P. A function has the same colour everywhere.
export function hue(name, dark) {
  const key = (dark ? 'd' : 'l') + name;
  let c = hues.get(key);
  if (!c) {
    let n = 2166136261;
    for (let i = 0; i < name.length; i++) n = Math.imul(n ^ name.charCodeAt(i), 16777619);
    const a = ((n >>> 0) % 24) * 15, light = ((n >>> 8) & 3) * 4;
    c = dark ? `hsl(${a} 34% ${46 + light}%)` : `hsl(${a} 40% ${48 + light}%)`;
    hues.set(key, c);
  }
  return c;
}

// The states of threads and then of peers, by number, as the server sends them: name, the cause whose colour they have, and whether it is a peer's.
export const threadKinds = [...['unknown', 'on-cpu', 'cpu-wait', 'throttled', 'disk', 'asleep', 'stopped'].map(name => [name, (threadStates[name] || [0, 'unknown'])[1], false]),
  ...Object.entries(peerStates).map(([name, [, cause]]) => [name, cause, true])];

// The bars of a lane of height h, by state: [top, height], as shares of it.
const bars = [[0.14, 0.72], [0.26, 0.48], [0.44, 0.12], [0.26, 0.48]];

// piecesOn draws single spans of a lane of a kind: the first letter of its key. Spans narrower than a pixel are drawn as one part of their pixel, so that each pixel is drawn only
// once.
export function piecesOn(c, tile, from, to, x, y, h, col, kind, focus, label) {
  const p = tile.pieces;
  let lo = 0, hi = p.length;
  while (lo < hi) {
    const m = (lo + hi) >> 1;
    if (p[m].to <= from) lo = m + 1; else hi = m;
  }
  const done = [-1, -1, -1, -1];
  for (let i = lo; i < p.length && p[i].from < to; i++) {
    const q = p[i], a = x(Math.max(q.from, from)), b = x(Math.min(q.to, to)), st = q.state;
    if (b - a < 0.6 && b < done[st] + 0.6) continue;
    const w = Math.max(0.8, b - a), [t, part] = bars[st];
    done[st] = a + w;
    if (kind === 't') {
      c.fillStyle = col[threadKinds[q.g][1]];
      c.fillRect(a, y, w, h);
      continue;
    }
    if (kind === 'c') {
      c.fillStyle = st === 0 ? col.cpu : hue(q.text, col.dark);
      c.fillRect(a, y + h * 0.1, w, h * 0.8);
      if (w > 12 && st !== 0) label(q, a, w);
      continue;
    }
    if (kind === 'p') {
      const mine = focus && focus.has(q.g);
      c.globalAlpha = focus && !mine ? 0.35 : 1;
      c.fillStyle = mine ? col.accent : hue(q.text || String(q.g), col.dark);
      c.fillRect(a, y + h * 0.1, w, h * 0.8);
      if (w > 4) {
        c.fillStyle = col.card;
        c.fillRect(a, y + h * 0.1, 0.6, h * 0.8);
      }
      c.globalAlpha = 1;
      if (w > 12) label(q, a, w);
      continue;
    }
    switch (st) {
      case 0:
        c.fillStyle = col.cpu;
        c.fillRect(a, y + h * t, w, h * part);
        break;
      case 1:
        c.fillStyle = col.sched;
        c.globalAlpha = 0.42;
        c.fillRect(a, y + h * t, w, h * part);
        c.globalAlpha = 1;
        c.fillRect(a, y + h * t, w, 1);
        c.fillRect(a, y + h * (t + part) - 1, w, 1);
        break;
      case 2:
        c.fillStyle = col[waitKind(q.text)];
        c.fillRect(a, y + h * t, w, Math.max(1.5, h * part));
        if (w > 24) label(q, a, w);
        break;
      default:
        c.fillStyle = col.syscall;
        c.fillRect(a, y + h * t, w, h * part);
    }
  }
}

// keepPictures bounds the pictures in the cache, of 45 kB each at one device pixel a pixel; mostPictures bounds those that are drawn in
// one frame.
const keepPictures = 700, mostPictures = 32;

// Pictures are the sums of tiles as pixels, a column a bucket. Drawing thousands of small rectangles takes longer than a frame, so a
// picture is drawn once, and then only copied.
export class Pictures {
  constructor() {
    this.made = new Map(); // by tile, the most recently used at the end
    this.canvas = new OffscreenCanvas(1, 1);
    this.context = this.canvas.getContext('2d', { willReadFrequently: true });
  }

  // begin begins a frame with the theme's colours and ratio device pixels a pixel.
  begin(col, ratio) {
    this.left = mostPictures;
    this.short = false; // a picture was not drawn, so another frame is needed
    if (this.col === col && this.ratio === ratio) return;
    for (const p of this.made.values()) p.close();
    this.made.clear();
    [this.col, this.ratio] = [col, ratio];
    this.inks = {};
    for (const v of ['cpu', 'syscall', 'sched', 'cpu-wait', 'throttle', 'disk', 'hatch', 'grid']) this.inks[v] = this.ink(col[v], v === 'sched' ? 0.8 : 1);
  }

  // ink returns a colour as a pixel of four bytes.
  ink(color, alpha) {
    const c = this.context, one = new Uint8ClampedArray(4);
    c.clearRect(0, 0, 1, 1);
    c.fillStyle = color;
    c.fillRect(0, 0, 1, 1);
    one.set(c.getImageData(0, 0, 1, 1).data);
    one[3] = Math.round(one[3] * alpha);
    return new Uint32Array(one.buffer)[0];
  }

  // of returns the picture of a tile on a lane of height h, null if this frame's limit is reached.
  of(tile, h, kind) {
    const height = Math.max(1, Math.round(h * this.ratio));
    let p = this.made.get(tile);
    if (p) this.made.delete(tile);
    if (!p || p.height !== height) {
      if (p) p.close();
      if (this.left-- <= 0) {
        this.short = true;
        return null;
      }
      p = this.make(tile, height, kind);
    }
    this.made.set(tile, p);
    if (this.made.size > keepPictures) {
      const [oldest, picture] = this.made.entries().next().value;
      picture.close();
      this.made.delete(oldest);
    }
    return p;
  }

  make(tile, height, kind) {
    const sums = tile.sums || sumsOf(tile), n = sums[0].length, image = new ImageData(n, height), to = new Uint32Array(image.data.buffer), ink = this.inks;
    const top = height * 0.08, full = height * 0.84, bottom = Math.round(top + full);
    const bar = (k, y0, y1, color) => { for (let y = Math.max(0, y0); y < y1; y++) to[y * n + k] = color; };
    if (kind === 'p') for (let k = 0; k < n; k++) bar(k, Math.round(top), bottom, ink.grid);
    // States are stacked from the bottom.
    const stack = { p: [[0, ink.cpu]], c: [[0, ink.cpu], [1, ink['cpu-wait']]], t: [[0, ink.cpu], [1, ink['cpu-wait']], [3, ink.throttle], [2, ink.disk]] }[kind] || [[0, ink.cpu], [3, ink.syscall], [1, ink.sched]];
    const line = Math.round(top + full * 0.44), thick = Math.max(1, Math.round(full * 0.14));
    for (let k = 0; k < n; k++) {
      let base = 0, y = bottom;
      for (const [st, color] of stack) {
        if (!sums[st][k] || base >= 1) continue;
        // Even the shortest time is visible.
        base = Math.min(1, base + Math.max(sums[st][k] / 255, 0.07));
        const next = Math.min(y - 1, Math.round(top + full * (1 - base)));
        bar(k, next, y, color);
        y = next;
      }
      // Waiting is only a thin line, because most goroutines wait most of the time.
      if (base === 0 && kind === 'g' && sums[2][k]) bar(k, line, line + thick, ink.hatch);
    }
    this.canvas.width = n;
    this.canvas.height = height;
    this.context.putImageData(image, 0, 0);
    return this.canvas.transferToImageBitmap();
  }
}

// sumsOf returns the sums of pieces, as the server does if there are too many: 255 is a whole bucket, and any time more than 0 is at
// least 1.
export function sumsOf(tile) {
  const n = Math.max(1, Math.round(tile.span / tile.bucket)), ns = [0, 1, 2, 3].map(() => new Float64Array(n));
  for (const q of tile.pieces) {
    for (let k = Math.max(0, Math.floor((q.from - tile.from) / tile.bucket)); k < n; k++) {
      const a = tile.from + k * tile.bucket;
      if (a >= q.to) break;
      ns[q.state][k] += Math.min(q.to, a + tile.bucket) - Math.max(q.from, a);
    }
  }
  return ns.map(list => Uint8Array.from(list, v => v > 0 ? Math.min(255, Math.max(1, Math.floor(v * 255 / tile.bucket))) : 0));
}

// sumsOn draws the part of a tile in [from, to) as sums, and reports whether it could.
export function sumsOn(c, pictures, tile, from, to, x, y, h, kind) {
  const p = pictures.of(tile, h, kind), whole = v => Math.round(v * pictures.ratio) / pictures.ratio;
  to = Math.min(to, tile.to);
  // Borders are at whole device pixels, so that there is no gap between adjacent tiles.
  const a = whole(x(from)), b = whole(x(to));
  if (!p || b <= a) return !!p;
  const left = (from - tile.from) / tile.bucket, wide = (to - from) / tile.bucket;
  // A bucket wider than a pixel has sharp edges.
  c.imageSmoothingEnabled = wide > (b - a) * pictures.ratio;
  c.drawImage(p, left, 0, wide, p.height, a, whole(y), b - a, p.height / pictures.ratio);
  return true;
}
