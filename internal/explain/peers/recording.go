package peers

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
)

// A Clock says what other clocks showed at time 0 of a trace's clock.
type Clock struct {
	IsKnown    bool
	Mono, Wall int64
}

// A Recording is what one process served while it was recorded.
type Recording struct {
	Name     string
	Clock    Clock
	From, To int64
	Groups   []Group
}

// A Group is requests that a process served.
type Group struct {
	ID, Name string
	// LargestCause says on what all its requests spent the most time; "" if that is not told.
	LargestCause string
	requests     []answers.Span
}

// KeptUntil is when the last request began that was kept, at most to.
func (s *Sum) KeptUntil(to int64) int64 { return min(s.keptUntil, to) }

// GroupRequests returns the requests of a group that were kept.
func (s *Sum) GroupRequests(id path.GroupID, groupID, name string) Group {
	return Group{ID: groupID, Name: name, requests: s.requests[id]}
}

// maxClockStep is how much two clocks may have been set against each other
// between two recordings of one machine.
const maxClockStep = 20e6

// Offset is what to add to a time of another trace's clock to have it on this
// one's. Two processes of one machine share the monotonic clock; else the wall
// clocks must do, and exact is false.
func (c Clock) Offset(otherClock Clock) (ns int64, exact bool) {
	if d := (otherClock.Wall - otherClock.Mono) - (c.Wall - c.Mono); -maxClockStep < d && d < maxClockStep {
		return otherClock.Mono - c.Mono, true
	}
	return otherClock.Wall - c.Wall, false
}

// PeerIn returns the group of another process's recording that serves what requests
// of a group here wait for, as far as both were recorded at the same time; exact
// is false where clocks of two machines say when that was.
func (s *Sum) PeerIn(id path.GroupID, clock Clock, from, to int64, r *Recording) (best Peer, group *Group, exact bool) {
	offset, exact := clock.Offset(r.Clock)
	from, to = max(from, r.From+offset), min(s.KeptUntil(to), r.To+offset)
	waits := slices.DeleteFunc(slices.Clone(s.waits[id]), func(w answers.Span) bool { return w.Start < from || w.End > to })
	if len(waits) < scale.Enough {
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

// Overlap returns for how long two recordings were made at the same time.
func Overlap(clock Clock, from, to int64, r *Recording) int64 {
	offset, _ := clock.Offset(r.Clock)
	return max(0, min(to, r.To+offset)-max(from, r.From+offset))
}
