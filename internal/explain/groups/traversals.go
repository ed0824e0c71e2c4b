package groups

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// traversals counts, for sampled requests of servers, through which other goroutines their paths lead, by start function. The
// work of such goroutines is part of requests and is not reported as other work. A goroutine that only held a lock or slot
// does not count.
type traversals struct {
	stage          *path.Stage
	requestsByFunc map[tracefmt.StringID]int64 // by start function
	// weight of the sampled requests, of all requests
	sampled    int64
	requests   int64
	pathFuncs  []tracefmt.StringID   // scratch
	holdChains map[path.ChainID]bool // wait chains that lead through a hold
}

func newTraversals(s *path.Stage) traversals {
	return traversals{stage: s, requestsByFunc: make(map[tracefmt.StringID]int64), holdChains: make(map[path.ChainID]bool)}
}

// add counts, for a sampled request, the start functions of the other goroutines on its path, each once.
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

// isHoldChain reports whether a wait chain leads through a lock or slot: the goroutine behind it only held something, and its
// work is not part of the request.
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

// merge adds the counts of another worker.
func (t *traversals) merge(other *traversals) {
	for fn, n := range other.requestsByFunc {
		t.requestsByFunc[fn] += n
	}
	t.sampled += other.sampled
	t.requests += other.requests
}

// RequestsThrough estimates how many requests of servers had a path through goroutines that started with function fn. Merge
// must have been called.
func (s *Sum) RequestsThrough(fn tracefmt.StringID) int64 {
	t := &s.tables[0].traversals
	if t.sampled == 0 {
		return 0
	}
	return int64(float64(t.requestsByFunc[fn]) * float64(t.requests) / float64(t.sampled))
}
