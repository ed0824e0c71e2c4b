// Ranked findings: what to change, what that would win, and how sure it is.

import { h, s, later, table } from './dom.js';
import { duration, percent, quantity, clean, groupName, brief } from './format.js';
import { about, causeClass } from './causes.js';
import { report, exampleOf, groupOfFinding } from './model.js';
import { asked } from './how.js';
import { address } from './state.js';
import { siteNode } from './verdict.js';

const marks = { high: '▲', medium: '◆', low: '●', info: '○' };

// gain draws where a percentile is now, and where the prediction says it would be.
function gain(name, now, e) {
  if (!e || now === null || now === undefined || !(now > 0)) return e ? h('p', { class: 'gaintext' }, `${name}: ${duration(e.est)} (${duration(e.low)} to ${duration(e.high)})`) : null;
  const max = Math.max(now, e.high, 1), w = 320, x = v => 4 + v / max * (w - 8);
  return h('div', { class: 'gain' },
    h('span', { class: 'gainname' }, name),
    s('svg', { viewBox: `0 0 ${w} 22`, role: 'img', 'aria-label': `${name} now ${duration(now)}, predicted ${duration(e.est)}, between ${duration(e.low)} and ${duration(e.high)}` },
      s('rect', { class: 'track', x: 4, y: 9, width: w - 8, height: 4 }),
      s('rect', { class: 'won', x: x(e.est), y: 9, width: Math.max(0, x(now) - x(e.est)), height: 4 }),
      s('line', { class: 'now', x1: x(now), x2: x(now), y1: 3, y2: 19 }),
      s('rect', { class: 'range', x: x(e.low), y: 6, width: Math.max(2, x(e.high) - x(e.low)), height: 10, rx: 3 }),
      s('circle', { class: 'est', cx: x(e.est), cy: 11, r: 4 })),
    h('span', { class: 'gaintext' }, `${duration(now)} → ${duration(e.est)}`, h('span', { class: 'dim' }, ` (${duration(e.low)} to ${duration(e.high)})`)));
}

function card(f, i) {
  const g = groupOfFinding(f), example = exampleOf(f);
  return h('article', { class: 'finding ' + clean(f.severity), id: 'finding-' + i, 'data-finding': f.id, tabindex: -1 },
    h('h3', null, h('span', { class: 'severity' }, `${marks[f.severity] || '○'} ${clean(f.severity)}`), h('code', { class: 'code' }, clean(f.code)), ' ', brief(f.title, 400)),
    h('p', { class: 'facts' },
      f.cause ? h('span', { class: 'nowrap' }, h('i', { class: 'chip ' + causeClass(f.cause) }), about(f.cause).short) : null,
      f.site ? [' at ', siteNode(f.site)] : null, g ? [' in ', h('span', null, groupName(g))] : null,
      f.share > 0 ? [` · ${percent(f.share)} of its time `, asked('share')] : null,
      ` · confidence ${percent(f.confidence)} `, asked('confidence')),
    f.evidence.length ? h('ul', { class: 'evidence' }, f.evidence.map(e => h('li', null, brief(e.text, 400), e.unit || e.value ? [': ', h('strong', null, quantity(e.value, e.unit))] : null))) : null,
    f.fix ? h('p', { class: 'fix' }, h('strong', null, 'Fix: '), brief(f.fix, 1000)) : null,
    f.predicted ? h('div', { class: 'predicted' }, h('p', null, h('strong', null, 'Predicted'), f.predicted.change ? ` if ${brief(f.predicted.change, 300)} ` : ' ', asked('predicted')),
      gain('p50', g && g.latency_ns.p50, f.predicted.p50_ns), gain('p99', g && (g.latency_ns.p99 ?? g.latency_ns.max), f.predicted.p99_ns)) : null,
    f.ignored ? h('p', { class: 'dim' }, `Ignored: ${clean(f.ignored)}`) : null,
    h('p', null, example ? h('a', { class: 'show', href: address({ finding: f.id, req: example.request.id }) }, 'Show it in a slow request →') : null));
}

export function findings() {
  const shown = report.findings.filter(f => !f.ignored), ignored = report.findings.filter(f => f.ignored);
  const at = new Map(report.findings.map((f, i) => [f, i]));
  return h('section', { id: 'findings' }, h('h2', null, 'What to change ', asked('finding')),
    shown.length ? shown.map(f => card(f, at.get(f))) : h('p', { class: 'dim' }, report.groups.length ? 'This report holds no findings; the causes below stand for themselves.' : 'Nothing to say without requests.'),
    ignored.length ? h('details', { class: 'behind' }, h('summary', null, `Ignored findings (${ignored.length})`), ignored.map(f => card(f, at.get(f)))) : null,
    shown.length ? later('Table of findings', () => table('Findings', [{ text: 'Finding' }, { text: 'Severity' }, { text: 'Title' }, { text: 'Cause' }, { text: 'Share', num: true }, { text: 'Confidence', num: true }, { text: 'p99 predicted', num: true }],
      shown.map(f => [clean(f.code), clean(f.severity), brief(f.title, 300), clean(f.cause), percent(f.share), percent(f.confidence), f.predicted ? duration(f.predicted.p99_ns.est) : '']))) : null);
}
