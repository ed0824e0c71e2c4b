// A picture leads to its requests in the table of all, where a server answers about them; in a file nothing of this is in sight.

import { h } from './dom.js';

// requestTable.list shows the requests that a filter lets through: group, cause, function, min and max latency, from and to in the trace.
export const requestTable = { list: null };

export function listing(text, filter, hint) {
  return h('button', { type: 'button', class: 'plain link listing', title: hint || 'list these requests', onclick: () => requestTable.list(filter) }, text);
}
