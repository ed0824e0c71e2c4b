package groups

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// runSamples adds up what was seen running. Short runs have no stack of their own: all
// that a trace shows is the event that ended them, say a write in a function F,
// and the time may have gone into anything before it. CPU samples in runs of the
// same kind say into what; without them, what longer runs, ended by a preemption,
// showed below F.
type runSamples struct {
	stage         *path.Stage
	nsBySite      map[funcSite]int64
	funcsByStack  map[tracefmt.StackID][]tracefmt.StringID // functions on a stack that a site can be in
	samplesByKind map[sampleKey]int64                      // CPU samples
}

// An funcSite is a function and a site that was seen running under it.
type funcSite struct {
	fn   tracefmt.StringID
	site tracefmt.FrameID
}

// A runKind is runs of one group's requests that the same function's events end,
// and that are of like length.
type runKind struct {
	group  path.GroupID // anyGroup for parts of long requests: theirs is not known yet
	fn     tracefmt.StringID
	length cause.RunLength
}

// A sampleKey is a site that CPU samples saw in a kind of runs.
type sampleKey struct {
	runKind
	site tracefmt.FrameID
}

const anyGroup path.GroupID = -1

func newRunSamples(s *path.Stage) runSamples {
	return runSamples{stage: s, nsBySite: make(map[funcSite]int64), funcsByStack: make(map[tracefmt.StackID][]tracefmt.StringID), samplesByKind: make(map[sampleKey]int64)}
}

// add adds a request's running time that shows a stack.
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

// forEachSampled calls f for the segments of running time that CPU samples fell into,
// with how many.
func (u *runSamples) forEachSampled(w *path.WalkResult, f func(i int, n int64)) {
	for i := range w.Segments {
		if s := &w.Segments[i]; s.SiteSource == cause.SiteFromSample && s.Code.Cause() == cause.CPU {
			if n := len(u.stage.Win.Gens[u.stage.Win.At(s.Start)].SamplesIn(s.G, s.Start, s.End)); n > 0 {
				f(i, int64(n))
			}
		}
	}
}

// byGroup returns what CPU samples saw, by group.
func (u *runSamples) byGroup() map[path.GroupID][]sampleKey {
	out := make(map[path.GroupID][]sampleKey)
	for k := range u.samplesByKind {
		out[k.group] = append(out[k.group], k)
	}
	return out
}

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

// shares returns how the time seen under a function divides by function and,
// within it, site. It is nil if too little was seen for ns of time unseen.
func (u *runSamples) shares(fn tracefmt.StringID, ns int64) (sums map[tracefmt.FrameID]int64, total int64) {
	sums = map[tracefmt.FrameID]int64{}
	for k, v := range u.nsBySite {
		if k.fn == fn {
			sums[k.site] += v
			total += v
		}
	}
	if total == 0 || float64(total) < scale.Some*float64(ns) {
		return nil, 0
	}
	return sums, total
}

// SitesBelow returns, by site, the time that was seen running in runs that show no more
// than a function, and all of it; nil if there was none. Merge must have been
// called.
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
	return samples.shares(fn, 0)
}
