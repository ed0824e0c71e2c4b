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

// A pathSearcher decides whether the critical paths of requests show wanted stacks. Only one goroutine at a time
// may use it.
type pathSearcher struct {
	win           *timeline.Window
	walker        *critpath.Walker
	class         *cause.Classifier
	wanted        []bool // for each stack
	ownStackFound bool   // the last walk visited a wanted stack of the request's goroutine
}

// newPathSearcher returns a pathSearcher for wanted stacks in a window. options are those of explain's walks.
func newPathSearcher(win *timeline.Window, syms *tracefmt.Symbols, wanted []bool, options *path.Options) *pathSearcher {
	t := &pathSearcher{win: win, walker: critpath.New(win, syms), class: cause.New(win, syms), wanted: wanted}
	options.ConfigureWalker(t.walker)
	t.walker.VisitOwnStack = func(id tracefmt.StackID) { t.ownStackFound = t.ownStackFound || t.isWanted(id) }
	return t
}

// isWanted reports whether a stack is wanted.
func (t *pathSearcher) isWanted(id tracefmt.StackID) bool {
	return int(id) < len(t.wanted) && t.wanted[id]
}

// pathShowsWanted walks a request and reports whether its critical path shows a wanted stack: as the stack of a step, a wait or a wake, or as the
// stack of a stop of the world while the path was runnable.
func (t *pathSearcher) pathShowsWanted(r *request.Request) bool {
	t.ownStackFound = false
	steps := t.walker.Walk(r.G, r.Start, r.End)
	if t.ownStackFound {
		return true
	}
	for i := range steps {
		s := &steps[i]
		found := t.isWanted(s.Stack) || t.isWanted(s.ResumeStack) || s.Kind == critpath.CPU && t.hasWantedSample(s)
		if s.Kind == critpath.Runnable && !found {
			t.class.EachStopper(s.Start, s.End, func(id tracefmt.StackID) { found = found || t.isWanted(id) })
		}
		if found {
			return true
		}
	}
	return slices.ContainsFunc(t.walker.FollowedWaits, func(v critpath.FollowedWait) bool { return t.isWanted(v.Stack) })
}

// hasWantedSample reports whether a CPU sample in a step has a wanted stack.
func (t *pathSearcher) hasWantedSample(s *critpath.Step) bool {
	g := t.win.Gens[t.win.GenIndex(s.Start)]
	return slices.ContainsFunc(g.SamplesIn(s.G, s.Start, s.End), func(i int32) bool { return t.isWanted(g.Samples[i].Stack) })
}
