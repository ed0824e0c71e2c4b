// The selection on the timelines, in words for copying: one interval, or the sums of an area by state and cause.

import { h, copyText } from './dom.js';
import { duration, percent, count, number, clean, shortFunc, place, siteText } from './format.js';
import { waitKind } from './paint.js';

const words = { running: 'running', runnable: 'ready to run', waiting: 'waiting', syscall: 'in a system call' };

export function stateWords(state, reason) { return (words[state] || clean(state)) + (reason ? ` (${clean(reason)})` : ''); }

// kindOf returns the cause whose colour a state has.
export function kindOf(state, reason) { return { running: 'cpu', runnable: 'sched', syscall: 'syscall' }[state] || waitKind(reason); }

// copies returns the buttons that copy a selection.
export function copies(text, json) {
  return h('p', { class: 'tabs' }, h('button', { type: 'button', 'data-copy': 'text', onclick: ev => copyText(ev.currentTarget, text, 'The selection as text') }, 'Copy as text'),
    h('button', { type: 'button', 'data-copy': 'json', onclick: ev => copyText(ev.currentTarget, JSON.stringify(json, null, 2), 'The selection as JSON') }, 'Copy as JSON'));
}

// momentText describes an interval with its stacks.
export function momentText(m) {
  const stack = (title, list) => list && list.length ? [title, ...list.map(f => `    ${f.func}\n        ${f.file}:${f.line}`)] : [];
  return [`G${m.goroutine} ${m.name}: ${stateWords(m.state, m.reason)} for ${m.start_ns < 0 ? 'longer than the trace' : duration(m.end_ns - m.start_ns)}, from ${m.start_ns < 0 ? 'before the trace' : m.start_ns + ' ns'} to ${m.end_ns} ns`,
    ...(m.proc !== undefined ? [`on P${m.proc}`] : []), ...(m.waker ? [`woken by G${m.waker} ${m.waker_name || ''}`] : []), ...m.requests.map(r => `request ${r.id}: ${duration(r.latency_ns)} from ${duration(r.start_ns)}`),
    ...stack('stack:', m.stack), ...stack('waker’s stack:', m.waker_stack)].join('\n') + '\n';
}

export function areaText(a) {
  const whole = a.sums.reduce((n, x) => n + x.ns, 0);
  return [`${duration(a.to_ns - a.from_ns)} from ${duration(a.from_ns)} of ${a.goroutines.map(g => 'G' + g).join(', ')}`,
    ...a.sums.flatMap(x => [`${percent(x.ns / whole)} ${duration(x.ns)} ${stateWords(x.state, x.reason)}, ${number(x.count)} times, longest ${duration(x.longest_ns)}`, ...x.sites.filter(s => s.site).map(s => `    ${duration(s.ns)} ${siteText(s.site)}`)])].join('\n') + '\n';
}

// marksTable lists regions and log messages of runtime/trace, with times from a start.
export function marksTable(rows, start = 0) {
  return h('table', { class: 'sums marks' }, h('thead', null, h('tr', null, [['From', 'num'], ['Lasted', 'num'], ['Region or message', '']].map(([t, c]) => h('th', { scope: 'col', class: c || null }, t)))),
    h('tbody', null, rows.slice(0, 200).map(a => h('tr', { 'data-mark': a.name }, h('td', { class: 'num' }, duration(a.start_ns - start)), h('td', { class: 'num' }, a.text ? '' : duration(a.duration_ns)), h('td', null, '\u2003'.repeat(a.depth), a.text ? [h('span', { class: 'dim' }, `${clean(a.name)}: `), clean(a.text)] : h('code', null, clean(a.name)))))));
}

// areaNode shows sums of an area of goroutines' lanes.
export function areaNode(a, buttons) {
  const whole = a.sums.reduce((n, x) => n + x.ns, 0) || 1, title = h('h3', null, `${duration(a.to_ns - a.from_ns)} of ${count(a.goroutines.length, 'goroutine')}`);
  if (!a.sums.length) return h('div', { class: 'detail', role: 'region', 'aria-label': 'The selected area' }, title, h('p', { class: 'dim sums' }, 'None of these goroutines lived then.'), buttons);
  return h('div', { class: 'detail', role: 'region', 'aria-label': 'The selected area' }, title,
    h('table', { class: 'sums' }, h('thead', null, h('tr', null, [['State', ''], ['Time', 'num'], ['Share', 'num'], ['Times', 'num'], ['Longest', 'num']].map(([t, c]) => h('th', { scope: 'col', class: c || null }, t)))),
      h('tbody', null, a.sums.map(x => [h('tr', { 'data-state': x.state, 'data-ns': x.ns }, h('th', { scope: 'row' }, h('i', { class: 'chip c-' + kindOf(x.state, x.reason) }), stateWords(x.state, x.reason)), [duration(x.ns), percent(x.ns / whole), number(x.count), duration(x.longest_ns)].map(t => h('td', { class: 'num' }, t))),
        h('tr', null, h('td', { colspan: 5, class: 'dim' }, x.sites.filter(s => s.site).slice(0, 3).map((s, i) => [i ? h('br') : '', `${duration(s.ns)} ${place(s.site)}`])))]))),
    buttons, copies(areaText(a), a));
}

// procNode shows the functions that ran on the Ps.
export function procNode(a, open) {
  return h('div', { class: 'detail', role: 'region', 'aria-label': 'The selected area' }, h('h3', null, `What goroutines did in ${duration(a.to_ns - a.from_ns)}, by function`),
    h('table', { class: 'sums' }, h('thead', null, h('tr', null, ['Started with', 'Goroutines', 'Running', 'Ready to run'].map((t, i) => h('th', { scope: 'col', class: i ? 'num' : null }, t)))),
      h('tbody', null, a.rows.map(f => h('tr', { 'data-state': 'running', 'data-ns': f.running_ns }, h('th', { scope: 'row' }, h('button', { type: 'button', class: 'plain link', onclick: () => open(f.name) }, clean(shortFunc(f.name)) || 'not known')), [number(f.goroutines), duration(f.running_ns), duration(f.runnable_ns)].map(t => h('td', { class: 'num' }, t)))))),
    copies(a.rows.map(f => `${duration(f.running_ns)} running, ${duration(f.runnable_ns)} ready to run: ${number(f.goroutines)} of ${f.name}`).join('\n') + '\n', a));
}
