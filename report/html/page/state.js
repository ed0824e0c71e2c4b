// What the page shows is in its address: #group=..&req=..&finding=..&band=... A link to any of them is a link to a view.

import { report, groupByID, requestByID, exampleOf } from './model.js';

const listeners = [];
export const view = { group: null, request: null, finding: null, band: '' };

// onChange calls f after every change, with the names of what changed.
export function onChange(f) { listeners.push(f); }

export function address(parts) {
  const p = new URLSearchParams();
  for (const [k, v] of Object.entries(parts)) if (v) p.set(k, v);
  return '#' + p;
}

// current is the address of what is shown, with some of it replaced.
export function current(parts) {
  return address({ finding: view.finding && view.finding.id, group: view.group && view.group.id, req: view.request && view.request.id, band: view.band, ...parts });
}

// beside is what other parts of the page, which a server answers, have in the address. A link within the page does not
// name it: it changes with every movement.
export const beside = new Map();

export function withBeside(hash) {
  const p = new URLSearchParams(hash.slice(1));
  for (const [k, v] of beside) if (v) p.set(k, v); else p.delete(k);
  return '#' + p;
}

// unknown lists what the address asks for and the report does not have.
export function unknown() {
  const p = new URLSearchParams(location.hash.slice(1)), has = {
    group: groupByID, finding: id => report.findings.some(f => f.id === id), req: requestByID, band: b => report.groups.some(g => g.bands.some(x => x.band === b)),
  };
  return Object.entries(has).filter(([k, known]) => p.get(k) && !known(p.get(k))).map(([k]) => `${k}=${p.get(k)}`);
}

// go shows something else; the address follows without a new entry in the history unless push is set.
export function go(parts, push) {
  const a = withBeside(current(parts));
  if (a === location.hash) return;
  history[push ? 'pushState' : 'replaceState'](null, '', a);
  read();
}

// read takes the view from the address. What the address does not say is the first of its kind; what it says wrongly,
// unknown tells.
export function read() {
  const p = new URLSearchParams(location.hash.slice(1));
  const before = { ...view };
  view.finding = report.findings.find(f => f.id === p.get('finding')) || null;
  const example = view.finding && !p.get('req') ? exampleOf(view.finding) : null;
  const found = requestByID(p.get('req') || '');
  const named = groupByID(p.get('group') || '');
  // A request says its group; a group without that request shows its own slowest.
  view.group = (found && found.group) || named || (example && example.group) || report.groups.find(g => g.slowest.length) || report.groups[0] || null;
  view.request = (found && found.request) || (example && example.request) || (view.group && view.group.slowest[0]) || null;
  if (view.request && view.group && !view.group.slowest.includes(view.request) && view.group.typical !== view.request) view.request = view.group.slowest[0] || null;
  view.band = p.get('band') || '';
  const changed = new Set(Object.keys(view).filter(k => view[k] !== before[k]));
  if (changed.size) for (const f of listeners) f(changed);
  return changed;
}

// linked tells what the address asks for by name, so that the page can scroll to it.
export function linked() {
  const p = new URLSearchParams(location.hash.slice(1));
  return p.get('req') ? 'requests' : p.get('finding') ? 'findings' : p.get('group') ? 'group' : '';
}
