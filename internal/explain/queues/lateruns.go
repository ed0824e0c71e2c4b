package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// lateRuns are the runs of one generation that started late while requests of other goroutines waited for them. If there are
// too many, a random half is dropped, repeatedly. Whether a run is dropped depends on the run alone, so every request that
// waited for a retained run is counted, and the sample does not depend on the workers.
//
// For a group of which only some requests are walked, only requests of the slice are counted, each with the weight sliceWeight.
type lateRuns struct {
	runs        map[lateRunKey]lateRun
	sampleMask  uint64           // one of sampleMask+1 runs is retained
	sliceWeight int64            // requests of the generation per request of the slice; only set in the first worker's lateRuns
	maxNSByG    map[uint64]int64 // the largest lateness of each goroutine outside of the slice
}

// A lateRunKey identifies a late run by its goroutine and its start.
type lateRunKey struct {
	g     uint64
	start int64
}

// A lateRun describes one late run and the requests that waited for it.
type lateRun struct {
	readySince       int64 // since when the goroutine was runnable; with a poll gap, since when its message may have been unread
	pollGapNS        int64 // see critpath.PollGap
	stack            tracefmt.StackID
	requests         int64
	waitNS           int64 // sum over requests
	hasCompleteGroup bool  // one of the requests is of a group of which all requests are walked
}

// plus combines what two workers recorded about the same late run: the requests and waiting times are added.
func (r lateRun) plus(addend lateRun) lateRun {
	if r == (lateRun{}) {
		return addend
	}
	return lateRun{
		readySince: min(r.readySince, addend.readySince), pollGapNS: max(r.pollGapNS, addend.pollGapNS), stack: max(r.stack, addend.stack),
		requests: r.requests + addend.requests, waitNS: r.waitNS + addend.waitNS, hasCompleteGroup: r.hasCompleteGroup || addend.hasCompleteGroup,
	}
}

// maxLateRuns bounds the runs that are retained of one generation. A run counts as late from a delay of minLateNS on.
const (
	maxLateRuns = 2048
	minLateNS   = 100e3
)

// isSampled reports whether a run belongs to the sample.
func (l *lateRuns) isSampled(k lateRunKey) bool {
	return sample.Hash(uint64(k.start)^k.g<<40)>>16&l.sampleMask == 0
}

// thinOut halves the sample until it is within its bound.
func (l *lateRuns) thinOut() {
	for len(l.runs) > maxLateRuns {
		l.sampleMask = l.sampleMask<<1 | 1
		maps.DeleteFunc(l.runs, func(k lateRunKey, _ lateRun) bool { return !l.isSampled(k) })
	}
}

// addLateRuns records where a request waited because another goroutine on its path was runnable for at least minLateNS before
// it ran, including a poll gap before that.
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
		if key := (lateRunKey{step.G, step.End}); p.lateRuns.isSampled(key) {
			n := w.CountedRequests()
			p.lateRuns.runs[key] = p.lateRuns.runs[key].plus(lateRun{
				readySince: ready, pollGapNS: pollGapNS, stack: step.Stack, requests: n, waitNS: n * (step.End - ready),
				hasCompleteGroup: !w.Sparse,
			})
			p.lateRuns.thinOut()
		}
	}
}

// A hubSum adds up the late runs of one goroutine, a hub: many requests wait for it. Times are in ns.
type hubSum struct {
	lateRuns, delayedRequests        int64
	lateNS, pollGapNS, maxNS, waitNS int64
	waitNSByStack                    map[tracefmt.StackID]int64
	ranNSBySite                      map[tracefmt.FrameID]int64
	startStack                       tracefmt.StackID
}

// Bounds: the number of hubs; the late runs of a generation for which the goroutines that ran instead are looked up; the
// stacks of one hub.
const (
	maxHubs       = 512
	maxRanLookups = 24
	maxHubSites   = 8
)

// mergeLateRuns combines the late runs that all workers recorded in a generation, and adds them to the hubs' sums.
func (s *Sum) mergeLateRuns() {
	all := &s.workers[0].lateRuns
	for _, p := range s.workers[1:] {
		all.sampleMask = max(all.sampleMask, p.lateRuns.sampleMask)
		addSums(&all.runs, p.lateRuns.runs, lateRun.plus)
		addSums(&all.maxNSByG, p.lateRuns.maxNSByG, func(a, b int64) int64 { return max(a, b) })
		p.lateRuns.reset()
	}
	maps.DeleteFunc(all.runs, func(k lateRunKey, _ lateRun) bool { return !all.isSampled(k) })
	all.thinOut()
	s.addToHubs(all)
	all.reset()
}

// reset removes all runs.
func (l *lateRuns) reset() {
	clear(l.runs)
	clear(l.maxNSByG)
	l.sampleMask = 0
}

// addToHubs adds the late runs of a generation to the sums of their goroutines (s.hubs), scaled up if they are a sample. For
// those that delayed requests most it also looks up what ran instead.
func (s *Sum) addToHubs(all *lateRuns) {
	type keyedRun struct {
		lateRunKey
		lateRun
	}
	runs := make([]keyedRun, 0, len(all.runs))
	for key, run := range all.runs {
		runs = append(runs, keyedRun{key, run})
	}
	// Lookups are limited: begin with the runs that delayed requests most.
	slices.SortFunc(runs, func(a, b keyedRun) int {
		return cmp.Or(cmp.Compare(b.waitNS, a.waitNS), cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g))
	})
	lookups := 0
	for _, l := range runs {
		key, run := l.lateRunKey, l.lateRun
		sum := entry.GetOrMake(s.hubs, key.g, func() *hubSum {
			return &hubSum{waitNSByStack: make(map[tracefmt.StackID]int64), ranNSBySite: make(map[tracefmt.FrameID]int64)}
		})
		lateNS, weight := key.start-run.readySince, int64(all.sampleMask+1)
		if !run.hasCompleteGroup {
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
			s.workers[0].stage.EachConcurrentRun(run.readySince+run.pollGapNS, key.start, key.g, func(site tracefmt.FrameID, ns int64) {
				sum.ranNSBySite[site] += ns
			})
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

// hubsByWeight returns the goroutines, those that delayed requests most first.
func (s *Sum) hubsByWeight() []uint64 {
	return slices.SortedFunc(maps.Keys(s.hubs), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(s.hubs[b].waitNS, s.hubs[a].waitNS), cmp.Compare(a, b))
	})
}

// maxShownHubs bounds the result of Hubs.
const maxShownHubs = 20

// A Hub is a goroutine that requests of other goroutines wait for and that starts to run late. Its counts are estimates if
// only a sample of its late runs was retained.
type Hub struct {
	G     uint64
	Start string         // function that the goroutine started with
	Sites []*report.Site // where it had waited before it ran late, by the delay of requests, longest first
	// LateRuns counts late runs. DelayedRequests counts pairs of a late run and a request that waited for it:
	// DelayedRequests/LateRuns is the number of requests that one late run delays.
	LateRuns, DelayedRequests int64
	// LateNS is the sum of the delays of all late runs. PollGapNS is the part of it in which a message may already have been
	// there unread, because no thread polled the network (an upper bound). MaxNS is the longest single delay with its poll
	// gap.
	LateNS, PollGapNS, MaxNS int64
	// DelayNS is the time that requests waited for late runs, summed over requests.
	DelayNS int64
	// RanInstead lists the code that ran on the Ps during the delays.
	RanInstead []report.Share
}

// Hubs returns the maxShownHubs goroutines whose late runs delayed requests most, the worst first. Merge must have been called.
func (s *Sum) Hubs(sp *spell.Speller) (out []Hub) {
	byWeight := s.hubsByWeight()
	for _, id := range byWeight[:min(len(byWeight), maxShownHubs)] {
		sum := s.hubs[id]
		hub := Hub{
			G: id, Start: sp.StartOf(sum.startStack), LateRuns: sum.lateRuns, DelayedRequests: sum.delayedRequests,
			LateNS: sum.lateNS, PollGapNS: sum.pollGapNS, MaxNS: sum.maxNS, DelayNS: sum.waitNS,
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
