// Package hostjoin says what samples of the kernel's counters (package
// capture/host) mean for the time of a trace: which quota held the process
// back, where the time of threads that wanted to run went, and whether the
// network lost what requests waited for.
//
//	samples, err := host.Read(r)
//	rep.Host, err = hostjoin.Summarize(samples, hostjoin.Window{...}, rep)
//	hostjoin.Throttle(rep)
//
// # Clocks
//
// On Linux the runtime's own clock is the monotonic clock that samples have,
// and a trace of Go 1.25 and later holds a snapshot of both clocks: samples are
// put on the trace's clock by the monotonic one, which no step of the wall
// clock moves, or by the wall clock where the two disagree (a time namespace,
// another machine).
package hostjoin
