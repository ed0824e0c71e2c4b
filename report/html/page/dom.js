// Functions that create elements from plain values. All text becomes text nodes, never markup.

import { middle } from './format.js';

const svgNS = 'http://www.w3.org/2000/svg';

function build(el, props, children) {
  for (const [k, v] of Object.entries(props || {})) {
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith('on')) el.addEventListener(k.slice(2), v);
    else if (k === 'style') Object.assign(el.style, v);
    else el.setAttribute(k, v === true ? '' : v);
  }
  add(el, children);
  return el;
}

export function add(el, children) {
  for (const c of [children].flat(Infinity)) {
    if (c === null || c === undefined || c === false) continue;
    el.append(c instanceof Node ? c : String(c));
  }
  return el;
}

export function h(tag, props, ...children) { return build(document.createElement(tag), props, children); }

export function s(tag, props, ...children) { return build(document.createElementNS(svgNS, tag), props, children); }

// typing reports whether a key event is for a field, a dialog or the browser, not for the page's keys.
export function typing(ev) {
  return ev.ctrlKey || ev.metaKey || ev.altKey || !!document.querySelector('dialog[open], :popover-open') || /^(INPUT|SELECT|TEXTAREA)$/.test(ev.target.tagName);
}

export function replace(el, ...children) {
  el.replaceChildren();
  return add(el, children);
}

// table creates a table. Columns are {text, num}; rows are lists of cells, each text, a node, or a list of those.
export function table(caption, columns, rows, props) {
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    h('table', props,
      h('caption', { class: 'sr' }, caption),
      h('thead', null, h('tr', null, columns.map(c => h('th', { scope: 'col', class: c.num ? 'num' : null }, c.text)))),
      h('tbody', null, rows.map(r => h('tr', null, r.map((cell, i) => i === 0 ? h('th', { scope: 'row', class: columns[i].num ? 'num' : null }, cell)
        : h('td', { class: columns[i].num ? 'num' : null }, cell)))))));
}

// foldedPart returns a folded part that is built when it is first opened, because tables of pictures can be long.
export function foldedPart(title, make, props) {
  const body = h('div');
  const el = h('details', { class: 'behind', ...props }, h('summary', null, title), body);
  el.addEventListener('toggle', () => {
    if (el.open && !body.firstChild) add(body, make());
  });
  return el;
}

// copyText copies a text to the clipboard; if the browser refuses, it shows the text for copying.
export function copyText(button, text, label) {
  const done = ok => {
    const before = button.textContent;
    button.textContent = ok ? 'Copied' : 'Select and copy below';
    setTimeout(() => { button.textContent = before; }, 2000);
  };
  const shown = () => {
    const area = h('textarea', { readonly: true, class: 'json', 'aria-label': label });
    area.value = text;
    button.after(area);
    area.select();
    done(false);
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => done(true), shown);
  else shown();
}

// Pictures that wait for their first drawing. They are drawn after the page's first frame, one in each task, so that the page is
// readable and responds to keys in between. The root element's data-drawn says when all are drawn.
const waiting = [];
let busy = false;

function pump() {
  if (busy) return;
  busy = true;
  document.documentElement.dataset.drawn = 'false';
  const one = () => {
    const f = waiting.shift();
    if (f) f();
    if (waiting.length) setTimeout(one);
    else {
      busy = false;
      document.documentElement.dataset.drawn = 'true';
    }
  };
  requestAnimationFrame(() => setTimeout(one));
}

// drawNow draws all waiting pictures, for callers that need their heights.
export function drawNow() { while (waiting.length) waiting.shift()(); }

// picture calls draw(width) soon, and whenever the width changes.
export function picture(el, draw) {
  let last = 0, begun = false;
  const run = () => {
    const w = Math.floor(el.clientWidth);
    if (w > 0 && w !== last) {
      last = w;
      draw(w);
    }
  };
  waiting.push(() => {
    begun = true;
    run();
    new ResizeObserver(run).observe(el);
  });
  pump();
  return { again() { last = 0; if (begun) run(); } };
}

// tipBox is the box that follows the pointer. There is only one.
const tipBox = h('div', { id: 'tip', role: 'status' });

export function tip(event, ...content) {
  if (!tipBox.parentNode) document.body.append(tipBox);
  replace(tipBox, content);
  tipBox.style.display = 'block';
  const at = event.target.getBoundingClientRect();
  const x = event.clientX || at.left + at.width / 2, y = event.clientY || at.bottom;
  const w = tipBox.offsetWidth, height = tipBox.offsetHeight;
  tipBox.style.left = Math.max(4, Math.min(x + 14, document.documentElement.clientWidth - w - 4)) + 'px';
  tipBox.style.top = (y + 18 + height > window.innerHeight ? Math.max(4, y - height - 12) : y + 18) + 'px';
}

export function untip() { tipBox.style.display = 'none'; }

const ruler = document.createElement('canvas').getContext('2d');
let family = '';

// cut shortens text in its middle until it is at most px pixels wide in the page's font of the given size; '' if nothing fits.
export function cut(text, px, size) {
  family ||= getComputedStyle(document.body).fontFamily;
  ruler.font = `${size}px ${family}`;
  let w = ruler.measureText(text).width, n = [...text].length, out = text;
  while (w > px && n > 0) {
    n = Math.min(n - 1, Math.floor(n * px / w));
    out = n < 5 ? '' : middle(text, n);
    w = ruler.measureText(out).width;
  }
  return out;
}

// ticks returns at most n round numbers in [from, to].
export function ticks(from, to, n) {
  const span = to - from;
  if (!(span > 0)) return [from];
  let step = 10 ** Math.floor(Math.log10(span / n));
  step = [1, 2, 5, 10].map(m => m * step).find(st => span / st <= n) || step * 10;
  const out = [];
  for (let v = Math.ceil(from / step) * step; v <= to * (1 + 1e-12); v += step) out.push(v);
  return out;
}

// logTicks returns 1, 2 and 5 times each power of ten, or only the powers of ten if there are many.
export function logTicks(from, to, n) {
  const out = [];
  for (const marks of [[1, 2, 5], [1, 3], [1]]) {
    out.length = 0;
    for (let e = Math.floor(Math.log10(from)); 10 ** e <= to; e++) {
      for (const m of marks) {
        const v = m * 10 ** e;
        if (v >= from && v <= to) out.push(v);
      }
    }
    if (out.length <= n) break;
  }
  return out.length > 1 ? out : ticks(from, to, n);
}
