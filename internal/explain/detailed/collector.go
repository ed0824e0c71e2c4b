package detailed

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// A Sum collects the slowest requests of each group, and a few of any latency. It implements pass.Sum.
type Sum struct {
	maxSlowest int
	collectors []*collector
	merged     collector
}

// New returns a Sum that collects at most maxSlowest slow requests of a group; if that is not positive, it collects nothing.
func New(slowest int) *Sum { return &Sum{maxSlowest: slowest, merged: collector{maxSlowest: slowest}} }

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	k := &collector{maxSlowest: s.maxSlowest, stage: stage}
	s.collectors = append(s.collectors, k)
	return k
}

// Merge combines the requests of all workers by the groups of the report.
func (s *Sum) Merge(ts []path.Translation) {
	for i, k := range s.collectors {
		for id := range k.groups {
			to := s.merged.group(ts[i].Groups[id])
			for _, r := range k.groups[id].slowest {
				to.addSlow(r, s.maxSlowest)
			}
			for _, r := range k.groups[id].sample {
				to.addSample(r)
			}
		}
	}
	s.collectors = nil
}

// FillGroup adds a group's slowest requests and its typical one to a group of the report. median is the group's median
// latency.
func (s *Sum) FillGroup(g *report.Group, id path.GroupID, median int64, sp *spell.Speller) {
	k := s.merged.group(id)
	for _, r := range k.slowest {
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
	spans      []timeline.Span // for AddLanes
}

// groupRequests are the requests of one group.
type groupRequests struct {
	slowest []*Request
	sample  []*Request // those with the smallest keys
}

func (k *collector) group(id path.GroupID) *groupRequests { return entry.GetOrGrow(&k.groups, id) }

// Add implements pass.Adder.
func (k *collector) Add(w *path.WalkResult) {
	if k.maxSlowest <= 0 || !w.IsComplete() {
		return
	}
	requests := k.group(w.Group)
	slow := len(requests.slowest) < k.maxSlowest
	if !slow {
		last := requests.slowest[len(requests.slowest)-1]
		slow = w.Latency() >= last.End-last.Start
	}
	// A request that was walked in pieces has no surroundings any more.
	sampled := w.Form == path.Whole && (len(requests.sample) < sampleSize ||
		sampleKey(w.Start, w.Req.G) < requests.sample[len(requests.sample)-1].sampleKey())
	if !slow && !sampled {
		return
	}
	r := NewRequest(w)
	if w.Form == path.Whole {
		r.Segments = slices.Clone(r.Segments)
		k.spans = r.AddLanes(k.stage, w.Steps, k.spans)
	}
	if slow {
		requests.addSlow(r, k.maxSlowest)
	}
	if sampled {
		requests.addSample(r)
	}
}

// addSlow inserts a request, and drops the fastest if there are too many.
func (g *groupRequests) addSlow(r *Request, maxSlowest int) {
	index, _ := slices.BinarySearchFunc(g.slowest, r, func(a, b *Request) int {
		return cmp.Or(cmp.Compare(b.End-b.Start, a.End-a.Start), cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G))
	})
	g.slowest = slices.Insert(g.slowest, index, r)
	g.slowest = g.slowest[:min(len(g.slowest), maxSlowest)]
}

// sampleSize is how many requests of a group are sampled regardless of latency. One of them becomes the typical request.
const sampleSize = 5

// sampleKey returns a pseudo-random number that depends only on the request: a hash (the finalizer of SplitMix64, Steele et
// al., OOPSLA 2014). The requests with the smallest keys are a sample that depends neither on latencies, nor on workers, nor
// on the order.
func sampleKey(start int64, g uint64) uint64 {
	z := uint64(start) + g*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *Request) sampleKey() uint64 { return sampleKey(r.Start, r.G) }

// addSample adds a request, and drops the one with the largest key if there are too many.
func (g *groupRequests) addSample(r *Request) {
	g.sample = append(g.sample, r)
	slices.SortFunc(g.sample, func(a, b *Request) int { return cmp.Compare(a.sampleKey(), b.sampleKey()) })
	g.sample = g.sample[:min(len(g.sample), sampleSize)]
}

// typical returns the sampled request with the latency nearest to the median, or nil if all of them are among the slowest.
func (g *groupRequests) typical(median int64) *Request {
	var best *Request
	deviation := func(r *Request) int64 { return max(r.End-r.Start-median, median-(r.End-r.Start)) }
	for _, r := range g.sample {
		isSlowest := slices.ContainsFunc(g.slowest, func(o *Request) bool { return o.Start == r.Start && o.G == r.G })
		if !isSlowest && (best == nil || deviation(r) < deviation(best)) {
			best = r
		}
	}
	return best
}
