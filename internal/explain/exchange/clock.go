package exchange

import "github.com/whylate/whylate/internal/trace/tracefmt"

// A Clock is the readings of other clocks at time 0 of a trace's clock.
type Clock struct {
	IsKnown    bool
	Mono, Wall int64
}

// ClockOf returns the Clock of a trace with a snapshot of other clocks, which was taken at a time of the trace's clock.
func ClockOf(s *tracefmt.ClockSnapshot, snapshotTime int64) Clock {
	if s == nil {
		return Clock{}
	}
	return Clock{IsKnown: true, Mono: int64(s.Mono) - snapshotTime, Wall: int64(s.UnixSec)*1e9 + int64(s.UnixNsec) - snapshotTime}
}

// maxClockStep is the maximum step of the wall clock against the monotonic clock, in ns, between two recordings on one machine.
const maxClockStep = 20e6

// Offset returns the number of ns to add to a time of another trace's clock to convert it to this one's. Two processes on one machine
// share the monotonic clock. Otherwise the wall clocks decide, and exact is false.
func (c Clock) Offset(second Clock) (ns int64, exact bool) {
	if d := (second.Wall - second.Mono) - (c.Wall - c.Mono); -maxClockStep < d && d < maxClockStep {
		return second.Mono - c.Mono, true
	}
	return second.Wall - c.Wall, false
}

// To returns the Offset to another clock, with its greatest error.
func (c Clock) To(second Clock) (ns, slack int64) {
	ns, isExact := c.Offset(second)
	if !isExact {
		slack = wallSlackNS
	}
	return ns, slack
}

// wallSlackNS is by how much the wall clocks of two machines may differ.
const wallSlackNS = 5e6
