package exchange

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
)

// A Call is a wait of a request for the network that a request of another service answers, on the trace's clock.
type Call struct {
	Group      path.GroupID // of the request that waits
	G          uint64       // its goroutine
	Start, End int64        // of the wait
	*critpath.RemoteAnswer
}

// Calls collects the calls of the requests that are walked. It implements pass.Sum.
type Calls struct{ adders []*callAdder }

// A callAdder collects the calls of one worker.
type callAdder struct{ calls []Call }

// NewAdder implements pass.Sum.
func (c *Calls) NewAdder(*path.Stage) path.Adder {
	a := new(callAdder)
	c.adders = append(c.adders, a)
	return a
}

// Add implements path.Adder: it collects the steps of a walked request that another service answers. Consecutive steps with the
// same answer are one call.
func (a *callAdder) Add(w *path.WalkResult) {
	if w.Form != path.Whole || !w.IsComplete() {
		return
	}
	first := len(a.calls)
	for i := range w.Steps {
		s := &w.Steps[i]
		if n := len(a.calls); s.Remote != nil && n > first && a.calls[n-1].RemoteAnswer == s.Remote {
			// The reader of a connection of HTTP/2 reads answers for others during the wait.
			last := &a.calls[n-1]
			last.Start, last.End = min(last.Start, s.Start), max(last.End, s.End)
		} else if s.Remote != nil {
			a.calls = append(a.calls, Call{w.Group, w.Req.G, s.Start, s.End, s.Remote})
		}
	}
}

// List returns the calls of all workers, ordered by end, with the group numbers of the report.
func (c *Calls) List(translations []path.Translation) (out []Call) {
	for i, a := range c.adders {
		for _, call := range a.calls {
			call.Group = translations[i].Groups[call.Group]
			out = append(out, call)
		}
	}
	slices.SortFunc(out, func(a, b Call) int { return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.G, b.G)) })
	return out
}
