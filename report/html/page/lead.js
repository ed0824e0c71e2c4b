// A picture leads to its requests in the table of all, where a server answers about them; in a file nothing of this is in sight.

import { h } from './dom.js';

// lead.to shows the requests that a filter lets through: group, cause, function, min and max latency, from and to in the trace.
export const lead = { to: null };

export function leads(text, filter, hint) {
  return h('button', { type: 'button', class: 'plain link lead', title: hint || 'list these requests', 'data-lead': JSON.stringify(filter), onclick: () => lead.to(filter) }, text);
}
