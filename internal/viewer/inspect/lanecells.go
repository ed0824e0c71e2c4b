package inspect

import (
	"context"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A laneCells is the time of one lane in one generation, by state and cell of cellWidth ns. Sums over long
// intervals are computed from cells, so that a view of a whole trace does not read each event repeatedly.
type laneCells struct {
	first int64 // number of the first cell, from the trace's start
	cells Sums
}

// memory returns the bytes that the cells take.
func (s *laneCells) memory() int64 {
	n := int64(96)
	for _, c := range s.cells {
		n += int64(cap(c)) * 8
	}
	return n
}

// addTo adds the cells to the sums of a strip of out, those within its interval. It assumes that a cell's time is evenly distributed over the cell.
func (s *laneCells) addTo(sums *Sums, out *Strips) {
	for k, cells := range s.cells {
		for i, ns := range cells {
			if ns == 0 {
				continue
			}
			a := (s.first + int64(i)) * cellWidth
			b := a + cellWidth
			if lo := (a - out.From) / out.BucketNS; a >= out.From && b <= out.To && lo == (b-1-out.From)/out.BucketNS {
				sums[k][lo] += ns
				continue
			}
			spreadEvenly(sums[k], out, a, b, ns)
		}
	}
}

// spreadEvenly adds ns of time, evenly distributed over [a, b), to the buckets.
func spreadEvenly(sums []int64, out *Strips, a, b, ns int64) {
	for from := max(a, out.From); from < min(b, out.To); {
		k := (from - out.From) / out.BucketNS
		if k >= int64(len(sums)) {
			return
		}
		end := min(b, out.To, out.From+(k+1)*out.BucketNS)
		sums[k] += ns * (end - from) / (b - a)
		from = end
	}
}

type cellsKey struct {
	gen  int32
	lane Lane
}

// hasCells reports whether the cells of all lanes in generation gen (an index) are cached or known to be empty.
func (t *Trace) hasCells(gen int, lanes []Lane) bool {
	from, to := t.extent(gen)
	for _, l := range lanes {
		if l.isGoroutine() && !t.mayHaveLived(l.ID, from, to) {
			continue
		}
		if _, ok := t.cells.get(cellsKey{int32(gen), l}); !ok {
			return false
		}
	}
	return true
}

// cellsOf returns the cells of lanes in the generation with index gen, in the order of the lanes, from the cache or computed. They are shared and
// must not be changed.
func (t *Trace) cellsOf(ctx context.Context, gen int, lanes []Lane) ([]*laneCells, error) {
	out := make([]*laneCells, len(lanes))
	from, to := t.extent(gen)
	var fresh []Strip
	var places []int // for each element of fresh, its index in out
	for i, l := range lanes {
		var ok bool
		if out[i], ok = t.cells.get(cellsKey{int32(gen), l}); ok {
			continue
		}
		if out[i] = new(laneCells); !l.isGoroutine() || t.mayHaveLived(l.ID, from, to) {
			fresh, places = append(fresh, Strip{Lane: l}), append(places, i)
		}
	}
	if len(fresh) == 0 {
		return out, nil
	}
	win, err := t.window(ctx, max(gen-1, 0), min(gen+1, len(t.index.gens)-1))
	if err != nil {
		return nil, err
	}
	if err := t.addPieces(ctx, win, from+t.start, to+t.start, fresh, nil); err != nil {
		return nil, err
	}
	for k := range fresh {
		l := fresh[k].Lane
		out[places[k]].addPieces(fresh[k].Pieces, from, to)
		t.cells.put(cellsKey{int32(gen), l}, out[places[k]])
	}
	return out, nil
}

// addPieces adds pieces, cut to [from, to), in ns from the trace's start, to the empty cells; states that do not occur have no cells.
func (s *laneCells) addPieces(pieces []Piece, from, to int64) {
	s.first = from / cellWidth
	for _, p := range pieces {
		if s.cells[p.State] == nil {
			s.cells[p.State] = make([]int64, (to-1)/cellWidth-s.first+1)
		}
		spread(s.cells[p.State], s.first*cellWidth, cellWidth, max(p.From, from), min(p.To, to))
	}
}

// mayHaveLived reports whether a goroutine may have been alive in [from, to).
func (t *Trace) mayHaveLived(id uint64, from, to int64) bool {
	row, ok := t.index.goroutines.table.get(id)
	return !ok || t.isKnownAlive(row, from, to) // the index may lack it because of its limit
}

// isKnownAlive reports whether a goroutine of the index was alive in [from, to).
func (t *Trace) isKnownAlive(row int32, from, to int64) bool {
	g := &t.index.goroutines
	born := g.born(row)
	return (born == 0 || born-t.start < to) && g.lastSeen(row)-t.start >= from
}

// A siteCache finds the site of stacks, the frame that matters to readers, within one query.
type siteCache struct {
	t     *Trace
	sites *cause.Sites
}

// newSiteCache returns a cache that an earlier query released, or a new one.
func newSiteCache(t *Trace) *siteCache {
	select {
	case c := <-t.spareSites:
		return c
	default:
		return &siteCache{t: t, sites: cause.NewSites(&t.index.syms)}
	}
}

// release makes the cache available to a later query; it must not be used afterwards.
func (c *siteCache) release() {
	select {
	case c.t.spareSites <- c:
	default:
	}
}

// siteOf returns the site of a stack; 0 without a cache.
func (c *siteCache) siteOf(id tracefmt.StackID) tracefmt.FrameID {
	if c == nil {
		return 0
	}
	return c.sites.SiteOf(id)
}

// pieceOf converts a span to a piece of a lane, cut to [from, to) on the trace's clock, without a site if the cache is nil. ok is false if it has no
// time in [from, to).
func (c *siteCache) pieceOf(s *timeline.Span, from, to int64) (Piece, bool) {
	if s.State == timeline.Unknown || s.State == timeline.NotAlive {
		return Piece{}, false
	}
	p := Piece{From: max(s.Start, from), To: min(s.End, to), State: s.State, Site: c.siteOf(s.Stack)}
	if s.State != timeline.Running {
		p.Reason = s.Reason
	}
	return p, p.From < p.To
}
