package groups

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// under adds up what was seen running. Short runs have no stack of their own: all
// that a trace shows is the event that ended them, say a write in a function F,
// and the time may have gone into anything before it. CPU samples in runs of the
// same kind say into what; without them, what longer runs, ended by a preemption,
// showed below F.
type under struct {
	stage  *path.Stage
	ns     map[underKey]int64
	owners map[tracefmt.StackID][]tracefmt.StringID // functions on a stack that a site can be in
	kinds  map[sampleKey]int64                      // CPU samples
}

// An underKey is a function and a site that was seen running under it.
type underKey struct {
	fn   tracefmt.StringID
	site tracefmt.FrameID
}

// A runKind is runs of one group's requests that the same function's events end,
// and that are of like length.
type runKind struct {
	group path.GroupID // anyGroup for parts of long requests: theirs is not known yet
	fn    tracefmt.StringID
	run   cause.RunLength
}

// A sampleKey is a site that CPU samples saw in a kind of runs.
type sampleKey struct {
	runKind
	site tracefmt.FrameID
}

const anyGroup path.GroupID = -1

func newUnder(s *path.Stage) under {
	return under{stage: s, ns: make(map[underKey]int64), owners: make(map[tracefmt.StackID][]tracefmt.StringID), kinds: make(map[sampleKey]int64)}
}

// add adds a request's running time that shows a stack.
func (u *under) add(w *path.WalkResult) {
	for i := range w.Segments {
		s := &w.Segments[i]
		if s.Stack == 0 {
			continue
		}
		for _, fn := range u.functions(s.Stack) {
			u.ns[underKey{fn, s.Site}] += (s.End - s.Start) * w.Weight
		}
	}
	group := anyGroup
	if w.Form == path.Whole {
		group = w.Group
	}
	u.eachSampled(w, func(i int, n int64) {
		s := &w.Segments[i]
		u.kinds[sampleKey{runKind{group, u.stage.Syms.Frame(s.BracketSite).Func, s.RunLength}, s.Site}] += n * w.Weight
	})
}

// eachSampled calls f for the segments of running time that CPU samples fell into,
// with how many.
func (u *under) eachSampled(w *path.WalkResult, f func(i int, n int64)) {
	for i := range w.Segments {
		if s := &w.Segments[i]; s.SiteSource == cause.SiteFromSample && s.Code.Cause() == cause.CPU {
			if n := len(u.stage.Win.Gens[u.stage.Win.At(s.Start)].SamplesIn(s.G, s.Start, s.End)); n > 0 {
				f(i, int64(n))
			}
		}
	}
}

// byGroup returns what CPU samples saw, by group.
func (u *under) byGroup() map[path.GroupID][]sampleKey {
	out := make(map[path.GroupID][]sampleKey)
	for k := range u.kinds {
		out[k.group] = append(out[k.group], k)
	}
	return out
}

func (u *under) functions(stack tracefmt.StackID) []tracefmt.StringID {
	fns, ok := u.owners[stack]
	if !ok {
		for _, f := range u.stage.Syms.Stack(stack) {
			if fn := u.stage.Syms.Frame(f).Func; !u.stage.Sites.IsStdlib(fn) && !slices.Contains(fns, fn) {
				fns = append(fns, fn)
			}
		}
		u.owners[stack] = fns
	}
	return fns
}

func (u *under) merge(o *under, tr *path.Translation) {
	for k, ns := range o.ns {
		u.ns[k] += ns
	}
	for k, n := range o.kinds {
		if k.group != anyGroup {
			k.group = tr.Groups[k.group]
		}
		u.kinds[k] += n
	}
}

// shares returns how the time seen under a function divides by function and,
// within it, site. It is nil if too little was seen for ns of time unseen.
func (u *under) shares(fn tracefmt.StringID, ns int64) (sums map[tracefmt.FrameID]int64, total int64) {
	sums = map[tracefmt.FrameID]int64{}
	for k, v := range u.ns {
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

// Under returns, by site, the time that was seen running in runs that show no more
// than a function, and all of it; nil if there was none. Merge must have been
// called.
func (s *Sum) Under(fn tracefmt.StringID) (sums map[tracefmt.FrameID]int64, total int64) {
	u := &s.parts[0].under
	var p pool
	for k, n := range u.kinds {
		if k.fn == fn {
			p.add(k.site, n)
		}
	}
	if p.speaks(u.stage.Syms) {
		for f := range p.samples {
			p.samples[f] *= report.SampleNS
		}
		return p.samples, p.n * report.SampleNS
	}
	return u.shares(fn, 0)
}
