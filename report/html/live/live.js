// Adds the parts for which the page asks a server.

import { h, add, typing } from './dom.js';
import { number, bytes, clean } from './format.js';
import { fetchAnswer, latest, debounce, requestRecording } from './server.js';
import { pageData, report } from './model.js';
import { beside, withBeside, onChange, linked } from './state.js';
import { requestTable } from './listing.js';
import { allRequests } from './allrequests.js';
import { openedRequest } from './openedrequest.js';
import { Timelines } from './timelines.js';
import { functionsTable } from './functions.js';

function begin() {
  const main = document.querySelector('#page main');
  let query = {};
  const note = text => { document.getElementById('all').querySelector('.warn').hidden = !text; document.getElementById('all').querySelector('.warn').textContent = clean(text); };
  const open = latest(async (signal, n, q, stay) => {
    try {
      const answer = await fetchAnswer('request', { ...(q || query), n }, signal);
      if (q) query = q;
      note('');
      left = false;
      one.show(answer);
      list.mark(answer.n);
      changed();
      if (!stay) one.el.scrollIntoView({ block: 'nearest' });
    } catch (err) {
      if (!signal.aborted) note(err.message);
    }
  });
  // The address contains the whole view: all.* the table, lanes.* the lanes, open the opened request. It is not written before it has
  // been read once.
  let reading = true;
  const write = debounce(() => {
    for (const [part, of] of [['all', list], ['fn', table], ['lanes', lanes]]) for (const [k, v] of Object.entries(of.shown())) beside.set(`${part}.${k}`, v === true ? '1' : String(v));
    beside.set('open', one.request && !left ? one.request.id : '');
    const a = withBeside(location.hash);
    if (a !== (location.hash || '#')) history.replaceState(null, '', a);
  }, 150);
  let left = false; // a request of the report replaced the opened one
  const changed = () => { if (!reading) write(); };
  onChange(c => { left = left || c.has('request'); changed(); });
  const lanes = new Timelines({
    changed,
    open: n => { open(n, null, true); list.el.scrollIntoView(); },
    requestsIn: (from, to) => { list.setTimes(from, to); list.el.scrollIntoView(); },
  });
  const one = openedRequest({ move: n => open(n, null, true), timeline: r => lanes.around(r) });
  const list = allRequests({ changed, open: (n, q) => open(n, q, true) });
  const table = functionsTable({ changed, view: () => [lanes.from, lanes.to], lane: g => { lanes.goTo(g); lanes.el.scrollIntoView(); lanes.box.focus({ preventScroll: true }); }, lanes: name => lanes.only(name) });
  list.el.append(one.el);
  requestTable.list = filter => { list.show(k => ({ sort: '-latency', ...filter })[k], true); list.el.scrollIntoView(); list.el.querySelector('.vbody').focus({ preventScroll: true }); };
  // The answer is beside the timelines and the requests, on narrow screens below them.
  const answer = ['verdict', 'findings'].map(id => document.getElementById(id)).filter(Boolean);
  main.prepend(h('div', { class: 'deck' }, h('div', { class: 'stage' }, lanes.el, list.el), answer.length ? h('div', { class: 'answer' }, answer) : null), table.el);
  document.documentElement.classList.add('live');

  const nav = document.querySelector('#page nav');
  for (const [el, text] of [[lanes.el, 'Timelines'], [list.el, 'All requests'], [table.el, 'Functions']]) {
    nav.insertBefore(h('button', { type: 'button', class: 'plain', 'data-goto': el.id, onclick: () => { el.scrollIntoView(); el.querySelector('.vbody, .lanes, .functions button').focus({ preventScroll: true }); } }, text), nav.querySelector('[data-goto=requests]'));
  }
  if (pageData.services) document.querySelector('.tools').prepend(h('select', { id: 'service', 'aria-label': 'Service', onchange: ev => requestRecording(ev.target.value).catch(err => note(err.message)) },
    pageData.services.map(name => h('option', { selected: report.input.name.endsWith('#' + name) || null }, name))));
  else if (pageData.recording) document.querySelector('.tools').prepend(h('button', { type: 'button', id: 'again', class: 'accent', onclick: () => requestRecording().catch(err => note(err.message)) }, 'Record again'));
  addEventListener('keydown', ev => {
    if (typing(ev)) return;
    const to = !lanes.box.contains(ev.target) && { a: list.el, l: lanes.el, u: table.el }[ev.key], by = { n: 'after', p: 'before' }[ev.key], search = ev.key === '/' && (lanes.el.contains(ev.target) ? lanes.el : list.el);
    if (search) search.querySelector('[data-filter=function], [data-lanes=function]').focus();
    else if (to) {
      to.scrollIntoView();
      to.querySelector('.vbody, .lanes, .functions button').focus({ preventScroll: true });
    } else if (by && one.request && list.el.contains(ev.target)) {
      if (one.neighbours[by] >= 0) open(one.neighbours[by], null, true);
    } else return;
    ev.preventDefault();
    ev.stopImmediatePropagation();
  }, true);
  add(document.querySelector('#help dl'), [['a', 'table of all requests'], ['l', 'timelines'], ['u', 'goroutines by function'], ['/', 'search by function, in the table or the timelines'], ['↑ ↓', 'row before, after; lane above, below'], ['W A S D', 'in the timelines: zoom in, left, zoom out, right'], ['m', 'in the timelines: add up what is in sight']].map(([k, text]) => [h('dt', null, k.split(' ').map(x => [h('kbd', null, x), ' '])), h('dd', null, text)]));
  // Links: #open=ID opens any request.
  const follow = async () => {
    const p = new URLSearchParams(location.hash.slice(1)), id = p.get('open');
    if (!id || one.request && one.request.id === id) return;
    try {
      const answer = await fetchAnswer('request', { id, ...list.query() });
      one.show(answer);
      list.mark(answer.n);
      one.el.scrollIntoView();
    } catch (err) {
      note(err.message);
    }
  };
  const restore = () => {
    const p = new URLSearchParams(location.hash.slice(1));
    list.show(k => p.get('all.' + k));
    lanes.show(k => p.get('lanes.' + k));
    table.show(k => p.get('fn.' + k));
    const part = [['lanes', lanes], ['all', list], ['fn', table]].find(([name]) => [...p.keys()].some(k => k.startsWith(name + '.')));
    if (part && !p.get('open') && !linked()) part[1].el.scrollIntoView();
    return follow();
  };
  addEventListener('hashchange', () => {
    if ([...new URLSearchParams(location.hash.slice(1)).keys()].some(k => /^(all|lanes|fn)\.|^open$/.test(k))) restore();
    changed();
  });
  restore().finally(() => { reading = false; });
  fetchAnswer('facts').then(f => {
    lanes.annotated = f.annotations > 0;
    lanes.requestDraw();
    lanes.showCPUs(f.cpus || []);
    list.el.querySelector('h2').append(h('span', { class: 'dim' }, ` ${number(f.requests)}${f.requests_seen > f.requests ? ` slowest of ${number(f.requests_seen)}` : ''}`));
    document.getElementById('method')?.append(h('p', { class: 'dim' }, `This page is served by whylate view. Its index of ${number(f.requests)} requests takes ${bytes(f.request_bytes)}, that of ${number(f.goroutines)} goroutines ${bytes(f.goroutine_bytes)}; of ${number(f.generations)} generations with ${number(f.events)} events, ${number(f.decoded)} are decoded (${bytes(f.decoded_bytes)} of at most ${bytes(f.generation_bytes)}).`));
  }).catch(err => note(err.message));
  document.documentElement.dataset.live = 'ready';
  // For tests and measurements.
  document.querySelector('.lanes').timelines = lanes;
}

begin();
