// All groups in one table, and the causes of the selected one by latency band.

import { listing } from './listing.js';
import { h, replace, table } from './dom.js';
import { duration, number, percent, count, clean, groupName, siteText, none, brief, middle, shortFunc } from './format.js';
import { causeInfo, causeClass, waitWords } from './causes.js';
import { report, pageData, noun, byCause, total } from './model.js';
import { explainButton } from './how.js';
import { view, onChange, go, address } from './state.js';
import { bar, openLine, groupLink } from './verdict.js';
import { siteNode } from './site.js';

const fewest = 12;

export function groupsTable() {
  if (!report.groups.length) return null;
  const body = h('div');
  let all = false;
  const draw = () => {
    const chosen = report.groups.indexOf(view.group);
    const list = report.groups.filter((g, i) => all || i < fewest || i === chosen);
    const row = g => {
      const b = g.bands[0];
      return h('tr', { class: g === view.group ? 'chosen' : null, 'data-group': g.id },
        h('th', { scope: 'row' }, groupLink(g), h('span', { class: 'kind' }, clean(g.kind)), g.streaming ? h('span', { class: 'kind' }, 'streaming') : null, g.role ? h('span', { class: 'kind' }, clean(g.role)) : null),
        h('td', { class: 'num', 'data-name': 'requests' }, number(g.count)),
        ['p50', 'p90', 'p99', 'max'].map(k => h('td', { class: 'num', 'data-name': k }, duration(g.latency_ns[k]))),
        h('td', { class: 'barcell' }, b && b.causes.length ? bar(byCause(b.causes), 'Causes of all requests') : none));
    };
    replace(body,
      h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Groups of requests' }, h('table', { class: 'groups' },
        h('thead', null, h('tr', null, ['Group', 'Requests', 'p50', 'p90', 'p99', 'Max'].map((t, i) => h('th', { scope: 'col', class: i ? 'num' : null }, t)), h('th', { scope: 'col' }, 'All its time, by cause'))),
        report.services?.length ? report.services.map(x => h('tbody', { 'data-service': x.name }, serviceRow(x), list.filter(g => g.service === x.name).map(row))) : h('tbody', null, list.map(row)))),
      report.groups.length > fewest ? h('p', null, h('button', { type: 'button', onclick: () => { all = !all; draw(); } }, all ? 'Show the first groups only' : `Show all ${number(report.groups.length)} groups`)) : null);
  };
  onChange(c => { if (c.has('group')) draw(); });
  draw();
  return h('section', { id: 'groups' }, h('h2', null, 'Groups of requests ', explainButton('count')), body);
}

// serviceRow heads the groups of one of several services: which services it calls and which call it, and what is to be changed there.
function serviceRow(x) {
  const list = (lead, services) => services.length ? [h('span', { class: 'dim' }, ` · ${lead} `), services.map(([name, text], i) => {
    const g = report.groups.find(o => o.service === name);
    return [i ? ', ' : '', g ? groupLink(g, brief(name, 40)) : brief(name, 40), text ? h('span', { class: 'dim' }, ` (${text})`) : null];
  })] : null;
  const toChange = report.findings.filter(f => !f.ignored && f.severity !== 'info' && f.service === x.name);
  return h('tr', { class: 'service' }, h('th', { scope: 'rowgroup', colspan: 7 }, h('strong', null, brief(x.name, 40)),
    list('calls', (x.calls || []).map(c => [c.service, `${number(c.joined)} joined${c.ambiguous ? `, ${number(c.ambiguous)} ambiguous` : ''}`])),
    list('called by', report.services.filter(o => (o.calls || []).some(c => c.service === x.name)).map(o => [o.name])),
    toChange.length ? [h('span', { class: 'dim' }, ' · to change: '), toChange.map((f, i) => [i ? ', ' : '', h('a', { href: address({ finding: f.id }), title: brief(f.title, 300) }, `${clean(f.severity)} ${clean(f.code)}`)])] : null));
}

function viaNode(via) {
  if (!via || !via.length) return null;
  return h('ol', { class: 'via' }, via.map(v => h('li', null, clean(waitWords(v)), v.site ? [' at ', siteNode(v.site)] : null)));
}

function ranNode(ran) {
  if (!ran || !ran.length) return null;
  return h('div', { class: 'ran' }, 'ran meanwhile: ', ran.map((r, i) => [i ? ', ' : '', siteNode(r.site) || 'unknown', ' ', percent(r.share)]));
}

// bandCauses shows the rows of the selected band, as in the report.
export function bandCauses() {
  const out = h('div', { id: 'bandcauses' });
  let all = false;
  const draw = () => {
    const g = view.group;
    if (!g) return;
    const names = g.bands.filter(b => b.count > 0);
    const b = names.find(x => x.band === view.band) || names[names.length - 1];
    if (!b) {
      replace(out);
      return;
    }
    const each = total(b.causes) / b.count, of = { group: g.id, min: b.from_ns, max: b.to_ns };
    // Small rows, and rare ways to a cause, are folded: they are rarely useful.
    const rows = all ? b.causes : b.causes.filter((r, i) => i < 3 || i < 12 && r.share >= 0.03);
    const routes = r => r.routes.slice(0, 5).filter((x, i) => all || i < 1 || x.total_ns >= 0.05 * r.total_ns);
    replace(out,
      h('div', { class: 'tabs', role: 'group', 'aria-label': 'Latency band' }, names.map(x => h('button', { type: 'button', 'aria-pressed': String(x === b), 'data-band': x.band, onclick: () => go({ band: x.band }) },
        h('strong', null, x.band), h('span', { class: 'dim' }, ` ${count(x.count, noun(g))}`)))),
      h('p', { class: 'dim' }, `${count(b.count, noun(g))} of ${duration(b.from_ns)} to ${duration(Math.min(b.to_ns, g.latency_ns.max ?? b.to_ns))}, on average ${duration(each)} `, explainButton('bands'), ' ', listing('list them', of)),
      bar(byCause(b.causes), 'Causes of band ' + b.band),
      table('Causes of band ' + b.band, [{ text: 'Cause' }, { text: 'Share', num: true }, { text: 'Per request', num: true }, { text: 'Requests', num: true }, { text: 'Where, and by which waits' }],
        rows.map(r => [h('span', { class: 'nowrap', 'data-ns': r.total_ns }, h('i', { class: 'chip ' + causeClass(r.cause) }), causeInfo(r.cause).short, causeInfo(r.cause).short.toLowerCase() === r.cause ? null : h('code', { class: 'dim code', title: 'its name in JSON, budgets and exports' }, ' ' + clean(r.cause)), r.kind ? h('span', { class: 'kind' }, r.cause === 'queue' ? 'for ' + brief(r.kind, 60) : brief(r.kind, 32)) : null, r.call ? h('span', { class: 'kind' }, middle(shortFunc(r.call), 32)) : null, r.service || r.way_to ? h('span', { class: 'kind' }, r.service ? 'in ' + brief(r.service, 40) : `on the way to ${brief(r.way_to, 40)}`) : null),
          percent(r.share), duration(r.total_ns / b.count),
          [number(r.requests), r.cause === 'other' ? null : listing('list', { ...of, cause: r.cause, function: r.site ? r.site.func : '' }, 'list the requests of this band with this cause and this function on their path')],
          h('div', null, r.site ? siteNode(r.site) : h('span', { class: 'dim' }, r.cause === 'other' ? 'the rest' : 'no place known'), siteFrom(r),
            r.routes && r.routes.length ? routes(r).map(x => h('div', { class: 'route' }, h('span', { class: 'num' }, percent(x.total_ns / r.total_ns)), viaNode(x.via) || h('span', { class: 'dim' }, 'on its own goroutine'), behindNode(x.behind))) : [viaNode(r.via), behindNode(r.behind)], peerNode(r.peer_states), ranNode(r.ran_meanwhile))]), { class: 'causes' }),
      !all && (b.causes.length > rows.length || rows.some(r => r.routes && routes(r).length < Math.min(5, r.routes.length))) ? h('p', null, h('button', { type: 'button', onclick: () => { all = true; draw(); } }, `Show all ${count(b.causes.length, 'cause')} and the waits before them`)) : null);
  };
  onChange(c => { if (c.has('group') || c.has('band')) draw(); });
  draw();
  return out;
}

// behindNode shows what those ahead in a queue do.
function behindNode(work) {
  return work ? h('div', { class: 'dim', 'data-behind': work.cause }, 'behind others ', causeInfo(work.cause).words, work.site ? [causeInfo(work.cause).at, siteNode(work.site)] : null) : null;
}

// peerNode shows what the processes at the other end of connections did during a wait.
function peerNode(states) {
  return (states || []).filter((x, i) => i < 5 && x.share >= 0.01).map(x => h('div', { class: 'dim', 'data-peer': x.state }, h('span', { class: 'num' }, percent(x.share)), ` ${brief(x.process, 80)}: ${brief(x.text, 120)}`));
}

// siteFrom says from which data the line of running time is known: without CPU samples, the line of a short run is only inferred.
function siteFrom(r) {
  const words = { sample: r.samples ? 'by ' + count(r.samples, 'CPU sample') : 'by CPU samples', preempt: 'where it was preempted', bracket: 'inferred from the events around it' };
  return words[r.site_from] ? h('span', { class: 'kind' }, words[r.site_from]) : null;
}

// groupHead shows the name of the selected group.
export function groupHead() {
  const out = h('div');
  const draw = () => {
    const g = view.group;
    if (!g) return;
    const l = g.latency_ns;
    const fact = (name, text, key) => h('div', { class: 'fact' }, h('dt', null, name, ' ', key ? explainButton(key) : null), h('dd', null, text));
    replace(out,
      h('h2', null, h('span', { class: 'dim' }, clean(g.kind) + ' '), groupName(g)),
      g.entry ? h('p', { class: 'dim wrap' }, siteText(g.entry)) : null,
      h('dl', { class: 'factrow' }, fact('Requests', number(g.count), 'count'), fact('Mean', duration(l.mean), 'latency'), fact('p50', duration(l.p50)), fact('p90', duration(l.p90)), fact('p99', duration(l.p99)),
        fact('p99.9', duration(l.p999)), fact('Max', duration(l.max)),
        g.ready_to_run_ns.p99 !== null || g.ready_to_run_ns.max ? fact('Ready to run, p99', duration(g.ready_to_run_ns.p99 ?? g.ready_to_run_ns.max), 'ready') : null,
        g.poll_gap_ns.max ? fact('Poll gap, max', duration(g.poll_gap_ns.max), 'ready') : null,
        g.peer ? fact('Its peer', `${g.peer.confidence < 0.7 ? 'perhaps ' : ''}${g.peer.recording ? clean(g.peer.recording) : 'this process'}: ${number(g.peer.held)} of ${number(g.peer.waits)} waits for the network have a request of ${[g.peer.name, ...(g.peer.also || [])].map(clean).join(' or ')} in them${g.peer.as_long ? ' that is as long' : ''}, which was served for ${duration(g.peer.served_ns)} of ${duration(g.peer.wait_ns)}${g.peer.spent ? ` (such requests spent ${brief(g.peer.spent, 200)})` : ''}`) : null,
        g.cut_at_start ? fact('Cut by the trace’s start', number(g.cut_at_start), 'count') : null),
      beforeLine(g), openLine(g));
  };
  onChange(c => { if (c.has('group')) draw(); });
  draw();
  return out;
}

// beforeLine shows the percentiles of the earlier report.
function beforeLine(g) {
  const b = pageData.before;
  if (!b) return null;
  const old = b.groups.find(x => x.id === g.id), l = g.latency_ns;
  if (!old) return h('p', { class: 'beforeline' }, `${brief(b.name || 'The report before')} has no such group.`);
  const one = (name, was, now) => was === null || now === null ? null : h('span', { class: 'nowrap' }, ` ${name} ${duration(was)} → `, h('strong', null, duration(now)), ` (${now < was ? '−' : '+'}${Math.abs((now - was) / (was || 1) * 100).toFixed(0)}%) `);
  return h('p', { class: 'beforeline', 'data-before': b.name }, h('span', { class: 'dim' }, `Before (${brief(b.name || 'another report')}, ${count(old.count, 'request')}):`), one('p50', old.latency_ns.p50, l.p50), one('p90', old.latency_ns.p90, l.p90), one('p99', old.latency_ns.p99, l.p99), one('max', old.latency_ns.max, l.max));
}
