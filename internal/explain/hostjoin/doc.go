// Package hostjoin adds to a report what samples of the kernel's counters (package capture/host) show about the time
// of a trace: which CPU quota throttled the process, why threads that were ready to run did not run, and whether the
// network lost segments while requests waited for it.
//
//	samples, err := host.Read(r)
//	rep.Host, err = hostjoin.Summarize(samples, hostjoin.Window{...}, rep)
//	hostjoin.ReplaceThrottle(rep)
//
// # Clocks
//
// On Linux the clock of the runtime is the monotonic clock that samples contain, and a trace of Go 1.25 and later
// contains a snapshot of the monotonic and the wall clock. Times of samples are converted to the trace's clock by the
// monotonic clock, which no step of the wall clock changes. If the two clocks disagree (a time namespace, another
// machine), they are converted by the wall clock.
package hostjoin
