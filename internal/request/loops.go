package request

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/stdlib"
	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
)

// manyTurns is how often a goroutine must come back to a wait before it
// counts as a loop.
const manyTurns = 5

// loops finds workers: goroutines that come back to the same idle wait again
// and again. A turn, from the wake to the next such wait, is one request.
type loops struct {
	roots map[tracefmt.StringID]*root
	// Under which functions goroutines wait: what all wait stacks of one have
	// in common, outermost first; and, by function, which functions follow it
	// there. One that is followed by several only launches goroutines, as
	// errgroup.Group.Go does: the loop is what it calls.
	paths map[uint64][]tracefmt.FrameID
	after map[tracefmt.StringID]map[tracefmt.StringID]bool
	turns map[uint64]*turn
	spans []timeline.Span
}

// A root is a function that goroutines were started with.
type root struct {
	waits map[tracefmt.StackID]*waitStat
	idle  tracefmt.StackID // the idle wait, once chosen
}

type waitStat struct {
	count int
	total int64
	rank  int
	depth int
}

type turn struct {
	start int64 // 0: idle, or not known
	last  int64 // when the last idle wait seen began
}

// idleRank orders the reasons for which a worker waits for work; a worker
// sleeps or waits for a lock while it works.
func idleRank(reason string) int {
	switch reason {
	case "chan receive", "select", "network", "sync.(*Cond).Wait":
		return 3
	case "sync":
		return 2
	case "chan send", "sleep":
		return 1
	}
	return 0
}

func (l *loops) add(f *Finder, g *timeline.Gen) {
	if l.roots == nil {
		l.roots = make(map[tracefmt.StringID]*root)
		l.turns = make(map[uint64]*turn)
		l.paths = make(map[uint64][]tracefmt.FrameID)
		l.after = make(map[tracefmt.StringID]map[tracefmt.StringID]bool)
	}
	l.forget(g)
	var ids []uint64
	g.Goroutines(func(id uint64) {
		if f.conns[id] == nil && f.streams[id] == nil && f.workers[id] == nil && g.Pieces(id) > 2*manyTurns {
			if j := f.jobs.lives[id]; j == nil || !j.part && j.entry.ended < manyJobs {
				ids = append(ids, id)
			}
		}
	})
	slices.Sort(ids)
	from, to := g.Base, g.End+1
	for _, id := range ids {
		l.spans = f.win.Spans(id, from, to, l.spans[:0])
		l.path(f, id)
	}
	// First which waits there are, then the turns between idle ones.
	for _, id := range ids {
		l.spans = f.win.Spans(id, from, to, l.spans[:0])
		for i := range l.spans {
			s := &l.spans[i]
			if s.State != timeline.Waiting || !s.Woken || s.Stack == 0 {
				continue
			}
			r, depth := l.root(f, id, s.Stack)
			if r == nil || r.idle != 0 {
				continue
			}
			w := r.waits[s.Stack]
			if w == nil {
				w = &waitStat{rank: idleRank(f.syms.String(s.Reason)), depth: depth}
				r.waits[s.Stack] = w
			}
			w.count++
			w.total += s.End - max(s.Start, from)
		}
	}
	for _, r := range l.roots {
		if r != nil && r.idle == 0 {
			r.choose()
		}
	}
	for _, id := range ids {
		l.spans = f.win.Spans(id, from, to, l.spans[:0])
		t := l.turns[id]
		for i := range l.spans {
			s := &l.spans[i]
			if s.State != timeline.Waiting || s.Stack == 0 {
				continue
			}
			r, _ := l.root(f, id, s.Stack)
			if r == nil || r.idle != s.Stack {
				continue
			}
			if t == nil {
				t = &turn{last: math.MinInt64}
				l.turns[id] = t
			}
			// What lies between two generations' borders is seen with both.
			if s.Start < t.last || s.Start == t.last && t.start != 0 {
				continue
			}
			t.last = s.Start
			if t.start != 0 && s.Start > t.start {
				f.out = append(f.out, Request{Kind: Loop, Start: t.start, End: s.Start, G: id, Ready: t.start, Entry: s.Stack, Root: l.rootFrame(f, id, s.Stack)})
			}
			t.start = 0
			if s.Woken {
				t.start = s.End
			}
		}
	}
}

// forget drops what is kept of goroutines that are gone.
func (l *loops) forget(g *timeline.Gen) {
	for id := range l.paths {
		if !g.Knows(id) {
			delete(l.paths, id)
		}
	}
	for id := range l.turns {
		if !g.Knows(id) {
			delete(l.turns, id)
		}
	}
}

// choose takes the idle wait: the most likely kind of wait, then the one
// nearest to the function that loops, then the longest.
func (r *root) choose() {
	top := 0
	for _, w := range r.waits {
		top = max(top, w.count)
	}
	if top < manyTurns {
		return
	}
	type cand struct {
		id tracefmt.StackID
		*waitStat
	}
	var cs []cand
	for id, w := range r.waits {
		if w.count >= manyTurns && w.count*4 >= top && w.rank > 0 {
			cs = append(cs, cand{id, w})
		}
	}
	if len(cs) == 0 {
		return
	}
	slices.SortFunc(cs, func(a, b cand) int {
		return cmp.Or(b.rank-a.rank, a.depth-b.depth, cmp.Compare(b.total, a.total), cmp.Compare(a.id, b.id))
	})
	r.idle = cs[0].id
}

// root returns the function with which the stack's goroutine was started, if
// loops there are of interest, and how far above it the wait is.
func (l *loops) root(f *Finder, g uint64, id tracefmt.StackID) (*root, int) {
	frames := f.syms.Stack(id)
	if len(frames) == 0 {
		return nil, 0
	}
	fn := f.syms.Frame(l.rootFrame(f, g, id)).Func
	r, ok := l.roots[fn]
	if !ok {
		if name := f.syms.String(fn); !stdlib.Is(name) {
			r = &root{waits: make(map[tracefmt.StackID]*waitStat)}
		}
		l.roots[fn] = r
	}
	if r == nil {
		return nil, 0
	}
	if e := f.jobs.entry[fn]; e != nil && e.ended >= manyJobs {
		return nil, 0 // its goroutines are the unit, not what they do again and again
	}
	depth := 0
	for _, fr := range frames {
		if !strings.HasPrefix(f.syms.String(f.syms.Frame(fr).Func), "runtime.") {
			depth++
		}
	}
	return r, depth
}

// path narrows what the goroutine's wait stacks have in common.
func (l *loops) path(f *Finder, id uint64) {
	path, seen := l.paths[id]
	for i := range l.spans {
		s := &l.spans[i]
		if s.State != timeline.Waiting || s.Stack == 0 {
			continue
		}
		frames := f.syms.Stack(s.Stack)
		if !seen {
			seen = true
			for k := len(frames) - 1; k >= 0 && len(path) < maxPath; k-- {
				path = append(path, frames[k])
			}
			continue
		}
		n := 0
		for n < len(path) && n < len(frames) && f.syms.Frame(path[n]).Func == f.syms.Frame(frames[len(frames)-1-n]).Func {
			n++
		}
		path = path[:n]
	}
	if !seen {
		return
	}
	l.paths[id] = path
	for k := 0; k+1 < len(path); k++ {
		fn, next := f.syms.Frame(path[k]).Func, f.syms.Frame(path[k+1]).Func
		if stdlib.Is(f.syms.String(next)) {
			break
		}
		if l.after[fn] == nil {
			l.after[fn] = make(map[tracefmt.StringID]bool)
		}
		l.after[fn][next] = true
	}
}

// maxPath bounds how deep launchers are looked for.
const maxPath = 8

// rootFrame returns the frame of the function that loops.
func (l *loops) rootFrame(f *Finder, g uint64, id tracefmt.StackID) tracefmt.FrameID {
	path := l.paths[g]
	if len(path) == 0 {
		frames := f.syms.Stack(id)
		return frames[len(frames)-1]
	}
	k := 0
	for k+1 < len(path) && len(l.after[f.syms.Frame(path[k]).Func]) > 1 {
		k++
	}
	return path[k]
}
