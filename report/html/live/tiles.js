// The contents of lanes, from the server, in tiles: a tile of level k is 512 buckets of 2^k ns, as spans if there are few, else as the
// share of each state in each bucket. Tiles are cached; while one is loading, others of the same time replace it.

import { fetchAnswer } from './server.js';

export const tileBuckets = 512;
// levels of tiles: from buckets of 64 ns to more than a day in one.
const lowest = 6, highest = 36;
// maxCacheSize bounds the cache: a size of 1 is about 2.5 kB.
const maxCacheSize = 20000, atOnce = 2;
// An answer about few lanes arrives soon, and can be decoded between two frames.
const lanesAtOnce = 16;

// levelFor returns the level whose buckets are about a pixel wide.
export function levelFor(nsPerPixel) { return Math.max(lowest, Math.min(highest, Math.floor(Math.log2(Math.max(1, nsPerPixel))))); }

export function tileSpan(level) { return tileBuckets * 2 ** level; }

// decodeTile returns the tile in the server's answer about one lane (strip), whose pieces have start, length, state, goroutine, text and site.
function decodeTile(answer, strip) {
  const from = answer.from, tile = { from, to: answer.to, bucket: answer.bucket_ns, span: tileBuckets * answer.bucket_ns };
  if (strip.sums !== undefined) {
    const raw = atob(strip.sums), n = raw.length / 4, bytes = new Uint8Array(raw.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = raw.charCodeAt(i);
    return { ...tile, sums: [0, 1, 2, 3].map(k => bytes.subarray(k * n, (k + 1) * n)), size: 1 };
  }
  const p = strip.pieces, n = p.length / 6, pieces = new Array(n);
  for (let i = 0; i < n; i++) {
    const at = from + p[i * 6];
    pieces[i] = { from: at, to: at + p[i * 6 + 1], state: p[i * 6 + 2], g: p[i * 6 + 3], text: answer.texts[p[i * 6 + 4]], site: answer.sites[p[i * 6 + 5]] };
  }
  return { ...tile, pieces, size: 1 + n / 32 };
}

export class Tiles {
  // arrived is called when a requested tile arrived; failed with an error's text.
  constructor(arrived, failed) {
    this.arrived = arrived;
    this.failed = failed;
    this.known = new Map(); // "level index lane": a tile
    this.pending = new Map(); // by the same key: its request
    this.running = new Set();
    this.queue = [];
    this.cacheSize = 0;
    this.frame = 0; // the drawing's frame: trim keeps the tiles that the last one used
    this.spent = []; // the durations of answers, for measurements
  }

  get(level, index, lane) {
    const t = this.known.get(`${level} ${index} ${lane}`);
    if (t) t.used = this.frame;
    return t;
  }

  put(key, tile) {
    const old = this.known.get(key);
    if (old) this.cacheSize -= old.size;
    tile.used = this.frame;
    this.cacheSize += tile.size;
    this.known.set(key, tile);
  }

  // covering calls f(tile, from, to) with loaded tiles that cover a missing one: one of a higher level, else parts of lower levels.
  covering(level, index, lane, f) {
    const span = tileSpan(level), from = index * span, to = from + span;
    for (let k = level + 1, i = index; k <= Math.min(highest, level + 12); k++) {
      i = Math.floor(i / 2);
      const t = this.get(k, i, lane);
      if (t) return f(t, from, to);
    }
    for (let k = 1; k <= 2 && level - k >= lowest; k++) {
      let some = false;
      for (let i = 0; i < 2 ** k; i++) {
        const t = this.get(level - k, index * 2 ** k + i, lane);
        if (t) {
          some = true;
          f(t, t.from, t.to);
        }
      }
      if (some) return;
    }
  }

  // want requests the missing ones of the tiles [from, to] of a level on some lanes; after that, if up is true, the lanes' tiles one
  // level up, and the same tiles of the lanes that become visible next. It aborts requests for tiles that are no longer wanted.
  want(level, from, to, lanes, next, up) {
    const wanted = new Set([...lanes, ...next]), above = [Math.floor(from / 2), Math.floor(to / 2)];
    for (const r of this.running) {
      const [a, b] = r.level === level ? [from - 1, to + 1] : r.level === level + 1 && up ? above : [1, 0];
      if (r.index < a || r.index > b || !r.lanes.some(l => wanted.has(l))) r.stop.abort();
    }
    this.queue = [];
    this.enqueue(level, from, to, lanes);
    if (up && level < highest) this.enqueue(level + 1, ...above, lanes);
    this.enqueue(level, from, to, next);
    this.pump();
  }

  // enqueue queues the missing tiles, the middle first.
  enqueue(level, from, to, lanes) {
    const middle = (from + to) / 2, order = [];
    for (let i = from; i <= to; i++) order.push(i);
    order.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
    for (const index of order) {
      const missing = lanes.filter(l => {
        const key = `${level} ${index} ${l}`, t = this.known.get(key);
        return (!t || t.partial) && !this.pending.has(key);
      });
      for (let i = 0; i < missing.length; i += lanesAtOnce) this.queue.push({ level, index, lanes: missing.slice(i, i + lanesAtOnce) });
    }
  }

  pump() {
    while (this.running.size < atOnce && this.queue.length) this.fetch(this.queue.shift());
  }

  async fetch(q) {
    const span = tileSpan(q.level), run = { ...q, stop: new AbortController() }, began = performance.now();
    this.running.add(run);
    const keys = q.lanes.map(l => `${q.level} ${q.index} ${l}`);
    for (const k of keys) this.pending.set(k, run);
    let partial = false;
    try {
      const of = kind => q.lanes.filter(l => l[0] === kind).map(l => l.slice(1)).join(',');
      const answer = await fetchAnswer('strips', { from: q.index * span, to: (q.index + 1) * span, buckets: tileBuckets, p: of('p'), g: of('g'), t: of('t'), c: of('c') }, run.stop.signal);
      partial = !!answer.missing;
      for (const strip of answer.strips) {
        const tile = decodeTile(answer, strip);
        tile.partial = partial;
        tile.missing = answer.missing || [];
        this.put(`${q.level} ${q.index} ${['p', 'g', 't', 'c'].filter(k => strip[k] !== undefined).map(k => k + strip[k])}`, tile);
      }
      this.spent.push(performance.now() - began);
      this.trim();
    } catch (err) {
      if (err.name !== 'AbortError') this.failed(err.message);
    }
    this.running.delete(run);
    for (const k of keys) this.pending.delete(k);
    if (!run.stop.signal.aborted) this.arrived();
    this.pump();
  }

  // trim removes the least recently used tiles.
  trim() {
    if (this.cacheSize <= maxCacheSize) return;
    const old = [...this.known].filter(([, t]) => t.used < this.frame - 1).sort((a, b) => a[1].used - b[1].used);
    for (const [key, t] of old) {
      if (this.cacheSize <= maxCacheSize * 0.8) break;
      this.known.delete(key);
      this.cacheSize -= t.size;
    }
  }

  get busy() { return this.running.size > 0 || this.queue.length > 0; }
}
