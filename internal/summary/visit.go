package summary

import (
	"slices"

	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/internal/critpath"
	"github.com/whylate/whylate/internal/freeze"
	"github.com/whylate/whylate/internal/request"
	"github.com/whylate/whylate/internal/tracefmt"
	"github.com/whylate/whylate/report"
)

// GroupRef names a group before it is known how finely handlers are told apart.
type GroupRef int32

// A Visited is one request that was added up.
type Visited struct {
	Kind       request.Kind
	Group      GroupRef
	Start, End int64
	G          uint64
	Open       bool // not over at the trace's end
	Cut        bool // began before the trace
	// Causes are the ns of each cause.
	Causes [Causes]int64
	// Held are those of stretches of which it is not known yet whether they were
	// freezes: Causes does not have them.
	Held []Held
	// Parts are the borders at which a long request was cut to be walked.
	Parts []int64
}

// A Held is time that may turn out to be lost to a freeze.
type Held struct {
	Class freeze.Class
	Cause cause.Cause // what it is otherwise
	NS    int64
}

// Settled returns the cause of such time, once the tables were settled.
func (t *Tables) Settled(h Held) cause.Cause {
	if t.Froze != nil && t.Froze(h.Class) {
		return cause.Throttle
	}
	return h.Cause
}

// LikeIn makes these tables judge freezes as settled ones do.
func (t *Tables) LikeIn(settled *Tables) { t.Freezes, t.Froze = settled.Freezes, settled.Froze }

// Causes is a bound of the number of causes.
const Causes = 16

// SetVisit makes these tables tell of every whole request that they add up,
// in the order of Add. The number tells several tables of one run apart.
func (t *Tables) SetVisit(number int, visit func(*Visited)) {
	t.visit, t.refs = visit, GroupRef(number)<<20
}

// ref returns the number by which a group is known to who visits.
func (t *Tables) ref(g *group) GroupRef {
	if len(g.refs) == 0 {
		t.refs++
		g.refs = append(g.refs, t.refs)
	}
	return g.refs[0]
}

// visited tells of a request whose sums are at hand.
func (t *Tables) visited(g *group, r *request.Request, start int64, sums []sum, parts []int64) {
	if t.visit == nil {
		return
	}
	v := Visited{Kind: r.Kind, Group: t.ref(g), Start: start, End: r.End, G: r.G, Open: r.Open, Cut: r.Cut, Parts: parts}
	for _, s := range sums {
		k := &t.keys[s.cause]
		if k.freeze != 0 {
			v.Held = append(v.Held, Held{k.freeze, k.cause, s.ns})
			continue
		}
		v.Causes[k.cause] += s.ns
	}
	t.visit(&v)
}

// EachRef calls f for every group, as Groups reports it with this view, with
// the numbers under which requests of it were visited.
func (t *Tables) EachRef(v View, f func(id string, refs []GroupRef)) {
	for _, g := range t.groups {
		if v.Kinds != nil && !v.Kinds(g.key.kind) || len(g.refs) == 0 {
			continue
		}
		if kind, name, _ := t.title(g); v.Group == nil || v.Group.MatchString(name) {
			f(StableID("group", kind, name), g.refs)
		}
	}
}

// Walk walks one request again, or a part of one, and adds what it finds to s.
func (t *Tables) Walk(r *request.Request, s *Slow) {
	t.best, t.stack, t.several = request.Handler{}, 0, false
	steps := t.walker.Walk(r.G, r.Start, r.End)
	segs := t.split(t.class.Segments(steps))
	t.internVias()
	if r.Part == request.Whole {
		s.Detail = t.detail(r, steps)
	}
	s.Segments = append(s.Segments, segs...)
	s.Vias = append(s.Vias, t.segVias(segs)...)
}

// Report spells a request out as a report holds it.
func (t *Tables) Report(s *Slow, group string, v View) report.Request {
	return t.slowReport(s, group, v)
}

// Touches reports whether a request's critical path shows a wanted stack: one
// at which it was, or waited, or was woken from, or at which the world was
// stopped while it was ready to run. Wanted is indexed by stack.
func (t *Tables) Touches(r *request.Request, wanted []bool) bool {
	is := func(id tracefmt.StackID) bool { return int(id) < len(wanted) && wanted[id] }
	hit := false
	own := t.walker.Own
	t.walker.Own = func(id tracefmt.StackID) { hit = hit || is(id) }
	steps := t.walker.Walk(r.G, r.Start, r.End)
	t.walker.Own = own
	for i := 0; i < len(steps) && !hit; i++ {
		hit = is(steps[i].Stack) || is(steps[i].Before) || steps[i].Kind == critpath.CPU && t.sampledIn(&steps[i], is)
		if steps[i].Kind == critpath.Runnable && !hit {
			t.class.StoppedBy(steps[i].Start, steps[i].End, func(id tracefmt.StackID) { hit = hit || is(id) })
		}
	}
	for i := 0; i < len(t.walker.Vias) && !hit; i++ {
		hit = is(t.walker.Vias[i].Stack)
	}
	return hit
}

// sampledIn reports whether a CPU sample inside a step has a wanted stack.
func (t *Tables) sampledIn(s *critpath.Step, is func(tracefmt.StackID) bool) bool {
	g := t.win.Gens[t.win.At(s.Start)]
	return slices.ContainsFunc(g.SamplesIn(s.G, s.Start, s.End), func(i int32) bool { return is(g.Samples[i].Stack) })
}

// SiteOf returns the frame of a stack that a person wants to see.
func (t *Tables) SiteOf(id tracefmt.StackID) tracefmt.FrameID { return t.class.Sites.Of(id) }

var _ [Causes - int(cause.Chan) - 1]struct{} // all causes fit
