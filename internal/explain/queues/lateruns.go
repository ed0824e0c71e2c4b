package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// lateRuns are the runs of one generation that began late while requests of others waited for them. What is kept is
// bounded: with very many of them every second is forgotten, then three of four, and so on, by the run itself, so that
// all requests that waited for a run that is kept are counted, and the choice does not depend on the workers.
//
// Of a group of which not all requests were walked, only those of the slice that turns are of count, for as many as there are.
type lateRuns struct {
	runs        map[lateRunKey]lateRun
	sampleMask  uint64
	sliceWeight int64            // how many times the slice's requests all of the generation's are; of the first part
	maxNSByG    map[uint64]int64 // how late a goroutine was at most beyond the slice
}

// A lateRunKey names a run that began late: goroutine and beginning.
type lateRunKey struct {
	g     uint64
	start int64
}

type lateRun struct {
	readySince int64 // since when it could have run, or, with a gap, its message may have been there
	pollGapNS  int64 // see critpath.PollGap
	stack      tracefmt.StackID
	requests   int64
	waitNS     int64 // that requests waited, all together
	exactGroup bool  // a request of a group that was walked whole did
}

func (r lateRun) plus(addend lateRun) lateRun {
	if r == (lateRun{}) {
		return addend
	}
	return lateRun{min(r.readySince, addend.readySince), max(r.pollGapNS, addend.pollGapNS), max(r.stack, addend.stack), r.requests + addend.requests, r.waitNS + addend.waitNS, r.exactGroup || addend.exactGroup}
}

// maxLateRuns bounds the runs kept of one generation, minLateNS is from when on a run counts as late.
const (
	maxLateRuns = 2048
	minLateNS   = 100e3
)

func (l *lateRuns) isSampled(k lateRunKey) bool {
	h := (uint64(k.start) ^ k.g<<40) * 0x9e3779b97f4a7c15
	return (h^h>>32)>>16&l.sampleMask == 0
}

func (l *lateRuns) thinOut() {
	for len(l.runs) > maxLateRuns {
		l.sampleMask = l.sampleMask<<1 | 1
		maps.DeleteFunc(l.runs, func(k lateRunKey, _ lateRun) bool { return !l.isSampled(k) })
	}
}

// addLateRuns takes note of other goroutines' late runs on a request's path.
func (p *workerSum) addLateRuns(w *path.WalkResult) {
	steps := w.Steps
	outsideSlice := w.Sparse && w.Req.End >= p.sliceEnd
	for i := range steps {
		step := &steps[i]
		if step.Kind != critpath.Runnable || step.G == w.Req.G {
			continue
		}
		ready, pollGapNS := step.Start, int64(0)
		if i > 0 {
			if previous := &steps[i-1]; previous.Kind == critpath.PollGap && previous.G == step.G {
				ready, pollGapNS = previous.Start, previous.End-previous.Start
			}
		}
		if step.End-ready < minLateNS {
			continue
		}
		if outsideSlice {
			p.lateRuns.maxNSByG[step.G] = max(p.lateRuns.maxNSByG[step.G], step.End-ready)
			continue
		}
		if k := (lateRunKey{step.G, step.End}); p.lateRuns.isSampled(k) {
			n := w.CountedRequests()
			p.lateRuns.runs[k] = p.lateRuns.runs[k].plus(lateRun{readySince: ready, pollGapNS: pollGapNS, stack: step.Stack, requests: n, waitNS: n * (step.End - ready), exactGroup: !w.Sparse})
			p.lateRuns.thinOut()
		}
	}
}

// A hub is a goroutine with late runs, added up.
type hubSum struct {
	lateRuns, delayedRequests        int64
	lateNS, pollGapNS, maxNS, waitNS int64
	waitNSByStack                    map[tracefmt.StackID]int64
	ranNSBySite                      map[tracefmt.FrameID]int64
	startStack                       tracefmt.StackID
}

// Bounds: of hubs kept, of late runs a generation for which what ran meanwhile is looked up, of sites a hub has.
const (
	maxHubs       = 512
	maxRanLookups = 24
	maxHubSites   = 8
)

// mergeLateRuns adds up what all workers noted of a generation whose requests have
// all been added.
func (s *Sum) mergeLateRuns() {
	all := &s.workers[0].lateRuns
	for _, p := range s.workers[1:] {
		all.sampleMask = max(all.sampleMask, p.lateRuns.sampleMask)
		addSums(all.runs, p.lateRuns.runs, lateRun.plus)
		addSums(all.maxNSByG, p.lateRuns.maxNSByG, func(a, b int64) int64 { return max(a, b) })
		p.lateRuns.reset()
	}
	maps.DeleteFunc(all.runs, func(k lateRunKey, _ lateRun) bool { return !all.isSampled(k) })
	all.thinOut()
	s.addHubs(all)
	all.reset()
}

func (l *lateRuns) reset() {
	clear(l.runs)
	clear(l.maxNSByG)
	l.sampleMask = 0
}

func (s *Sum) addHubs(all *lateRuns) {
	type keyedRun struct {
		lateRunKey
		lateRun
	}
	runs := make([]keyedRun, 0, len(all.runs))
	for k, run := range all.runs {
		runs = append(runs, keyedRun{k, run})
	}
	// Those that held up most are looked at most closely.
	slices.SortFunc(runs, func(a, b keyedRun) int {
		return cmp.Or(cmp.Compare(b.waitNS, a.waitNS), cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g))
	})
	lookups := 0
	for _, l := range runs {
		k, run := l.lateRunKey, l.lateRun
		sum := s.hubs[k.g]
		if sum == nil {
			sum = &hubSum{waitNSByStack: make(map[tracefmt.StackID]int64), ranNSBySite: make(map[tracefmt.FrameID]int64)}
			s.hubs[k.g] = sum
		}
		lateNS, weight := k.start-run.readySince, int64(all.sampleMask+1)
		if !run.exactGroup {
			weight *= all.sliceWeight
		}
		sum.lateRuns += weight
		sum.delayedRequests += weight * run.requests
		sum.lateNS += weight * lateNS
		sum.pollGapNS += weight * run.pollGapNS
		sum.maxNS = max(sum.maxNS, lateNS)
		sum.waitNS += weight * run.waitNS
		if _, listed := sum.waitNSByStack[run.stack]; listed || len(sum.waitNSByStack) < maxHubSites {
			sum.waitNSByStack[run.stack] += weight * run.waitNS
		}
		sum.startStack = max(sum.startStack, run.stack)
		if run.requests > 1 && lookups < maxRanLookups {
			lookups++
			s.workers[0].stage.EachConcurrentRun(run.readySince+run.pollGapNS, k.start, k.g, func(site tracefmt.FrameID, ns int64) { sum.ranNSBySite[site] += ns })
		}
	}
	for g, ns := range all.maxNSByG {
		if h := s.hubs[g]; h != nil {
			h.maxNS = max(h.maxNS, ns)
		}
	}
	if len(s.hubs) > maxHubs {
		for _, id := range s.hubsByWeight()[maxHubs/2:] {
			delete(s.hubs, id)
		}
	}
}

// hubsByWeight returns the goroutines, those that held up most first.
func (s *Sum) hubsByWeight() []uint64 {
	return slices.SortedFunc(maps.Keys(s.hubs), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(s.hubs[b].waitNS, s.hubs[a].waitNS), cmp.Compare(a, b))
	})
}

// maxShownHubs is how many hubs are listed.
const maxShownHubs = 20

// A Hub is a goroutine that others' requests wait for and that is late to run.
type Hub struct {
	G     uint64
	Start string
	Sites []*report.Site // where it waited before it was late, the most time first
	// LateRuns counts late runs, DelayedRequests pairs of a request and a late run that it waited for, so that DelayedRequests/Late is how many
	// requests one late run holds up. They are of a sample of late runs if there are very many.
	LateRuns, DelayedRequests int64
	// LateNS is the sum, over Late, of the time from when it could have run until it did; PollGapNS the part of it in
	// which its message may already have lain unread because nobody polled the network (an upper bound). MaxNS is the
	// longest single one, both parts together.
	LateNS, PollGapNS, MaxNS int64
	// DelayNS is what requests waited for late runs, over all requests.
	DelayNS int64
	// RanInstead lists what ran on the Ps meanwhile.
	RanInstead []report.Share
}

// Hubs returns the goroutines whose late runs held up the most time of others' requests.
func (s *Sum) Hubs(sp *spell.Speller) []Hub {
	var out []Hub
	byWeight := s.hubsByWeight()
	for _, id := range byWeight[:min(len(byWeight), maxShownHubs)] {
		sum := s.hubs[id]
		hub := Hub{
			G: id, Start: sp.StartOf(sum.startStack), LateRuns: sum.lateRuns, DelayedRequests: sum.delayedRequests, LateNS: sum.lateNS, PollGapNS: sum.pollGapNS, MaxNS: sum.maxNS, DelayNS: sum.waitNS,
			RanInstead: sp.Shares(sum.ranNSBySite),
		}
		bySite := make(map[tracefmt.FrameID]int64)
		for stack, ns := range sum.waitNSByStack {
			bySite[sp.Sites.SiteOf(stack)] += ns
		}
		for _, f := range slices.SortedFunc(maps.Keys(bySite), func(a, b tracefmt.FrameID) int {
			return cmp.Or(cmp.Compare(bySite[b], bySite[a]), sp.CompareFrames(a, b))
		}) {
			if site := sp.Site(f); site != nil {
				hub.Sites = append(hub.Sites, site)
			}
		}
		out = append(out, hub)
	}
	return out
}
