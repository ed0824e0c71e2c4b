// Puts the parts that only a server can answer onto the page.

import { h } from './dom.js';
import { number, bytes, clean } from './format.js';
import { ask, latest } from './ask.js';
import { allRequests } from './allrequests.js';
import { picked } from './picked.js';
import { Timelines } from './timelines.js';

function begin() {
  const main = document.querySelector('#page main'), before = document.getElementById('requests') || document.getElementById('group');
  let query = {};
  const note = text => { document.getElementById('all').querySelector('.warn').hidden = !text; document.getElementById('all').querySelector('.warn').textContent = clean(text); };
  const open = latest(async (signal, n, q, stay) => {
    try {
      const answer = await ask('request', { ...(q || query), n }, signal);
      if (q) query = q;
      note('');
      one.show(answer);
      list.mark(answer.n);
      history.replaceState(null, '', '#open=' + encodeURIComponent(answer.request.id));
      if (!stay) one.el.scrollIntoView({ block: 'nearest' });
    } catch (err) {
      if (!signal.aborted) note(err.message);
    }
  });
  const lanes = new Timelines({
    open: n => { open(n, null, true); list.el.scrollIntoView(); },
    requestsIn: (from, to) => { list.setTimes(from, to); list.el.scrollIntoView(); },
  });
  const one = picked({ move: n => open(n, null, true), timeline: r => lanes.around(r) });
  const list = allRequests({ open: (n, q) => open(n, q, true) });
  list.el.append(one.el);
  if (before) before.before(list.el, lanes.el); else main.prepend(list.el, lanes.el);

  const nav = document.querySelector('#page nav');
  for (const [el, text] of [[list.el, 'All requests'], [lanes.el, 'Timelines']]) {
    nav.insertBefore(h('button', { type: 'button', class: 'plain', 'data-goto': el.id, onclick: () => { el.scrollIntoView(); el.querySelector('.vbody, .lanes').focus({ preventScroll: true }); } }, text), nav.querySelector('[data-goto=requests]'));
  }
  addEventListener('keydown', ev => {
    if (ev.ctrlKey || ev.metaKey || ev.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(ev.target.tagName)) return;
    const to = { a: list.el, l: lanes.el }[ev.key];
    if (!to) return;
    ev.preventDefault();
    to.scrollIntoView();
    to.querySelector('.vbody, .lanes').focus({ preventScroll: true });
  });
  // Links: #open=ID opens a request, whichever it is.
  const follow = async () => {
    const p = new URLSearchParams(location.hash.slice(1)), id = p.get('open');
    if (!id || one.request && one.request.id === id) return;
    try {
      const answer = await ask('request', { id, ...list.query() });
      one.show(answer);
      list.mark(answer.n);
      one.el.scrollIntoView();
    } catch (err) {
      note(err.message);
    }
  };
  addEventListener('hashchange', follow);
  follow();
  ask('facts').then(f => {
    list.el.querySelector('h2').append(h('span', { class: 'dim' }, ` ${number(f.requests)}${f.requests_seen > f.requests ? ` slowest of ${number(f.requests_seen)}` : ''}`));
    document.getElementById('method')?.append(h('p', { class: 'dim' }, `This page is served by whylate view. Its index of ${number(f.requests)} requests takes ${bytes(f.request_bytes)}, that of ${number(f.goroutines)} goroutines ${bytes(f.goroutine_bytes)}; of ${number(f.generations)} generations with ${number(f.events)} events, ${number(f.decoded)} are decoded (${bytes(f.decoded_bytes)} of at most ${bytes(f.generation_bytes)}).`));
  }).catch(err => note(err.message));
  document.documentElement.dataset.live = 'ready';
  // For tests and measurements.
  document.querySelector('.lanes').timelines = lanes;
}

begin();
