// The verdict: what the slow requests of the groups with the most latency spent their time on.

import { h } from './dom.js';
import { causeInfo, causeClass } from './causes.js';
import { percent, count, clean, groupName, brief, duration, number, expected, unsure, none } from './format.js';
import { report, pageData, groupByID, noun, verdictOf, bandByName, total } from './model.js';
import { sentenceOf } from './sentence.js';
import { explainButton } from './how.js';
import { current, address } from './state.js';

export function groupLink(g, text) { return h('a', { href: current({ group: g.id, req: '', finding: '', band: '' }), title: brief(g.name, 1000) }, text || groupName(g)); }

// openLine shows the requests that had not ended. It is an alarm only if the verdict finds them late.
export function openLine(g) {
  const v = verdictOf(g);
  if (!g.open.count) return null;
  if (!v || !v.open) return h('p', { class: 'dim' }, `${count(g.open.count, noun(g))} were still running at the end of the trace`, ' ', explainButton('open'));
  return h('p', { class: v.open.late ? 'warn' : 'dim' }, v.open.late ? '▲ ' : null, clean(v.open.text), ' ', explainButton('open'));
}

// bar returns a line of 100 %, divided by cause.
export function bar(pairs, label) {
  const all = pairs.reduce((n, p) => n + p[1], 0) || 1;
  return h('div', { class: 'bar', role: 'img', 'aria-label': label + ': ' + pairs.map(([c, ns]) => `${causeInfo(c).short} ${percent(ns / all)}`).join(', ') },
    pairs.map(([c, ns]) => h('span', { class: 'part ' + causeClass(c), 'data-ns': ns, style: { flexGrow: String(ns / all) }, title: `${causeInfo(c).short} ${percent(ns / all)}` },
      ns / all >= 0.09 ? h('span', { class: 'partname' }, causeInfo(c).short) : null)));
}

// outcome is the page's first sentence: what the report comes to, and the first change with its gain.
export function outcome() {
  const o = pageData.outcome;
  if (!o) return null;
  const f = report.findings.find(x => x.id === o.findings?.[0]), p = f?.predicted, also = report.findings.find(x => x.id === o.also);
  return h('section', { id: 'outcome', class: o.state === 'change' ? f.severity : o.state }, h('p', null, h('strong', { class: 'state' }, clean(o.result)), ' ', clean(o.text)),
    f ? h('p', { class: 'remedy' }, h('strong', null, 'Do: '), h('a', { href: address({ finding: f.id }) }, brief(f.remedy || f.fix, 600)), p && !['peer', 'unclear'].includes(o.state) ? gainText(p) : null) : null,
    also ? h('p', null, 'Also: ', h('a', { href: address({ finding: also.id }) }, brief(also.remedy || also.fix, 600))) : null,
    o.doubt ? h('p', { class: 'dim' }, 'Uncertain: ', brief(o.doubt, 400)) : null,
    o.command ? h('p', null, 'Next: ', h('code', null, clean(o.command))) : null);
}

// gainText returns the predicted gain of the slow requests, about which the first sentence is, and that of the median if theirs is unsure.
// Package text has the same words.
function gainText(p) {
  const median = ['p50', p.was_p50_ns, p.p50_ns], slow = onlyMax(p) || p.was_p99_ns == null && p.max_ns ? ['max', p.was_max_ns, p.max_ns] : p.was_p99_ns != null ? ['p99', p.was_p99_ns, p.p99_ns] : median;
  const gains = ([, was, e]) => was > e.est, words = ([name, was, e]) => unsure(was, e) ? `${name} ${duration(was)} → ${unsure(was, e)}` : `${name} ${duration(was)} → ${expected(e)}`;
  const shown = slow !== median && unsure(slow[1], slow[2]) && gains(median) ? [slow, median] : gains(slow) ? [slow] : [];
  return shown.length ? [h('strong', null, ' ' + shown.map(words).join(', ')), p.says ? ` ${brief(p.says, 80)}` : null] : null;
}

// onlyMax reports whether a change affects so few requests that it moves only the maximum.
export function onlyMax(p) { return p.max_ns && p.was_max_ns != null && p.was_p99_ns != null && p.max_ns.est < p.was_max_ns && p.p99_ns.est > 0.99 * p.was_p99_ns; }

// sentenceParts divides a band's time as the verdict's sentence does, in its order: [[cause, ns]...]. The wait for those ahead in a queue is
// a part of its own, and what the sentence leaves out is "other".
function sentenceParts(v, b) {
  const parts = v.causes.filter(c => c.said).map(c => [c.queue ? 'queue' : c.kind === 'no-cpu' ? 'cpu-wait' : c.cause, c.total_ns]), rest = total(b.causes) - parts.reduce((n, p) => n + p[1], 0);
  return rest > 0 ? [...parts, ['other', rest]] : parts;
}

// comparison shows, in a line each, the groups that are about as slow as the first one, or have the same cause.
function comparison(rows) {
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Groups with the same cause, or about as slow' }, h('table', { class: 'compared' },
    h('thead', null, h('tr', null, ['Group', 'Requests', 'p50', 'p99', 'Most of the slow ones', 'Change'].map((t, i) => h('th', { scope: 'col', class: i > 0 && i < 4 ? 'num' : null }, t)))),
    h('tbody', null, rows.map(row => {
      const g = groupByID(row.group), l = g.latency_ns, f = report.findings.find(x => x.id === row.finding);
      return h('tr', { 'data-compared': g.id }, h('th', { scope: 'row' }, groupLink(g)), h('td', { class: 'num' }, number(g.count)), h('td', { class: 'num' }, duration(l.p50)),
        h('td', { class: 'num' }, l.p99 === null ? `max ${duration(l.max)}` : duration(l.p99)), h('td', null, h('i', { class: 'chip ' + causeClass(row.cause) }), clean(row.text)),
        h('td', null, f ? h('a', { href: address({ finding: f.id }) }, brief(f.remedy || f.fix, 600)) : none));
    }))));
}

function groupVerdict(v) {
  const g = groupByID(v.group), sentence = sentenceOf(v);
  if (!sentence.causes.length) {
    return h('div', { class: 'verdict', 'data-verdict': v.group }, h('p', { class: 'lead' }, groupLink(g), ': no request ended in the trace.'), openLine(g));
  }
  const b = bandByName(g, v.band) || g.bands[0];
  return h('div', { class: 'verdict', 'data-verdict': v.group },
    h('p', { class: 'lead' }, clean(sentence.lead), ' ', groupLink(g), h('span', { class: 'dim' }, ' ' + clean(sentence.range)), ' spent'),
    bar(sentenceParts(v, b), 'Causes of these requests'),
    h('ol', { class: 'spent' }, sentence.causes.map(c => h('li', { 'data-ns': c.ns },
      h('span', { class: 'num big' }, c.share), h('span', { class: 'num each' }, c.each),
      h('span', { class: 'words' }, h('i', { class: 'chip ' + causeClass(c.queued ? 'queue' : c.kind === 'no-cpu' ? 'cpu-wait' : c.cause) }), h('strong', null, clean(c.words)), clean(c.rest))))),
    sentence.remark ? h('p', null, clean(sentence.remark)) : null,
    sentence.held ? h('p', { class: 'warn' }, '▲ ', clean(sentence.held)) : null,
    openLine(g));
}

// startTable shows what goroutines did if no requests were found, by functions that the user can select as requests.
function startTable() {
  const list = (report.starts || []).slice(0, 50);
  if (!list.length) return null;
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'What goroutines did' }, h('table', { class: 'starts' },
    h('thead', null, h('tr', null, ['Started with', 'Ask for', 'Goroutines', 'Woken', 'Running'].map((t, i) => h('th', { scope: 'col', class: i > 1 ? 'num' : null }, t)))),
    h('tbody', null, list.map(s => h('tr', null, h('th', { scope: 'row' }, h('code', null, brief(s.site ? s.site.func : '', 160))), h('td', null, h('code', null, brief((s.inner || s.site || {}).func || '', 160))),
      h('td', { class: 'num' }, number(s.goroutines)), h('td', { class: 'num' }, number(s.wakes)), h('td', { class: 'num' }, duration(s.running_ns)))))));
}

export function verdict() {
  const isQuiet = ['healthy', 'peer', 'unclear'].includes(pageData.outcome?.state), computes = report.verdict?.[0]?.causes[0]?.cause === 'cpu';
  const heading = !isQuiet ? 'Why requests were late' : computes ? 'Where requests spent their time' : 'Where requests waited';
  const other = (report.input.warnings || []).find(w => w.code === 'no-group');
  if (other) {
    return h('section', { id: 'verdict' }, h('h2', null, heading),
      h('p', { class: 'lead' }, 'No group has that name.'), h('p', null, clean(other.text)));
  }
  const none = (report.input.warnings || []).find(w => w.code === 'no-match');
  if (none) {
    return h('section', { id: 'verdict' }, h('h2', null, heading),
      h('p', { class: 'lead' }, 'Nothing is like what was asked for.'), h('p', null, clean(none.text)));
  }
  if (!report.groups.length) {
    return h('section', { id: 'verdict' }, h('h2', null, heading),
      h('p', { class: 'lead' }, 'No request ended in this time.'),
      h('p', null, 'Record while the service has load, or longer. If one of your functions does the work, name it with --request: every call of it is then a request.'),
      startTable());
  }
  const rows = pageData.compared || [], shown = (report.verdict || []).filter((v, i) => groupByID(v.group) && (i === 0 || v.open?.late || !rows.some(row => row.group === v.group)));
  return h('section', { id: 'verdict' }, h('h2', null, heading + ' ', explainButton('verdict')), shown.map((v, i) => [groupVerdict(v), i === 0 && rows.length ? comparison(rows) : null]));
}
