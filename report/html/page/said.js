// What the report's verdict says of a group, as lines of text: what is said is decided where the report is made, and
// stands in the JSON. Nothing here needs a document, so that a test can hold it to the other views.

import { duration, percent } from './format.js';

// saidOf returns {lead, range, causes: [{share, each, words, rest, cause, ns}], open, late} of one verdict.
export function saidOf(v) {
  return {
    lead: v.lead, range: v.range,
    causes: v.causes.filter(c => c.said).map(c => ({
      share: percent(c.share), each: duration(c.each_ns), words: c.words, rest: c.text.startsWith(c.words) ? c.text.slice(c.words.length) : ' ' + c.text, cause: c.cause, ns: c.total_ns,
    })),
    open: v.open ? v.open.text : '', late: !!(v.open && v.open.late), held: v.held || '',
  };
}
