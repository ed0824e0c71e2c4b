// The report, and sums of its values that several parts of the page need.

import { byOrder, inFamily, partsOf } from './causes.js';
import { brief } from './format.js';

// A large report is kept compressed.
async function load() {
  const el = document.getElementById('report');
  if (el.type === 'application/json') return el.textContent;
  const bytes = Uint8Array.from(atob(el.textContent), c => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).text();
}

export const source = await load();
export const report = JSON.parse(source);
export const pageData = JSON.parse(document.getElementById('about').textContent);

// The version of the service's program, else that of the trace's header, which is the same for Go 1.23 and 1.24.
export function goVersion() {
  const built = report.host && report.host.facts && report.host.facts.go;
  return built ? built.replace(/^go/, '') : report.input.go === '1.23' ? '1.23 or 1.24' : report.input.go;
}

export function groupByID(id) { return report.groups.find(g => g.id === id); }

// noun is what a request of a group is called: request, message, job, iteration, call or run.
export function noun(g) { return g.unit && brief(g.unit, 20) || pageData.nouns[g.kind] || 'request'; }

// requestByID finds a request that the report contains in full: {group, request, index, typical}.
export function requestByID(id) {
  for (const group of report.groups) {
    const index = group.slowest.findIndex(r => r.id === id);
    if (index >= 0) return { group, request: group.slowest[index], index };
    if (group.typical && group.typical.id === id) return { group, request: group.typical, index: -1 };
  }
  return null;
}

// verdictOf returns the verdict about a group, null for groups with little of the latency.
export function verdictOf(g) { return (report.verdict || []).find(v => v.group === g.id) || null; }

// tail returns the band that represents a group's slow requests, by its verdict; the band of all requests without a verdict.
export function tail(g) {
  const v = verdictOf(g);
  return v && bandByName(g, v.band) || g.bands[0];
}

export function bandByName(g, name) { return g.bands.find(b => b.band === name && b.count > 0) || null; }

// byCause sums a band's rows by cause: [[cause, ns]...] in stacking order.
export function byCause(rows) {
  const sums = new Map();
  for (const r of rows) sums.set(r.cause, (sums.get(r.cause) || 0) + r.total_ns);
  return [...sums].filter(([, ns]) => ns > 0).sort((a, b) => byOrder(a[0], b[0]));
}

export function total(rows) { return rows.reduce((n, r) => n + r.total_ns, 0); }

// segmentCauses returns the sums of the segments of one request by cause.
export function segmentCauses(r) { return byCause(r.segments.flatMap(x => partsOf(x).map(([cause, ns]) => ({ cause, total_ns: ns })))); }

export function groupOfFinding(f) { return groupByID(f.group) || report.groups.find(g => g.name === f.group) || null; }

function sameSite(a, b) { return !!a && !!b && a.func === b.func && a.file === b.file && a.line === b.line && (!a.called_from || !b.called_from || sameSite(a.called_from, b.called_from)); }

function atSite(f, seg) { return sameSite(f.site, seg.site) || (seg.via || []).some(v => sameSite(f.site, v.site)); }

// ofCause is called for every segment and every finding, so it allocates nothing.
function ofCause(f, seg) {
  if (!f.cause) return true;
  if (!seg.joined) return inFamily(seg.cause, f.cause);
  for (const c in seg.joined.causes) if (inFamily(c, f.cause)) return true;
  return false;
}

// Findings whose site is on no path, for example the site of code that ran while requests waited.
const elsewhere = new Set(report.findings.filter(f => f.site && !report.groups.some(g => g.slowest.some(r => r.segments.some(x => ofCause(f, x) && atSite(f, x))))));

// concerns reports whether a segment has the cause of a finding and its site, if that site is on any path.
export function concerns(f, seg) { return ofCause(f, seg) && (!f.site || elsewhere.has(f) || atSite(f, seg)); }

// exampleOf returns the request with the most time (ns) in a finding's segments, of those that the report contains in full.
export function exampleOf(f) {
  const own = groupOfFinding(f);
  let best = null, most = -1;
  for (const g of own ? [own] : report.groups) {
    for (const r of g.slowest) {
      const ns = r.segments.reduce((n, x) => n + (concerns(f, x) ? x.duration_ns : 0), 0);
      if (ns > most) [best, most] = [{ group: g, request: r, ns }, ns];
    }
  }
  return best;
}

// lowerBound returns the beginning of the bucket that ends at upper: there are 32 buckets to each doubling.
export function lowerBound(upper) {
  if (upper <= 33) return Math.max(0, upper - 1);
  return upper - 2 ** (Math.floor(Math.log2(upper - 1)) - 5);
}

// quantileOf returns the q-quantile of a histogram [[upper, count]...], as the middle of its bucket; null without requests.
export function quantileOf(hist, q) {
  const n = hist.reduce((sum, b) => sum + b[1], 0);
  if (!n) return null;
  let rank = Math.floor(q * (n - 1)) + 1;
  for (const [upper, c] of hist) {
    rank -= c;
    if (rank <= 0) return (lowerBound(upper) + upper) / 2;
  }
  return null;
}
