package peers

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// A Clock is the readings of other clocks at time 0 of a trace's clock.
type Clock struct {
	IsKnown    bool
	Mono, Wall int64
}

// A Recording is the requests that one process served while it was recorded.
type Recording struct {
	Name     string
	Clock    Clock
	From, To int64
	Groups   []Group
}

// A Group is requests that a process served.
type Group struct {
	ID, Name string
	// LargestCause is a phrase for the cause of most of its requests' latency, with its share; "" if it is unknown.
	LargestCause string
	requests     []answers.Span
}

// KeptUntil returns the time until which no request was dropped, at most to.
func (s *Sum) KeptUntil(to int64) int64 { return min(s.keptUntil, to) }

// GroupRequests returns the requests of a group that were not dropped.
func (s *Sum) GroupRequests(id path.GroupID, groupID, name string) Group {
	return Group{ID: groupID, Name: name, requests: s.requests[id]}
}

// maxClockStep is the maximum step of the wall clock against the monotonic clock, in ns, between two recordings on one
// machine.
const maxClockStep = 20e6

// Offset returns the number of ns to add to a time of another trace's clock to convert it to this one's. Two processes
// on one machine share the monotonic clock. Otherwise the wall clocks decide, and exact is false.
func (c Clock) Offset(otherClock Clock) (ns int64, exact bool) {
	if d := (otherClock.Wall - otherClock.Mono) - (c.Wall - c.Mono); -maxClockStep < d && d < maxClockStep {
		return otherClock.Mono - c.Mono, true
	}
	return otherClock.Wall - c.Wall, false
}

// PeerIn returns the group of another process's recording that serves what requests of a group here wait for, during
// the time of both recordings; exact is false if that time follows from the wall clocks of two machines.
func (s *Sum) PeerIn(id path.GroupID, clock Clock, from, to int64, r *Recording) (best Peer, group *Group, exact bool) {
	offset, exact := clock.Offset(r.Clock)
	from, to = max(from, r.From+offset), min(s.KeptUntil(to), r.To+offset)
	waits := slices.DeleteFunc(slices.Clone(s.waits[id]), func(w answers.Span) bool { return w.Start < from || w.End > to })
	if len(waits) < threshold.MedianSample {
		return best, nil, exact
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		var requests []answers.Span
		for _, x := range g.requests {
			if x.Start, x.End = x.Start+offset, x.End+offset; x.End > from && x.Start < to {
				requests = append(requests, x)
			}
		}
		if p := compare(waits, requests); p.Confidence > 0 && (group == nil || p.RequestNS > best.RequestNS) {
			best, group = p, g
		}
	}
	return best, group, exact
}

// Overlap returns the duration that two recordings have in common.
func Overlap(clock Clock, from, to int64, r *Recording) int64 {
	offset, _ := clock.Offset(r.Clock)
	return max(0, min(to, r.To+offset)-max(from, r.From+offset))
}
