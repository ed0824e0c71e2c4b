package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// checkLockConvoy is WL2002, lock-convoy: requests queue for a lock, or for a sync.Once, while its holder works or waits. Each
// kind of work under the lock has a verdict.
func checkLockConvoy(in *Input) (out []Verdict) {
	for attr, cand := range in.candidatesOf(report.RuleLockConvoy) {
		for _, part := range splitByHolderWork(attr, cand) {
			out = append(out, convoyVerdict(attr, part))
		}
	}
	return out
}

// holderWork returns what a holder does at a cause. All computing counts as one work, and so does all that a dependency does
// under its own lock, whichever line called it. lock is where the dependency takes that lock, nil if the lock is the service's.
func holderWork(c *report.Cause, via []report.Via, lock *report.Site) causeSite {
	work := causeSiteOf(c)
	switch {
	case c.Cause == report.CauseCPU:
		work.site = report.SiteKey{}
	case isInDependency(nonStdSite(c, via), lock):
		work.site = nonStdSite(c, via).LineKey()
	}
	return work
}

// isInDependency reports whether a site is in the dependency that took the lock, and not in a function of the service that the
// dependency called back.
func isInDependency(s, lock *report.Site) bool {
	return lock != nil && s != nil && s.Module != "" && (s.CalledFrom == nil || strings.HasPrefix(s.CalledFrom.Calls, lock.Module))
}

// dependencyLock returns where a dependency takes the lock that a candidate is about, nil if the service's own code takes it.
func dependencyLock(cand *candidate) *report.Site {
	for i := range cand.routes {
		for k := range cand.routes[i].via {
			if v := &cand.routes[i].via[k]; waitKeyOf(v) == cand.wait && v.Site.Module != "" {
				return v.Site
			}
		}
	}
	return nil
}

// splitByHolderWork divides the candidate of a lock by what the holders do: after one of two works is moved out of the lock,
// requests still wait for the other. Works with less than threshold.MajorShare of the time stay with the largest.
func splitByHolderWork(attr *attribution, cand *candidate) []*candidate {
	sumNS, totalNS := map[causeSite]int64{}, int64(0)
	var works []causeSite
	lock := dependencyLock(cand)
	for i := range cand.reportedRoutes() {
		route := &cand.reportedRoutes()[i]
		if _, ok := attr.contendedWait(route.via); !ok {
			continue
		}
		work := holderWork(route.Cause, route.via, lock)
		if _, ok := sumNS[work]; !ok {
			works = append(works, work)
		}
		sumNS[work] += route.routeNS
		totalNS += route.routeNS
	}
	slices.SortStableFunc(works, func(a, b causeSite) int { return cmp.Compare(sumNS[b], sumNS[a]) })
	for i, work := range works {
		if i > 0 && float64(sumNS[work]) < threshold.MajorShare*float64(totalNS) {
			works = works[:i]
			break
		}
	}
	if len(works) < 2 {
		return []*candidate{cand}
	}
	out := make([]*candidate, 0, len(works))
	for i, work := range works {
		belongs := func(cause *report.Cause, via []report.Via) bool {
			other := holderWork(cause, via, lock)
			return other == work || i == 0 && !slices.Contains(works, other)
		}
		part := &candidate{candidateKey: cand.candidateKey}
		for _, list := range []struct{ from, to *[]causeRoute }{{&cand.routes, &part.routes}, {&cand.slowRoutes, &part.slowRoutes}} {
			for _, route := range *list.from {
				if belongs(route.Cause, route.via) {
					*list.to = append(*list.to, route)
				}
			}
		}
		part.share, part.gain = weighRoutes(attr.group, func(cause *report.Cause, via []report.Via) bool {
			return belongs(cause, via) && attr.keyOf(cause, via) == cand.candidateKey
		})
		if len(part.routes) > 0 {
			out = append(out, part)
		}
	}
	return out
}

// reportedRoutes returns the routes that the evidence describes: those of the slow requests, as for the mean time in the same
// finding. If there are none, it returns those of all requests.
func (c *candidate) reportedRoutes() []causeRoute {
	if len(c.slowRoutes) > 0 {
		return c.slowRoutes
	}
	return c.routes
}

// convoyVerdict returns the verdict about one kind of work under a lock.
func convoyVerdict(attr *attribution, cand *candidate) Verdict {
	var queuedNS, totalNS, unseenNS int64
	isListed := map[string]bool{}
	var lockTexts []string
	for i := range cand.reportedRoutes() {
		route := &cand.reportedRoutes()[i]
		totalNS += route.routeNS
		wait, ok := attr.contendedWait(route.via)
		if !ok {
			continue
		}
		queuedNS += route.routeNS
		if route.Cause.Cause == report.CauseLock {
			unseenNS += route.routeNS
		}
		if text := textOf("phrase lock-at", "lock", lockText(wait), "site", wait.site.Site()); !isListed[text] && len(lockTexts) < 3 {
			isListed[text] = true
			lockTexts = append(lockTexts, text)
		}
	}
	top := heaviestContendedRoute(attr, cand.reportedRoutes())
	v := attr.newVerdict(cand, top)
	v.Title = textOf("title lock-convoy", "lock", lockText(cand.wait), "activity", top.activity())
	if isBehindReader(top.via) {
		v.Title = textOf("title lock-convoy-behind-reader", "lock", lockText(cand.wait), "activity", top.activity())
	}
	v.Confidence = 0.95 * (1 - float64(unseenNS)/float64(max(totalNS, 1)))
	v.addSlowEvidence(evidenceOf("evidence slow-mean", cand.gain.Slow.NS, "ns"))
	v.addEvidence(evidenceOf("evidence lock-wait-share", ratio(queuedNS, totalNS), "share", "locks", strings.Join(lockTexts, ", ")))
	if siteTime := attr.siteTimeOfAllGroups(causeSiteOf(top.Cause)); 2*queuedNS < totalNS && siteTime.isMainlyQueued() {
		v.addEvidence(evidenceOf("evidence lock-wait-share-of-all", ratio(siteTime.queuedNS, siteTime.queuedNS+siteTime.directNS), "share"))
	}
	v.addEvidence(holderEvidence(attr, cand, queuedNS)...)
	if siteTime := attr.in.serviceAt(top.Cause, top.via); siteTime != nil {
		v.addEvidence(evidenceOf("evidence lock-waiters", siteTime.WaitersPerServer, "count"))
	}
	switch {
	case isBehindReader(top.via):
		v.Fix = textOf("fix lock-behind-reader", "site", v.Site)
	case cand.wait.kind == report.WaitOnce:
		v.Fix = textOf("fix lock-once")
	case top.Cause.Cause == report.CauseCPU && knowledge.Has(cand.wait.call, knowledge.WriteLock):
		// The wait of a writer does not show whether a reader or another writer holds it up.
		v.Fix = textOf("fix lock-of-writers", "site", v.Site)
	case top.Cause.Cause == report.CauseCPU && knowledge.Has(cand.wait.call, knowledge.RWMutex):
		v.Fix = textOf("fix lock-of-readers")
	case top.Cause.Cause == report.CauseCPU:
		v.Fix = textOf("fix lock-computes")
	case top.Cause.Cause == report.CauseSyscall && syscallOf(top.Cause) == diskSync:
		v.Fix = textOf("fix lock-syncs")
	case top.Cause.Cause == report.CauseNetwork && knowledge.Has(top.Cause.Call, knowledge.FileWrite):
		v.Fix = textOf("fix lock-writes-pipe", "site", v.Site)
	case isInDependency(v.Site, dependencyLock(cand)):
		v.Fix = textOf("fix lock-in-dependency", "module", dependencyLock(cand).Module)
	default:
		v.Fix = textOf("fix lock-move-work", "site", attr.movableWork(cand, top))
	}
	v.Queue = attr.reportQueue(cand, lockText(cand.wait))
	return v
}

// movableWork returns the service's own line that works while a lock or a slot is held, and could work at another time: the
// call in the function that took the lock or slot, if that call was seen, else the line where the holder is.
func (a *attribution) movableWork(cand *candidate, top *causeRoute) *report.Site {
	u := firstMatch(a.in.HolderLines, func(u *queues.HolderLine) bool {
		return u.WaitSite.LineKey() == cand.wait.site && u.HolderSite.Matches(top.Site) && u.Line.Module == "" && !isStdSite(u.Line)
	})
	if u != nil {
		return u.Line
	}
	return top.nonStdSite()
}

// isBehindReader reports whether a route leads from an RWMutex's reader to a writer that also waits for the RWMutex. That
// writer waits for a reader: if it waited for another writer, the unlocking of that one would have let the readers go first.
func isBehindReader(via []report.Via) bool {
	for i := 1; i < len(via); i++ {
		if knowledge.Has(via[i-1].Call, knowledge.ReadLock) && knowledge.Has(via[i].Call, knowledge.WriteLock) {
			return true
		}
	}
	return false
}

// heaviestContendedRoute returns the first route, and so the longest, that leads through a contended wait; if none does, the
// first of all. There must be a route.
func heaviestContendedRoute(attr *attribution, routes []causeRoute) *causeRoute {
	if route := firstMatch(routes, func(route *causeRoute) bool { _, ok := attr.contendedWait(route.via); return ok }); route != nil {
		return route
	}
	return &routes[0]
}

// holderEvidence lists what the holders did during the wait, the works with most time first.
func holderEvidence(attr *attribution, cand *candidate, totalNS int64) []report.Evidence {
	type sum struct {
		p  *causeRoute
		ns int64
	}
	var sums []sum
	index := map[causeSite]int{}
	for i := range cand.reportedRoutes() {
		route := &cand.reportedRoutes()[i]
		if _, ok := attr.contendedWait(route.via); !ok {
			continue
		}
		work := causeSiteOf(route.Cause)
		position, ok := index[work]
		if !ok {
			position = len(sums)
			index[work] = position
			sums = append(sums, sum{p: route})
		}
		sums[position].ns += route.routeNS
	}
	var out []report.Evidence
	for _, s := range sums[:min(len(sums), 3)] {
		if ratio(s.ns, totalNS) >= 0.03 {
			out = append(out, evidenceOf("evidence lock-holder", ratio(s.ns, totalNS), "share", "activity", s.p.activity()))
		}
	}
	return out
}

// ratio returns a / b, at most 1; 0 if b is not positive.
func ratio(a, b int64) float64 {
	if b <= 0 {
		return 0
	}
	return min(1, float64(a)/float64(b))
}

// lockText names the kind of lock that a wait is for.
func lockText(wait waitKey) string {
	switch {
	case wait.kind == report.WaitOnce:
		return textOf("phrase once")
	case knowledge.Has(wait.call, knowledge.ReadLock):
		return textOf("phrase rwmutex-read")
	case knowledge.Has(wait.call, knowledge.RWMutex):
		return textOf("phrase rwmutex-write")
	case knowledge.Has(wait.call, knowledge.Mutex):
		return textOf("phrase mutex")
	}
	return textOf("phrase lock")
}
