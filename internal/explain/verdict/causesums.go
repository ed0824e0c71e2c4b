package verdict

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// sumCauses adds up the time of a band by cause, kind and queue, and each of these by site. The largest cause comes first and the
// remainder last. Time in a queue and the request's own service time are separate causes, but their total decides which cause is
// the largest. Of these two the queue comes first if it is that of the first finding, which may be nil.
func sumCauses(r *report.Report, band *report.Band, queues []*report.Queue, fault *report.Finding) []report.VerdictCause {
	var partsByKey [][]rowPart
	for _, p := range divideRows(r, band, queues, keepsConnections(fault)) {
		parts := partsOfKey(&partsByKey, p.causeKey)
		*parts = append(*parts, p)
	}
	causes := []report.VerdictCause{}
	totalNS := map[causeKey]int64{}
	for _, parts := range partsByKey {
		cause := report.VerdictCause{Cause: parts[0].cause, Service: parts[0].service, WayTo: parts[0].wayTo, Kind: parts[0].kind, Queue: parts[0].queue, Sites: []report.VerdictSite{}}
		for i := range parts {
			cause.TotalNS += parts[i].ns
			cause.Share += parts[i].share
		}
		if band.Count > 0 {
			cause.EachNS = cause.TotalNS / int64(band.Count)
		}
		cause.Share = min(cause.Share, 1)
		if cause.Share < threshold.NoiseShare || cause.TotalNS <= 0 {
			continue
		}
		addSites(&cause, parts)
		if cause.Cause == report.CauseSyscall {
			cause.Kind = systemCalls(parts)
		}
		if cause.Cause == report.CauseQueue && cause.Queue != nil && cause.Queue.For == cause.Kind {
			cause.AheadWork = largestWork(parts)
		}
		totalNS[unqueuedKey(&cause)] += cause.TotalNS
		cause.Words = Words(&cause)
		causes = append(causes, cause)
	}
	slices.SortStableFunc(causes, compareCauses)
	first := 0
	for i := range causes {
		c, f := &causes[i], &causes[first]
		ns, firstNS := totalNS[unqueuedKey(c)], totalNS[unqueuedKey(f)]
		if remainderRank(c.Cause) == 0 && (ns > firstNS || ns == firstNS && fault != nil && fault.Queue != nil && c.Queue == fault.Queue && f.Queue != fault.Queue && 4*c.TotalNS >= f.TotalNS) {
			first = i
		}
	}
	if len(causes) == 0 {
		return causes
	}
	entry.MoveUp(causes, first, 0)
	return causes
}

// partsOfKey returns the element of partsByKey with a key; a new and empty one if there is none, to which the caller appends.
func partsOfKey(partsByKey *[][]rowPart, key causeKey) *[]rowPart {
	return entry.FindOrAppend(partsByKey, func(parts []rowPart) bool { return parts[0].causeKey == key }, nil)
}

// unqueuedKey returns the key under which a queue and the service time in it are added up to decide which cause is the largest.
// All stops of the world have one key.
func unqueuedKey(c *report.VerdictCause) causeKey {
	if c.Cause == report.CauseSTW {
		return causeKey{cause: c.Cause, service: c.Service}
	}
	if c.AheadWork != nil {
		return causeKey{cause: c.AheadWork.Cause, kind: c.AheadWork.Kind, service: c.Service}
	}
	return causeKey{cause: c.Cause, kind: c.Kind, service: c.Service, wayTo: c.WayTo}
}

// largestWork returns the activity on which those ahead in a queue spend most of their time, with its sites; nil if a timer ended all
// waits. parts are parts of rows of the cause queue, of which there must be one.
func largestWork(parts []rowPart) *report.VerdictWork {
	var partsByKey [][]rowPart
	for _, p := range parts {
		whole := *p.row
		whole.TotalNS, whole.Share, whole.Routes, whole.Via = p.ns, p.share, p.routes, nil
		works := whole.Works()
		for work := range entry.Each(works) {
			if IsTimedWait(work, work.Via) {
				continue // it ended in time for no slot
			}
			ofKey := partsOfKey(&partsByKey, causeKeyOf(work))
			*ofKey = append(*ofKey, rowPart{causeKey: causeKeyOf(work), row: work, ns: work.TotalNS, share: work.Share, routes: work.Routes})
		}
	}
	if len(partsByKey) == 0 {
		return nil
	}
	sumNS := func(parts []rowPart) (ns int64) {
		for _, p := range parts {
			ns += p.ns
		}
		return ns
	}
	largest := slices.MaxFunc(partsByKey, func(a, b []rowPart) int { return cmp.Compare(sumNS(a), sumNS(b)) })
	sum := report.VerdictCause{Cause: largest[0].cause, Kind: largest[0].kind, TotalNS: sumNS(largest), Sites: []report.VerdictSite{}}
	addSites(&sum, largest)
	return &report.VerdictWork{Cause: sum.Cause, Kind: sum.Kind, TotalNS: sum.TotalNS, Sites: sum.Sites}
}

// compareCauses orders causes as CompareTimes does.
func compareCauses(a, b report.VerdictCause) int {
	return CompareTimes(a.Cause, a.TotalNS, b.Cause, b.TotalNS)
}

// CompareTimes orders cause a with aNS ns and cause b with bNS ns: the one with more time first, the sum of all small causes
// last.
func CompareTimes(a report.CauseName, aNS int64, b report.CauseName, bNS int64) int {
	return cmp.Or(remainderRank(a)-remainderRank(b), cmp.Compare(bNS, aNS))
}

// remainderRank returns 1 for the remainder, the sum of all small causes, which comes last; 0 for other causes.
func remainderRank(c report.CauseName) int {
	if c == report.CauseOther {
		return 1
	}
	return 0
}

// A siteSum is the time of one cause at one site.
type siteSum struct {
	site       report.VerdictSite
	inferredNS int64 // time whose line is only inferred
	routes     []report.Route
}

// addSites divides the time of a cause by site, the largest first and at most maxSites, and collects what ran on the Ps during
// all of it.
func addSites(cause *report.VerdictCause, parts []rowPart) {
	var sums []siteSum
	concurrentShare, concurrentSite := map[report.SiteKey]float64{}, map[report.SiteKey]*report.Site{}
	for i := range parts {
		part := &parts[i]
		row := part.row
		if cause.Cause == report.CauseSTW {
			if i == 0 {
				cause.Kind = row.Kind
			} else if cause.Kind != row.Kind {
				cause.Kind = ""
			}
		}
		kind := row.Kind
		if cause.Cause == report.CauseCPUWait {
			kind = "" // Processes has it
		}
		site, routes := row.Site, part.routes
		if cause.Kind == NextRequest {
			site, routes = routes[0].Via[0].Site, nil // where the other goroutine waits is in net/http
		}
		p := entry.FindOrAppend(&sums, func(p siteSum) bool { return p.site.Kind == kind && p.site.Site.Equal(site) }, siteSum{site: report.VerdictSite{Site: site, Kind: kind, Via: []report.Via{}}})
		p.site.TotalNS += part.ns
		p.site.Share = min(p.site.Share+part.share, 1)
		if row.SiteFrom == "bracket" {
			p.inferredNS += part.ns
		}
		p.addRoutes(routes)
		cause.Observed = row.Observed && (i == 0 || cause.Observed)
		if cause.Cause == report.CauseCPUWait {
			addProcess(cause, row.Kind, part.ns)
		}
		for _, x := range row.PeerStates {
			x.TotalNS = int64(float64(x.TotalNS) * float64(part.ns) / float64(max(1, row.TotalNS)))
			cause.PeerStates = report.AddPeerState(cause.PeerStates, x)
		}
		for _, s := range row.RanMeanwhile {
			if s.Site != nil && cause.TotalNS > 0 {
				concurrentSite[s.Site.Key()] = s.Site
				concurrentShare[s.Site.Key()] += s.Share * float64(part.ns) / float64(cause.TotalNS)
			}
		}
	}
	slices.SortStableFunc(sums, func(a, b siteSum) int { return cmp.Compare(b.site.TotalNS, a.site.TotalNS) })
	for i := range sums {
		if p := &sums[i]; i < maxSites && (p.site.Share >= threshold.NoiseShare || i == 0) {
			p.chooseRoute()
			p.site.Inferred = p.inferredNS > p.site.TotalNS/2
			cause.Sites = append(cause.Sites, p.site)
		}
	}
	for x := range entry.Each(cause.PeerStates) {
		x.Share = min(1, float64(x.TotalNS)/float64(max(1, cause.TotalNS)))
	}
	slices.SortStableFunc(cause.PeerStates, func(a, b report.PeerState) int { return cmp.Compare(b.TotalNS, a.TotalNS) })
	for site, share := range concurrentShare {
		if share >= threshold.NoiseShare {
			cause.RanMeanwhile = append(cause.RanMeanwhile, report.Share{Site: concurrentSite[site], Share: min(share, 1)})
		}
	}
	slices.SortStableFunc(cause.Processes, func(a, b report.ProcessShare) int { return cmp.Compare(b.Share, a.Share) })
	cause.Processes = cause.Processes[:min(len(cause.Processes), maxSites)]
	slices.SortFunc(cause.RanMeanwhile, func(a, b report.Share) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), a.Site.Compare(b.Site))
	})
	cause.RanMeanwhile = cause.RanMeanwhile[:min(len(cause.RanMeanwhile), maxSites)]
}

// addProcess adds ns of a wait for a CPU to the process that had the CPU. An empty name means that the CPU was idle and woke up
// late; that is not added.
func addProcess(cause *report.VerdictCause, name string, ns int64) {
	if name == "" || cause.TotalNS <= 0 {
		return
	}
	p := entry.FindOrAppend(&cause.Processes, func(p report.ProcessShare) bool { return p.Process == name }, report.ProcessShare{Process: name})
	p.Share = min(1, p.Share+float64(ns)/float64(cause.TotalNS))
}

// addRoutes adds routes to the sum; routes with equal chains of waits become one.
func (p *siteSum) addRoutes(routes []report.Route) {
	for _, add := range routes {
		entry.FindOrAppend(&p.routes, func(existing report.Route) bool {
			return slices.EqualFunc(existing.Via, add.Via, func(a, b report.Via) bool { return a.Equal(&b) })
		}, report.Route{Via: add.Via, AheadWork: add.AheadWork}).TotalNS += add.TotalNS
	}
}

// chooseRoute sets the site's Via to the chain of waits with the most time, and ViaPart to its share of the site's time.
func (p *siteSum) chooseRoute() {
	var allNS, maxNS int64
	for r := range entry.Each(p.routes) {
		allNS += r.TotalNS
		if len(r.Via) > 0 && r.TotalNS > maxNS {
			p.site.Via, maxNS = r.Via, r.TotalNS
		}
	}
	if allNS > 0 && maxNS > 0 {
		p.site.ViaPart = float64(maxNS) / float64(allNS)
	}
}
