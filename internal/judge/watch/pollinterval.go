package watch

import "time"

// A Budget bounds the cost of watching for a service: the share of its CPUs (as many as GOMAXPROCS allows) that tracing uses,
// averaged over all time.
type Budget struct {
	Share       float64       // 0.02 for 2 %
	MinInterval time.Duration // the shortest time from the start of one poll to that of the next
}

const (
	// eventNS is the tracer's CPU time per event. The benchmark of docs/flight.md took 6 to 8 % more CPU time on two CPUs for 9 MB of
	// events a second, which is 13 to 18 ns a byte and, with 5 bytes an event, 65 to 90 ns; new stacks cost more.
	eventNS = 100
	// byteNS is the tracer's CPU time per byte, for recordings of which only the size is known. In the same benchmark, a snapshot of
	// a flight recorder took 14 ns a byte.
	byteNS = 20
	// MaxInterval is the longest time between polls, however expensive they are, so that the display changes.
	MaxInterval = 5 * time.Minute
)

// A Cost is the estimated cost of one poll for the service.
type Cost struct {
	CPU    time.Duration // of the service's CPUs
	Window time.Duration // the duration of the trace; 0 for a snapshot
	Procs  int           // GOMAXPROCS, 0 if unknown
}

// costOf estimates the CPU time that a poll costs the service: by the number of the trace's events, or by its bytes if that is
// 0. window is the duration of the trace, procs the service's GOMAXPROCS. A flight recorder runs anyway, so a snapshot costs
// only the copying of its bytes.
func costOf(events, bytes int64, window time.Duration, procs int, snapshot bool) Cost {
	c := Cost{CPU: time.Duration(events * eventNS), Window: window, Procs: procs}
	if snapshot {
		c.CPU, c.Window = time.Duration(bytes*byteNS), 0
	} else if events == 0 {
		c.CPU = time.Duration(bytes * byteNS)
	}
	return c
}

// ShareDuringTrace returns the share of the service's CPUs that tracing used during the trace; 0 for a snapshot.
func (c Cost) ShareDuringTrace() float64 { return c.shareOf(c.Window) }

// shareOf returns the share of the service's CPUs that the cost is within a period; 0 for an empty one.
func (c Cost) shareOf(period time.Duration) float64 {
	if period <= 0 {
		return 0
	}
	return float64(c.CPU) / float64(period) / float64(max(c.Procs, 1))
}

// Interval returns the time from the start of a poll of this cost to that of the next one: so long that the cost stays within the budget's share of
// the service's CPUs, but at most MaxInterval; exceeded reports that this would be too short.
func (b Budget) Interval(c Cost) (interval time.Duration, exceeded bool) {
	interval = max(b.MinInterval, c.Window)
	if b.Share > 0 {
		need := float64(c.CPU) / float64(max(c.Procs, 1)) / b.Share
		if need > float64(MaxInterval) {
			return max(interval, MaxInterval), true
		}
		interval = max(interval, time.Duration(need))
	}
	return interval, false
}

// Times between polls of a service that fail.
const (
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
	busyRetry  = 2 * time.Second
)

// retryDelay returns the time until the next poll after the given number of consecutive failures. spread, from 0 to 1, prevents several watchers with
// the same failure from polling simultaneously again. busy means that another program is tracing the service.
func retryDelay(failures int, busy bool, spread float64) time.Duration {
	wait := firstRetry << min(max(failures-1, 0), 5)
	if busy {
		wait = busyRetry // the other trace ends soon
	}
	wait = min(wait, maxRetry)
	return wait/2 + time.Duration(spread*float64(wait))/2 + wait/4
}
