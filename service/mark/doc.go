// Package mark writes a service's requests into its execution traces: the begin and
// end, the name and the status of each request.
//
//	http.ListenAndServe(":8080", mark.Handler(mux))
//
//	err := mark.Do(ctx, "send invoices", func(ctx context.Context) error { ... })
//
// An execution trace alone does not hold routes, and shows the handler only of
// requests that wait for something. With marks whylate sees every request, even
// the fast ones, under its route's own name and with its exact beginning and end.
// Marks are user logs of runtime/trace in the form that docs/mark.md of
// github.com/whylate/whylate describes, so any reader of traces can use them.
//
// A mark is not a user task, because a task needs a context that carries it, so the
// request would have to be copied, its name must be known at the begin, and tasks of
// other libraries would become its children. A region would need a third event for
// the name.
//
// While no trace is recorded, a mark costs two atomic loads: no allocation, less
// than 5 ns. While one is recorded, it costs two events.
//
// The trace then holds a request's method, the pattern of its route, its class of
// status, and its W3C traceparent header if it has one: no path, no query, no body.
//
// A mark inside another one on the same goroutine is a part of that one, not a
// separate request.
package mark
