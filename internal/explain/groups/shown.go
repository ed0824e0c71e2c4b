package groups

import (
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// leastSamples is how many samples a kind of runs must have for its shares to be
// known: with eight of them the largest share is wrong by less than a third of the
// whole, nineteen times of twenty.
const leastSamples = 8

// shown says, of the causes of one group that are running time without a stack of
// its own, how that time divides by what was seen in such runs. It is the same for
// all bands of the group, so that no band has more of anything than one around it.
type shown map[path.CauseID][]part

// A part is a site's share of a cause.
type part struct {
	at    siteFrom
	share float64
}

// divide calls f with the parts of what was spent on a cause; they add up to it.
func (s shown) divide(id path.CauseID, at siteFrom, c cell, f func(siteFrom, cell)) {
	left := c
	parts := s[id]
	for i := range parts {
		p := cell{ns: int64(parts[i].share * float64(c.ns)), requests: int64(parts[i].share * float64(c.requests))}
		left.ns, left.requests = left.ns-p.ns, left.requests-p.requests
		if i == len(parts)-1 && left.ns < int64(len(parts)) {
			// Nothing is left but what was rounded off.
			p.ns, p.requests, left = p.ns+left.ns, p.requests+left.requests, cell{}
		}
		if p.ns > 0 {
			f(parts[i].at, p)
		}
	}
	if left.ns > 0 {
		f(at, left)
	}
}

// A pool is the samples of several kinds of runs, and the time of such runs that
// no sample fell into.
type pool struct {
	samples map[tracefmt.FrameID]int64
	n       int64
	unseen  int64
}

func (p *pool) add(site tracefmt.FrameID, n int64) {
	if p.samples == nil {
		p.samples = make(map[tracefmt.FrameID]int64)
	}
	p.samples[site] += n
	p.n += n
}

// speaks reports whether there are samples enough: few of much time mean that the
// profile was of another time, or that the threads had no CPU.
// Where all are in one function, five are enough: they come by chance once in twenty times, at most, if it has less than 55 % of the time.
func (p *pool) speaks(syms *tracefmt.Symbols) bool {
	return (p.n >= leastSamples || p.n >= scale.Few && p.agree(syms)) && float64(p.n)*report.SampleNS >= scale.Some*float64(p.unseen)
}

// agree reports whether all samples are in one function.
func (p *pool) agree(syms *tracefmt.Symbols) bool {
	first := tracefmt.StringID(0)
	for f := range p.samples {
		fn := syms.Frame(f).Func
		if first == 0 {
			first = fn
		}
		if fn != first || fn == 0 {
			return false
		}
	}
	return first != 0
}

// shownIn returns what runs of a group that show no stack are taken to be. Where
// there are samples, each kind of run is as its own samples say; one with too few of
// them is as all runs of the group at that function, or, where these are too few as
// well, as all such kinds of the group together. What no sample speaks for is as what
// longer runs showed below the function; else it stays where the events are. Both are
// inferred.
func (w writer) shownIn(g *group) shown {
	id := w.stage.IDs.GroupID(g.key)
	unseen, of := map[runKind]int64{}, map[runKind][]path.CauseID{}
	known := map[path.CauseID]bool{}
	g.cells.each(func(_, c int32, sum *cell) {
		k := w.stage.IDs.Cause(path.CauseID(c)).WithSettledCause(w.sp.Settled)
		if k.Code.Cause() != cause.CPU || k.SiteSource != cause.SiteFromBracket {
			return
		}
		kind := runKind{id, w.sp.Syms.Frame(k.Site).Func, k.RunLength}
		unseen[kind] += sum.ns
		if !known[path.CauseID(c)] {
			known[path.CauseID(c)] = true
			of[kind] = append(of[kind], path.CauseID(c))
		}
	})
	out := shown{}
	settle := func(kind runKind, parts []part) {
		for _, c := range of[kind] {
			out[c] = parts
		}
		delete(unseen, kind)
	}
	// by settles kinds by the samples of those with the same key; weighed says that these must not be too few for the time of
	// such runs.
	by := func(key func(runKind) runKind, sampled []sampleKey, weighed bool) {
		pools := map[runKind]*pool{}
		for kind, ns := range unseen {
			p := entry.In(pools, key(kind))
			if weighed {
				p.unseen += ns
			}
		}
		for _, k := range sampled {
			if p := pools[key(k.runKind)]; p != nil {
				p.add(k.site, w.under.kinds[k])
			}
		}
		for kind := range unseen {
			if p := pools[key(kind)]; kind.run != 0 && p.speaks(w.sp.Syms) {
				settle(kind, w.parts(p.samples, p.n, cause.SiteFromSample))
			}
		}
	}
	atFunc := func(k runKind) runKind { return runKind{fn: k.fn} }
	own := w.kinds[id]
	by(func(k runKind) runKind { return k }, own, true)
	by(atFunc, own, true) // runs of another length at the same function are the nearest
	left := slices.DeleteFunc(slices.Clone(own), func(k sampleKey) bool { return unseen[k.runKind] == 0 })
	by(func(runKind) runKind { return runKind{} }, left, true)
	if len(unseen) > 0 && (g.key.Name == 0 || g.parted) {
		// A sample names its request, so what shows no handler has none; and of a long request's parts the group is known late:
		// samples of all groups speak, in runs at the same function of like length, then of any.
		all := slices.Collect(maps.Keys(w.under.kinds))
		by(func(k runKind) runKind { return runKind{fn: k.fn, run: k.run} }, all, false)
		by(atFunc, all, false)
	}
	byFn := map[tracefmt.StringID]int64{}
	for kind, ns := range unseen {
		byFn[kind.fn] += ns
	}
	for kind := range unseen {
		if sums, total := w.under.shares(kind.fn, byFn[kind.fn]); total > 0 {
			// Its own function's part stays at the event: that is no better known.
			for f := range sums {
				if w.sp.Syms.Frame(f).Func == kind.fn {
					delete(sums, f)
				}
			}
			settle(kind, w.parts(sums, total, cause.SiteFromBracket))
		}
	}
	return out
}

// parts are the shares of sites, in an order that does not change.
func (w writer) parts(sums map[tracefmt.FrameID]int64, total int64, from cause.SiteSource) []part {
	out := make([]part, 0, len(sums))
	for f, n := range sums {
		out = append(out, part{siteFrom{site: f, from: from}, float64(n) / float64(total)})
	}
	slices.SortFunc(out, func(a, b part) int { return w.sp.CompareFrames(a.at.site, b.at.site) })
	return out
}
