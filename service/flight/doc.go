// Package flight keeps the runtime's flight recorder running and keeps, as a
// file, what happened around a slow moment:
//
//	rec, err := flight.Start(flight.Options{Dir: "/var/lib/shop/flight"})
//	if err != nil {
//		return err
//	}
//	defer rec.Stop()
//	http.ListenAndServe(":8080", mark.Handler(mux))
//
// Requests that service/mark marks and that take much longer than their route
// usually does, or than Options.Slow, are kept with the seconds before them in
// a recording that `whylate explain` reads. The snapshot is taken after the end
// of what was slow, by a goroutine of its own: no request waits for it. There is
// one at a time, a few an hour (Options.PerHour), and a bound on the disk
// (Options.MaxDisk); what comes meanwhile is counted, and named in the next.
//
// While it records, the kernel's counters of the container and its threads are
// written into the trace each 50 ms, so that a recording from any host tells
// whether a quota or neighbours held the process back.
//
// It needs Go 1.25 or later. Built with an older one it does nothing else than
// say so in its State. There is one flight recorder in a process: where another
// one runs already, State says that, and Start's goroutine tries again.
//
// What a recording holds: stacks with the names of functions and files, the
// names of user tasks, regions and logs and what these say, marks' routes and
// traceparent headers. docs/flight.md of github.com/whylate/whylate says more.
package flight
