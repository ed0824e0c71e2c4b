// The table of all requests. Only the visible rows exist. The server sorts and filters the rows, and sends them page by page.

import { h, replace, add } from './dom.js';
import { duration, number, percent, count, clean, groupName, brief } from './format.js';
import { causeInfo, causeClass, order } from './causes.js';
import { report, groupByID } from './model.js';
import { bar } from './verdict.js';
import { explainButton } from './how.js';
import { fetchAnswer, parseTime, latest, debounce } from './server.js';

const rowHeight = 30, pageRows = 100;
// tallest bounds the height of the scrolled area in pixels, because browsers limit it. Beyond it, scrolling skips rows.
const tallest = 6e6;

const tableColumns = [
  { key: 'time', text: 'Start' }, { key: 'latency', text: 'Latency' }, { key: 'group', text: 'Group' }, { key: '', text: 'Spent on' }, { key: 'goroutine', text: 'Goroutine' },
];

// allRequests creates the part. Options: open(n, query) opens a request.
export function allRequests(options) {
  const state = { sort: 'latency', desc: true, filter: {} };
  let total = 0, pages = new Map(), chosen = -1, opened = -1, wanted = new Set(), generation = 0;

  const query = () => ({ ...state.filter, sort: state.sort, desc: state.desc });
  const space = h('div', { class: 'space' }), rows = h('div', { class: 'rows', role: 'presentation' }), body = h('div', { class: 'vbody', tabindex: 0, role: 'rowgroup' }, space, rows);
  const head = h('div', { class: 'vrow vhead', role: 'row' }), grid = h('div', { class: 'vtable', role: 'grid', 'aria-label': 'All requests. Arrow keys choose one, Enter opens it.' }, h('div', { role: 'rowgroup' }, head), body);
  const sum = h('div', { class: 'sum', 'aria-live': 'polite' }), problem = h('p', { class: 'warn', hidden: true });

  const height = () => Math.min(total * rowHeight, tallest);
  const visible = () => Math.min(100, Math.ceil(body.clientHeight / rowHeight));
  const room = () => Math.max(1, height() - body.clientHeight);
  // first is the row at the top of the view.
  const first = () => total * rowHeight <= tallest ? body.scrollTop / rowHeight : body.scrollTop / room() * Math.max(0, total - body.clientHeight / rowHeight);
  const scrollTo = row => { body.scrollTop = total * rowHeight <= tallest ? row * rowHeight : row / Math.max(1, total - body.clientHeight / rowHeight) * room(); };

  function header() {
    replace(head, tableColumns.map(c => h('span', { role: 'columnheader', class: 'vcell c-' + (c.key || 'causes'), 'aria-sort': c.key === state.sort ? state.desc ? 'descending' : 'ascending' : null },
      c.key ? h('button', { type: 'button', class: 'plain', 'data-sort': c.key, onclick: () => sortBy(c.key) }, c.text, c.key === state.sort ? state.desc ? ' ↓' : ' ↑' : '') : [c.text, ' ',
        h('select', { 'aria-label': 'Sort by the time of a cause', onchange: ev => sortBy(ev.target.value || 'latency', true) }, h('option', { value: '' }, 'sort by cause …'),
          present.map(k => h('option', { value: k, selected: k === state.sort }, causeInfo(k).short)))])));
  }
  // present are the causes that the requests have.
  let present = [];

  function sortBy(key, down) {
    state.desc = down || (state.sort === key ? !state.desc : key === 'latency');
    state.sort = key;
    header();
    load();
  }

  const load = latest(async signal => {
    options.changed();
    generation++;
    pages = new Map();
    wanted = new Set();
    body.setAttribute('aria-busy', 'true');
    sum.classList.add('busy');
    try {
      const p = await fetchAnswer('requests', { ...query(), limit: pageRows }, signal);
      total = p.total;
      pages.set(0, p.rows);
      problem.hidden = true;
      if (!present.length) {
        present = p.causes.map(c => c.cause).sort((a, b) => order.indexOf(a) - order.indexOf(b));
        for (const k of present) if (k !== state.filter.cause) causeChoice.append(h('option', { value: k }, causeInfo(k).short));
      }
      chosen = -1;
      header();
      space.style.height = height() + 'px';
      grid.setAttribute('aria-rowcount', total);
      body.scrollTop = 0;
      replace(sum, h('span', null, h('strong', null, count(total, 'request')), ', ', duration(p.total_ns), ' in all ', explainButton('share')),
        p.causes.length ? bar(p.causes.map(c => [c.cause, c.ns]).sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0])), 'What these requests spent their time on') : null);
      draw();
    } catch (err) {
      if (signal.aborted) return;
      problem.textContent = clean(err.message);
      problem.hidden = false;
    } finally {
      if (!signal.aborted) {
        body.removeAttribute('aria-busy');
        sum.classList.remove('busy');
      }
    }
  });

  async function fetchPage(k) {
    if (wanted.has(k)) return;
    wanted.add(k);
    const mine = generation;
    try {
      const p = await fetchAnswer('requests', { ...query(), offset: k * pageRows, limit: pageRows });
      if (mine !== generation) return;
      pages.set(k, p.rows);
      // Pages far from the view are dropped: the server can send them again.
      if (pages.size > 40) for (const old of [...pages.keys()].filter(o => Math.abs(o - k) > 12)) { pages.delete(old); wanted.delete(old); }
      draw();
    } catch (err) {
      if (mine !== generation) return;
      problem.textContent = clean(err.message);
      problem.hidden = false;
    }
  }

  const rowAt = i => { const p = pages.get(Math.floor(i / pageRows)); return p ? p[i % pageRows] : undefined; };
  const fetchVisible = debounce(() => {
    const from = Math.floor(first() / pageRows), to = Math.floor(Math.min(total - 1, first() + visible() + 1) / pageRows);
    for (let k = from; k <= to; k++) if (!pages.has(k)) fetchPage(k);
  }, 40);

  function draw() {
    const top = first(), from = Math.max(0, Math.floor(top)), to = Math.min(total, from + visible() + 2), list = [];
    let missing = false;
    for (let i = from; i < to; i++) {
      const r = rowAt(i);
      missing = missing || !r;
      list.push(rowNode(i, r));
    }
    rows.style.transform = `translateY(${body.scrollTop - (top - from) * rowHeight}px)`;
    replace(rows, list);
    if (!total) replace(rows, h('div', { class: 'vrow none' }, 'No requests match.'));
    if (missing) fetchVisible();
  }

  function rowNode(i, r) {
    if (!r) return h('div', { class: 'vrow waiting', role: 'row', 'aria-rowindex': i + 1 }, h('span', { class: 'dim' }, '…'));
    const g = groupByID(r.group), spent = r.causes[0];
    return h('div', { class: 'vrow' + (i === chosen ? ' chosen' : '') + (r.n === opened ? ' opened' : ''), role: 'row', 'aria-rowindex': i + 1, 'aria-selected': r.n === opened ? 'true' : null, 'data-n': r.n, onclick: () => { chosen = i; open(r.n); } },
      h('span', { role: 'gridcell', class: 'vcell num c-time' }, duration(r.start_ns)),
      h('span', { role: 'gridcell', class: 'vcell num c-latency' }, duration(r.latency_ns), r.open ? h('span', { class: 'kind', title: 'not over when the trace ended' }, 'open') : null),
      h('span', { role: 'gridcell', class: 'vcell c-group' }, g ? groupName(g) : brief(r.group)),
      h('span', { role: 'gridcell', class: 'vcell c-causes' }, causeBar(r), spent ? h('span', { class: 'dim' }, `${causeInfo(spent.cause).short} ${percent(spent.ns / r.latency_ns)}`) : null),
      h('span', { role: 'gridcell', class: 'vcell num c-goroutine' }, `G${r.goroutine}`));
  }

  // causeBar returns a bar of a row's causes.
  function causeBar(r) {
    return h('span', { class: 'mini', 'aria-hidden': 'true' }, [...r.causes].sort((a, b) => order.indexOf(a.cause) - order.indexOf(b.cause)).map(c => h('i', { class: causeClass(c.cause), style: { flexGrow: String(c.ns / Math.max(1, r.latency_ns)) } })));
  }

  function open(n) {
    opened = n;
    draw();
    options.open(n, query());
  }

  body.addEventListener('scroll', draw, { passive: true });
  body.addEventListener('keydown', ev => {
    if (ev.ctrlKey || ev.metaKey || ev.altKey || !total) return;
    const page = Math.max(1, visible() - 2), at = Math.max(chosen, Math.ceil(first()) - 1);
    const to = { ArrowDown: at + 1, ArrowUp: chosen < 0 ? Math.ceil(first()) : chosen - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: total - 1 }[ev.key];
    if (to !== undefined) {
      ev.preventDefault();
      ev.stopPropagation();
      chosen = Math.max(0, Math.min(total - 1, to));
      if (chosen < first() || chosen > first() + visible() - 2) scrollTo(Math.max(0, chosen - (to > at ? visible() - 3 : 0)));
      draw();
    } else if (ev.key === 'Enter' && rowAt(chosen)) {
      ev.preventDefault();
      open(rowAt(chosen).n);
    }
  });
  new ResizeObserver(() => draw()).observe(body);

  // The filters.
  const filters = ['group', 'cause', 'share', 'min', 'max', 'from', 'to', 'function', 'open'];
  const changed = debounce(() => load(), 250);
  const set = (k, v) => { if (v === '' || v === 0 || v === false) delete state.filter[k]; else state.filter[k] = v; changed(); };
  const timeField = (k, label, hint) => h('label', { class: 'field' }, label, h('input', { type: 'text', size: 8, placeholder: hint, 'data-filter': k, oninput: ev => {
    const ns = parseTime(ev.target.value);
    ev.target.setAttribute('aria-invalid', ns === null);
    if (ns !== null) set(k, ns);
  } }));
  const groupChoice = h('select', { 'data-filter': 'group', onchange: ev => set('group', ev.target.value) }, h('option', { value: '' }, 'all groups'), report.groups.map(g => h('option', { value: g.id }, `${brief(groupName(g), 60)} (${number(g.count)})`)));
  const causeChoice = h('select', { 'data-filter': 'cause', onchange: ev => set('cause', ev.target.value) }, h('option', { value: '' }, 'any cause'));
  const shareChoice = h('select', { 'data-filter': 'share', 'aria-label': 'least share of the cause', onchange: ev => set('share', Number(ev.target.value)) }, [[0, 'any share'], [0.1, 'at least 10%'], [0.25, 'at least 25%'], [0.5, 'at least 50%'], [0.9, 'at least 90%']].map(([v, t]) => h('option', { value: v }, t)));
  const functionField = functionInput('In function', 'data-filter', t => set('function', t));
  const openOnly = h('label', { class: 'inline' }, h('input', { type: 'checkbox', 'data-filter': 'open', onchange: ev => set('open', ev.target.checked) }), ' still open at the end');
  const form = h('form', { class: 'filters', onsubmit: ev => ev.preventDefault(), onreset: () => { state.filter = {}; changed(); } },
    h('label', { class: 'field' }, 'Group', groupChoice), h('label', { class: 'field' }, 'Cause', h('span', null, causeChoice, ' ', shareChoice)), timeField('min', 'Latency from', '20ms'), timeField('max', 'to', '1s'),
    timeField('from', 'Started from', '0s'), timeField('to', 'to', '2.5s'), functionField, openOnly, h('button', { type: 'reset' }, 'Reset'));

  const el = add(h('section', { id: 'all' }), [h('h2', null, 'All requests'), form, problem, sum, grid]);
  return {
    el, query, load,
    mark(n) { opened = n; draw(); },
    // shown returns the table's parameters of the address; show sets them.
    shown: () => ({ ...Object.fromEntries(filters.map(k => [k, state.filter[k] || ''])), sort: state.sort === 'latency' && state.desc ? '' : (state.desc ? '-' : '') + state.sort }),
    show(get, alone) {
      if (alone) form.reset();
      for (const k of filters) {
        const v = get(k), number = ['share', 'min', 'max', 'from', 'to'].includes(k);
        if (!v) continue;
        state.filter[k] = number ? Number(v) || 0 : k === 'open' ? true : v;
        const field = form.querySelector(`[data-filter=${k}]`);
        if (k === 'open') field.checked = true;
        // The first answer of the server contains the present causes.
        else if (k === 'cause' && ![...field.options].some(o => o.value === v)) field.append(h('option', { value: v, selected: true }, causeInfo(v).short));
        else field.value = ['min', 'max', 'from', 'to'].includes(k) ? duration(state.filter[k]) : v;
      }
      const sort = get('sort');
      if (sort) [state.sort, state.desc] = [sort.replace(/^-/, ''), sort.startsWith('-')];
      header();
      load();
    },
    setTimes(from, to) {
      for (const [k, v] of [['from', from], ['to', to]]) form.querySelector(`[data-filter=${k}]`).value = duration(v);
      state.filter.from = Math.round(from);
      state.filter.to = Math.round(to);
      load();
    },
  };
}

// functionInput returns a field for a part of a function's name, which suggests the existing names.
export function functionInput(label, mark, use) {
  const id = 'fns' + functionInput.next++, list = h('datalist', { id });
  const suggest = latest(async (signal, text) => {
    const found = await fetchAnswer('functions', { q: text, limit: 20 }, signal);
    replace(list, found.functions.map(f => h('option', { value: f.name })));
  });
  const field = h('input', { type: 'search', size: 22, list: id, placeholder: 'part of its name', maxlength: 400, autocomplete: 'off', spellcheck: 'false', [mark]: 'function', oninput: ev => {
    const t = ev.target.value.trim();
    if (t.length > 1) suggest(t).catch(() => {});
    use(t);
  } });
  return h('label', { class: 'field' }, label, field, list);
}
functionInput.next = 0;
