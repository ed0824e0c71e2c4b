package groups

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// minSamples is how many samples a kind of runs needs for its shares to be known: with eight, the largest share is wrong by
// less than a third of the whole in 19 of 20 cases.
const minSamples = 8

// siteShares divides running time without a stack among the sites that ran in similar runs, by cause id of one group. It is the
// same for all bands of the group, so that no band has more time at a site than a band that contains it.
type siteShares map[path.CauseID][]siteShare

// A siteShare is a site's share of a cause.
type siteShare struct {
	site  rowSite
	share float64
}

// divide splits the total time of a cause among its sites and calls yield for each part. The parts add up to the total. The
// rest, for which no share is known, is at site rest.
func (s siteShares) divide(id path.CauseID, rest rowSite, total cell, yield func(rowSite, cell)) {
	remaining := total
	parts := s[id]
	for i := range parts {
		share := cell{ns: int64(parts[i].share * float64(total.ns)), requests: int64(parts[i].share * float64(total.requests))}
		remaining.ns, remaining.requests = remaining.ns-share.ns, remaining.requests-share.requests
		if i == len(parts)-1 && remaining.ns < int64(len(parts)) {
			// Only a rounding error remains.
			share.ns, share.requests, remaining = share.ns+remaining.ns, share.requests+remaining.requests, cell{}
		}
		if share.ns > 0 {
			yield(parts[i].site, share)
		}
	}
	if remaining.ns > 0 {
		yield(rest, remaining)
	}
}

// A samplePool holds the CPU samples of several kinds of runs by site, and the time of runs of these kinds without a stack
// (unsampledNS).
type samplePool struct {
	samples     map[tracefmt.FrameID]int64
	count       int64
	unsampledNS int64
}

// add adds n CPU samples at a site.
func (p *samplePool) add(site tracefmt.FrameID, n int64) {
	entry.Put(&p.samples, site, p.samples[site]+n)
	p.count += n
}

// isSufficient reports whether there are enough samples. Few samples for much time mean that the profile covers another time,
// or that the threads had no CPU. If all samples are in one function, five are enough: if it had less than 55 % of the time,
// that would happen by chance at most once in twenty cases.
func (p *samplePool) isSufficient(syms *tracefmt.Symbols) bool {
	return (p.count >= minSamples || p.count >= threshold.SmallSample && p.isOneFunction(syms)) &&
		float64(p.count)*report.SampleNS >= threshold.NoticeableShare*float64(p.unsampledNS)
}

// isOneFunction reports whether all samples are in one function.
func (p *samplePool) isOneFunction(syms *tracefmt.Symbols) bool {
	first := tracefmt.StringID(0)
	for f := range p.samples {
		fn := syms.Frame(f).Func
		if first = cmp.Or(first, fn); fn != first || fn == 0 {
			return false
		}
	}
	return first != 0
}

// siteSharesOf decides among which sites a group's running time without a stack is divided. The first of these sets that has
// enough CPU samples is used: samples in the same kind of runs, in all runs of the group at the same function, in all such
// kinds of runs of the group. Without samples, longer runs below the function are used. If there are none either, the time
// stays at the sites of the events (SiteFromBracket).
func (w rowWriter) siteSharesOf(group *group) siteShares {
	unassignedNS, causesByKind := map[runKind]int64{}, map[runKind][]path.CauseID{}
	counted := map[path.CauseID]bool{}
	group.causeCells.forEach(func(_, c int32, sum *cell) {
		k := w.stage.IDs.Cause(path.CauseID(c)).WithSettledCause(w.sp.Settlement)
		if k.Code.Cause() != cause.CPU || k.SiteSource != cause.SiteFromBracket {
			return
		}
		kind := runKind{group.id, w.sp.Syms.Frame(k.Site).Func, k.RunLength}
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
	// assignBySamples assigns kinds of runs by the samples with the same key; limited: these must not be too few for the time
	// of such runs.
	assignBySamples := func(key func(runKind) runKind, sampled []sampleKey, limited bool) {
		pools := map[runKind]*samplePool{}
		for kind, ns := range unassignedNS {
			p := entry.GetOrAdd(pools, key(kind))
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
	ownSamples := w.samplesByGroup[group.id]
	assignBySamples(func(k runKind) runKind { return k }, ownSamples, true)
	assignBySamples(byFunc, ownSamples, true) // runs of another length at the same function are the most similar
	leftSamples := slices.DeleteFunc(slices.Clone(ownSamples), func(k sampleKey) bool { return unassignedNS[k.runKind] == 0 })
	assignBySamples(func(runKind) runKind { return runKind{} }, leftSamples, true)
	if len(unassignedNS) > 0 && (group.key.Name == 0 || group.hasJoined) {
		// A sample names the handler of its request, so requests without a handler have no samples; and pieces of a long
		// request have no group when they are added. For both, samples of all groups decide: in runs at the same function of
		// similar length, then of any length.
		all := slices.Collect(maps.Keys(w.runSamples.samplesByKind))
		assignBySamples(func(k runKind) runKind { return runKind{fn: k.fn, length: k.length} }, all, false)
		assignBySamples(byFunc, all, false)
	}
	nsByFunc := map[tracefmt.StringID]int64{}
	for kind, ns := range unassignedNS {
		nsByFunc[kind.fn] += ns
	}
	for kind := range unassignedNS {
		if sums, total := w.runSamples.sitesBelow(kind.fn, nsByFunc[kind.fn]); total > 0 {
			// The share of the function itself remains at the event, which is no less exact.
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

// sortedShares converts the sums of sites to shares of total, sorted by frame.
func (w rowWriter) sortedShares(sums map[tracefmt.FrameID]int64, total int64, from cause.SiteSource) []siteShare {
	out := make([]siteShare, 0, len(sums))
	for f, n := range sums {
		out = append(out, siteShare{rowSite{site: f, source: from}, float64(n) / float64(total)})
	}
	slices.SortFunc(out, func(a, b siteShare) int { return w.sp.CompareFrames(a.site.site, b.site.site) })
	return out
}
