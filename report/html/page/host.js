// The kernel's counters of the process: time that threads lost, limits, and whether the network lost segments.

import { h, foldedPart, table } from './dom.js';
import { duration, number, count, bytes, percent, clean, brief, none } from './format.js';
import { causeClass } from './causes.js';
import { report, requestByID } from './model.js';
import { explainButton } from './how.js';
import { address } from './state.js';
import { siteNode } from './site.js';

const quotaWords = { own: 'its own CPU quota', ancestor: 'an ancestor’s CPU quota', none: 'none', unknown: 'not known' };
const networkWords = { lost: 'segments were retransmitted', cleared: 'nothing was lost', unknown: 'not known' };

// lostParts returns the parts of lost time: [name, description, cause of the colour, ns or null].
export function lostParts(lost) {
  return [
    ['CPU quota', 'throttled by a quota, its own or an ancestor’s', 'throttle', lost.quota_ns],
    ['run queue', 'waiting for a CPU that others used, without a quota', 'sched', lost.run_queue_ns],
    ['not separable', 'waiting in throttled intervals beyond the quota’s own time', 'other', lost.unsplit_ns],
    ['unexplained', 'the hypervisor, page faults: goroutines’ running time by the trace, less all known parts', 'unknown', lost.unexplained_ns],
  ];
}

function lostTime(lost) {
  const known = lostParts(lost).filter(p => p[3] !== null && p[3] !== undefined), all = known.reduce((n, p) => n + p[3], 0);
  const share = ns => lost.busy_ns && ns <= lost.busy_ns ? ` · ${percent(ns / lost.busy_ns)} of the time goroutines ran` : '';
  return [h('h3', null, 'Time that threads lost ', explainButton('lost')),
    all > 0 ? h('div', { class: 'bar', role: 'img', 'aria-label': 'Lost time: ' + known.map(p => `${p[0]} ${duration(p[3])}`).join(', ') }, known.filter(p => p[3] > 0).map(([name, , c, ns]) => h('span', { class: 'part ' + causeClass(c), 'data-ns': ns, style: { flexGrow: String(ns / all) }, title: `${name} ${duration(ns)}` }, ns / all >= 0.12 ? h('span', { class: 'partname' }, name) : null))) : h('p', { class: 'dim' }, known.length ? 'None was seen.' : 'Not measured.'),
    h('ul', { class: 'lost' }, lostParts(lost).filter(([, , c, ns]) => c !== 'other' || ns).map(([name, what, c, ns]) => h('li', null, h('i', { class: 'chip ' + causeClass(c) }), h('strong', null, name), ' ', h('span', { class: 'num' }, ns === null || ns === undefined ? 'not measured' : duration(ns)), ns ? h('span', { class: 'dim' }, share(ns)) : null, h('div', { class: 'dim' }, what)))),
    h('p', { class: 'dim' }, `By the trace goroutines ran for ${duration(lost.busy_ns)}, by the kernel threads ran for ${duration(lost.cpu_ns)}`, lost.steal_ns ? `; the hypervisor took ${duration(lost.steal_ns)} from the whole machine` : '', lost.machine_ns ? `; all processes of the machine had ${duration(lost.machine_ns)}` : '', lost.pressure_ns ? `, and for ${duration(lost.pressure_ns)} one or another waited for a CPU` : '', '.')];
}

// network shows whether segments were retransmitted, which slow requests waited at that time, and the connections.
function network(n) {
  const waits = (n.requests || []).slice(0, 12);
  return [h('h3', null, 'Network: ', networkWords[n.verdict] || clean(n.verdict), ' ', explainButton('network')), n.text ? h('p', null, brief(n.text, 600)) : null,
    h('p', { class: 'dim' }, `${count(n.connections, 'connection')}; sent again: ${number(n.retransmitted)} by this process, ${number(n.peer_retransmitted)} by other ends on this host${n.all_retransmitted === null || n.all_retransmitted === undefined ? '' : `, ${number(n.all_retransmitted)} in the whole network namespace`}${n.needless ? `; ${number(n.needless)} more had arrived already` : ''}; out of order: ${number(n.out_of_order)}.`),
    waits.length ? h('ul', { class: 'evidence' }, waits.map(w => h('li', null, requestByID(w.request) ? h('a', { href: address({ req: w.request }) }, `a slow request waited ${duration(w.duration_ns)}`) : `a slow request waited ${duration(w.duration_ns)}`, w.site ? [' in ', siteNode(w.site)] : null, ` while ${count(w.retransmitted, 'segment was', 'segments were')} sent again`, w.sockets.length ? h('span', { class: 'dim' }, ` (${brief(w.sockets.join(', '), 120)})`) : null))) : null,
    n.sockets.length ? foldedPart(`Table of connections (${n.sockets.length})`, () => table('Connections', [{ text: 'Local' }, { text: 'Remote' }, { text: 'State' }, { text: 'Sent again', num: true }, { text: 'Out of order', num: true }, { text: 'Round trip', num: true }, { text: 'Least', num: true }],
      n.sockets.map(x => [clean(x.local), clean(x.remote) + (x.peer ? ' (the other end)' : ''), clean(x.state || none), number(x.retransmitted), number(x.out_of_order || 0), x.rtt_ns ? duration(x.rtt_ns) : none, x.min_rtt_ns ? duration(x.min_rtt_ns) : none]))) : null];
}

function seriesRows(s) {
  const rows = [];
  for (const [t, v] of s.cpu_ns) rows.push([t, 'CPU used', duration(v)]);
  for (const [t, v] of s.run_delay_ns) rows.push([t, 'waited for a CPU', duration(v)]);
  for (const [t, v] of s.throttled_ns) rows.push([t, 'throttled', duration(v)]);
  for (const [t, v] of s.rss_bytes) rows.push([t, 'resident memory', bytes(v)]);
  for (const [t, v] of s.retransmitted) rows.push([t, 'segments retransmitted', number(v)]);
  return table('The host over time', [{ text: 'At', num: true }, { text: 'What, since the point before' }, { text: 'Value', num: true }], rows.sort((a, b) => a[0] - b[0]).map(([t, ...rest]) => [duration(t), ...rest]));
}

export function host() {
  const k = report.host;
  if (!k) return null;
  const f = k.facts, q = k.quota;
  const fact = (name, text, key) => text === null || text === undefined || text === '' ? null : h('div', { class: 'fact' }, h('dt', null, name, key ? [' ', explainButton(key)] : null), h('dd', null, text));
  return h('section', { id: 'host' }, h('h2', null, 'The host, by the kernel’s counters ', explainButton('host')),
    h('dl', { class: 'factrow' },
      fact('Throttled by', quotaWords[q.verdict] || clean(q.verdict), 'throttle'), q.own_ns ? fact('Own quota', duration(q.own_ns)) : null, q.ancestor_ns ? fact('Ancestors', duration(q.ancestor_ns)) : null, q.periods ? fact('Periods throttled', `${number(q.throttled_periods)} of ${number(q.periods)}`) : null,
      fact('CPUs', f.cpus ? `${number(f.parallelism || f.cpus)}${f.parallelism && f.parallelism !== f.cpus ? ` of ${number(f.cpus)}` : ''}` : ''), fact('Quota', f.quota_cpus ? `${Number(f.quota_cpus.toPrecision(3))} CPUs${f.period_ns ? ` each ${duration(f.period_ns)}` : ''}` : f.quota_hidden ? 'hidden' : 'none seen'),
      fact('Memory limit', f.memory_bytes ? bytes(f.memory_bytes) : ''), fact('Resident, max', k.memory.rss_max_bytes ? bytes(k.memory.rss_max_bytes) : ''), fact('Charged to its group, max', k.memory.group_max_bytes ? bytes(k.memory.group_max_bytes) : '')),
    q.how ? h('p', { class: 'dim' }, 'Throttling: ', brief(q.how, 600)) : null,
    lostTime(k.lost), network(k.network),
    (k.warnings || []).length ? h('ul', { class: 'warnings' }, k.warnings.map(w => h('li', null, '▲ ', h('code', null, clean(w.code)), ' ', brief(w.text, 600)))) : null,
    foldedPart('Table of the host over time', () => seriesRows(k.series)),
    h('p', { class: 'dim small' }, `${count(k.samples, 'sample')} of process ${k.pid}, ${duration(k.interval_ns)} apart, over ${percent(k.coverage)} of the trace; clocks joined by ${clean(k.clock)}`, f.kernel ? `; kernel ${clean(f.kernel)}` : '', f.quota_from ? `; quota from ${brief(f.quota_from, 200)}` : '', f.memory_from ? `; memory limit from ${brief(f.memory_from, 200)}` : '', k.cost_ns ? `; sampling took ${duration(k.cost_ns)} of CPU time` : '', '.'));
}
