package peers

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
)

// A Clock says what other clocks showed at time 0 of a trace's clock.
type Clock struct {
	Known      bool
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
	// Spent says on what all its requests spent the most time; "" if that is not told.
	Spent  string
	served []answers.Span
}

// Until is when the last request began that was kept, at most to.
func (s *Sum) Until(to int64) int64 { return min(s.until, to) }

// Served returns the requests of a group that were kept.
func (s *Sum) Served(id path.GroupID, groupID, name string) Group {
	return Group{ID: groupID, Name: name, served: s.served[id]}
}

// sameMachine is how much two clocks may have been set against each other
// between two recordings of one machine.
const sameMachine = 20e6

// Offset is what to add to a time of another trace's clock to have it on this
// one's. Two processes of one machine share the monotonic clock; else the wall
// clocks must do, and exact is false.
func (c Clock) Offset(other Clock) (ns int64, exact bool) {
	if d := (other.Wall - other.Mono) - (c.Wall - c.Mono); -sameMachine < d && d < sameMachine {
		return other.Mono - c.Mono, true
	}
	return other.Wall - c.Wall, false
}

// In returns the group of another process's recording that serves what requests
// of a group here wait for, as far as both were recorded at the same time; exact
// is false where clocks of two machines say when that was.
func (s *Sum) In(id path.GroupID, clock Clock, from, to int64, r *Recording) (best Peer, of *Group, exact bool) {
	by, exact := clock.Offset(r.Clock)
	from, to = max(from, r.From+by), min(s.Until(to), r.To+by)
	waits := slices.DeleteFunc(slices.Clone(s.waits[id]), func(w answers.Span) bool { return w.Start < from || w.End > to })
	if len(waits) < scale.Enough {
		return best, nil, exact
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		var served []answers.Span
		for _, x := range g.served {
			if x.Start, x.End = x.Start+by, x.End+by; x.End > from && x.Start < to {
				served = append(served, x)
			}
		}
		if p := compare(waits, served); p.Confidence > 0 && (of == nil || p.ServedNS > best.ServedNS) {
			best, of = p, g
		}
	}
	return best, of, exact
}

// Overlap returns for how long two recordings were made at the same time.
func Overlap(clock Clock, from, to int64, r *Recording) int64 {
	by, _ := clock.Offset(r.Clock)
	return max(0, min(to, r.To+by)-max(from, r.From+by))
}
