package moments

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/path"
)

// Bounds of a waitHistogram: it has bins of binNS, in pages of binsPerPage bins, and at most maxPages pages.
const (
	binNS       = 1 << 20
	binsPerPage = 64
	maxPages    = 1 << 10
)

// A waitHistogram stores how many requests waited for a P at any time. It stores only the beginnings and ends of waits, by
// bin (binNS), so the cost of a wait does not depend on its length.
type waitHistogram struct {
	pages         map[int64]*page
	lastPageIndex int64 // index of the page used last, which is mostly the next one, too
	lastPage      *page
	totalNS       int64 // total length of all waits
	hasOverflowed bool  // there were more than maxPages pages, so nothing is known
}

// An edge is the change in one bin: the number of waits that begin less those that end there, and the sum of their offsets
// from the bin's start, in ns, with the same signs.
type edge struct{ waiters, offsets int64 }

// A page holds the changes of adjacent bins.
type page [binsPerPage]edge

// add adds a wait from from to to, as often as weight says.
func (w *waitHistogram) add(from, to, weight int64) {
	if to <= from || w.hasOverflowed {
		return
	}
	w.totalNS += (to - from) * weight
	a, b := from/binNS, to/binNS
	if a == b {
		w.addEdge(a, 0, (from-to)*weight)
		return
	}
	w.addEdge(a, weight, from%binNS*weight)
	w.addEdge(b, -weight, -(to%binNS)*weight)
}

// addEdge adds n waiters, and their offset off in ns, to the edge of a bin, the interval number bin of binNS.
func (w *waitHistogram) addEdge(bin, n, off int64) {
	if w.hasOverflowed {
		return
	}
	if w.lastPage == nil || w.lastPageIndex != bin/binsPerPage {
		w.openPage(bin / binsPerPage)
		if w.hasOverflowed {
			return
		}
	}
	e := &w.lastPage[bin%binsPerPage]
	e.waiters += n
	e.offsets += off
}

// openPage sets lastPage to the page with an index, creating it on demand. With too many pages the histogram overflows and
// drops everything.
func (w *waitHistogram) openPage(index int64) {
	p := w.pages[index]
	if p == nil {
		if len(w.pages) == maxPages {
			w.hasOverflowed, w.pages, w.lastPage = true, nil, nil
			return
		}
		if w.pages == nil {
			w.pages = make(map[int64]*page)
		}
		p = new(page)
		w.pages[index] = p
	}
	w.lastPageIndex, w.lastPage = index, p
}

// merge adds another histogram.
func (w *waitHistogram) merge(added *waitHistogram) {
	if w.totalNS += added.totalNS; added.hasOverflowed {
		w.hasOverflowed, w.pages, w.lastPage = true, nil, nil
	}
	for index, p := range added.pages {
		for i, e := range p {
			if e != (edge{}) {
				w.addEdge(index*binsPerPage+int64(i), e.waiters, e.offsets)
			}
		}
	}
}

// shareWithin returns the share of the waiting time that is within ranges, which must be sorted and must not overlap. Ranges
// are rounded to whole bins. It is 0 if the histogram is empty or has overflowed.
func (w *waitHistogram) shareWithin(ranges [][2]int64) float64 {
	if w.hasOverflowed || w.totalNS == 0 {
		return 0
	}
	type grainEdge struct {
		bin int64
		edge
	}
	var edges []grainEdge
	for k, p := range w.pages {
		for i, e := range p {
			if e != (edge{}) {
				edges = append(edges, grainEdge{k*binsPerPage + int64(i), e})
			}
		}
	}
	slices.SortFunc(edges, func(a, b grainEdge) int { return cmp.Compare(a.bin, b.bin) })
	var waitedNS, waiters, nextBin int64 // the time waited before nextBin, and how many waited as it began
	k := 0
	waitedBefore := func(bin int64) int64 {
		for ; k < len(edges) && edges[k].bin < bin; k++ {
			e := &edges[k]
			waitedNS += waiters * (e.bin - nextBin) * binNS
			waiters += e.waiters
			waitedNS += waiters*binNS - e.offsets
			nextBin = e.bin + 1
		}
		return waitedNS + waiters*(bin-nextBin)*binNS
	}
	covered := int64(0)
	for _, r := range ranges {
		from := waitedBefore(r[0] / binNS)
		covered += waitedBefore((r[1]+binNS-1)/binNS) - from
	}
	return float64(covered) / float64(w.totalNS)
}

// WaitShare returns the share of the time that a group's requests waited for a P that is within ranges, and the share of the
// trace's time that the ranges cover. If the first is much larger, waits happen mostly there. Ranges may overlap.
func (s *Sum) WaitShare(id path.GroupID, ranges [][2]int64, durationNS int64) (waitShare, timeShare float64) {
	record := s.recordOf(id)
	if record == nil || durationNS <= 0 {
		return 0, 0
	}
	ranges = mergeRanges(ranges)
	for _, r := range ranges {
		timeShare += float64(r[1]-r[0]) / float64(durationNS)
	}
	return record.cpuWaits.shareWithin(ranges), timeShare
}

// mergeRanges returns the ranges sorted, with those joined that overlap or touch after rounding to bins. It does not change
// them.
func mergeRanges(ranges [][2]int64) (out [][2]int64) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	for _, r := range ranges {
		if k := len(out) - 1; k >= 0 && r[0]/binNS <= (out[k][1]+binNS-1)/binNS {
			out[k][1] = max(out[k][1], r[1])
			continue
		}
		out = append(out, r)
	}
	return out
}
