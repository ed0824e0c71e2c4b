// The verdict about a group as lines of text. The report's JSON contains the sentences. This module needs no document, so that a test
// can compare it with the other views.

import { duration, percent } from './format.js';

// sentenceOf returns {lead, range, causes: [{share, each, words, rest, cause, ns}], open, late, held, remark} of one verdict.
export function sentenceOf(v) {
  return {
    lead: v.lead, range: v.range,
    causes: v.causes.filter(c => c.said).map(c => ({
      share: percent(c.share), each: duration(c.each_ns), words: c.words, rest: c.text.startsWith(c.words) ? c.text.slice(c.words.length) : ' ' + c.text, cause: c.cause, kind: c.kind, queued: !!c.queue, ns: c.total_ns,
    })),
    open: v.open ? v.open.text : '', late: !!(v.open && v.open.late), held: v.held || '', remark: v.remark || '',
  };
}
