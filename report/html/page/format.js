// Numbers and names for readers, by the rules of internal/output/words: format_test.go compares the two.

export const none = '–';

// fixed is toFixed for v >= 0, but rounds halves to even, as Go does. In binary a half of the last decimal is an odd multiple of a power
// of two.
function fixed(v, places) {
  if (v * 2 ** (places + 1) % 2 !== 1) return v.toFixed(places);
  const low = Math.floor(v * 10 ** places);
  return ((low % 2 ? low + 1 : low) / 10 ** places).toFixed(places);
}

// digits writes 1 <= v < 1000 with three significant digits.
function digits(v) {
  if (v >= 99.95) return fixed(v, 0);
  if (v >= 9.995) return fixed(v, 1);
  return fixed(v, 2);
}

export function duration(ns) {
  if (ns === null || ns === undefined) return none;
  if (ns < 0) return '-' + duration(-ns);
  if (ns === 0) return '0s';
  if (ns < 1000) return `${Math.round(ns)}ns`;
  if (ns < 999500) return digits(ns / 1e3) + 'µs';
  if (ns < 999500000) return digits(ns / 1e6) + 'ms';
  if (ns < 59.95e9) return digits(ns / 1e9) + 's';
  const s = Math.round(ns / 1e9), m = Math.round(ns / 6e10);
  return s < 3600 ? `${Math.floor(s / 60)}m${s % 60}s` : `${Math.floor(m / 60)}h${m % 60}m`;
}

// exact writes every nanosecond, for details and tables.
export function exact(ns) { return number(ns) + ' ns'; }

export function percent(share) {
  if (!share) return '0%';
  if (share * 100 <= 0.5) return '<1%';
  return fixed(share * 100, 0) + '%';
}

export function number(n) {
  return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

export function count(n, one, many) { return n === 1 ? `1 ${one}` : `${number(n)} ${many || one + 's'}`; }

export function bytes(n) {
  if (n < 1000) return `${n} B`;
  if (n < 999500) return digits(n / 1e3) + ' kB';
  if (n < 999500000) return digits(n / 1e6) + ' MB';
  return n / 1e9 < 999.5 ? digits(n / 1e9) + ' GB' : fixed(n / 1e9, 0) + ' GB';
}

// compact is a number for an axis.
export function compact(n) {
  if (n < 10000) return number(n);
  return n < 1e6 ? `${n / 1e3}k` : `${n / 1e6}M`;
}

// quantity writes a value of evidence in its unit.
export function quantity(value, unit) {
  switch (unit) {
    case 'ns': return duration(value);
    case 's': return duration(value * 1e9);
    case 'ms': return duration(value * 1e6);
    case 'share': case 'ratio': return percent(value);
    case 'bytes': case 'B': return bytes(value);
  }
  const v = Number.isInteger(value) ? number(value) : Math.abs(value) >= 1000 ? number(Math.round(value)) : String(Number(value.toPrecision(3)));
  if (unit && unit.startsWith('1/')) return v + clean(unit.slice(1));
  return unit && unit !== 'count' ? `${v} ${clean(unit)}` : v;
}

// clean replaces characters that are invisible or change the direction of writing by escapes.
export function clean(s) {
  return String(s).replace(/[\u0000-\u001f\u007f-\u009f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu,
    c => '\\u{' + c.codePointAt(0).toString(16) + '}');
}

// middle shortens s to n characters, in its middle.
export function middle(s, n) {
  const c = [...s];
  if (c.length <= n) return s;
  if (n < 2) return n > 0 ? '…' : '';
  const head = Math.ceil((n - 1) * 0.4);
  return c.slice(0, head).join('') + '…' + c.slice(c.length - (n - 1 - head)).join('');
}

// shortFunc removes the directories of a function's package, except the last one if the package is named for a version.
export function shortFunc(f) {
  const cut = f.search(/[[(]/), head = cut < 0 ? f : f.slice(0, cut);
  if (head.includes(' ')) return clean(f); // a route, not a function
  let at = head.lastIndexOf('/') + 1;
  if (at > 0 && /^v\d+\./.test(head.slice(at))) at = head.lastIndexOf('/', at - 2) + 1;
  return clean(f.slice(at).replaceAll('%2e', '.'));
}

export function baseName(file) { return clean(file.slice(Math.max(file.lastIndexOf('/'), file.lastIndexOf('\\')) + 1)); }

export function position(site) {
  return site && site.file ? baseName(site.file) + (site.line > 0 ? ':' + site.line : '') : '';
}

// brief returns a name from a trace in at most n characters: generated or malicious names can have any length.
export function brief(text, n = 60) { return middle(clean(text), n); }

// place returns a site in short: function, file and line.
export function place(site) {
  if (!site) return '';
  return [site.does ? clean(`${site.func.replace(/^((?:[^/]*\/)*[^./]*)\..*$/, '$1')}, ${site.does}`) : site.func ? middle(shortFunc(site.func), 120) : '', middle(position(site), 60)].filter(Boolean).join(' ');
}

// lead returns the words before the caller of a dependency's site. Package names has the same words.
export function lead(caller) { return caller.apart ? 'reached from ' : 'called from '; }

// siteText returns a site in full.
export function siteText(site) {
  if (!site) return '';
  return brief(site.func, 600) + (site.file ? ` ${brief(site.file, 400)}:${site.line}` : '') + (site.module ? ` (${brief(site.module, 200)}${site.version ? ' ' + brief(site.version, 80) : ''})` : '') + (site.called_from ? `, ${lead(site.called_from)}${siteText(site.called_from)}` : '') + (site.does ? `: ${brief(site.does, 80)}` : '');
}

// rough returns a duration with two digits: predictions have no more.
export function rough(ns) {
  const step = ns > 0 ? Math.pow(10, Math.max(0, Math.floor(Math.log10(ns)) - 1)) : 1;
  return duration(Math.round(ns / step) * step).replace(/(\.\d*?)0+(?=[^\d]|$)/, '$1').replace(/\.(?=[^\d]|$)/, '');
}

// estimate returns a prediction with its range, if two digits show one.
export function estimate(e) {
  if (e.low === e.high) return duration(e.est);
  const est = rough(e.est), low = rough(e.low), high = rough(e.high);
  return low === est && high === est ? `about ${est}` : `${est} (${low} to ${high})`;
}

// expected returns a prediction for the page's first sentence: a number if it is known within a factor of 1.5, else its range. Package
// text has the same words.
export function expected(e) {
  if (e.low === e.high) return duration(e.est);
  if (4 * e.high <= 9 * e.low) return rough(e.est);
  return e.low === 0 ? `below ${rough(e.high)}` : `${rough(e.low)} to ${rough(e.high)}`;
}

// unsure returns the words for a predicted latency whose range includes the latency before the change, else ''. Package names has the same.
export function unsure(was, e) { return e.low < was && was <= e.high ? `${e.low === 0 ? 'at most' : `${rough(e.low)} to`} ${rough(e.high)}, perhaps no gain` : ''; }

// changeText describes a predicted change of the form CAUSE@SITE=VALUE in words; it returns other forms unchanged.
export function changeText(change) {
  return change.split(', ').map(one => {
    const m = /^(?:([a-z-]+)@)?([^@=]*)=(gone|[\d.]+%|[\d.]+[a-zµ]+)$/.exec(one);
    if (!m) return brief(one, 300);
    const named = m[2].split(' from ').map(s => middle(shortFunc(s), 90)).join(' from ');
    if (m[1] === 'queue' && m[3] === 'gone') return `nobody queues at ${named}`;
    const site = m[2] ? `${m[1] ? m[1] + ' at ' : ''}${named}` : `all ${m[1] || 'time'}`;
    return m[3] === 'gone' ? `without ${site}` : m[3].endsWith('%') ? `${site} takes ${m[3]} of what it does now` : `each ${site} takes ${m[3]}`;
  }).join(', ');
}

// groupName returns a group's name in short. In names of tasks, regions and RPC methods, a slash does not separate directories.
export function groupName(g) {
  if (g.service) return `${groupName({ ...g, service: '' })} of ${brief(g.service, 40)}`;
  if (['task', 'region', 'grpc'].includes(g.kind) || g.name.includes(' ')) return brief(g.name, 160);
  const closure = g.entry && g.entry.func === g.name && /\.(func)?\d+$/.test(g.name);
  return middle(shortFunc(g.name), 160) + (closure ? ' ' + middle(position(g.entry), 60) : '');
}
