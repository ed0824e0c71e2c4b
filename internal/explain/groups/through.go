package groups

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// through counts, of requests that servers handled, through whose goroutines
// their paths lead: those are not work of its own kind, but parts of requests.
// Who only held a lock is none. A sample of the requests is looked at.
type through struct {
	stage   *path.Stage
	fns     map[tracefmt.StringID]int64 // by function that goroutines were started with: requests
	sampled int64
	all     int64
	seen    []tracefmt.StringID
	holds   map[path.ChainID]bool // chains of waits that lead through a lock
}

func newThrough(s *path.Stage) through {
	return through{stage: s, fns: make(map[tracefmt.StringID]int64), holds: make(map[path.ChainID]bool)}
}

func (t *through) add(w *path.WalkResult) {
	r := w.Req
	if !r.Kind.IsServed() {
		return
	}
	t.all += w.Weight
	if !w.Sampled || w.Form != path.Whole {
		return
	}
	t.sampled += w.Weight
	t.seen = t.seen[:0]
	last := uint64(0)
	for i := range w.Steps {
		s := &w.Steps[i]
		if s.G == r.G || s.G == last || s.Stack == 0 || t.held(w.ChainOfStep(s)) {
			continue
		}
		last = s.G
		frames := t.stage.Syms.Stack(s.Stack)
		if len(frames) == 0 {
			continue
		}
		t.seen = append(t.seen, t.stage.Syms.Frame(frames[len(frames)-1]).Func)
	}
	for i, fn := range t.seen {
		if !slices.Contains(t.seen[:i], fn) {
			t.fns[fn] += w.Weight
		}
	}
}

// held reports whether a chain of waits leads to its end because of what was
// held there, not because of what was done.
func (t *through) held(id path.ChainID) bool {
	held, ok := t.holds[id]
	if !ok {
		held = slices.ContainsFunc(t.stage.IDs.Chain(id), func(v path.ChainWait) bool {
			return v.Kind == critpath.WaitLock || v.Kind == critpath.WaitOnce || v.Kind == critpath.WaitSend
		})
		t.holds[id] = held
	}
	return held
}

func (t *through) merge(o *through) {
	for fn, n := range o.fns {
		t.fns[fn] += n
	}
	t.sampled += o.sampled
	t.all += o.all
}

// Through returns about how many requests of servers had a path that leads
// through goroutines that were started with a function. Merge must have been
// called.
func (s *Sum) Through(fn tracefmt.StringID) int64 {
	t := &s.parts[0].through
	if t.sampled == 0 {
		return 0
	}
	return int64(float64(t.fns[fn]) * float64(t.all) / float64(t.sampled))
}
