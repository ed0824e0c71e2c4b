// Moments: short intervals in which many of the slowest requests begin, and the events in them.

import { h } from './dom.js';
import { clean, count, duration, groupName, percent } from './format.js';
import { causeInfo } from './causes.js';
import { report, groupByID } from './model.js';
import { listing } from './listing.js';

export function moments() {
  const list = report.moments || [];
  if (!list.length) return null;
  const groups = [...new Set(list.map(m => m.group))];
  return h('section', { id: 'moments' }, h('h2', null, 'Moments'), groups.map(id => {
    const mine = list.filter(m => m.group === id), g = groupByID(id);
    const slow = mine.reduce((n, m) => n + m.slow, 0), ns = mine.reduce((n, m) => n + m.end_ns - m.start_ns, 0);
    return h('div', { 'data-moments': id }, h('p', null, `${slow} of the ${count(mine[0].of, 'slowest request')} of `, g ? groupName(g) : clean(id), ` begin in short intervals, ${percent(ns / (report.input.duration_ns || 1))} of the time:`),
      h('ul', null, mine.map(m => h('li', null, h('strong', null, duration(m.start_ns)), `: ${m.slow} within ${duration(Math.max(m.end_ns - m.start_ns, 1))}, ${causeInfo(m.cause).short}`, m.with.map(e => `; ${clean(e.text)}`), ' ', listing('list what began then', { group: id, from: m.start_ns, to: m.end_ns + 1 })))));
  }));
}
