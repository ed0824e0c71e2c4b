// Ranked findings: the fix, its predicted gain, and the confidence.

import { h, s, foldedPart, table } from './dom.js';
import { duration, percent, quantity, clean, number, count, brief, changeText, estimate, rough, unsure, none } from './format.js';
import { causeInfo, causeClass } from './causes.js';
import { report, pageData, exampleOf, groupOfFinding, groupByID } from './model.js';
import { explainButton } from './how.js';
import { address } from './state.js';
import { groupLink, onlyMax } from './verdict.js';
import { siteNode } from './site.js';

// atOnce is how many findings are shown first; the others have smaller gains.
const atOnce = 6;

const marks = { high: '▲', medium: '◆', low: '●', info: '○' };

// gain draws a percentile and its predicted value.
function gain(name, now, e) {
  if (!e) return null;
  if (!(now > 0)) return h('p', { class: 'gaintext' }, `${name}: ${estimate(e)}`);
  const max = Math.max(now, e.high, 1), w = 320, x = v => 4 + v / max * (w - 8);
  return h('div', { class: 'gain', 'data-now': now, 'data-est': e.est, 'data-low': e.low, 'data-high': e.high },
    h('div', { class: 'gaintext' }, h('span', { class: 'gainname' }, name), ' ', h('span', null, duration(now)), unsure(now, e) ? [' → ', h('strong', null, unsure(now, e))] : [' → ', Math.abs(e.est - now) < 0.005 * now ? [h('strong', null, duration(e.est)), h('span', { class: 'dim' }, ' unchanged')] : h('strong', null, estimate(e))]),
    s('svg', { viewBox: `0 0 ${w} 20`, role: 'img', 'aria-label': `${name} now ${duration(now)}, predicted ${estimate(e)}` },
      s('rect', { class: 'track', x: 4, y: 8, width: w - 8, height: 4 }),
      s('rect', { class: 'won', x: x(e.est), y: 8, width: Math.max(0, x(now) - x(e.est)), height: 4 }),
      s('line', { class: 'now', x1: x(now), x2: x(now), y1: 2, y2: 18 }),
      s('rect', { class: 'range', x: x(e.low), y: 5, width: Math.max(2, x(e.high) - x(e.low)), height: 10, rx: 3 }),
      s('circle', { class: 'est', cx: x(e.est), cy: 10, r: 4 })));
}

// prediction shows the predicted gain of a change for a group, in words and as a picture.
export function prediction(g, p) {
  return h('div', { class: 'predicted' }, h('p', null, h('strong', null, 'Predicted'), p.says ? [' ', brief(p.says, 80), ' '] : p.change ? [' if ', h('span', { title: brief(p.change, 600) }, changeText(p.change)), ' '] : ' ', explainButton('predicted')),
    gain('p99', p.was_p99_ns ?? (g && (g.latency_ns.p99 ?? g.latency_ns.max)), p.p99_ns), gain('p50', p.was_p50_ns ?? (g && g.latency_ns.p50), p.p50_ns), onlyMax(p) ? gain('max', p.was_max_ns, p.max_ns) : null, checkLine(p.check));
}

// askedBy shows the time that requests of another group lose to a fault, because they wait for its group over the network, and their
// gain of a fix.
function askedBy(a) {
  const g = groupByID(a.group);
  return h('div', { 'data-asked-by': a.group }, h('p', null, 'Requests of ', g ? groupLink(g) : brief(a.name, 160), ` wait for this over the network: ${percent(a.share)} of their time, ${duration(a.each_ns)} of each.`), a.predicted ? prediction(g, a.predicted) : null);
}

// checkLine compares a prediction with requests that spent as much time in a cause as the change leaves, or none. If they differ, it
// says what the reason may be.
function checkLine(c) {
  if (!c) return null;
  const met = c.at_least_ns > 0 ? `${duration(c.at_least_ns)} to ${duration(c.at_most_ns)}` : `at most ${duration(c.at_most_ns)}`;
  const observed = [`${count(c.requests, 'request')} of this trace met ${met} of it: ${c.p99_ns == null ? '' : `p99 ${duration(c.p99_ns)}, `}p50 `, h('strong', null, duration(c.p50_ns))];
  const predicted = `predicted${c.gone ? ' without it' : ''}. `;
  return h('p', { class: 'check', 'data-check': c.agrees ? 'agrees' : 'differs', 'data-p50': c.p50_ns }, c.agrees ? '✓ Checked: ' : '▲ Differs: ', observed, !c.agrees ? `, where ${estimate(c.predicted_ns)} is ${predicted}` : c.gone ? `, which fits the ${estimate(c.predicted_ns)} ${predicted}` : ', which fits. ',
    c.agrees ? null : c.p50_ns < c.predicted_ns.est ? 'They may do less work, or the change may remove more. ' : 'Another cause makes them slow, which may remain, or they are of another kind. ', explainButton('check'));
}

function paragraphs(text) { return cleanLines(text).split('\n\n').filter(Boolean).map(t => h('p', null, t)); }

// cleanLines is clean for each line of a text.
function cleanLines(text) { return String(text || '').split('\n').map(clean).join('\n'); }

function example(title, text) { return text ? [h('h4', null, title), h('pre', { tabindex: 0 }, cleanLines(text.trim()))] : null; }

// documentation shows the documentation of a rule.
function documentation(code) {
  const r = pageData.rules.find(x => x.code === code);
  if (!r) return null;
  return foldedPart(`What ${clean(code)} means, and how it was computed`, () => h('div', { class: 'doc' },
    r.summary ? h('p', { class: 'lead' }, clean(r.summary)) : null, r.means ? [h('h4', null, 'What it means'), paragraphs(r.means)] : null, r.measured ? [h('h4', null, 'How it was computed'), paragraphs(r.measured)] : null,
    example('Before', r.before), example('After', r.after), r.wrong ? [h('h4', null, 'When it is wrong, or does not matter'), paragraphs(r.wrong)] : null), { class: 'behind ruledoc' });
}

// fix shows what to do: the first remedy, then alternatives and conditions. What is no fault asks for nothing.
function fix(f) {
  if (!f.fix) return null;
  if (f.severity === 'info') return h('p', { class: 'fix dim' }, 'If it matters: ', brief(f.fix, 600));
  const first = f.remedy && f.fix.startsWith(f.remedy) ? f.remedy : f.fix, rest = f.fix.slice(first.length);
  return h('p', { class: 'fix' }, h('strong', null, 'Do: ', brief(first, 600)), rest ? h('span', { class: 'dim' }, brief(rest, 600)) : null);
}

// evidence is folded, because it is for those who doubt a finding.
function evidence(f, g) {
  return h('details', { class: 'behind' }, h('summary', null, f.evidence.length ? `Evidence (${f.evidence.length})` : 'Numbers'), h('ul', { class: 'evidence' },
    f.evidence.map(e => h('li', null, brief(e.text, 400), e.unit || e.value ? [': ', h('strong', null, quantity(e.value, e.unit))] : null)),
    f.share > 0 ? h('li', null, `share of ${g ? "the group's" : 'all'} time, queues and their holders together: `, h('strong', null, percent(f.share)), ' ', explainButton('share')) : null,
    f.decided ? h('li', null, `severity ${brief(f.severity, 12)}: ${percent(f.decided.share)} and ${duration(f.decided.ns)} ${({ all: 'of each request', slow: 'of each slow request' })[f.decided.by] || 'of each request of the other slow band'} (limits: ${percent(f.decided.least_share)}, ${rough(f.decided.least_ns)})`) : null,
    h('li', null, 'confidence: ', h('strong', null, percent(f.confidence)))));
}

function card(f, i) {
  const g = groupOfFinding(f), shows = exampleOf(f), gains = f.predicted && f.severity !== 'info' && !(f.doubt && f.confidence < 0.5);
  return h('article', { class: 'finding ' + (marks[f.severity] ? f.severity : 'info'), id: 'finding-' + i, 'data-finding': f.id, tabindex: -1 },
    h('h3', null, h('span', { class: 'severity' }, `${marks[f.severity] || '○'} ${brief(f.severity, 12)}`), h('code', { class: 'code' }, brief(f.code, 16)), ' ', brief(f.title, 400)),
    h('div', { class: gains ? 'findingbody' : null },
      h('div', null,
        fix(f),
        h('p', { class: 'facts' },
          f.cause ? h('span', { class: 'nowrap' }, h('i', { class: 'chip ' + causeClass(f.cause) }), causeInfo(f.cause).short) : null,
          f.site ? [f.cause ? ' at ' : '', siteNode(f.site)] : null, g ? [' in ', groupLink(g)] : f.group ? [' in ', brief(f.group)] : [f.cause || f.site ? ' · ' : '', 'whole trace'],
          h('span', { title: percent(f.confidence) }, ` · confidence ${f.confidence >= 0.8 ? 'high' : f.confidence >= 0.5 ? 'medium' : 'low'} `), explainButton('confidence')),
        evidence(f, g)),
      gains ? prediction(g, f.predicted) : null),
    (f.asked_by || []).map(askedBy),
    f.ignored ? h('p', { class: 'dim' }, `Ignored: ${brief(f.ignored, 600)}`) : null,
    h('p', { class: 'findinglinks' }, shows ? h('a', { class: 'show', href: address({ finding: f.id, req: shows.request.id }) }, shows.ns > 0 && (f.cause || f.site) ? 'Show it in a slow request →' : 'Show a slow request →') : null,
      h('a', { class: 'dim', href: address({ finding: f.id }), 'aria-label': `Link to this finding, ${clean(f.code)}` }, '# link')),
    documentation(f.code));
}

// tally returns the number of findings of each severity, in words.
function tally(list) {
  return h('p', { class: 'tally' }, Object.keys(marks).map(sev => [sev, list.filter(f => f.severity === sev).length]).filter(x => x[1]).map(([sev, n]) => h('span', { class: 'severity ' + sev }, `${marks[sev]} ${number(n)} ${sev}`)));
}

// whatIf shows the predictions that the user requested.
export function whatIf() {
  const list = report.what_if || [];
  if (!list.length) return null;
  return h('section', { id: 'whatif' }, h('h2', null, 'What if ', explainButton('whatif')), h('div', { class: 'whatif' }, list.map(w => {
    const g = groupByID(w.group);
    return h('article', { 'data-whatif': w.group }, h('h3', null, g ? groupLink(g) : brief(w.name, 160), h('span', { class: 'dim' }, ` · from ${count(w.requests, 'request')}`)), prediction(g, w.predicted), w.note ? h('p', { class: 'dim' }, brief(w.note, 400)) : null);
  })), foldedPart('Table of predictions', () => table('What if', [{ text: 'Group' }, { text: 'Change' }, { text: 'p50 now', num: true }, { text: 'p50 predicted', num: true }, { text: 'p99 now', num: true }, { text: 'p99 predicted', num: true }, { text: 'p50 of those compared', num: true }],
    list.map(w => [brief(w.name, 160), changeText(w.predicted.change), duration(w.predicted.was_p50_ns), estimate(w.predicted.p50_ns), duration(w.predicted.was_p99_ns), estimate(w.predicted.p99_ns), w.predicted.check ? duration(w.predicted.check.p50_ns) : none]))));
}

function capitalized(text) { return text.charAt(0).toUpperCase() + clean(text).slice(1); }

export function findings() {
  const unignored = report.findings.filter(f => !f.ignored), shown = unignored.filter(f => f.severity !== 'info'), notes = unignored.filter(f => f.severity === 'info'), ignored = report.findings.filter(f => f.ignored);
  const at = new Map(report.findings.map((f, i) => [f, i])), first = pageData.outcome?.findings || [];
  const place = f => first.includes(f.id) ? first.indexOf(f.id) : first.length;
  shown.sort((a, b) => place(a) - place(b));
  return h('section', { id: 'findings' }, h('h2', null, clean(pageData.outcome?.heading || 'What to change'), ' ', explainButton('finding')),
    shown.length ? [unignored.length > 1 ? tally(unignored) : null, shown.slice(0, atOnce).map(f => card(f, at.get(f))), shown.length > atOnce ? h('details', { class: 'behind', id: 'morefindings' }, h('summary', null, `${count(shown.length - atOnce, 'more finding')}`), shown.slice(atOnce).map(f => card(f, at.get(f)))) : null] : h('p', { class: 'dim' }, !report.groups.length ? 'Nothing to say without requests.' : pageData.outcome ? `${capitalized(pageData.outcome.result)}.` : 'No rule found a fault.'),
    notes.length ? h('details', { class: 'behind', id: 'notes', open: !shown.length }, h('summary', null, `Worth knowing (${notes.length})`), notes.map(f => card(f, at.get(f)))) : null,
    ignored.length ? h('details', { class: 'behind' }, h('summary', null, `Ignored findings (${ignored.length})`), ignored.map(f => card(f, at.get(f)))) : null,
    report.judged ? h('details', { class: 'behind', id: 'judged' }, h('summary', null, pageData.outcome?.rules ? clean(pageData.outcome.rules) : 'What the rules judged'), h('p', { class: 'dim wrap' }, brief(report.judged.text, 600))) : null,
    unignored.length ? foldedPart('Table of findings', () => table('Findings', [{ text: 'Finding' }, { text: 'Severity' }, { text: 'Title' }, { text: 'Cause' }, { text: 'Share', num: true }, { text: 'Confidence', num: true }, { text: 'p99 predicted', num: true }],
      unignored.map(f => [brief(f.code, 16), brief(f.severity, 12), brief(f.title, 300), brief(f.cause, 32), percent(f.share), percent(f.confidence), f.predicted ? estimate(f.predicted.p99_ns) : none]))) : null);
}
