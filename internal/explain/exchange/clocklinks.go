package exchange

import "github.com/whylate/whylate/internal/trace/tracefmt"

// A Clock is the readings of other clocks at time 0 of a trace's clock.
type Clock struct {
	IsKnown    bool
	Mono, Wall int64
}

// ClockOf returns the Clock of a trace from a snapshot of the other clocks that was taken at snapshotTime of the trace's clock.
// It is not known if s is nil.
func ClockOf(s *tracefmt.ClockSnapshot, snapshotTime int64) Clock {
	if s == nil {
		return Clock{}
	}
	return Clock{IsKnown: true, Mono: int64(s.Mono) - snapshotTime, Wall: int64(s.UnixSec)*1e9 + int64(s.UnixNsec) - snapshotTime}
}

// maxClockStep is the maximum step of the wall clock against the monotonic clock, in ns, between two recordings on one machine.
const maxClockStep = 20e6

// maxWallErrorNS is by how much the wall clocks of two machines may differ.
const maxWallErrorNS = 100e6

// To returns the link that converts times of trace second to this trace's clock. Two processes on one machine share the monotonic
// clock, so their link is exact. Otherwise the wall clocks decide, with an error of maxWallErrorNS, until a Joiner narrows the
// link.
func (c Clock) To(second Clock) Link {
	if d := (second.Wall - second.Mono) - (c.Wall - c.Mono); -maxClockStep < d && d < maxClockStep {
		return Link{offset: second.Mono - c.Mono}
	}
	offset := second.Wall - c.Wall
	return Link{offset: offset, slack: maxWallErrorNS, bounds: &bounds{offset: offset}}
}

// A Link converts times of a server's trace to the clock of a client's trace. The zero value is that of equal clocks.
type Link struct {
	// At time ref of the server, offset is added to its times; the offset grows by rate ns each ns. The error is at most slack.
	offset, ref int64
	rate        float64
	slack       int64
	bounds      *bounds // nil if both traces have one clock
}

// IsExact reports whether both traces have one clock.
func (l *Link) IsExact() bool { return l.bounds == nil }

// OffsetAt returns the number of ns to add to a time of the server's clock, with an error of up to slack.
func (l *Link) OffsetAt(t int64) (ns, slack int64) {
	return l.offset + int64(l.rate*float64(t-l.ref)), l.slack
}

// ToClient converts a time of the server's trace clock to the client's, both in ns.
func (l *Link) ToClient(t int64) int64 {
	if l.rate == 0 {
		return t + l.offset
	}
	ns, _ := l.OffsetAt(t)
	return t + ns
}

// ToServer converts a time of the client's clock to the server's.
func (l *Link) ToServer(t int64) int64 {
	ns, _ := l.OffsetAt(t - l.offset)
	return t - ns
}

// clone returns a copy to which bounds can be added.
func (l Link) clone() Link {
	if l.bounds != nil {
		l.bounds = l.bounds.clone()
	}
	return l
}

// update computes offset, rate and error from the bounds so far. The error holds for times of the client between from and to.
func (l *Link) update(from, to int64) {
	if b := l.bounds; b != nil && b.solve() {
		line := b.center()
		l.offset, l.ref, l.rate = b.offset+int64(line.offset), b.ref, line.rate
		l.slack = b.slack(line, l.ToServer(from), l.ToServer(to))
	}
}
