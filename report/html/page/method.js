// The recording, the method of the analysis, and its limits.

import { h, copyText } from './dom.js';
import { duration, number, bytes, clean, count, brief } from './format.js';
import { report, pageData, source, goVersion } from './model.js';
import { how } from './how.js';

function save() {
  const url = URL.createObjectURL(new Blob([JSON.stringify(report, null, 2) + '\n'], { type: 'application/json' }));
  h('a', { href: url, download: 'report.json' }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

export function jsonButtons() {
  return h('span', { class: 'json' }, h('button', { type: 'button', id: 'copyjson', onclick: ev => copyText(ev.currentTarget, source, 'The report as JSON') }, 'Copy JSON'), h('button', { type: 'button', onclick: save }, 'Save JSON'));
}

// workLeftOut names the work that is no group, for one reason.
function workLeftOut(input, why) {
  const list = (input.left_out || []).filter(l => l.why === why);
  return list.length ? h('span', null, list.map((l, i) => [i ? ', ' : null, brief(l.name, 200), ` (${number(l.count)})`])) : null;
}

// shareError describes the error of these shares, which comes from sampling; it is empty if nothing was sampled.
function shareError(shares) {
  const most = Math.max(0, ...report.groups.flatMap(g => g.bands.flatMap(b => b.causes.map(c => c.share_error || 0))));
  return most > 0 ? `${shares} may be off by ${(100 * Math.max(most, 0.001)).toFixed(1)} percentage points at most, 95 times of a hundred` : '';
}

export function method() {
  const i = report.input, all = report.groups.reduce((n, g) => n + g.count, 0);
  const row = (name, value) => value === null || value === undefined || value === '' ? null : [h('dt', null, name), h('dd', null, value)];
  return h('section', { id: 'method' }, h('h2', null, 'Method, limits, environment'),
    i.warnings.length ? h('ul', { class: 'warnings' }, i.warnings.map(w => h('li', null, h('strong', null, '▲ '), h('code', null, clean(w.code)), ' ', brief(w.text, 1200)))) : null,
    h('dl', { class: 'env' },
      row('Input', brief(i.name, 600)), row('Size', i.bytes ? `${bytes(i.bytes)}, ${count(i.events, 'event')}` : null), row('Start', i.start ? clean(i.start) : 'not in the trace'), row('Length', duration(i.duration_ns) + (i.truncated ? ', cut short' : '')),
      row('Recorded of', Object.entries(i.service || {}).map(([k, v]) => `${clean(k)}=${clean(v)}`).join(', ') || null), row('Go', clean(goVersion())), row('GOMAXPROCS', i.gomaxprocs ? String(i.gomaxprocs) : null), row('Requests', `${number(all)} in ${count(report.groups.length, 'group')}`), row('Followed', i.sampled ? `the slowest of each group and a sample of the others, with weights: ${count(i.sampled.walked, 'request')} of ${number(i.sampled.of)}${shareError('; shares')}` : shareError('a sample of the run: shares')), row('Left out', i.observer ? `${count(i.observer, 'request')} of the profiler’s own endpoints` : null),
      row('Part of requests', workLeftOut(i, 'serving')), row('Of libraries', workLeftOut(i, 'library')),
      row('Written by', pageData.version ? 'whylate ' + clean(pageData.version) : null), row('Again', pageData.command ? h('code', null, brief(pageData.command, 600)) : null), row('Schema', clean(report.schema))),
    h('p', null, 'Requests are found in a Go execution trace without instrumentation. Each one’s critical path is followed backwards over the goroutines that it waited for, and every nanosecond of its latency gets one cause with a place in the source code.'),
    h('p', null, 'What a trace cannot tell: addresses and holders of locks (the goroutine that unlocked stands for the holder), URLs, when data arrived (only when it was polled for), and what happens outside the process. Times have the grain of the trace’s clock, 64 ns.'),
    h('details', { class: 'behind glossary', id: 'glossary' }, h('summary', null, 'Glossary: the words of this page'), h('dl', null, pageData.words.map(([t, text]) => [h('dt', null, t), h('dd', null, text)]))),
    h('details', { class: 'behind glossary', id: 'how' }, h('summary', null, 'How every number was computed'), h('dl', null, Object.values(how).map(([t, text]) => [h('dt', null, t), h('dd', null, text)]))),
    h('p', null, jsonButtons()));
}
