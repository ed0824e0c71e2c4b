package groups

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A causeRow is a row of a band: the time of one cause at one site, over all wait chains that lead there.
type causeRow struct {
	cell
	samples   int64
	variance  float64
	nsBySite  map[rowSite]int64
	nsByChain map[chainKey]int64
	nsByCall  map[tracefmt.StringID]int64
	nsByPeer  map[tracefmt.StringID]int64 // by state of the peer, for time of which it is known
	causeIDs  []path.CauseID
}

// A chainKey identifies a wait chain and, if another service answers at its end (remote is not 0), what that service did.
type chainKey struct {
	chain  path.ChainID
	remote int32
	site   tracefmt.FrameID // if remote is set: where this service waits, and in which call
	call   tracefmt.StringID
}

// A causeRowKey decides which times become one row: equal keys are added up.
type causeRowKey struct {
	cause    cause.Cause
	inbound  bool
	kind     tracefmt.StringID
	site     tracefmt.FrameID
	function tracefmt.StringID
	// serviceSite is the line of the service's code that led to a site in other code; for running time serviceFunc is its
	// function.
	serviceSite tracefmt.FrameID
	serviceFunc tracefmt.StringID
	remoteRow   int32 // see spell.RemoteCause; 0 for time of this service
}

// A rowSite is a site, how it was determined, and the line of the service's own code that led to it.
type rowSite struct {
	site        tracefmt.FrameID
	source      cause.SiteSource
	serviceSite tracefmt.FrameID // see causeRowKey
}

// mainSite returns the row's site with the most time.
func (r *causeRow) mainSite(sp *spell.Speller) (best rowSite) {
	maxNS := int64(-1)
	for s, ns := range r.nsBySite {
		if ns > maxNS || ns == maxNS && cmp.Or(sp.CompareFrames(s.site, best.site), cmp.Compare(s.source, best.source),
			sp.CompareFrames(s.serviceSite, best.serviceSite)) < 0 {
			best, maxNS = s, ns
		}
	}
	return best
}

// mainCall returns the row's called library function with the most time; "" if no call is known.
func (r *causeRow) mainCall(sp *spell.Speller) string {
	best, maxNS := "", int64(0)
	for id, ns := range r.nsByCall {
		if fn := sp.Syms.String(id); ns > maxNS || ns == maxNS && fn < best {
			best, maxNS = fn, ns
		}
	}
	return best
}

// MaxRoutes bounds the routes that a report lists for one cause.
const MaxRoutes = 10

// routes returns the wait chain with the most time of a row, which must have one. If there are several, it also returns all of
// them with their times, the largest first.
func (w rowWriter) routes(nsByChain map[chainKey]int64, starter tracefmt.FrameID) ([]report.Via, []report.Route) {
	var list []report.Route
	for key, ns := range nsByChain {
		route := report.Route{TotalNS: ns}
		if remote := w.sp.Remote(key.remote); remote != nil {
			route.Via, route.AheadWork = w.sp.RemoteVias(w.stage.IDs.Chain(key.chain), key.site, starter, key.call, remote), remote.AheadWork
		} else {
			route.Via = w.sp.Vias(w.stage.IDs.Chain(key.chain))
		}
		list = append(list, route)
	}
	slices.SortFunc(list, func(a, b report.Route) int {
		if c := cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), len(a.Via)-len(b.Via)); c != 0 {
			return c
		}
		return cmp.Compare(viaText(a.Via), viaText(b.Via))
	})
	first := list[0].Via
	if len(list) == 1 {
		return first, nil
	}
	return first, list
}

// viaText returns a text that orders chains of equal time.
func viaText(vs []report.Via) (s string) {
	for _, v := range vs {
		s += string(v.Wait) + siteText(v.Site) + v.Call
	}
	return s
}

// causeRows returns the causes of a group's requests in some latency buckets, the largest first; beyond maxCauses they are one
// row "other". count is the number of these requests. shares divides running time without a stack among sites. A row of running
// time represents a whole function: its line is chosen by the first band with that row, and stored in lines, so that it is the
// same in all bands.
func (w rowWriter) causeRows(
	group *group, buckets bucketRange, count int, shares siteShares, lines map[causeRowKey]rowSite,
) []report.Cause {
	sums := map[int32]*cell{}
	var total int64
	group.causeCells.forEach(func(bucket, cause int32, cellSum *cell) {
		if !buckets.contains(bucket) {
			return
		}
		total += cellSum.ns
		entry.GetOrAdd(sums, cause).add(cellSum)
	})
	samples := map[int32]int64{}
	group.sampleCounts.forEach(func(bucket, cause int32, cellSum *cell) {
		if buckets.contains(bucket) {
			samples[cause] += cellSum.requests
		}
	})
	variance := group.variances(buckets)
	merged := map[causeRowKey]*causeRow{}
	addCell := func(id int32, causeKey *path.CauseKey, site rowSite, cellSum cell) {
		key := causeRowKey{cause: causeKey.Code.Cause(), inbound: causeKey.Inbound, kind: causeKey.Kind}
		if key.cause == cause.Network {
			key.kind = 0 // it is the peer's state
		}
		remote := w.sp.Remote(causeKey.Remote)
		if remote != nil {
			key.remoteRow = remote.Row
		}
		if remote != nil && !remote.IsWay {
			key = causeRowKey{remoteRow: remote.Row}
		} else if key.cause == cause.CPU || key.cause == cause.Throttle {
			// Which line of a function a CPU sample hits, or which event was next, means little: running time belongs to the
			// function.
			site.serviceSite = w.sp.ServiceFrame(site.site, nil, 0) // it computes, whatever the chain of waits
			key.function, key.serviceFunc = w.sp.Syms.Frame(site.site).Func, w.sp.Syms.Frame(site.serviceSite).Func
		} else {
			site.serviceSite = w.sp.ServiceFrame(site.site, w.stage.IDs.Chain(causeKey.Chain), group.starter.frame)
			key.site, key.serviceSite = site.site, site.serviceSite
		}
		row := entry.GetOrMake(merged, key, func() *causeRow {
			return &causeRow{nsBySite: map[rowSite]int64{}, nsByChain: map[chainKey]int64{}, nsByCall: map[tracefmt.StringID]int64{}, nsByPeer: map[tracefmt.StringID]int64{}}
		})
		row.nsByCall[causeKey.Call] += cellSum.ns
		if key.cause == cause.Network && causeKey.Kind != 0 {
			row.nsByPeer[causeKey.Kind] += cellSum.ns
		}
		row.cell.add(&cellSum)
		if v := variance[id]; v > 0 {
			share := float64(cellSum.ns) / float64(sums[id].ns)
			row.variance += share * share * v
		}
		row.nsBySite[site] += cellSum.ns
		chain := chainKey{chain: causeKey.Chain}
		if remote != nil && !remote.IsWay {
			chain.remote, chain.site, chain.call = causeKey.Remote, causeKey.Site, causeKey.Call
		}
		row.nsByChain[chain] += cellSum.ns
		row.causeIDs = append(row.causeIDs, path.CauseID(id))
		if site.source == cause.SiteFromSample {
			row.samples += samples[id]
			delete(samples, id)
		}
	}
	for id, cellSum := range sums {
		causeKey := w.stage.IDs.Cause(path.CauseID(id)).WithSettledCause(w.sp.Settlement)
		rest := rowSite{site: causeKey.Site, source: causeKey.SiteSource}
		shares.divide(path.CauseID(id), rest, *cellSum, func(site rowSite, share cell) { addCell(id, &causeKey, site, share) })
	}
	rows := make([]report.Cause, 0, len(merged))
	for key, row := range merged {
		site := row.mainSite(w.sp)
		from := site.source
		if key.function != 0 {
			line, ok := lines[key]
			if !ok {
				line = site
				lines[key] = line
			}
			site = line
		}
		out := report.Cause{
			Cause: spell.Cause(key.cause), SiteFrom: from.String(),
			TotalNS: row.ns, Requests: int(min(row.requests, int64(count))), Samples: int(row.samples),
			RanMeanwhile: w.concurrentShares(group, row.causeIDs, buckets),
			Kind:         w.sp.Kind(key.cause, key.kind, key.inbound), Call: row.mainCall(w.sp),
		}
		out.Via, out.Routes = w.routes(row.nsByChain, group.starter.frame)
		out.PeerStates = w.sp.PeerStates(row.nsByPeer, row.ns)
		if remote := w.sp.Remote(key.remoteRow); remote != nil && !remote.IsWay {
			out.Service, out.Cause, out.Kind, out.Site, out.SiteFrom, out.Call = remote.Service, remote.Cause, remote.Kind, remote.Site, remote.SiteFrom, remote.Call
			if len(out.Routes) == 0 {
				out.AheadWork = remote.AheadWork
			} else {
				out.AheadWork = out.Routes[0].AheadWork
			}
		} else {
			out.Site = w.sp.SiteFor(site.site, site.serviceSite, out.Via)
			if remote != nil {
				out.WayTo = remote.Service
			}
		}
		if total > 0 {
			out.Share, out.ShareError = float64(row.ns)/float64(total), shareError(row.variance, total)
		}
		rows = append(rows, out)
	}
	slices.SortFunc(rows, func(a, b report.Cause) int {
		if a.TotalNS != b.TotalNS {
			return cmp.Compare(b.TotalNS, a.TotalNS)
		}
		return cmp.Compare(rowText(&a), rowText(&b))
	})
	if len(rows) > maxCauses {
		rest := report.Cause{Cause: report.CauseOther, Via: []report.Via{}}
		for _, r := range rows[maxCauses-1:] {
			rest.TotalNS += r.TotalNS
			rest.Share += r.Share
			rest.ShareError = math.Hypot(rest.ShareError, r.ShareError)
			rest.Requests = max(rest.Requests, r.Requests)
			rest.Samples += r.Samples
		}
		rest.ShareError = math.Round(rest.ShareError*1e4) / 1e4
		rows = append(rows[:maxCauses-1], rest)
	}
	return rows
}

// rowText returns a text that orders rows of equal time.
func rowText(c *report.Cause) string {
	return string(c.Cause) + siteText(c.Site) + c.SiteFrom + c.Kind + viaText(c.Via)
}

// siteText returns a text of a site that orders rows: function, file and line, and those of the caller.
func siteText(s *report.Site) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(" %s %s:%d", s.Func, s.File, s.Line) + siteText(s.CalledFrom.Site())
}
