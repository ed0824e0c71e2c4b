// The page: its parts in order, its theme.

import { h, s, add, untip, drawNow } from './dom.js';
import { duration, count, clean, number, brief } from './format.js';
import { report, pageData, goVersion } from './model.js';
import { read, linked, onChange, view, unknown } from './state.js';
import { outcome, verdict } from './verdict.js';
import { findings, whatIf } from './findings.js';
import { groupsTable, groupHead, bandCauses } from './groups.js';
import { distribution } from './distribution.js';
import { requests } from './requests.js';
import { help, goTo, onKey } from './keys.js';
import { flame } from './flame.js';
import { overTime } from './overtime.js';
import { moments } from './moments.js';
import { capacity } from './capacity.js';
import { compared } from './compared.js';
import { host } from './host.js';
import { method, jsonButtons } from './method.js';

const themes = ['auto', 'light', 'dark'];

function themeButton() {
  let at = 0;
  try {
    at = Math.max(0, themes.indexOf(localStorage.getItem('whylate-theme')));
  } catch { /* pages from disk may have no storage */ }
  const button = h('button', { type: 'button', id: 'theme', onclick: () => { at = (at + 1) % themes.length; show(); } });
  const show = () => {
    document.documentElement.dataset.theme = themes[at];
    button.textContent = { auto: '◐ auto', light: '○ light', dark: '● dark' }[themes[at]];
    button.setAttribute('aria-label', 'Theme: ' + themes[at]);
    try {
      localStorage.setItem('whylate-theme', themes[at]);
    } catch { /* see above */ }
  };
  show();
  return button;
}

// fileName returns the last part of a path.
function fileName(name) { return name.includes('://') ? name : name.slice(name.lastIndexOf('/') + 1); }

// Warnings that only say of what the numbers are. The others say that events or requests are missing.
const remarks = ['unnamed-requests', 'before-marks', 'iterations', 'calls-unseen', 'cut'];

// notes shows the warnings that are no alarms, where the numbers are that they are about.
function notes() {
  const list = report.input.warnings.filter(w => remarks.includes(w.code));
  return list.length ? h('p', { class: 'dim', id: 'remarks' }, 'Note: ', list.map(w => clean(w.text).slice(0, 300)).join('; '), '.') : null;
}

function header() {
  const losses = report.input.warnings.filter(w => !remarks.includes(w.code));
  const i = report.input, all = report.groups.reduce((n, g) => n + g.count, 0);
  const start = i.start ? new Date(i.start) : null;
  const about = [duration(i.duration_ns) + (start && !isNaN(start) ? ` at ${start.toISOString().slice(0, 19).replace('T', ' ')} UTC` : ''), report.host && report.host.pid ? `pid ${report.host.pid}` : '', goVersion() ? `Go ${brief(goVersion(), 20)}` : '', i.gomaxprocs ? `GOMAXPROCS ${i.gomaxprocs}` : '', `${count(all, 'request')} in ${count(report.groups.length, 'group')}`, i.truncated ? 'cut short' : ''].filter(Boolean).join(' · ');
  const links = [pageData.before ? ['before-after', 'Before and after'] : null, ['verdict', 'Verdict'], ['findings', 'Findings'], ['requests', 'Waterfall'], ['groups', 'Groups'], ['group', 'Latency'], ['flame', 'Flame graph'], report.capacity ? ['capacity', 'Capacity'] : null, ['time', 'Over time'], report.host ? ['host', 'Host'] : null, ['method', 'Method']].filter(Boolean);
  return h('header', null,
    h('div', { class: 'title' }, h('h1', null, h('span', { class: 'logo' }, 'whylate'), ' ', h('span', { title: brief(i.name, 1000) }, brief(fileName(i.name), 200) || 'trace')), h('p', { class: 'dim' }, about)),
    h('div', { class: 'tools' }, jsonButtons(), themeButton(), h('button', { type: 'button', id: 'keys', 'aria-label': 'Keys', onclick: () => help.showModal() }, '?')),
    losses.length ? h('p', { class: 'warn' }, `▲ ${count(losses.length, 'warning')}: ${losses.slice(0, 2).map(w => clean(w.text).slice(0, 200)).join('; ')}${losses.length > 2 ? `; and ${number(losses.length - 2)} more` : ''}`) : null,
    h('p', { class: 'warn', id: 'unknown', role: 'alert', hidden: true }),
    h('nav', { 'aria-label': 'Parts of the page' }, links.map(([id, text]) => h('button', { type: 'button', class: 'plain', onclick: () => goTo(id), 'data-goto': id }, text))));
}

// patterns distinguish states without colours. They are in a picture of size 0, to which all others refer.
function patterns() {
  const tile = (id, size, d) => s('pattern', { id, width: size, height: size, patternUnits: 'userSpaceOnUse' }, s('path', { class: 'tile', d }));
  return s('svg', { class: 'sr', 'aria-hidden': 'true', width: 1, height: 1 }, s('defs', null,
    tile('hatch', 6, 'M-1,1l2,-2M0,6l6,-6M5,7l2,-2'), tile('dots', 4, 'M1,2h1.2'), tile('cross', 4, 'M1,0v4'), causePatterns()));
}

// patternMarks are the patterns that causes have in addition to their colours, as in the style sheet.
const patternMarks = { up: [5, 'M-1,1l2,-2M0,5l5,-5M4,6l2,-2'], down: [5, 'M-1,4l2,2M0,0l5,5M4,-1l2,2'], lines: [4, 'M0,1h4'], dots: [5, 'M1.5,2h1.4'], bars: [5, 'M1,0v5'] };
const patterned = { syscall: 'up', network: 'up', 'gc-wait': 'up', lock: 'dots', unknown: 'dots', chan: 'dots', queue: 'bars', 'cpu-wait': 'bars', disk: 'bars', sleep: 'lines', 'gc-assist': 'lines', other: 'lines', throttle: 'down', 'sched-wake': 'down', stw: 'down' };

function causePatterns() {
  return Object.entries(patterned).map(([cause, m]) => s('pattern', { id: 'pt-' + cause, width: patternMarks[m][0], height: patternMarks[m][0], patternUnits: 'userSpaceOnUse' },
    s('rect', { width: patternMarks[m][0], height: patternMarks[m][0], class: 'flat-' + cause }), s('path', { class: `causemark on-c-${cause}${m === 'dots' ? ' dot' : ''}`, d: patternMarks[m][1] })));
}

function mark() {
  for (const el of document.querySelectorAll('[data-finding]')) el.classList.toggle('chosen', !!view.finding && el.dataset.finding === view.finding.id);
}

// sayUnknown shows the names in the address that the report does not have.
function sayUnknown() {
  const el = document.getElementById('unknown'), names = unknown();
  el.hidden = !names.length;
  el.textContent = names.length ? `The address asks for what this report does not have: ${names.map(x => brief(x, 80)).join(', ')}.` : '';
}

// scrollToAddress scrolls to the part that the address names.
function scrollToAddress() {
  const id = linked(), card = id === 'findings' && [...document.querySelectorAll('[data-finding]')].find(el => view.finding && el.dataset.finding === view.finding.id);
  for (let fold = card && card.closest('details'); fold; fold = fold.parentElement.closest('details')) fold.open = true;
  (card || document.getElementById(id))?.scrollIntoView();
}

function start() {
  document.title = `${brief(report.input.name) || 'trace'} – whylate`;
  read();
  add(document.getElementById('page'), [patterns(), header(), h('main', null,
    compared(), outcome(), verdict(), notes(), findings(), whatIf(), requests(), groupsTable(),
    view.group ? h('section', { id: 'group' }, groupHead(), distribution(), h('h3', null, 'Causes by latency band'), bandCauses()) : null,
    view.group ? h('section', null, h('h2', null, 'Flame graph'), flame()) : null,
    moments(), capacity(), overTime(), host(), method()), help]);
  onChange(mark);
  mark();
  sayUnknown();
  addEventListener('hashchange', () => {
    read();
    sayUnknown();
    scrollToAddress();
  });
  addEventListener('popstate', read);
  addEventListener('keydown', onKey);
  addEventListener('scroll', untip, { passive: true });
  addEventListener('beforeprint', drawNow);
  // A link to a request or a finding can scroll to it only when the pictures above it have their heights.
  if (linked()) drawNow();
  if (linked()) requestAnimationFrame(() => requestAnimationFrame(scrollToAddress));
  document.documentElement.dataset.ready = 'true';
  performance.mark('ready');
}

start();
