// How lanes look on the canvas. States differ by height and place as well as by colour: running is a full bar, a system
// call a lower one, ready to run an outlined one, waiting a thin line in the colour of what is waited for.

const variables = ['bg', 'card', 'ink', 'dim', 'line', 'grid', 'stripe', 'run', 'hatch', 'accent', 'link', 'cpu', 'syscall', 'network', 'sleep', 'lock', 'chan', 'gc-assist', 'gc-wait', 'stw', 'sched', 'sched-wake', 'sched-poll', 'throttle', 'unknown', 'other'];

// colors are the style sheet's, as the theme has them now: a canvas does not know variables.
export function colors() {
  const probe = document.createElement('span'), out = {};
  document.body.append(probe);
  for (const v of variables) {
    probe.style.color = `var(--${v})`;
    out[v] = getComputedStyle(probe).color;
  }
  out.dark = getComputedStyle(document.documentElement).colorScheme === 'dark' || (!['light', 'dark'].includes(document.documentElement.dataset.theme) && matchMedia('(prefers-color-scheme: dark)').matches);
  probe.remove();
  return out;
}

// waitKind is the cause whose colour a wait has.
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

// hue gives a function's runs on a P a colour of their own, the same everywhere.
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

// The bars of a lane of height h, by state: [top, height], as shares of it.
const bars = [[0.14, 0.72], [0.26, 0.48], [0.44, 0.12], [0.26, 0.48]];

// piecesOn draws spans that are known one by one. What is narrower than a pixel is drawn as part of the pixel that it
// lies in, so that nothing is drawn more than once a pixel.
export function piecesOn(c, tile, from, to, x, y, h, col, isProc, focus, label) {
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
    if (isProc) {
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

// sumsOn draws buckets: of each the shares of the states, stacked from the bottom.
export function sumsOn(c, tile, from, to, x, y, h, col, isProc) {
  const n = tile.sums[0].length, b0 = Math.max(0, Math.floor((from - tile.from) / tile.bucket)), b1 = Math.min(n, Math.ceil((Math.min(to, tile.to) - tile.from) / tile.bucket));
  const top = y + h * 0.08, full = h * 0.84;
  const fills = isProc ? [[0, col.cpu]] : [[0, col.cpu], [3, col.syscall], [1, col.sched], [2, col.hatch]];
  if (isProc) {
    c.fillStyle = col.grid;
    c.fillRect(x(from), top, x(Math.min(to, tile.to)) - x(from), full);
  }
  // One path a state: filling is what costs.
  const base = new Float32Array(b1 - b0);
  for (const [st, color] of fills) {
    const s = tile.sums[st];
    c.beginPath();
    for (let k = b0; k < b1; k++) {
      const v = s[k];
      if (!v) continue;
      let share = v / 255;
      // Time that is there at all is seen; waiting is only a thin line, for it is what most do most of the time.
      if (st === 2) {
        if (base[k - b0] === 0) c.rect(x(tile.from + k * tile.bucket), top + full * 0.44, bucketWidth(k), Math.max(1.5, full * 0.14));
        continue;
      }
      share = Math.max(share, 0.07);
      const was = base[k - b0], add = Math.min(share, 1 - was);
      if (add <= 0) continue;
      c.rect(x(tile.from + k * tile.bucket), top + full * (1 - was - add), bucketWidth(k), full * add);
      base[k - b0] = was + add;
    }
    c.fillStyle = color;
    c.globalAlpha = st === 1 ? 0.8 : 1;
    c.fill();
    c.globalAlpha = 1;
  }
  function bucketWidth(k) { return Math.max(0.8, x(tile.from + (k + 1) * tile.bucket) - x(tile.from + k * tile.bucket) + 0.3); }
}
