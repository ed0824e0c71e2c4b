package inspect

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A toucher finds out whether requests' critical paths show wanted stacks. One
// goroutine may use it at a time.
type toucher struct {
	win    *timeline.Window
	walker *critpath.Walker
	class  *cause.Classifier
	wanted []bool // by stack
	own    bool   // a stack of the request's own goroutine was a wanted one
}

func newToucher(win *timeline.Window, syms *tracefmt.Symbols, wanted []bool, known *path.Options) *toucher {
	t := &toucher{win: win, walker: critpath.New(win, syms), class: cause.New(win, syms), wanted: wanted}
	known.ConfigureWalker(t.walker)
	t.walker.VisitOwnStack = func(id tracefmt.StackID) { t.own = t.own || t.is(id) }
	return t
}

func (t *toucher) is(id tracefmt.StackID) bool { return int(id) < len(t.wanted) && t.wanted[id] }

// touches reports whether a request's critical path shows a wanted stack: one
// at which it was, or waited, or was woken from, or at which the world was
// stopped while it was ready to run.
func (t *toucher) touches(r *request.Request) bool {
	t.own = false
	steps := t.walker.Walk(r.G, r.Start, r.End)
	if t.own {
		return true
	}
	for i := range steps {
		s := &steps[i]
		hit := t.is(s.Stack) || t.is(s.ResumeStack) || s.Kind == critpath.CPU && t.sampledIn(s)
		if s.Kind == critpath.Runnable && !hit {
			t.class.EachStopper(s.Start, s.End, func(id tracefmt.StackID) { hit = hit || t.is(id) })
		}
		if hit {
			return true
		}
	}
	return slices.ContainsFunc(t.walker.FollowedWaits, func(v critpath.FollowedWait) bool { return t.is(v.Stack) })
}

// sampledIn reports whether a CPU sample inside a step has a wanted stack.
func (t *toucher) sampledIn(s *critpath.Step) bool {
	g := t.win.Gens[t.win.GenIndex(s.Start)]
	return slices.ContainsFunc(g.SamplesIn(s.G, s.Start, s.End), func(i int32) bool { return t.is(g.Samples[i].Stack) })
}
