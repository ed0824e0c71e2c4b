package detailed

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// A Sum collects the slowest requests of each group, and a few others of any latency, in full. It implements pass.Sum.
type Sum struct {
	maxSlowest int
	collectors []*collector
	merged     collector
}

// New returns a Sum that collects at most maxSlowest slow requests of a group; if maxSlowest is not positive, it collects nothing.
func New(maxSlowest int) *Sum {
	return &Sum{maxSlowest: maxSlowest, merged: collector{maxSlowest: maxSlowest}}
}

// NewAdder implements pass.Sum: it returns an empty collector for one worker, whose requests stage walks.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	k := &collector{maxSlowest: s.maxSlowest, stage: stage}
	s.collectors = append(s.collectors, k)
	return k
}

// Merge combines what all workers collected, the slowest and the sampled requests, by the groups of the report.
func (s *Sum) Merge(ts []path.Translation) {
	for i, k := range s.collectors {
		for id := range k.groups {
			to := s.merged.group(ts[i].Groups[id])
			to.slowest.Merge(k.groups[id].slowest)
			to.sample.Merge(k.groups[id].sample)
		}
	}
	s.collectors = nil
}

// FillGroup sets Slowest and Typical of a group of the report. median is the group's median latency in ns.
func (s *Sum) FillGroup(g *report.Group, id path.GroupID, median int64, sp *spell.Speller) {
	k := s.merged.group(id)
	g.Slowest, g.Typical = []report.Request{}, nil
	for _, r := range k.slowest.Sorted() {
		g.Slowest = append(g.Slowest, r.Report(g.ID, sp))
	}
	if r := k.typical(median); r != nil {
		typical := r.Report(g.ID, sp)
		g.Typical = &typical
	}
}

// A collector is one worker's part of a Sum.
type collector struct {
	maxSlowest int
	stage      *path.Stage
	groups     []groupRequests // by path.GroupID
	spans      []timeline.Span // scratch for AddLanes
}

// groupRequests are the requests of one group.
type groupRequests struct {
	slowest *sample.TopN[*Request]
	sample  *sample.TopN[*Request] // requests with the smallest keys: a random sample
}

// group returns the requests of a group, creating them on demand.
func (k *collector) group(id path.GroupID) *groupRequests {
	g := entry.GetOrGrow(&k.groups, id)
	if g.slowest == nil {
		*g = groupRequests{sample.New(k.maxSlowest, slowerFirst), sample.New(sampleSize, smallerKeyFirst)}
	}
	return g
}

// Add collects a request in full if it is among the slowest of its group so far, or in the group's random sample. It implements
// path.Adder.
func (k *collector) Add(w *path.WalkResult) {
	if k.maxSlowest <= 0 || !w.IsComplete() {
		return
	}
	requests := k.group(w.Group)
	fastest, isFull := requests.slowest.Last()
	slow := !isFull || w.Latency() >= fastest.End-fastest.Start
	last, isFull := requests.sample.Last()
	// A request that was walked in pieces has no surroundings any more.
	sampled := w.Form == path.Whole && (!isFull || sampleKey(w.Start, w.Req.G) < sampleKey(last.Start, last.G))
	if !slow && !sampled {
		return
	}
	r := NewRequest(w)
	if w.Form == path.Whole {
		r.Segments = slices.Clone(r.Segments)
		k.spans = r.AddLanes(k.stage, w.Steps, k.spans)
	}
	if slow {
		requests.slowest.Add(r)
	}
	if sampled {
		requests.sample.Add(r)
	}
}

// slowerFirst orders requests by latency, the slowest first, then by start and goroutine, so that the order does not depend on
// the workers.
func slowerFirst(a, b *Request) int {
	return cmp.Or(cmp.Compare(b.End-b.Start, a.End-a.Start), cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G))
}

// smallerKeyFirst orders requests by their sample keys.
func smallerKeyFirst(a, b *Request) int {
	return cmp.Compare(sampleKey(a.Start, a.G), sampleKey(b.Start, b.G))
}

// sampleSize is the number of requests of a group that are sampled regardless of latency. One of them becomes the typical
// request.
const sampleSize = 5

// sampleKey returns a pseudo-random number of a request; the requests with the smallest keys are the sample.
func sampleKey(start int64, g uint64) uint64 { return sample.Key(start, g, 1) }

// typical returns the sampled request with the latency nearest to the median, or nil if all of them are among the slowest.
func (g *groupRequests) typical(median int64) (best *Request) {
	deviation := func(r *Request) int64 { return max(r.End-r.Start-median, median-(r.End-r.Start)) }
	for _, r := range g.sample.Sorted() {
		isSlowest := slices.ContainsFunc(g.slowest.Sorted(), func(o *Request) bool { return o.Start == r.Start && o.G == r.G })
		if !isSlowest && (best == nil || deviation(r) < deviation(best)) {
			best = r
		}
	}
	return best
}
