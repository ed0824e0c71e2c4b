// The page's address contains its view: #group=..&req=..&finding=..&band=... A link with any of them opens this view.

import { report, groupByID, requestByID, exampleOf } from './model.js';

const listeners = [];
export const view = { group: null, request: null, finding: null, band: '' };

// onChange calls f after every change, with the names of the changed parts.
export function onChange(f) { listeners.push(f); }

export function address(parts) {
  const p = new URLSearchParams();
  for (const [k, v] of Object.entries(parts)) if (v) p.set(k, v);
  return '#' + p;
}

// current returns the address of the current view, with some of its parts replaced.
export function current(parts) {
  return address({ finding: view.finding && view.finding.id, group: view.group && view.group.id, req: view.request && view.request.id, band: view.band, ...parts });
}

// beside contains the address's parameters of the live parts of the page. A link within the page omits them, because they change with
// every movement.
export const beside = new Map();

export function withBeside(hash) {
  const p = new URLSearchParams(hash.slice(1));
  for (const [k, v] of beside) if (v) p.set(k, v); else p.delete(k);
  return '#' + p;
}

// unknown lists the names in the address that the report does not have.
export function unknown() {
  const p = new URLSearchParams(location.hash.slice(1)), has = {
    group: groupByID, finding: id => report.findings.some(f => f.id === id), req: requestByID, band: b => report.groups.some(g => g.bands.some(x => x.band === b)),
  };
  return Object.entries(has).filter(([k, known]) => p.get(k) && !known(p.get(k))).map(([k]) => `${k}=${p.get(k)}`);
}

// go changes the view and the address. It adds an entry to the history only if push is set.
export function go(parts, push) {
  const a = withBeside(current(parts));
  if (a === location.hash) return;
  history[push ? 'pushState' : 'replaceState'](null, '', a);
  read();
}

// read sets the view from the address. A part that the address omits is the first of its kind. The function unknown lists parts that do
// not exist.
export function read() {
  const p = new URLSearchParams(location.hash.slice(1));
  const before = { ...view };
  view.finding = report.findings.find(f => f.id === p.get('finding')) || null;
  const example = view.finding && !p.get('req') ? exampleOf(view.finding) : null;
  const found = requestByID(p.get('req') || '');
  const named = groupByID(p.get('group') || '');
  // A request determines its group. If the group does not have the request, its slowest one is shown.
  view.group = (found && found.group) || named || (example && example.group) || report.groups.find(g => g.slowest.length) || report.groups[0] || null;
  view.request = (found && found.request) || (example && example.request) || (view.group && view.group.slowest[0]) || null;
  if (view.request && view.group && !view.group.slowest.includes(view.request) && view.group.typical !== view.request) view.request = view.group.slowest[0] || null;
  view.band = p.get('band') || '';
  const changed = new Set(Object.keys(view).filter(k => view[k] !== before[k]));
  if (changed.size) for (const f of listeners) f(changed);
  return changed;
}

// linked returns the part that the address names, so that the page can scroll to it.
export function linked() {
  const p = new URLSearchParams(location.hash.slice(1));
  return p.get('req') ? 'requests' : p.get('finding') ? 'findings' : p.get('group') ? 'group' : '';
}
