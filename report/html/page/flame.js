// Flame graph of time on critical paths: waits at the top, then the causes, and below them the code.

import { h, s, replace, picture, foldedPart, table, tip, untip, cut } from './dom.js';
import { duration, percent, clean, place, siteText, count, brief, shortFunc } from './format.js';
import { causeInfo, causeClass, waitWords } from './causes.js';
import { report, pageData, bandByName, tail } from './model.js';
import { explainButton } from './how.js';
import { siteButton } from './site.js';
import { requestTable } from './listing.js';
import { view, onChange, beside, withBeside } from './state.js';

const rowH = 24;

// tree returns the tree of a band: each row is below the waits that lead to it. Values are ns per request.
export function tree(b) {
  const root = { name: 'request', full: '', cls: 'root', ns: 0, children: new Map(), depth: 0 };
  for (const r of b.causes) {
    // If several wait chains led to a cause, each has its part of the time.
    const routes = r.routes && r.routes.length ? r.routes : [{ via: r.via, total_ns: r.total_ns }];
    const left = r.total_ns - routes.reduce((n, x) => n + x.total_ns, 0);
    for (const x of routes) addPath(root, r, x.via || [], x.total_ns / b.count);
    if (left > 0) addPath(root, r, [{ wait: 'other waits', site: null }], left / b.count);
  }
  return root;
}

function addPath(root, r, via, ns) {
  let at = root;
  root.ns += ns;
  for (const v of via) at = childOf(at, clean(waitWords(v)) + (v.site ? ' · ' + place(v.site) : ''), `${clean(v.wait)} ${v.service ? clean(v.service) : siteText(v.site)}`, 'wait', ns, v.site);
  at = childOf(at, `${causeInfo(r.cause).short}${r.kind ? ` (${brief(r.kind, 40)})` : ''}`, clean(r.cause) + (r.kind ? ` (${brief(r.kind, 200)})` : ''), causeClass(r.cause), ns);
  at.cause = r.cause;
  // The line of the service's own code, and below it the site that it called.
  for (const site of r.site ? [r.site.called_from, r.site] : []) if (site) Object.assign(at = childOf(at, place(site), siteText({ ...site, called_from: null }), causeClass(r.cause), ns, site), { cause: r.cause });
}

// sandwich returns two trees of the boxes of a function: its callers, inverted, and its callees.
export function sandwich(root, func) {
  const top = () => ({ name: shortFunc(func), full: clean(func), cls: 'root', ns: 0, children: new Map(), depth: 0 }), callers = top(), callees = top();
  const merge = (at, from) => { for (const k of from.children.values()) merge(childOf(at, k.name, k.full, k.cls, k.ns, k.site), k); };
  const visit = n => {
    if (!n.site || n.site.func !== func) {
      for (const k of n.children.values()) visit(k);
      return;
    }
    callers.ns += n.ns;
    callees.ns += n.ns;
    let at = callers;
    for (let up = n.up; up; up = up.up) at = childOf(at, up.name, up.full || 'request', up.cls, n.ns, up.site);
    merge(callees, n);
  };
  visit(root);
  return { callers, callees };
}

// matching returns the time of the outermost boxes whose names contain a text.
export function matching(n, text) {
  if (n.up && `${n.name}\n${n.full}`.toLowerCase().includes(text)) return n.ns;
  return [...n.children.values()].reduce((ns, k) => ns + matching(k, text), 0);
}

function childOf(at, name, full, cls, ns, site) {
  const key = cls + '\n' + full;
  let k = at.children.get(key);
  if (!k) at.children.set(key, k = { name, full, cls, key, ns: 0, children: new Map(), depth: at.depth + 1, up: at, site });
  k.ns += ns;
  return k;
}

function find(root, node) {
  const keys = [];
  for (let n = node; n.up; n = n.up) keys.unshift(n.key);
  let at = root;
  for (const k of keys) at = at && at.children.get(k);
  return at || null;
}

// named returns a box's text. It shortens the name before it omits the time.
export function named(name, sign, time, px) {
  const tail = time ? ' · ' + time : '', all = cut(sign + name + tail, px, 12);
  if (all === sign + name + tail || !time) return all;
  const short = cut(name, px - 14 - time.length * 6.8, 12);
  return short ? short + tail : cut(name, px, 12);
}

function deepest(n) { return Math.max(n.depth, ...[...n.children.values()].map(deepest)); }

export function flame() {
  const box = h('div', { class: 'chart flame', tabindex: 0, role: 'group', 'aria-label': 'Flame graph. Arrow keys choose a box, Enter makes it fill the width, s shows its function with all that leads to it, Escape goes back.' });
  const controls = h('div', { class: 'tabs' }, ), tab = h('div'), chosenLine = h('p', { class: 'tabs chosenbox', 'aria-live': 'polite' });
  const found = h('span', { class: 'dim', role: 'status' }), search = h('input', { type: 'search', size: 18, placeholder: 'function, wait or cause', 'aria-label': 'Search the flame graph', id: 'flamesearch', oninput: () => { note(); draw(); }, onkeydown: ev => { if (ev.key === 'Escape' && search.value) { search.value = ''; note(); draw(); ev.stopPropagation(); } } });
  let whole = null, versus = null, func = ''; // of a sandwich: its source tree, the tree compared with that, and its function
  let bandName = '', other = '', before = pageData.before && { ...pageData.before, fileName: pageData.before.name || 'before' }, root = null, against = null, top = null, chosen = null, width = 0, drawn = [];

  const choose = node => { chosen = node; draw(); };
  const focus = node => { top = node; chosen = node; draw(); };
  const delta = node => {
    if (!against) return 0;
    const o = find(against, node);
    return node.ns - (o ? o.ns : 0);
  };

  const hit = node => !!search.value.trim() && !!node.up && `${node.name}\n${node.full}`.toLowerCase().includes(search.value.trim().toLowerCase());

  // showChosen shows the selected box and its actions.
  function showChosen() {
    const text = search.value.trim().toLowerCase();
    found.textContent = text ? `${percent(matching(root, text) / (root.ns || 1))} of the time matches` : '';
    const n = chosen, b = band(), filter = b && { group: view.group.id, min: b.from_ns, max: b.to_ns, cause: n && n.cause && n.cause !== 'other' ? n.cause : '', function: n && n.site ? n.site.func : '' };
    replace(chosenLine, func ? [h('span', null, 'Sandwich of ', h('code', null, clean(shortFunc(func))), ': who leads there above, what lies below it underneath '), h('button', { type: 'button', onclick: () => slice('') }, 'Back to all')] : null,
      n && (n.up || func) ? [h('strong', null, n.site ? siteButton(n.site, n.name) : n.name), h('span', null, ` ${duration(n.ns)}, ${percent(n.ns / (root.ns || 1))}`),
        n.site && n.site.func && n.site.func !== func ? h('button', { type: 'button', id: 'sandwich', onclick: () => slice(n.site.func) }, 'Sandwich (s)') : null,
        filter && (filter.cause || filter.function) ? h('button', { type: 'button', class: 'listing', onclick: () => requestTable.list(filter) }, 'List its requests') : null] : null);
  }

  function band() { return view.group && (bandByName(view.group, bandName) || bandByName(view.group, view.band) || tail(view.group)); }

  // slice shows the sandwich of one function, or the whole tree again.
  function slice(name) {
    whole ||= root;
    func = name;
    root = name ? sandwich(whole, name).callees : whole;
    against = name ? null : versus;
    top = chosen = root;
    note();
    draw();
  }

  // note writes the search and the sandwich's function to the address.
  function note() {
    beside.set('flame.search', search.value.trim());
    beside.set('flame.of', func);
    const a = withBeside(location.hash);
    if (a !== (location.hash || '#')) history.replaceState(null, '', a);
  }

  function draw() {
    if (!root || !width) return;
    showChosen();
    const height = (deepest(root) + 1) * rowH + 2;
    const svg = s('svg', { width, height, viewBox: `0 0 ${width} ${height}` });
    drawn = [];
    const span = top.ns || 1;
    const largest = against ? Math.max(1, ...[...walk(root)].map(n => Math.abs(delta(n)))) : 1;
    const put = (node, x, w) => {
      if (w < 0.3) return;
      drawn.push(node);
      const d = delta(node), y = node.depth * rowH;
      const cls = against ? (d >= 0 ? 'more' : 'less') : node.cls;
      const el = s('g', { class: 'box' + (node === chosen ? ' selected' : '') + (search.value.trim() ? hit(node) ? ' found' : ' missed' : ''), 'data-ns': node.ns, role: 'img', 'aria-label': `${node.full || 'request'}: ${duration(node.ns)}` }, s('rect', { class: cls + (against ? ' diff' : ''), x: x + 0.5, y: y + 1, width: Math.max(0.3, w - 1), height: rowH - 2, rx: 2 }));
      if (against) el.firstChild.style.fillOpacity = String(0.12 + 0.5 * Math.abs(d) / largest);
      if (w > 36) {
        const sign = against && Math.abs(d) >= 1 ? (d > 0 ? '+' : '−') + duration(Math.abs(d)) + ' ' : '';
        el.append(s('text', { class: 'boxname ' + (against ? 'on-diff' : 'on-' + node.cls), x: x + 6, y: y + rowH / 2 + 4 }, named(node.name, sign, against ? '' : duration(node.ns), w - 12)));
      }
      el.addEventListener('pointermove', ev => tip(ev, h('strong', null, node.full || 'request'), h('br'), `${duration(node.ns)} per request, ${percent(node.ns / root.ns)}`, against ? [h('br'), `${d >= 0 ? '+' : '−'}${duration(Math.abs(d))} against ${before ? clean(before.fileName) : other}`] : null));
      el.addEventListener('pointerleave', untip);
      el.addEventListener('click', () => focus(node === top && node.up ? node.up : node));
      svg.append(el);
      let at = x;
      for (const k of [...node.children.values()].sort((p, q) => q.ns - p.ns)) {
        const kw = w * k.ns / (node.ns || 1);
        put(k, at, kw);
        at += kw;
      }
    };
    // The ancestors of the box that fills the width are shown above it.
    const above = [];
    for (let n = top.up; n; n = n.up) above.unshift(n);
    for (const n of above) {
      const el = s('g', { class: 'box faded' }, s('rect', { class: n.cls, x: 0.5, y: n.depth * rowH + 1, width: width - 1, height: rowH - 2, rx: 2 }), s('text', { class: 'boxname on-' + n.cls, x: 6, y: n.depth * rowH + rowH / 2 + 4 }, cut(n.name, width - 12, 12)));
      el.addEventListener('click', () => focus(n));
      svg.append(el);
    }
    // The callers of a sandwich's function are shown above it, inverted: its direct callers are nearest.
    const over = func && top === root ? sandwich(whole, func).callers : null, height0 = over ? deepest(over) * rowH : 0;
    if (over) {
      svg.setAttribute('height', height + height0);
      svg.setAttribute('viewBox', `0 ${-height0} ${width} ${height + height0}`);
      const putInverted = (node, x, w) => {
        if (w < 0.3) return;
        if (node.up) {
          const el = s('g', { class: 'box caller', role: 'img', 'aria-label': `${node.full}: ${duration(node.ns)}` }, s('rect', { class: node.cls, x: x + 0.5, y: -node.depth * rowH + 1, width: Math.max(0.3, w - 1), height: rowH - 2, rx: 2 }));
          if (w > 36) el.append(s('text', { class: 'boxname on-' + node.cls, x: x + 6, y: -node.depth * rowH + rowH / 2 + 4 }, named(node.name, '', duration(node.ns), w - 12)));
          el.addEventListener('pointermove', ev => tip(ev, h('strong', null, node.full), h('br'), `${duration(node.ns)} per request on the way to ${clean(shortFunc(func))}`));
          el.addEventListener('pointerleave', untip);
          el.addEventListener('click', () => node.site && node.site.func && slice(node.site.func));
          svg.append(el);
        }
        let at = x;
        for (const k of [...node.children.values()].sort((p, q) => q.ns - p.ns)) {
          putInverted(k, at, w * k.ns / (node.ns || 1));
          at += w * k.ns / (node.ns || 1);
        }
      };
      putInverted(over, 0, width);
    }
    put(top, 0, width * top.ns / span);
    replace(box, svg);
  }

  function* walk(n) {
    yield n;
    for (const k of n.children.values()) yield* walk(k);
  }

  function rows() {
    const out = [];
    const go = (n, path) => {
      if (n.depth) out.push([path.join(' → '), duration(n.ns), percent(n.ns / root.ns), ...(against ? [(delta(n) >= 0 ? '+' : '−') + duration(Math.abs(delta(n)))] : [])]);
      for (const k of [...n.children.values()].sort((p, q) => q.ns - p.ns)) go(k, [...path, k.name]);
    };
    go(root, []);
    return out;
  }

  function change() {
    const g = view.group;
    if (!g) return;
    const bands = g.bands.filter(b => b.count > 0);
    if (!bands.length) {
      root = null;
      replace(controls);
      replace(box, h('p', { class: 'dim' }, 'No request of this group ended in the trace.'));
      replace(tab);
      return;
    }
    const b = bandByName(g, bandName) || bandByName(g, view.band) || tail(g);
    // The other side of the comparison: the same band of another report, or another band of this report.
    const old = before && before.groups.find(x => x.id === g.id), o = before ? old && bandByName(old, b.band) : bandByName(g, other);
    root = tree(b);
    whole = root;
    func = '';
    against = o && o !== b ? tree(o) : null;
    versus = against;
    top = chosen = root;
    const file = h('input', { type: 'file', accept: '.json,application/json', class: 'sr', id: 'before', onchange: async ev => {
      const chosenFile = ev.target.files[0];
      if (!chosenFile) return;
      try {
        const r = JSON.parse(await chosenFile.text());
        if (r.schema !== report.schema || !Array.isArray(r.groups)) throw new Error('no report');
        before = r;
        before.fileName = chosenFile.name;
        change();
      } catch {
        controls.append(h('span', { class: 'warn', role: 'alert' }, `${clean(chosenFile.name)} is no report in JSON`));
      }
    } });
    replace(controls, h('label', null, 'band ', h('select', { onchange: ev => { bandName = ev.target.value; change(); }, id: 'flameband' }, bands.map(x => h('option', { value: x.band, selected: x === b }, `${x.band}, ${count(x.count, 'request')}`)))),
      !before && bands.length > 1 ? h('label', null, 'compared with ', h('select', { onchange: ev => { other = ev.target.value; change(); }, id: 'flameother' }, h('option', { value: '' }, 'nothing'), bands.filter(x => x !== b).map(x => h('option', { value: x.band, selected: x === o }, x.band)))) : null,
      before ? [h('span', null, `compared with ${clean(before.fileName)}${against ? '' : ': it has no such band of this group'}`), h('button', { type: 'button', onclick: () => { before = null; change(); } }, 'no comparison')] : null,
      against ? [h('span', { class: 'dim' }, '+ more, − less per request '), explainButton('compare')] : null, h('label', { class: 'button' }, file, 'Before/after: other report…'), h('button', { type: 'button', onclick: () => focus(root) }, 'all'), search, found);
    replace(tab, foldedPart('Table of the flame graph', () => table('Flame graph', [{ text: 'Waits and cause' }, { text: 'Per request', num: true }, { text: 'Share', num: true }, ...(against ? [{ text: 'Difference', num: true }] : [])], rows())));
    draw();
  }

  box.addEventListener('keydown', ev => {
    if (!root || ev.ctrlKey || ev.metaKey || ev.altKey) return;
    const by = n => [...n.children.values()].sort((p, q) => q.ns - p.ns), beside = d => chosen.up && by(chosen.up)[by(chosen.up).indexOf(chosen) + d];
    const to = { ArrowDown: () => by(chosen)[0], ArrowUp: () => chosen.up, ArrowRight: () => beside(1), ArrowLeft: () => beside(-1) }[ev.key];
    if (to) {
      const n = to();
      if (n) choose(n);
    } else if (ev.key === 's' && chosen.site && chosen.site.func) slice(chosen.site.func);
    else if (ev.key === 'Escape' && func) slice('');
    else if (ev.key === 'Enter') focus(chosen);
    else if (ev.key === 'Escape') focus(root);
    else return;
    ev.preventDefault();
    ev.stopPropagation();
  });
  picture(box, w => { width = w; draw(); });
  onChange(c => { if (c.has('group') || c.has('band')) { if (c.has('group')) bandName = other = ''; change(); } });
  const wished = new URLSearchParams(location.hash.slice(1));
  search.value = wished.get('flame.search') || '';
  change();
  if (root && wished.get('flame.of')) slice(wished.get('flame.of'));
  return h('figure', { id: 'flame' }, h('figcaption', null, h('strong', null, 'Where the time of a request goes'), ': waits on the way from above, the cause and its code below ', explainButton('flame')), controls, chosenLine, box, tab);
}
