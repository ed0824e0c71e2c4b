// Package mark names a service's requests for whoever traces it: where each
// began and ended, what it was, how it came out.
//
//	http.ListenAndServe(":8080", mark.Handler(mux))
//
//	err := mark.Do(ctx, "send invoices", func(ctx context.Context) error { ... })
//
// An execution trace alone does not hold routes, and shows the handler only of
// requests that wait for something; with marks whylate takes every request,
// the fast ones too, by its route's own name and between exact bounds. Marks
// are user logs of runtime/trace in the form that docs/mark.md of
// github.com/whylate/whylate describes, so any reader of traces can use them.
//
// While nobody traces, a mark is two atomic loads: no allocation, less than
// 5 ns. While somebody does it is two events.
//
// What a trace then holds of a request is its route's pattern, method, class
// of status, and the W3C traceparent header if that came with it: no path, no
// query, no body.
//
// A mark inside of another one on the same goroutine is a part of that one and
// no request of its own.
package mark
