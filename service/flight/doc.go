// Package flight runs the runtime's flight recorder and writes a recording of
// the last seconds when a request was slow:
//
//	rec, err := flight.Start(flight.Options{Dir: "/var/lib/shop/flight"})
//	if err != nil {
//		return err
//	}
//	defer rec.Stop()
//	http.ListenAndServe(":8080", mark.Handler(mux))
//
// Package service/mark reports when requests end. A request is a trigger if it
// takes longer than Options.Slow, or much longer than its route usually takes.
// A trigger leads to a recording: a file with the trace of the seconds before,
// which `whylate explain` reads. The recorder's goroutine takes the snapshot
// after the slow request has ended, so that no request waits for it. It writes
// one recording at a time, a few an hour (Options.PerHour), and bounds their
// size on disk (Options.MaxDisk). Triggers that get no recording are counted,
// and the next recording has their number.
//
// The recorder also writes the kernel's counters of the container and of the
// process's threads into the trace every 50 ms. They show whether a CPU quota or
// other processes delayed this process.
//
// The package needs Go 1.25. With an older Go, Start succeeds, nothing is
// recorded, and State has the reason. The runtime allows one flight recorder in
// a process. If another one runs, State reports it and the recorder tries again
// every second.
//
// A recording holds stacks with the names of functions and files; names and
// messages of user tasks, regions and logs; routes and traceparent headers of
// marked requests. Options.Redact hides them (docs/flight.md in
// github.com/whylate/whylate).
package flight
