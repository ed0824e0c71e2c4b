package moments

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/path"
)

// waitNS is the grain of what is kept of when requests waited for a P, in pages of so many grains; at most maxPages of them.
const (
	waitNS   = 1 << 20
	pageLen  = 64
	maxPages = 1 << 10
)

// waiting is how many requests waited for a P, at any time: for each grain, how many waits began there less how many
// ended, and their offsets in it. A wait costs the same however long it is.
type waiting struct {
	pages map[int64]*page
	at    int64 // the page of the edge before: most are there
	last  *page
	ns    int64 // of all waits
	over  bool  // there were too many pages
}

type edge struct{ n, off int64 }

type page [pageLen]edge

func (w *waiting) add(from, to, weight int64) {
	if to <= from || w.over {
		return
	}
	w.ns += (to - from) * weight
	a, b := from/waitNS, to/waitNS
	if a == b {
		w.edge(a, 0, (from-to)*weight)
		return
	}
	w.edge(a, weight, from%waitNS*weight)
	w.edge(b, -weight, -(to%waitNS)*weight)
}

func (w *waiting) edge(at, n, off int64) {
	if w.over {
		return
	}
	if w.last == nil || w.at != at/pageLen {
		w.turn(at / pageLen)
		if w.over {
			return
		}
	}
	e := &w.last[at%pageLen]
	e.n += n
	e.off += off
}

// turn goes to a page.
func (w *waiting) turn(at int64) {
	p := w.pages[at]
	if p == nil {
		if len(w.pages) == maxPages {
			w.over, w.pages, w.last = true, nil, nil
			return
		}
		if w.pages == nil {
			w.pages = make(map[int64]*page)
		}
		p = new(page)
		w.pages[at] = p
	}
	w.at, w.last = at, p
}

func (w *waiting) merge(o *waiting) {
	if w.ns += o.ns; o.over {
		w.over, w.pages, w.last = true, nil, nil
	}
	for at, p := range o.pages {
		for i, e := range p {
			if e != (edge{}) {
				w.edge(at*pageLen+int64(i), e.n, e.off)
			}
		}
	}
}

// within returns the share of the time waited that lies in ranges, which are in order and do not overlap. Ranges are taken
// to end with their grains.
func (w *waiting) within(ranges [][2]int64) float64 {
	if w.over || w.ns == 0 {
		return 0
	}
	type at struct {
		grain int64
		edge
	}
	var edges []at
	for k, p := range w.pages {
		for i, e := range p {
			if e != (edge{}) {
				edges = append(edges, at{k*pageLen + int64(i), e})
			}
		}
	}
	slices.SortFunc(edges, func(a, b at) int { return cmp.Compare(a.grain, b.grain) })
	var ns, n, last int64 // the time waited before grain last, and how many waited as it began
	k := 0
	before := func(grain int64) int64 {
		for ; k < len(edges) && edges[k].grain < grain; k++ {
			e := &edges[k]
			ns += n * (e.grain - last) * waitNS
			n += e.n
			ns += n*waitNS - e.off
			last = e.grain + 1
		}
		return ns + n*(grain-last)*waitNS
	}
	in := int64(0)
	for _, r := range ranges {
		from := before(r[0] / waitNS)
		in += before((r[1]+waitNS-1)/waitNS) - from
	}
	return float64(in) / float64(w.ns)
}

// Waited returns which share of the time that a group's requests waited for a P lies in ranges of time, and which part of
// a trace of that length these are. Ranges may overlap.
func (s *Sum) Waited(id path.GroupID, ranges [][2]int64, durationNS int64) (waited, time float64) {
	k := s.of(id)
	if k == nil || durationNS <= 0 {
		return 0, 0
	}
	ranges = union(ranges)
	for _, r := range ranges {
		time += float64(r[1]-r[0]) / float64(durationNS)
	}
	return k.waits.within(ranges), time
}

// union orders ranges, and makes one of those whose grains touch.
func union(ranges [][2]int64) [][2]int64 {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	var out [][2]int64
	for _, r := range ranges {
		if k := len(out) - 1; k >= 0 && r[0]/waitNS <= (out[k][1]+waitNS-1)/waitNS {
			out[k][1] = max(out[k][1], r[1])
			continue
		}
		out = append(out, r)
	}
	return out
}
