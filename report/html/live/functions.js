// Goroutines by their start function: their number, and the time in each state, as summed by the server.

import { h, replace } from './dom.js';
import { duration, number, count, clean, shortFunc } from './format.js';
import { report } from './model.js';
import { fetchAnswer, latest } from './server.js';

const functionColumns = [['name', 'Started with'], ['goroutines', 'Goroutines'], ['running', 'Running'], ['runnable', 'Ready to run'], ['syscall', 'In system calls'], ['waiting', 'Waiting']];
const mostFunctions = 40, mostGoroutines = 50;

// functionsTable creates the part. Options: changed(); view() returns the visible time of the timelines; lane(g) shows a goroutine's
// lane, lanes(name) those of a function.
export function functionsTable(options) {
  const state = { sort: 'running', desc: true, time: '', open: '', limit: mostFunctions };
  const body = h('tbody'), head = h('tr'), note = h('p', { class: 'dim hint', role: 'status' }), problem = h('p', { class: 'warn', hidden: true });
  const more = h('button', { type: 'button', hidden: true, onclick: () => { state.limit = 500; load(); } }, 'Show more functions');
  const when = h('select', { 'aria-label': 'Time', onchange: ev => { state.time = ev.target.value === 'view' ? options.view().map(Math.round).join('-') : ''; load(); } },
    h('option', { value: '' }, 'the whole trace'), h('option', { value: 'view' }, 'the time in view of the timelines'));
  const range = () => /^\d+-\d+$/.test(state.time) ? state.time.split('-').map(Number) : [0, report.input.duration_ns + 1];

  function header() {
    replace(head, functionColumns.map(([key, text]) => h('th', { scope: 'col', class: key === 'name' ? null : 'num', 'aria-sort': key === state.sort ? state.desc ? 'descending' : 'ascending' : null },
      h('button', { type: 'button', class: 'plain', 'data-by': key, onclick: () => {
        state.desc = state.sort === key ? !state.desc : key !== 'name';
        state.sort = key;
        load();
      } }, text, key === state.sort ? state.desc ? ' ↓' : ' ↑' : ''))));
  }

  const load = latest(async signal => {
    header();
    options.changed();
    const [from, to] = range();
    when.value = state.time ? 'view' : '';
    body.setAttribute('aria-busy', 'true');
    if (!body.firstChild) note.textContent = 'adding up …';
    try {
      const answer = await fetchAnswer('byfunction', { from, to, sort: state.sort, desc: state.desc, limit: state.limit }, signal);
      problem.hidden = true;
      replace(body, answer.rows.map(row));
      more.hidden = answer.rows.length >= answer.total;
      note.textContent = `${count(answer.total, 'function')}${state.time ? `, from ${duration(from)} to ${duration(to)}` : ''}. Times are added up over goroutines.`;
    } catch (err) {
      if (signal.aborted) return;
      problem.textContent = clean(err.message);
      problem.hidden = false;
    } finally {
      if (!signal.aborted) body.removeAttribute('aria-busy');
    }
  });

  function row(f) {
    const cell = ns => h('td', { class: 'num' }, ns ? duration(ns) : '–'), inside = h('td', { colspan: functionColumns.length }), under = h('tr', { class: 'inside', hidden: true }, inside);
    const button = h('button', { type: 'button', class: 'plain link', 'aria-expanded': 'false', title: clean(f.name), onclick: () => toggle(under.hidden) }, clean(shortFunc(f.name)) || 'not known');
    async function toggle(open) {
      under.hidden = !open;
      button.setAttribute('aria-expanded', open);
      state.open = open ? f.name : '';
      options.changed();
      if (!open || inside.firstChild) return;
      const [from, to] = range();
      try {
        const list = await fetchAnswer('goroutines', { function: f.name, exact: true, from, to, sort: 'run', desc: true, limit: mostGoroutines });
        replace(inside,
          f.waits.length ? h('p', null, 'Waiting: ', f.waits.slice(0, 6).map((w, i) => [i ? ', ' : '', `${clean(w.reason) || 'not known'} ${duration(w.ns)}`])) : null,
          h('p', null, h('button', { type: 'button', onclick: () => options.lanes(f.name) }, 'Show them in the timelines'), list.total > list.rows.length ? ` the ${number(list.rows.length)} that ran most of ${number(list.total)}:` : ''),
          h('ul', { class: 'members' }, list.rows.map(g => h('li', null, h('button', { type: 'button', class: 'plain link', 'data-lane': g.id, onclick: () => options.lane(g.id) }, `G${g.id}`), ` ran ${duration(g.run_ns || 0)}`))));
      } catch (err) {
        replace(inside, h('p', { class: 'warn' }, clean(err.message)));
      }
    }
    if (state.open === f.name) toggle(true);
    return [h('tr', { 'data-function': f.name }, h('th', { scope: 'row' }, button), h('td', { class: 'num' }, number(f.goroutines)), cell(f.running_ns), cell(f.runnable_ns), cell(f.syscall_ns), cell(f.waiting_ns)), under];
  }

  const el = h('section', { id: 'functions' }, h('h2', null, 'Goroutines by function'), h('div', { class: 'filters' }, h('label', { class: 'field' }, 'In', when)), problem,
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Goroutines by function' }, h('table', { class: 'functions' }, h('caption', { class: 'sr' }, 'Goroutines by the function that they started with'), h('thead', null, head), body)), note, more);
  header();
  // The sums need the whole trace, so they are computed only when the part becomes visible.
  let seen = false;
  const watch = new IntersectionObserver(list => {
    if (seen || !list.some(x => x.isIntersecting)) return;
    seen = true;
    watch.disconnect();
    load();
  });
  watch.observe(el);
  return {
    el,
    shown: () => ({ sort: state.sort === 'running' && state.desc ? '' : (state.desc ? '-' : '') + state.sort, time: state.time, open: state.open }),
    show(get) {
      const sort = get('sort');
      if (sort && functionColumns.some(c => c[0] === sort.replace(/^-/, ''))) [state.sort, state.desc] = [sort.replace(/^-/, ''), sort.startsWith('-')];
      [state.time, state.open] = [get('time') || '', get('open') || ''];
      if (seen) load();
    },
  };
}
