// Links from a picture to its requests in the table of all requests. They exist only on the page of a server, not in a file.

import { h } from './dom.js';

// requestTable.list shows the requests that match a filter: group, cause, function, min and max latency, from and to in the trace.
export const requestTable = { list: null };

export function listing(text, filter, hint) {
  return h('button', { type: 'button', class: 'plain link listing', title: hint || 'list these requests', onclick: () => requestTable.list(filter) }, text);
}
