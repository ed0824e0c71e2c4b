package inspect

import (
	"context"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A shape is what one lane did in one generation, in cells of coarse ns. Sums
// over much time are made of shapes, so that looking at a whole trace does not
// walk every event repeatedly.
type shape struct {
	first int64 // number of the first cell, from the trace's start
	cells [States][]uint32
}

func (s *shape) size() int64 {
	n := int64(96)
	for _, c := range s.cells {
		n += int64(cap(c)) * 4
	}
	return n
}

// addTo adds the cells to a strip's sums; a cell's time is taken as spread
// evenly over it.
func (s *shape) addTo(sums *[States][]int64, out *Strips) {
	for k, cells := range s.cells {
		for i, ns := range cells {
			if ns == 0 {
				continue
			}
			a := (s.first + int64(i)) * coarse
			b := a + coarse
			if lo := (a - out.From) / out.BucketNS; a >= out.From && b <= out.To && lo == (b-1-out.From)/out.BucketNS {
				sums[k][lo] += int64(ns)
				continue
			}
			spreadPart(sums[k], out, a, b, int64(ns))
		}
	}
}

// spreadPart spreads ns of time that lie somewhere in [a, b).
func spreadPart(sums []int64, out *Strips, a, b, ns int64) {
	for at := max(a, out.From); at < min(b, out.To); {
		k := (at - out.From) / out.BucketNS
		if k >= int64(len(sums)) {
			return
		}
		end := min(b, out.To, out.From+(k+1)*out.BucketNS)
		sums[k] += ns * (end - at) / (b - a)
		at = end
	}
}

type shapeKey struct {
	gen  int32
	proc bool
	id   uint64
}

func (t *Trace) hasShapes(gen int, lanes []Lane) bool {
	from, to := t.extent(gen)
	for _, l := range lanes {
		if !l.Proc && !t.lives(l.ID, from, to) {
			continue
		}
		if _, ok := t.shapes.get(shapeKey{int32(gen), l.Proc, l.ID}); !ok {
			return false
		}
	}
	return true
}

// shapesOf returns the shapes of lanes in a generation.
func (t *Trace) shapesOf(ctx context.Context, gen int, lanes []Lane) ([]*shape, error) {
	out := make([]*shape, len(lanes))
	var win *timeline.Window
	var spans []timeline.Span
	var procs map[uint64]*shape
	from, to := t.extent(gen)
	for i, l := range lanes {
		key := shapeKey{int32(gen), l.Proc, l.ID}
		var ok bool
		if out[i], ok = t.shapes.get(key); ok {
			continue
		}
		if !l.Proc && !t.lives(l.ID, from, to) {
			out[i] = &shape{}
			continue
		}
		if win == nil {
			var err error
			if win, err = t.window(ctx, max(gen-1, 0), min(gen+1, len(t.x.gens)-1)); err != nil {
				return nil, err
			}
		}
		if l.Proc {
			if procs == nil {
				procs = t.procShapes(win, gen)
			}
			if out[i] = procs[l.ID]; out[i] == nil {
				out[i] = &shape{}
			}
			t.shapes.put(key, out[i])
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := newShape(from, to)
		spans = win.Spans(l.ID, from+t.start, to+t.start, spans[:0])
		for k := range spans {
			if st, ok := stateOf(spans[k].State); ok {
				s.add(st, max(spans[k].Start, from+t.start)-t.start, min(spans[k].End-t.start, to))
			}
		}
		s.trim()
		out[i] = s
		t.shapes.put(key, s)
	}
	return out, nil
}

// lives reports whether a goroutine may have been alive in [from, to).
func (t *Trace) lives(id uint64, from, to int64) bool {
	row, ok := t.x.gos.rowsOf.get(id)
	if !ok {
		return true // not in the index, for want of room
	}
	g := &t.x.gos
	born := g.born(row)
	return (born == 0 || born-t.start < to) && g.last(row)-t.start >= from
}

func newShape(from, to int64) *shape {
	s := &shape{first: from / coarse}
	n := (to-1)/coarse - s.first + 1
	for k := range s.cells {
		s.cells[k] = make([]uint32, n)
	}
	return s
}

func (s *shape) add(st State, a, b int64) {
	for a < b {
		k := a / coarse
		end := min(b, (k+1)*coarse)
		if i := k - s.first; i >= 0 && i < int64(len(s.cells[st])) {
			s.cells[st][i] += uint32(end - a)
		}
		a = end
	}
}

// trim drops states that never were.
func (s *shape) trim() {
	for k, cells := range s.cells {
		if !slices.ContainsFunc(cells, func(ns uint32) bool { return ns != 0 }) {
			s.cells[k] = nil
		}
	}
}

// procShapes returns the shapes of all Ps in a generation.
func (t *Trace) procShapes(win *timeline.Window, gen int) map[uint64]*shape {
	from, to := t.extent(gen)
	out := make(map[uint64]*shape)
	for p := range uint64(t.x.procs) {
		out[p] = newShape(from, to)
	}
	win.EachRun(from+t.start, to+t.start, func(r timeline.Run) {
		if s := out[uint64(r.P)]; s != nil {
			s.add(StateRunning, r.From-t.start, r.To-t.start)
		}
	})
	for _, s := range out {
		s.trim()
	}
	return out
}

func stateOf(s timeline.State) (State, bool) {
	switch s {
	case timeline.Running:
		return StateRunning, true
	case timeline.Runnable:
		return StateRunnable, true
	case timeline.Waiting:
		return StateWaiting, true
	case timeline.Syscall:
		return StateSyscall, true
	}
	return 0, false
}

// siteCache finds the frames that a person wants to see, for one question.
type siteCache struct {
	t     *Trace
	sites *cause.Sites
	spans []timeline.Span
}

func newSiteCache(t *Trace) *siteCache {
	select {
	case c := <-t.spareSites:
		return c
	default:
		return &siteCache{t: t, sites: cause.NewSites(&t.x.syms)}
	}
}

// done hands the cache to the next question.
func (c *siteCache) done() {
	select {
	case c.t.spareSites <- c:
	default:
	}
}

func (c *siteCache) of(id tracefmt.StackID) tracefmt.FrameID { return c.sites.Of(id) }

// piece makes a lane's piece of a span.
func (c *siteCache) piece(s *timeline.Span, from, to int64) (Piece, bool) {
	return c.cut(s, from, to, true)
}

// cut is piece, with its place or without.
func (c *siteCache) cut(s *timeline.Span, from, to int64, site bool) (Piece, bool) {
	st, ok := stateOf(s.State)
	if !ok {
		return Piece{}, false
	}
	p := Piece{From: max(s.Start, from), To: min(s.End, to), State: st}
	if site {
		p.Site = c.of(s.Stack)
	}
	if st != StateRunning {
		p.Reason = s.Reason
	}
	return p, p.From < p.To
}
