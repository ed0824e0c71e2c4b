package finding

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/report"
)

// findContendedSites finds, for each contended wait, the site with most of the time behind it, and decides whether the queue is
// the fault or the work for which requests queue. If the queue is a major share of the time at that site
// (siteTime.isMainlyQueued), it is the fault, and time at the site without a queue belongs to it as well (contendedSites,
// canonicalWaits). Otherwise the wait is a minor one (minorWaits) and its time belongs to the rule of the site.
func (a *attribution) findContendedSites() {
	timeBehind, siteTimes := map[waitKey]map[causeSite]int64{}, map[causeSite]siteTime{}
	total := map[waitKey]int64{}
	for c, r := range a.routes(a.group.All()) {
		site := causeSiteOf(c)
		wait, ok := a.contendedWait(r.Via)
		if !ok {
			siteTimes[site] = siteTimes[site].add(false, r.TotalNS)
			continue
		}
		entry.GetOrMake(timeBehind, wait, func() map[causeSite]int64 { return map[causeSite]int64{} })[site] += r.TotalNS
		total[wait] += r.TotalNS
	}
	keys := slices.SortedFunc(maps.Keys(timeBehind), func(a, b waitKey) int { return cmp.Or(cmp.Compare(total[b], total[a]), compareWaits(a, b)) })
	mainSites := map[waitKey]causeSite{}
	for _, wait := range keys {
		mainSite := siteWithMostTime(timeBehind[wait])
		mainSites[wait], siteTimes[mainSite] = mainSite, siteTimes[mainSite].add(true, timeBehind[wait][mainSite])
	}
	slow := a.slowSiteTimes()
	for _, wait := range keys {
		mainSite := mainSites[wait]
		if mainTime := siteTimes[mainSite]; a.in.isHeldBySiblings(wait) && float64(mainTime.directNS) >= threshold.NoticeableShare*float64(mainTime.directNS+mainTime.queuedNS) {
			// Without the lock, the request waits for that as well: the lock guards a result that all of its goroutines need.
			a.minorWaits[wait] = true
			continue
		}
		if !siteTimes[mainSite].isMainlyQueued() && !slow[mainSite].isMainlyQueued() && !(isLockWait(wait) && a.siteTimeOfAllGroups(mainSite).isMainlyQueued()) {
			a.minorWaits[wait] = true
			continue
		}
		if first, ok := a.contendedSites[mainSite]; ok {
			a.canonicalWaits[wait] = first
		} else {
			a.contendedSites[mainSite] = wait
		}
	}
}

// A siteTime is the time at a site of requests that queued for it, and of requests that did not.
type siteTime struct{ queuedNS, directNS int64 }

// add returns the time with ns more, either of requests that queued or of requests that came directly.
func (s siteTime) add(queued bool, ns int64) siteTime {
	if queued {
		s.queuedNS += ns
	} else {
		s.directNS += ns
	}
	return s
}

// isMainlyQueued reports whether the time in the queue is threshold.MajorShare or more of all time at the site: then the queue is
// the fault, else the work.
func (s siteTime) isMainlyQueued() bool {
	return s.queuedNS > 0 && float64(s.queuedNS) >= threshold.MajorShare*float64(s.queuedNS+s.directNS)
}

// slowSiteTimes returns the time of the slow requests at each site, empty if they are too few. A wait may be minor for all
// requests and yet be what makes the slow ones slow.
func (a *attribution) slowSiteTimes() map[causeSite]siteTime {
	times := map[causeSite]siteTime{}
	if b := a.group.Tail(); b.Band != report.BandAll && b.Count >= threshold.SmallSample {
		for c, r := range a.routes(b) {
			_, queued := a.contendedWait(r.Via)
			times[causeSiteOf(c)] = times[causeSiteOf(c)].add(queued, r.TotalNS)
		}
	}
	return times
}

// siteTimeOfAllGroups returns the time at a site of requests of all groups, and how much of it is behind locks: the group that
// queues for a lock may differ from the group that holds it.
func (a *attribution) siteTimeOfAllGroups(site causeSite) siteTime {
	if a.in.siteTimes == nil {
		a.in.siteTimes = map[causeSite]siteTime{}
		for i := range a.in.Report.Groups {
			for c, r := range attributableRoutes(a.in.Report.Groups[i].All()) {
				if _, answers := verdict.AfterLastAnswer(r.Via); answers > 0 {
					continue // the time belongs to the group that serves them
				}
				queued := slices.ContainsFunc(r.Via, func(v report.Via) bool { k := waitKeyOf(&v); return isLockWait(k) })
				a.in.siteTimes[causeSiteOf(c)] = a.in.siteTimes[causeSiteOf(c)].add(queued, r.TotalNS)
			}
		}
	}
	return a.in.siteTimes[site]
}

// compareWaits orders waits by kind, line and call, so that reports do not depend on the order of a map.
func compareWaits(a, b waitKey) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), a.site.Compare(b.site), strings.Compare(a.call, b.call))
}

// siteWithMostTime returns the site with the most ns; of several with the same time, the first by cause and line. It is zero for
// an empty map.
func siteWithMostTime(timeBySite map[causeSite]int64) (largest causeSite) {
	maxNS := int64(-1)
	for l, ns := range timeBySite {
		if ns > maxNS || ns == maxNS && cmp.Or(cmp.Compare(l.cause, largest.cause), l.site.Compare(largest.site)) < 0 {
			largest, maxNS = l, ns
		}
	}
	return largest
}
