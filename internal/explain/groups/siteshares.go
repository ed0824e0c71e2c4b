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

// minSamples is how many samples a kind of runs must have for its shares to be
// known: with eight of them the largest share is wrong by less than a third of the
// whole, nineteen times of twenty.
const minSamples = 8

// siteShares says, of the causes of one group that are running time without a stack of
// its own, how that time divides by what was seen in such runs. It is the same for
// all bands of the group, so that no band has more of anything than one around it.
type siteShares map[path.CauseID][]siteShare

// A part is a site's share of a cause.
type siteShare struct {
	site  rowSite
	share float64
}

// divide calls f with the parts of what was spent on a cause; they add up to it.
func (s siteShares) divide(id path.CauseID, rest rowSite, total cell, f func(rowSite, cell)) {
	remaining := total
	parts := s[id]
	for i := range parts {
		share := cell{ns: int64(parts[i].share * float64(total.ns)), requests: int64(parts[i].share * float64(total.requests))}
		remaining.ns, remaining.requests = remaining.ns-share.ns, remaining.requests-share.requests
		if i == len(parts)-1 && remaining.ns < int64(len(parts)) {
			// Nothing is left but what was rounded off.
			share.ns, share.requests, remaining = share.ns+remaining.ns, share.requests+remaining.requests, cell{}
		}
		if share.ns > 0 {
			f(parts[i].site, share)
		}
	}
	if remaining.ns > 0 {
		f(rest, remaining)
	}
}

// A pool is the samples of several kinds of runs, and the time of such runs that
// no sample fell into.
type samplePool struct {
	samples     map[tracefmt.FrameID]int64
	count       int64
	unsampledNS int64
}

func (p *samplePool) add(site tracefmt.FrameID, n int64) {
	if p.samples == nil {
		p.samples = make(map[tracefmt.FrameID]int64)
	}
	p.samples[site] += n
	p.count += n
}

// isSufficient reports whether there are samples enough: few of much time mean that the
// profile was of another time, or that the threads had no CPU.
// Where all are in one function, five are enough: they come by chance once in twenty times, at most, if it has less than 55 % of the time.
func (p *samplePool) isSufficient(syms *tracefmt.Symbols) bool {
	return (p.count >= minSamples || p.count >= scale.Few && p.isOneFunction(syms)) && float64(p.count)*report.SampleNS >= scale.Some*float64(p.unsampledNS)
}

// isOneFunction reports whether all samples are in one function.
func (p *samplePool) isOneFunction(syms *tracefmt.Symbols) bool {
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

// siteSharesOf returns what runs of a group that show no stack are taken to be. Where
// there are samples, each kind of run is as its own samples say; one with too few of
// them is as all runs of the group at that function, or, where these are too few as
// well, as all such kinds of the group together. What no sample speaks for is as what
// longer runs showed below the function; else it stays where the events are. Both are
// inferred.
func (w rowWriter) siteSharesOf(g *group) siteShares {
	id := w.stage.IDs.GroupID(g.key)
	unassignedNS, causesByKind := map[runKind]int64{}, map[runKind][]path.CauseID{}
	counted := map[path.CauseID]bool{}
	g.causeCells.forEach(func(_, c int32, sum *cell) {
		k := w.stage.IDs.Cause(path.CauseID(c)).WithSettledCause(w.sp.Settlement)
		if k.Code.Cause() != cause.CPU || k.SiteSource != cause.SiteFromBracket {
			return
		}
		kind := runKind{id, w.sp.Syms.Frame(k.Site).Func, k.RunLength}
		unassignedNS[kind] += sum.ns
		if !counted[path.CauseID(c)] {
			counted[path.CauseID(c)] = true
			causesByKind[kind] = append(causesByKind[kind], path.CauseID(c))
		}
	})
	out := siteShares{}
	assign := func(kind runKind, parts []siteShare) {
		for _, c := range causesByKind[kind] {
			out[c] = parts
		}
		delete(unassignedNS, kind)
	}
	// by settles kinds by the samples of those with the same key; weighed says that these must not be too few for the time of
	// such runs.
	assignBySamples := func(key func(runKind) runKind, sampled []sampleKey, limited bool) {
		pools := map[runKind]*samplePool{}
		for kind, ns := range unassignedNS {
			p := entry.In(pools, key(kind))
			if limited {
				p.unsampledNS += ns
			}
		}
		for _, k := range sampled {
			if p := pools[key(k.runKind)]; p != nil {
				p.add(k.site, w.runSamples.samplesByKind[k])
			}
		}
		for kind := range unassignedNS {
			if p := pools[key(kind)]; kind.length != 0 && p.isSufficient(w.sp.Syms) {
				assign(kind, w.sortedShares(p.samples, p.count, cause.SiteFromSample))
			}
		}
	}
	byFunc := func(k runKind) runKind { return runKind{fn: k.fn} }
	ownSamples := w.samplesByGroup[id]
	assignBySamples(func(k runKind) runKind { return k }, ownSamples, true)
	assignBySamples(byFunc, ownSamples, true) // runs of another length at the same function are the nearest
	leftSamples := slices.DeleteFunc(slices.Clone(ownSamples), func(k sampleKey) bool { return unassignedNS[k.runKind] == 0 })
	assignBySamples(func(runKind) runKind { return runKind{} }, leftSamples, true)
	if len(unassignedNS) > 0 && (g.key.Name == 0 || g.hasJoined) {
		// A sample names its request, so what shows no handler has none; and of a long request's parts the group is known late:
		// samples of all groups speak, in runs at the same function of like length, then of any.
		all := slices.Collect(maps.Keys(w.runSamples.samplesByKind))
		assignBySamples(func(k runKind) runKind { return runKind{fn: k.fn, length: k.length} }, all, false)
		assignBySamples(byFunc, all, false)
	}
	nsByFunc := map[tracefmt.StringID]int64{}
	for kind, ns := range unassignedNS {
		nsByFunc[kind.fn] += ns
	}
	for kind := range unassignedNS {
		if sums, total := w.runSamples.shares(kind.fn, nsByFunc[kind.fn]); total > 0 {
			// Its own function's part stays at the event: that is no better known.
			for f := range sums {
				if w.sp.Syms.Frame(f).Func == kind.fn {
					delete(sums, f)
				}
			}
			assign(kind, w.sortedShares(sums, total, cause.SiteFromBracket))
		}
	}
	return out
}

// sortedShares are the shares of sites, in an order that does not change.
func (w rowWriter) sortedShares(sums map[tracefmt.FrameID]int64, total int64, from cause.SiteSource) []siteShare {
	out := make([]siteShare, 0, len(sums))
	for f, n := range sums {
		out = append(out, siteShare{rowSite{site: f, source: from}, float64(n) / float64(total)})
	}
	slices.SortFunc(out, func(a, b siteShare) int { return w.sp.CompareFrames(a.site.site, b.site.site) })
	return out
}
