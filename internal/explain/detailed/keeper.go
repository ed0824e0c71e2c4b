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

// A Sum keeps the slowest requests of each group, and a few of any latency. It
// implements pass.Sum.
type Sum struct {
	slowest int
	parts   []*keeper
	all     keeper
}

// New returns a Sum that keeps so many of the slowest requests of a group;
// nothing if that is not positive.
func New(slowest int) *Sum { return &Sum{slowest: slowest, all: keeper{slowest: slowest}} }

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	k := &keeper{slowest: s.slowest, stage: stage}
	s.parts = append(s.parts, k)
	return k
}

// Merge brings together what all workers kept, by the groups of the report.
func (s *Sum) Merge(ts []path.Translation) {
	for i, k := range s.parts {
		for id := range k.groups {
			to := s.all.group(ts[i].Groups[id])
			for _, r := range k.groups[id].slowest {
				to.addSlow(r, s.slowest)
			}
			for _, r := range k.groups[id].sample {
				to.addSample(r)
			}
		}
	}
	s.parts = nil
}

// Fill adds a group's slowest requests and its typical one to its row of the
// report. median is the group's median latency.
func (s *Sum) Fill(g *report.Group, id path.GroupID, median int64, sp *spell.Speller) {
	k := s.all.group(id)
	for _, r := range k.slowest {
		g.Slowest = append(g.Slowest, r.Report(g.ID, sp))
	}
	if r := k.typical(median); r != nil {
		typical := r.Report(g.ID, sp)
		g.Typical = &typical
	}
}

// A keeper is one worker's part of a Sum.
type keeper struct {
	slowest int
	stage   *path.Stage
	groups  []kept          // by path.GroupID
	spans   []timeline.Span // for AddLanes
}

// kept are the requests kept of one group.
type kept struct {
	slowest []*Request
	sample  []*Request // those with the smallest keys
}

func (k *keeper) group(id path.GroupID) *kept { return entry.At(&k.groups, id) }

// Add implements pass.Adder.
func (k *keeper) Add(w *path.WalkResult) {
	if k.slowest <= 0 || !w.IsComplete() {
		return
	}
	g := k.group(w.Group)
	slow := len(g.slowest) < k.slowest
	if !slow {
		last := g.slowest[len(g.slowest)-1]
		slow = w.Latency() >= last.End-last.Start
	}
	// Of a request that was walked in parts the surroundings are not there any more.
	sampled := w.Form == path.Whole && (len(g.sample) < sampleSize || sampleKey(w.Start, w.Req.G) < g.sample[len(g.sample)-1].key())
	if !slow && !sampled {
		return
	}
	r := Of(w)
	if w.Form == path.Whole {
		r.Segments = slices.Clone(r.Segments)
		k.spans = r.AddLanes(k.stage, w.Steps, k.spans)
	}
	if slow {
		g.addSlow(r, k.slowest)
	}
	if sampled {
		g.addSample(r)
	}
}

func (g *kept) addSlow(r *Request, most int) {
	at, _ := slices.BinarySearchFunc(g.slowest, r, func(a, b *Request) int {
		return cmp.Or(cmp.Compare(b.End-b.Start, a.End-a.Start), cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G))
	})
	g.slowest = slices.Insert(g.slowest, at, r)
	g.slowest = g.slowest[:min(len(g.slowest), most)]
}

// sampleSize is how many requests of a group are kept whatever their latency,
// to choose a typical one from.
const sampleSize = 5

// sampleKey orders requests at random, but always alike: by a hash of what
// identifies them (the finalizer of SplitMix64, Steele et al., OOPSLA 2014).
// The requests with the smallest keys are a sample that does not depend on
// their latency, nor on which worker saw them, nor in which order.
func sampleKey(start int64, g uint64) uint64 {
	z := uint64(start) + g*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *Request) key() uint64 { return sampleKey(r.Start, r.G) }

func (g *kept) addSample(r *Request) {
	g.sample = append(g.sample, r)
	slices.SortFunc(g.sample, func(a, b *Request) int { return cmp.Compare(a.key(), b.key()) })
	g.sample = g.sample[:min(len(g.sample), sampleSize)]
}

// typical is the sampled request whose latency is nearest to the median, or
// nil if all are among the slowest.
func (g *kept) typical(median int64) *Request {
	var best *Request
	away := func(r *Request) int64 { return max(r.End-r.Start-median, median-(r.End-r.Start)) }
	for _, r := range g.sample {
		among := slices.ContainsFunc(g.slowest, func(o *Request) bool { return o.Start == r.Start && o.G == r.G })
		if !among && (best == nil || away(r) < away(best)) {
			best = r
		}
	}
	return best
}
