package groups

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// traversals counts, for requests of servers, the goroutines that their paths lead through, by start function: the work of
// these is part of requests, and no separate work. A goroutine that only held a lock does not count. Only a sample of the
// requests is evaluated.
type traversals struct {
	stage          *path.Stage
	requestsByFunc map[tracefmt.StringID]int64 // by start function
	sampled        int64
	requests       int64
	pathFuncs      []tracefmt.StringID   // scratch
	holdChains     map[path.ChainID]bool // wait chains that lead through a hold
}

func newTraversals(s *path.Stage) traversals {
	return traversals{stage: s, requestsByFunc: make(map[tracefmt.StringID]int64), holdChains: make(map[path.ChainID]bool)}
}

// add counts the start functions of the goroutines on a request's path.
func (t *traversals) add(w *path.WalkResult) {
	r := w.Req
	if !r.Kind.IsServed() {
		return
	}
	t.requests += w.Weight
	if !w.Sampled || w.Form != path.Whole {
		return
	}
	t.sampled += w.Weight
	t.pathFuncs = t.pathFuncs[:0]
	last := uint64(0)
	for i := range w.Steps {
		s := &w.Steps[i]
		if s.G == r.G || s.G == last || s.Stack == 0 || t.isHoldChain(w.ChainOfStep(s)) {
			continue
		}
		last = s.G
		frames := t.stage.Syms.Stack(s.Stack)
		if len(frames) == 0 {
			continue
		}
		t.pathFuncs = append(t.pathFuncs, t.stage.Syms.Frame(frames[len(frames)-1]).Func)
	}
	for i, fn := range t.pathFuncs {
		if !slices.Contains(t.pathFuncs[:i], fn) {
			t.requestsByFunc[fn] += w.Weight
		}
	}
}

// isHoldChain reports whether a chain of waits leads to a goroutine that held something. What the goroutine did does not
// matter then.
func (t *traversals) isHoldChain(id path.ChainID) bool {
	isHold, ok := t.holdChains[id]
	if !ok {
		isHold = slices.ContainsFunc(t.stage.IDs.Chain(id), func(v path.ChainWait) bool {
			return v.Kind == critpath.WaitLock || v.Kind == critpath.WaitOnce || v.Kind == critpath.WaitSend
		})
		t.holdChains[id] = isHold
	}
	return isHold
}

func (t *traversals) merge(other *traversals) {
	for fn, n := range other.requestsByFunc {
		t.requestsByFunc[fn] += n
	}
	t.sampled += other.sampled
	t.requests += other.requests
}

// RequestsThrough estimates how many requests of servers had a path through goroutines that were started with a function.
// Merge must have been called.
func (s *Sum) RequestsThrough(fn tracefmt.StringID) int64 {
	t := &s.tables[0].traversals
	if t.sampled == 0 {
		return 0
	}
	return int64(float64(t.requestsByFunc[fn]) * float64(t.requests) / float64(t.sampled))
}
