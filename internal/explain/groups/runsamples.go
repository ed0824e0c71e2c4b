package groups

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// runSamples records which sites ran below which functions. A short run has no stack: the trace shows only the event that ended
// it, such as a write in function F, and any code before it may have used the time. CPU samples in runs of the same kind show
// which code; without samples, longer runs that a preemption ended show it.
type runSamples struct {
	stage         *path.Stage
	nsBySite      map[funcSite]int64
	funcsByStack  map[tracefmt.StackID][]tracefmt.StringID // functions on a stack that may contain a site
	samplesByKind map[sampleKey]int64                      // number of CPU samples
}

// A funcSite is a function and a site that ran below it.
type funcSite struct {
	fn   tracefmt.StringID
	site tracefmt.FrameID
}

// A runKind identifies runs of one group's requests that are similar in length and that events of the same function end.
type runKind struct {
	group  path.GroupID // anyGroup for pieces of long requests, whose group is not known yet
	fn     tracefmt.StringID
	length cause.RunLength
}

// A sampleKey is a site that CPU samples hit in one kind of runs.
type sampleKey struct {
	runKind
	site tracefmt.FrameID
}

// anyGroup is the group of runs whose group is not known.
const anyGroup path.GroupID = -1

// newRunSamples returns empty runSamples for one worker, whose requests stage s walks.
func newRunSamples(s *path.Stage) runSamples {
	return runSamples{
		stage: s, nsBySite: make(map[funcSite]int64), funcsByStack: make(map[tracefmt.StackID][]tracefmt.StringID),
		samplesByKind: make(map[sampleKey]int64),
	}
}

// add records the running time of a request at sites with a stack, for each function on the stack, and the CPU samples that hit
// its runs.
func (u *runSamples) add(w *path.WalkResult) {
	for i := range w.Segments {
		s := &w.Segments[i]
		if s.Stack == 0 {
			continue
		}
		for _, fn := range u.functionsOn(s.Stack) {
			u.nsBySite[funcSite{fn, s.Site}] += (s.End - s.Start) * w.Weight
		}
	}
	group := anyGroup
	if w.Form == path.Whole {
		group = w.Group
	}
	u.forEachSampled(w, func(i int, n int64) {
		s := &w.Segments[i]
		u.samplesByKind[sampleKey{runKind{group, u.stage.Syms.Frame(s.BracketSite).Func, s.RunLength}, s.Site}] += n * w.Weight
	})
}

// forEachSampled calls f for each running segment of a request that CPU samples hit, with the segment's index and the number of
// samples.
func (u *runSamples) forEachSampled(w *path.WalkResult, f func(i int, n int64)) {
	for i := range w.Segments {
		if s := &w.Segments[i]; s.SiteSource == cause.SiteFromSample && s.Code.Cause() == cause.CPU {
			if n := len(u.stage.Win.Gens[u.stage.Win.GenIndex(s.Start)].SamplesIn(s.G, s.Start, s.End)); n > 0 {
				f(i, int64(n))
			}
		}
	}
}

// byGroup returns the keys of the CPU samples by group.
func (u *runSamples) byGroup() map[path.GroupID][]sampleKey {
	out := make(map[path.GroupID][]sampleKey)
	for k := range u.samplesByKind {
		out[k.group] = append(out[k.group], k)
	}
	return out
}

// functionsOn returns the functions on a stack outside of the standard library, innermost first, without repetitions. The list
// is cached: it must not be changed.
func (u *runSamples) functionsOn(stack tracefmt.StackID) []tracefmt.StringID {
	fns, ok := u.funcsByStack[stack]
	if !ok {
		for _, f := range u.stage.Syms.Stack(stack) {
			if fn := u.stage.Syms.Frame(f).Func; !u.stage.Sites.IsStdlib(fn) && !slices.Contains(fns, fn) {
				fns = append(fns, fn)
			}
		}
		u.funcsByStack[stack] = fns
	}
	return fns
}

// merge adds the samples of another worker; tr translates that worker's ids.
func (u *runSamples) merge(other *runSamples, tr *path.Translation) {
	for k, ns := range other.nsBySite {
		u.nsBySite[k] += ns
	}
	for k, n := range other.samplesByKind {
		if k.group != anyGroup {
			k.group = tr.Groups[k.group]
		}
		u.samplesByKind[k] += n
	}
}

// sitesBelow returns the time in ns of each site that ran below a function, and the total. It returns nil if the total is small
// compared with ns, the time without a stack that is to be divided.
func (u *runSamples) sitesBelow(fn tracefmt.StringID, ns int64) (sums map[tracefmt.FrameID]int64, total int64) {
	sums = map[tracefmt.FrameID]int64{}
	for k, v := range u.nsBySite {
		if k.fn == fn {
			sums[k.site] += v
			total += v
		}
	}
	if total == 0 || float64(total) < threshold.NoticeableShare*float64(ns) {
		return nil, 0
	}
	return sums, total
}

// SitesBelow returns, for runs whose only stack is that of function fn's event, which sites below fn ran, in ns, and the total:
// by CPU samples, or else by longer runs; nil if there are neither. Merge must have been called.
func (s *Sum) SitesBelow(fn tracefmt.StringID) (sums map[tracefmt.FrameID]int64, total int64) {
	samples := &s.tables[0].runSamples
	var pool samplePool
	for k, n := range samples.samplesByKind {
		if k.fn == fn {
			pool.add(k.site, n)
		}
	}
	if pool.isSufficient(samples.stage.Syms) {
		for f := range pool.samples {
			pool.samples[f] *= report.SampleNS
		}
		return pool.samples, pool.count * report.SampleNS
	}
	return samples.sitesBelow(fn, 0)
}
