// The verdict: what the slow requests of the groups with the most latency spent their time on.

import { h } from './dom.js';
import { about, causeClass } from './causes.js';
import { duration, percent, count, place, groupName, siteText, brief } from './format.js';
import { report, tail, byCause } from './model.js';
import { asked } from './how.js';
import { current } from './state.js';

const words = { 'p99-max': 'The slowest 1% of', 'p90-99': 'Between p90 and p99, requests of', 'p50-90': 'Between p50 and p90, requests of' };

function range(g, b) {
  const last = g.latency_ns.max !== null && g.latency_ns.max < b.to_ns ? g.latency_ns.max : b.to_ns;
  if (b.count === 1 && b.band === 'p99-max') return duration(last);
  if (b.from_ns === 0 && g.latency_ns.p50 !== null) return `p50 ${duration(g.latency_ns.p50)}, max ${duration(last)}`;
  return b.from_ns >= last ? duration(last) : `${duration(b.from_ns)} to ${duration(last)}`;
}

export function groupLink(g, text) { return h('a', { href: current({ group: g.id, req: '', finding: '', band: '' }), title: brief(g.name, 1000) }, text || groupName(g)); }

export function siteNode(site) {
  if (!site) return null;
  return h('code', { class: 'site', title: siteText(site) }, place(site));
}

// merged are a band's rows, those alike in cause, kind and site made one: via tells them apart only in the tables.
export function merged(b) {
  const rows = new Map();
  for (const c of b.causes) {
    const key = JSON.stringify([c.cause, c.kind || '', c.site]);
    const r = rows.get(key);
    if (r) {
      r.total_ns += c.total_ns;
      r.share += c.share;
    } else {
      rows.set(key, { ...c });
    }
  }
  return [...rows.values()].sort((x, y) => y.total_ns - x.total_ns);
}

export function openLine(g) {
  if (!g.open.count) return null;
  return h('p', { class: 'warn' }, h('strong', null, `▲ ${count(g.open.count, 'request')} had not ended`), ` when the trace did, the oldest after ${duration(g.open.oldest_ns)}`,
    g.open.site ? [' in ', siteNode(g.open.site)] : null, ' ', asked('open'));
}

// bar is a line of 100 %, divided by cause.
export function bar(pairs, label) {
  const all = pairs.reduce((n, p) => n + p[1], 0) || 1;
  return h('div', { class: 'bar', role: 'img', 'aria-label': label + ': ' + pairs.map(([c, ns]) => `${about(c).short} ${percent(ns / all)}`).join(', ') },
    pairs.map(([c, ns]) => h('span', { class: 'part ' + causeClass(c), 'data-ns': ns, style: { flexGrow: String(ns / all) }, title: `${about(c).short} ${percent(ns / all)}` },
      ns / all >= 0.09 ? h('span', { class: 'partname' }, about(c).short) : null)));
}

function groupVerdict(g, first) {
  const b = tail(g);
  if (!g.count || !b || !b.causes.length) {
    return h('div', { class: 'verdict' }, h('p', { class: 'lead' }, groupLink(g), ': no request ended in the trace.'), openLine(g));
  }
  const rows = merged(b), least = first ? 0.1 : 0.2, most = first ? 3 : 2;
  const list = rows.filter((r, i) => i === 0 || i < most && r.share >= least && r.cause !== 'other');
  const lead = b.count === 1 ? (b.band === 'p99-max' ? 'The slowest request of' : 'One request of') : words[b.band] || 'Requests of';
  return h('div', { class: 'verdict' },
    h('p', { class: 'lead' }, lead, ' ', groupLink(g), h('span', { class: 'dim' }, ` (${range(g, b)})`), ' spent'),
    bar(byCause(b.causes), 'Causes of the slowest band'),
    h('ol', { class: 'spent' }, list.map(r => h('li', { 'data-ns': r.total_ns },
      h('span', { class: 'num big' }, percent(r.share)), h('span', { class: 'num each' }, duration(r.total_ns / b.count)),
      h('span', null, h('i', { class: 'chip ' + causeClass(r.cause) }), h('strong', null, r.cause === 'stw' && r.kind ? `with the world stopped (${brief(r.kind, 40)})` : about(r.cause).words),
        r.site ? [about(r.cause).at, siteNode(r.site)] : null,
        r.ran_meanwhile && r.ran_meanwhile.length && r.ran_meanwhile[0].site ? [' while ', siteNode(r.ran_meanwhile[0].site), ` ran (${percent(r.ran_meanwhile[0].share)} of that)`] : null)))),
    openLine(g));
}

export function verdict() {
  if (!report.groups.length) {
    return h('section', { id: 'verdict' }, h('h2', null, 'Why requests were late'),
      h('p', { class: 'lead' }, 'No requests were found.'),
      h('p', null, 'If the work is done by a function of yours, name it with --request: every call of it is then a request. Or the trace holds no whole one: record longer, or while there is load.'));
  }
  const all = report.groups.reduce((n, g) => n + g.total_ns, 0);
  const said = report.groups.filter((g, i) => (g.count || g.open.count) && (i === 0 || g.total_ns >= 0.05 * all || g.open.count)).slice(0, 3);
  return h('section', { id: 'verdict' }, h('h2', null, 'Why requests were late ', asked('verdict')), said.map((g, i) => groupVerdict(g, i === 0)));
}
