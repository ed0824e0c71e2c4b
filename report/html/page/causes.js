// The names, colours and patterns of the causes. Wherever a cause is drawn, it has its name or a pattern in addition to its colour,
// so that readers can distinguish causes without colours.

import { brief } from './format.js';

// order is the order in which causes are stacked: work first, then waits for others, then what the runtime and the
// kernel add.
export const causes = {
  'cpu':        { words: 'computing', at: ' in ', short: 'CPU' },
  'syscall':    { words: 'in the kernel', at: ', called from ', short: 'syscall' },
  'network':    { words: 'waiting for the network', at: ' in ', short: 'network' },
  'sleep':      { words: 'asleep', at: ' in ', short: 'sleep' },
  'lock':       { words: 'waiting for a lock', at: ' in ', short: 'lock' },
  'chan':       { words: 'waiting on a channel', at: ' in ', short: 'channel' },
  'queue':      { words: 'queueing', at: ' at ', short: 'queue' },
  'gc-assist':  { words: 'helping the garbage collector', at: ', allocating in ', short: 'GC assist' },
  'gc-wait':    { words: 'waiting for the garbage collector', at: ', in ', short: 'GC wait' },
  'stw':        { words: 'with the world stopped', at: ', by ', short: 'stopped world' },
  'sched':      { words: 'ready to run, in Go\'s run queue', at: ', at ', short: 'run queue' },
  'sched-wake': { words: 'ready to run although a P was idle', at: ', at ', short: 'thread wake-up' },
  'sched-poll': { words: 'with data perhaps ready, but not yet polled for', at: ', at ', short: 'late poll' },
  'cpu-wait':   { words: 'with its thread waiting for a CPU', at: ', in ', short: 'no CPU' },
  'disk':       { words: 'waiting for the disk in a page fault', at: ' in ', short: 'page fault' },
  'throttle':   { words: 'throttled by the CPU quota', at: ', at ', short: 'throttled' },
  'unknown':    { words: 'in ways the trace does not show', at: ', at ', short: 'unknown' },
  'other':      { words: 'on many small causes', at: ', at ', short: 'other' },
};

export const order = Object.keys(causes);



// causeInfo never fails: reports of later versions may have unknown causes.
export function causeInfo(cause) {
  return causes[cause] || { at: ', at ', words: 'on ' + brief(cause, 32), short: brief(cause, 32) };
}

// causeClass returns the class of the style sheet for a cause.
export function causeClass(cause) { return 'c-' + (causes[cause] ? cause : 'unknown'); }

// inFamily reports whether a cause is the named one or one of the named family.
export function inFamily(cause, family) {
  if (cause === family) return true;
  if (family === 'gc') return ['gc-assist', 'gc-wait', 'stw'].includes(cause);
  return family === 'sched' && cause.startsWith('sched');
}

export function byOrder(a, b) {
  const i = order.indexOf(a), j = order.indexOf(b);
  return (i < 0 ? 99 : i) - (j < 0 ? 99 : j) || (a < b ? -1 : a > b ? 1 : 0);
}

// partsOf returns the causes of one segment, [[cause, ns]...] in stacking order: several if short segments were joined.
export function partsOf(x) {
  if (!x.joined) return [[x.cause, x.duration_ns]];
  return Object.entries(x.joined.causes).sort((a, b) => byOrder(a[0], b[0]));
}

// waitWords returns the words for a wait of a chain.
export function waitWords(v) {
  return ({ lock: 'lock', chan: 'channel', select: 'select', cond: 'condition variable', waitgroup: 'WaitGroup', create: 'started by' }[v.wait] || v.wait) + (v.service ? ' ' + v.service : '');
}
