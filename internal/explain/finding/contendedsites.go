package finding

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/report"
)

// Whether a queue is the fault, or what requests queue for.

// findContendedSites finds what takes most of the time behind each contended wait, and
// whether time at that site without a wait belongs to the same fault.
func (a *attribution) findContendedSites() {
	timeBehind, siteTimes := map[waitKey]map[causeSite]int64{}, map[causeSite]siteTime{}
	total := map[waitKey]int64{}
	for c, r := range a.routes(a.group.All()) {
		site := causeSiteOf(c)
		k, ok := a.contendedWait(r.Via)
		if !ok {
			siteTimes[site] = siteTimes[site].add(false, r.TotalNS)
			continue
		}
		if timeBehind[k] == nil {
			timeBehind[k] = map[causeSite]int64{}
		}
		timeBehind[k][site] += r.TotalNS
		total[k] += r.TotalNS
	}
	keys := slices.SortedFunc(maps.Keys(timeBehind), func(a, b waitKey) int { return cmp.Or(cmp.Compare(total[b], total[a]), compareWaits(a, b)) })
	mainSites := map[waitKey]causeSite{}
	for _, k := range keys {
		mainSite := largestSite(timeBehind[k])
		mainSites[k], siteTimes[mainSite] = mainSite, siteTimes[mainSite].add(true, timeBehind[k][mainSite])
	}
	slow := a.slowSiteTimes()
	for _, k := range keys {
		mainSite := mainSites[k]
		if mainTime := siteTimes[mainSite]; a.in.isHeldBySiblings(k) && float64(mainTime.directNS) >= scale.Some*float64(mainTime.directNS+mainTime.queuedNS) {
			a.minorWaits[k] = true // the request waits for that without the lock, too: it guards a result for which all of its goroutines wait
			continue
		}
		if !siteTimes[mainSite].isMainlyQueued() && !slow[mainSite].isMainlyQueued() && !(isLockWait(k) && a.siteTimeOfAllGroups(mainSite).isMainlyQueued()) {
			a.minorWaits[k] = true
			continue
		}
		if first, ok := a.contendedSites[mainSite]; ok {
			a.canonicalWaits[k] = first
		} else {
			a.contendedSites[mainSite] = k
		}
	}
}

// A split is the time at a site: of requests that queued for it, and of those that did not.
type siteTime struct{ queuedNS, directNS int64 }

func (s siteTime) add(queued bool, ns int64) siteTime {
	if queued {
		s.queuedNS += ns
	} else {
		s.directNS += ns
	}
	return s
}

// isMainlyQueued reports whether the queue is the fault, not what they queued for.
func (s siteTime) isMainlyQueued() bool {
	return s.queuedNS > 0 && float64(s.queuedNS) >= scale.Much*float64(s.queuedNS+s.directNS)
}

// slowSiteTimes returns what the slow requests spent at each site: if a request's own turn is as long as all others', the queue is
// what makes it slow.
func (a *attribution) slowSiteTimes() map[causeSite]siteTime {
	times := map[causeSite]siteTime{}
	if b := a.group.Tail(); b.Band != report.BandAll && b.Count >= scale.Few {
		for c, r := range a.routes(b) {
			_, queued := a.contendedWait(r.Via)
			times[causeSiteOf(c)] = times[causeSiteOf(c)].add(queued, r.TotalNS)
		}
	}
	return times
}

// siteTimeOfAllGroups returns what requests of all groups spent at a site: the group that queues for a lock need not be the one that
// holds it.
func (a *attribution) siteTimeOfAllGroups(site causeSite) siteTime {
	if a.in.siteTimes == nil {
		a.in.siteTimes = map[causeSite]siteTime{}
		for i := range a.in.Report.Groups {
			for c, r := range attributableRoutes(a.in.Report.Groups[i].All()) {
				if _, hops := verdict.AfterLastAnswer(r.Via); hops > 0 {
					continue // the group that serves them has that time
				}
				queued := slices.ContainsFunc(r.Via, func(v report.Via) bool { k := waitKeyOf(&v); return isLockWait(k) })
				a.in.siteTimes[causeSiteOf(c)] = a.in.siteTimes[causeSiteOf(c)].add(queued, r.TotalNS)
			}
		}
	}
	return a.in.siteTimes[site]
}

func compareWaits(a, b waitKey) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), a.site.Compare(b.site), strings.Compare(a.call, b.call))
}

func largestSite(timeBySite map[causeSite]int64) causeSite {
	var largest causeSite
	maxNS := int64(-1)
	for l, ns := range timeBySite {
		if ns > maxNS || ns == maxNS && cmp.Or(cmp.Compare(l.cause, largest.cause), l.site.Compare(largest.site)) < 0 {
			largest, maxNS = l, ns
		}
	}
	return largest
}
