package watch

import "time"

// A Budget bounds what looking at a service may cost it: the share of the time in which it is traced, times what tracing takes of
// the CPUs that its GOMAXPROCS allows.
type Budget struct {
	Share       float64       // 0.02 for 2 %
	MinInterval time.Duration // from the start of one look to that of the next, at least
}

const (
	// eventNS is what the tracer takes for an event, in CPU time. Docs/flight.md's benchmark took 6 to 8 % more CPU time on two
	// CPUs for 9 MB of events a second, which is 13 to 18 ns a byte and, with 5 bytes an event, 65 to 90 ns; stacks that were
	// not seen before cost more.
	eventNS = 100
	// byteNS is the same where only the size is known. A flight recorder's snapshot took 14 ns a byte there.
	byteNS = 20
	// MaxInterval is how long a look is put off for its cost, at most: who watches wants to see something.
	MaxInterval = 5 * time.Minute
)

// A Cost is what one look took of the service, by estimate.
type Cost struct {
	CPU    time.Duration // of the service's CPUs
	Window time.Duration // for how long it was traced; 0 for a snapshot
	Procs  int           // GOMAXPROCS, 0: not known
}

// costOf estimates what a look took. A flight recorder runs anyway: of a snapshot only the bytes count.
func costOf(events, bytes int64, window time.Duration, procs int, snapshot bool) Cost {
	c := Cost{CPU: time.Duration(events * eventNS), Window: window, Procs: procs}
	if snapshot {
		c.CPU, c.Window = time.Duration(bytes*byteNS), 0
	} else if events == 0 {
		c.CPU = time.Duration(bytes * byteNS)
	}
	return c
}

// ShareDuringTrace is the share of the service's CPUs that tracing took while it went on; 0 for a snapshot.
func (c Cost) ShareDuringTrace() float64 { return c.shareOf(c.Window) }

func (c Cost) shareOf(period time.Duration) float64 {
	if period <= 0 {
		return 0
	}
	return float64(c.CPU) / float64(period) / float64(max(c.Procs, 1))
}

// Interval is how long after the start of a look of this cost the next one may begin. Over reports that even the longest wait
// costs more than the budget.
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

// Times between tries of a service that cannot be had.
const (
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
	busyRetry  = 2 * time.Second
)

// retryDelay is the time until the next try after so many failures in a row. Spread, from 0 to 1, keeps several watchers that
// met the same failure from meeting again.
func retryDelay(failures int, busy bool, spread float64) time.Duration {
	wait := firstRetry << min(max(failures-1, 0), 5)
	if busy {
		wait = busyRetry // whoever traces now ends soon
	}
	wait = min(wait, maxRetry)
	return wait/2 + time.Duration(spread*float64(wait))/2 + wait/4
}
