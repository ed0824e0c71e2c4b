package moments

import (
	"slices"

	"github.com/whylate/whylate/internal/path"
)

// waitNS is the grain of what is kept of when requests waited for a P; at most maxWaits grains.
const (
	waitNS   = 1 << 20
	maxWaits = 1 << 16
)

// waiting is how many requests waited for a P, at any time: for each grain, how many waits began there less how many
// ended, and their offsets in it. A wait costs the same however long it is.
type waiting struct {
	edges map[int64]edge
	ns    int64 // of all waits
	over  bool  // there were too many grains
}

type edge struct{ n, off int64 }

func (w *waiting) add(from, to, weight int64) {
	if to <= from || w.over {
		return
	}
	w.ns += (to - from) * weight
	w.edge(from/waitNS, weight, from%waitNS*weight)
	w.edge(to/waitNS, -weight, -(to%waitNS)*weight)
}

func (w *waiting) edge(at, n, off int64) {
	if w.over {
		return
	}
	if w.edges == nil {
		w.edges = make(map[int64]edge)
	}
	e := w.edges[at]
	w.edges[at] = edge{e.n + n, e.off + off}
	if len(w.edges) > maxWaits {
		w.over, w.edges = true, nil
	}
}

func (w *waiting) merge(o *waiting) {
	if w.ns += o.ns; o.over {
		w.over, w.edges = true, nil
	}
	for at, e := range o.edges {
		w.edge(at, e.n, e.off)
	}
}

// within returns the share of the time waited that lies in ranges, which are in order and do not overlap. Ranges are taken
// to end with their grains.
func (w *waiting) within(ranges [][2]int64) float64 {
	if w.over || w.ns == 0 {
		return 0
	}
	keys := make([]int64, 0, len(w.edges))
	for at := range w.edges {
		keys = append(keys, at)
	}
	slices.Sort(keys)
	var ns, n, last int64 // the time waited before grain last, and how many waited as it began
	k := 0
	before := func(at int64) int64 {
		for ; k < len(keys) && keys[k] < at; k++ {
			ns += n * (keys[k] - last) * waitNS
			e := w.edges[keys[k]]
			n += e.n
			ns += n*waitNS - e.off
			last = keys[k] + 1
		}
		return ns + n*(at-last)*waitNS
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
	if int(id) >= len(s.all.groups) || s.all.groups[id] == nil || durationNS <= 0 {
		return 0, 0
	}
	ranges = union(ranges)
	for _, r := range ranges {
		time += float64(r[1]-r[0]) / float64(durationNS)
	}
	return s.all.groups[id].waits.within(ranges), time
}

// union orders ranges, and makes one of those whose grains touch.
func union(ranges [][2]int64) [][2]int64 {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b [2]int64) int { return int(min(max(a[0]-b[0], -1), 1)) })
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
