package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// checkLockConvoy is WL2002, lock-convoy: requests queue for a lock or a sync.Once while its holder works or waits. Each kind of
// work under a lock (splitByHolderWork) has a verdict.
func checkLockConvoy(in *Input) (out []Verdict) {
	for attr, cand := range in.candidatesOf(report.RuleLockConvoy) {
		for _, part := range splitByHolderWork(attr, cand) {
			out = append(out, convoyVerdict(attr, part))
		}
	}
	return out
}

// holderWork returns which kind of work a holder does at a cause. All computing is one kind. All that a dependency does under a
// lock that it takes itself is one kind for each line that called the dependency; lock is where the dependency takes that lock, nil if the
// service's own code takes it.
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

// isInDependency reports whether site s is code of the dependency that takes the lock, and not of a service function that the
// dependency called back. The service may have called both sites through another library, such as net/http.
func isInDependency(s, lock *report.Site) bool {
	if lock == nil || s == nil || s.Module == "" {
		return false
	}
	isSameCall := s.Module == lock.Module && s.CalledFrom != nil && lock.CalledFrom != nil && s.CalledFrom.Calls == lock.CalledFrom.Calls
	return s.CalledFrom == nil || s.CalledFrom.Awaits() || isSameCall || strings.HasPrefix(s.CalledFrom.Calls, lock.Module)
}

// dependencyLock returns where a dependency takes the lock that a candidate is about, nil if the service's own code takes it.
func dependencyLock(cand *candidate) *report.Site {
	for i := range cand.routes {
		for v := range each(cand.routes[i].via) {
			if waitKeyOf(v) == cand.wait && v.Site.Module != "" {
				return v.Site
			}
		}
	}
	return nil
}

// lockAdviserOf returns the library whose own lock a candidate is about, if it has advice for that lock: it works itself while it holds
// the lock, or calls the service back, as a logger calls its writer. It returns nil otherwise, and if the service follows the advice already.
func lockAdviserOf(cand *candidate, top *causeRoute) *library {
	lock := dependencyLock(cand)
	if l := libraryOfFunc(lock); l != nil && l.lockAdvice != "" && !hasFunction(top.sites(), l.batchCalls) && (isInDependency(top.nonStdSite(), lock) || isOwnCode(top.nonStdSite())) {
		return l
	}
	return nil
}

// splitByHolderWork divides the candidate of a lock by the kind of work that its holders do: if one kind moves out of the lock,
// requests still wait for the other. A kind with less than threshold.MajorShare of the time stays with the largest. The
// candidate of the largest kind comes first; it is cand itself if there is no other.
func splitByHolderWork(attr *attribution, cand *candidate) []*candidate {
	sumNS, totalNS := map[causeSite]int64{}, int64(0)
	lock := dependencyLock(cand)
	var works []causeSite
	for route := range each(cand.reportedRoutes()) {
		if _, ok := attr.contendedWait(route.via); !ok {
			continue
		}
		work := holderWork(route.Cause, route.via, lock)
		entry.FindOrAppend(&works, func(w causeSite) bool { return w == work }, work)
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
			holder := holderWork(cause, via, lock)
			return holder == work || i == 0 && !slices.Contains(works, holder)
		}
		part := &candidate{candidateKey: cand.candidateKey}
		for _, list := range []struct{ from, to *[]causeRoute }{{&cand.routes, &part.routes}, {&cand.slowRoutes, &part.slowRoutes}} {
			for _, route := range *list.from {
				if belongs(route.Cause, route.via) {
					*list.to = append(*list.to, route)
				}
			}
		}
		part.share, part.gain = gainWithoutRoutes(attr.group, func(cause *report.Cause, via []report.Via) bool {
			return belongs(cause, via) && attr.candidateKeyOf(cause, via) == cand.candidateKey
		})
		if len(part.routes) > 0 {
			out = append(out, part)
		}
	}
	return out
}

// reportedRoutes returns the routes that the evidence describes: those of the slow requests, as the mean time in the same finding
// is theirs too; if there are none, those of all requests.
func (c *candidate) reportedRoutes() []causeRoute {
	if len(c.slowRoutes) > 0 {
		return c.slowRoutes
	}
	return c.routes
}

// convoyVerdict returns the verdict about one kind of work under a lock. The fix depends on whose lock it is, what its holder
// does (lockHoldOf), and whether waiters could do without the work.
func convoyVerdict(attr *attribution, cand *candidate) Verdict {
	var queuedNS, totalNS, unseenNS int64
	isListed := map[string]bool{}
	var lockTexts []string
	for route := range each(cand.reportedRoutes()) {
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
	held, title, lockName := attr.lockHoldOf(cand, top), textKey("title lock-convoy"), lockText(cand.wait)
	lock := dependencyLock(cand)
	if library := libraryOfFunc(lock); library != nil {
		lockName = textOf("phrase lock-of-library", "library", library.name)
	}
	work, writer := held.work, waitingWriter(top.via)
	isElsewhere := func(line *report.Site) bool {
		return line.LineKey() != top.ownLine().LineKey() && line.LineKey() != top.nonStdSite().LineKey()
	}
	switch {
	case writer != nil:
		title = "title lock-convoy-behind-reader"
	case held.isForSlot:
		title, v.Site = "title lock-convoy-for-slot", held.holder
	case held.awaited != "":
		title, v.Site = "title lock-convoy-for-goroutine", held.holder
	case knowledge.Has(cand.wait.call, knowledge.ReadLock): // it waits for a writer only
		if title, work = "title lock-convoy-behind-writer", attr.movableWork(cand, top); isElsewhere(work) {
			title = "title lock-convoy-behind-writer-at"
		}
	case held.work != nil && isElsewhere(held.work):
		title = "title lock-convoy-at"
	}
	v.Title = textOf(title, "lock", lockName, "activity", top.activity(), "holder", held.holder, "work", work, "awaited", held.awaited)
	v.doubt(0.95*(1-ratio(unseenNS, totalNS)), textOf("phrase doubt-holder", "share", words.Percent(ratio(unseenNS, totalNS))))
	v.addSlowEvidence(evidenceOf("evidence slow-mean", cand.gain.Slow.NS, "ns"))
	v.addEvidence(evidenceOf("evidence lock-wait-share", ratio(queuedNS, totalNS), "share", "locks", strings.Join(lockTexts, ", ")))
	if siteTime := attr.siteTimeOfAllGroups(causeSiteOf(top.Cause)); 2*queuedNS < totalNS && siteTime.isMainlyQueued() {
		v.addEvidence(evidenceOf("evidence lock-wait-share-of-all", ratio(siteTime.queuedNS, siteTime.queuedNS+siteTime.directNS), "share"))
	}
	v.addEvidence(holderEvidence(attr, cand, queuedNS)...)
	if siteTime := attr.in.serviceAt(top.Cause, top.via); siteTime != nil {
		v.addEvidence(evidenceOf("evidence lock-waiters", siteTime.WaitersPerServer, "count"))
	}
	adviser := lockAdviserOf(cand, top)
	costly, isCost := attr.costlyHolders(top)
	held.cached, held.isOneResult = attr.cacheWork(cand, top)
	held.areSeparate = attr.haveSeparateCalls(cand, top, v.Site)
	switch {
	case costly != nil:
		v.Fix = costly.fix(costly.costAdvice)
	case adviser != nil && adviser.repeatAdvice != "" && attr.areRepeating(v.Site):
		v.Fix = adviser.fix(adviser.repeatAdvice)
	case adviser != nil:
		v.Fix = adviser.fix(adviser.lockAdvice)
	case isInDependency(top.nonStdSite(), lock) && top.Cause.Cause == report.CauseSleep:
		v.Fix = textOf("fix lock-paused-in-dependency", "site", lock.OwnLine(), "module", lock.Module)
	case isInDependency(top.nonStdSite(), lock) && top.nonStdSite().CalledFrom == nil: // on a goroutine of the library
		v.Fix = textOf("fix lock-in-library-goroutine", "module", lock.Module, "function", words.FuncName(top.nonStdSite().Func))
	case held.areSeparate && isClientWait(top.Cause) && !isClientRead(top.Cause):
		v.Fix = textOf("fix lock-reads-client", "site", v.Site.OwnLine())
	case held.areSeparate:
		v.Fix = textOf("fix lock-in-dependency-of-all", "module", lock.Module)
	case isInDependency(top.nonStdSite(), lock) && writer != nil:
		v.Fix = textOf("fix lock-behind-reader-in-dependency", "site", v.Site.OwnLine(), "writer", writer.OwnLine(), "module", lock.Module)
	case isInDependency(top.nonStdSite(), lock):
		v.Fix = textOf("fix lock-in-dependency", "module", lock.Module)
	case lock != nil && attr.holderLine(cand, top) != nil: // the service's function holds it between two calls of the library
		v.Fix = textOf("fix lock-between-calls", "work", attr.movableWork(cand, top), "lock", lock.OwnLine(), "module", lock.Module)
	case lock != nil:
		v.Fix = textOf("fix lock-of-dependency", "site", top.ownLine(), "module", lock.Module)
	case writer != nil && isPeerWait(top.Cause):
		v.Fix = textOf("fix lock-reader-calls", "site", attr.movableWork(cand, top))
	case writer != nil:
		v.Fix = textOf("fix lock-behind-reader", "site", v.Site)
	case held.isReceiver:
		v.Fix = textOf("fix lock-for-receiver", "holder", held.holder)
	case held.isForSlot:
		v.Fix = textOf("fix lock-for-slot", "awaited", held.awaited, "holder", held.holder, "site", top.nonStdSite())
	case held.awaited != "":
		v.Fix = textOf("fix lock-for-goroutine", "holder", held.holder)
	case isClientWait(top.Cause) && !isClientRead(top.Cause):
		v.Fix = textOf("fix lock-reads-client", "site", attr.movableWork(cand, top).OwnLine())
	case cand.wait.kind == report.WaitOnce:
		v.Fix = textOf("fix lock-once", "site", top.nonStdSite())
	case held.isOneResult:
		v.Fix = textOf("fix lock-shared-work", "site", held.cached)
	case held.cached != nil:
		v.Fix = textOf("fix lock-cache", "lock", lockWithLine(cand, top), "site", held.cached)
	case top.Cause.Cause == report.CauseCPU && knowledge.Has(cand.wait.call, knowledge.WriteLock):
		// The wait of a writer does not show whether a reader or another writer holds it up.
		v.Fix = textOf("fix lock-of-writers", "site", v.Site)
	case top.Cause.Cause == report.CauseSyscall && syscallKindOf(top.Cause) == diskSync:
		v.Fix = textOf("fix lock-syncs", "lock", lockWithLine(cand, top))
	case knowledge.Has(cand.wait.call, knowledge.ReadLock):
		v.Fix = textOf("fix lock-of-readers", "site", attr.movableWork(cand, top).OwnLine())
	case top.Cause.Cause == report.CauseCPU:
		v.Fix = textOf("fix lock-computes", "site", attr.movableWork(cand, top).OwnLine(), "lock", lockWithLine(cand, top))
	case top.Cause.Cause == report.CauseNetwork && knowledge.Has(top.Cause.Call, knowledge.FileWrite):
		v.Fix = textOf("fix lock-writes-pipe", "site", v.Site)
	case isClientRead(top.Cause) || top.Cause.Cause == report.CauseNetwork && knowledge.Has(top.Cause.Call, knowledge.ConnectionWrite) && attr.in.AcceptsConnections:
		v.Fix = textOf("fix lock-move-write", "lock", lockWithLine(cand, top), "site", attr.movableWork(cand, top))
		v.ChangeText = textOf("phrase change-unlock-write")
	case isPeerWait(top.Cause) && stdlib.Contains(cand.wait.call) && !slices.Contains([]string{"", "sync"}, stdlib.Package(cand.wait.call)): // a client's lock
		v.Fix = textOf("fix lock-in-dependency-of-all", "module", stdlib.Package(cand.wait.call))
	case top.Cause.Cause == report.CauseNetwork && top.Cause.Kind != "inbound":
		v.Fix = textOf("fix lock-move-call", "lock", lockWithLine(cand, top), "site", attr.movableWork(cand, top))
	case top.Cause.Cause == report.CauseSleep && knowledge.Has(top.Cause.Call, knowledge.SleepWait):
		v.Fix = textOf("fix lock-sleeps", "lock", lockWithLine(cand, top), "site", attr.movableWork(cand, top))
	default:
		v.Fix = textOf("fix lock-move-work", "lock", lockWithLine(cand, top), "site", attr.movableWork(cand, top))
	}
	if costly != nil {
		v.Changes = removalOf(attr.group, isCost)
		v.scaleTo(costly.left)
	} else {
		attr.setConvoyChanges(&v, cand, top, held)
	}
	v.Queue = attr.reportQueue(cand, lockName)
	return v
}

// setConvoyChanges sets the changes of a verdict about a lock. Usually the change is that the holder's work happens outside of
// the lock; the first of its lines for which that changes a prediction is taken, with the prediction. Where waiters need the
// result of the work, or the lock is a dependency's and waiters do not do the same work, the change is that no request waits for the work.
func (a *attribution) setConvoyChanges(v *Verdict, cand *candidate, top *causeRoute, held lockHold) {
	isAll := func(cause report.CauseName, site *report.Site, condition textKey) {
		v.Changes, v.ChangeText = []predict.Change{predict.Remove(cause, predict.SiteText(site, ""))}, textOf(condition)
	}
	switch {
	case top.Site == nil:
	case cand.wait.kind == report.WaitOnce:
		isAll("", cand.wait.site.Site(), "phrase change-earlier")
	case held.isReceiver:
		isAll(top.Cause.Cause, top.Site, "phrase change-not-awaited")
	case dependencyLock(cand) != nil && a.holderLine(cand, top) == nil && !held.areSeparate:
		// Its callers share the lock; with the call, all that it takes goes.
		isAll("", v.Site.LineKey().Site(), "phrase change-not-awaited")
	case held.isOneResult:
		isAll("", held.cached, "phrase change-ahead")
	default:
		sites := []*report.Site{top.Site}
		if line := a.movableWork(cand, top); line != nil {
			sites = []*report.Site{line, top.Site}
		}
		if held.areSeparate { // whichever line of the service called it
			sites = []*report.Site{v.Site.LineKey().Site()}
		}
		for _, site := range sites {
			unlock := predict.Unlock(predict.SiteText(site, top.Cause.Cause))
			// Where the holders work for the same request, only less of their work helps.
			if v.Predicted = a.in.predict(a.group.ID, unlock); v.Predicted != nil {
				v.Changes = []predict.Change{unlock}
				return
			}
		}
	}
}

// cacheWork returns the line of the work under a lock if the lock is that of a cache which requests fill on demand: the function that takes the
// lock does the work, and most of its waiters do not. If hardly a request repeats the work that it has waited for (isOneResult), waiters need
// the result of that work; a cache with many keys gives them the result of another key. cacheWork returns nil for other locks, and for work
// that ends when the holder's client does its part.
func (a *attribution) cacheWork(cand *candidate, top *causeRoute) (line *report.Site, isOneResult bool) {
	work := a.holderLine(cand, top)
	if work == nil || work.Line.Func != cand.wait.site.Func || top.Cause.Cause == report.CauseCPU || isClientWait(top.Cause) {
		return nil, false
	}
	share, ok := a.workShareAt(work.Line)
	if !ok || isRepeated(share) {
		return nil, false
	}
	return work.Line, share.Repeating < threshold.MajorShare
}

// areRepeating reports whether requests which wait for others' work at a line then do the same work: its result serves one request.
func (a *attribution) areRepeating(line *report.Site) bool {
	share, ok := a.workShareAt(line)
	return ok && isRepeated(share)
}

// isRepeated reports whether requests that have waited for others' work then do it themselves.
func isRepeated(share predict.WorkShare) bool {
	return share.Doing >= threshold.HalfShare && share.Repeating >= threshold.MajorShare
}

// workShareAt returns which share of the group's requests do the work at a line; ok is false if that is not known.
func (a *attribution) workShareAt(line *report.Site) (share predict.WorkShare, ok bool) {
	if a.in.WorkShare == nil {
		return share, false
	}
	return a.in.WorkShare(a.group.ID, predict.Remove("", predict.SiteText(line, "")))
}

// haveSeparateCalls reports whether requests share a lock of a dependency, and nothing else, when they call it at a site: a waiter then
// makes the same call of a peer, or the holder waits for its client. The dependency has no advice for its lock.
func (a *attribution) haveSeparateCalls(cand *candidate, top *causeRoute, site *report.Site) bool {
	return lockAdviserOf(cand, top) == nil && top.Cause.Cause == report.CauseNetwork && isInDependency(top.nonStdSite(), dependencyLock(cand)) &&
		(isClientWait(top.Cause) || a.areRepeating(site.LineKey().Site()))
}

// costlyHolders returns the library in whose needless work (costlyLibrary) the holders of a candidate's lock compute, and which causes are
// that work; nil if they do anything else.
func (a *attribution) costlyHolders(top *causeRoute) (costly *library, isCost func(*report.Cause) bool) {
	costly, isCost = costlyLibrary(a.group, func(c *report.Cause) bool { return c.Cause == report.CauseCPU })
	if costly == nil || !isCost(top.Cause) {
		return nil, nil
	}
	return costly, isCost
}

// A lockHold describes what the holder of a lock does while others wait for the lock.
type lockHold struct {
	holder    *report.Site // the line where the holder is
	work      *report.Site // the innermost line that is in the package of the function that took the lock; nil: unknown
	awaited   string       // the holder's wait, if another goroutine does the work that takes the time; else ""
	isForSlot bool         // it waits for a slot that the other goroutine holds
	// isReceiver: the slot is a place in the channel that the other goroutine receives from.
	isReceiver bool
	// What requests do under the lock: see cacheWork and haveSeparateCalls.
	cached                   *report.Site
	isOneResult, areSeparate bool
}

// lockHoldOf returns what the holder of a candidate's lock does. If the route top continues from the lock through another wait,
// that wait is the holder's: it waits for another goroutine while it holds the lock. A goroutine in a library may work for the
// holder alone, so it does not count as another one.
func (a *attribution) lockHoldOf(cand *candidate, top *causeRoute) (hold lockHold) {
	hold.holder = top.nonStdSite()
	if u := a.holderLine(cand, top); u != nil {
		hold.work = u.Work
	}
	i := slices.IndexFunc(top.via, func(v report.Via) bool { return a.canonicalWait(waitKeyOf(&v)) == cand.wait })
	for i >= 0 && i < len(top.via) && isLockWait(waitKeyOf(&top.via[i])) {
		i++ // an earlier holder of the lock, or of one that its holder waits for
	}
	if i <= 0 || i >= len(top.via) || top.Site == nil || isStdSite(top.Site) {
		return hold
	}
	next := &top.via[i]
	if next.Site == nil || top.Site.Module != "" && (top.Site.CalledFrom == nil || next.Site.Module == top.Site.Module) || top.ownLine().LineKey() == next.Site.OwnLine().LineKey() {
		return hold
	}
	hold.holder = next.Site.OwnLine()
	hold.awaited, hold.isForSlot = a.slotText(next)
	// A place that is taken outside of the lock must be waited for by each request that needs one.
	hold.isReceiver = next.Wait == report.WaitChanSend && slices.ContainsFunc(cand.routes, func(r causeRoute) bool {
		return len(r.via) > 0 && waitKeyOf(&r.via[0]) == waitKeyOf(next)
	})
	return hold
}

// slotText returns a phrase for what a wait is for, such as a connection or a place in a channel, and whether that is a slot,
// which another goroutine must release.
func (a *attribution) slotText(v *report.Via) (name string, isSlot bool) {
	wait := waitKeyOf(v)
	slots := a.in.slotWaitsAt(wait)
	switch library := libraryAt(v.Site); {
	case isStdPool(v.Call):
		return stdPool(v.Call).slotPhrase("phrase connection", 0), true
	case library != nil && library.poolAdvice != "":
		return library.slotPhrase("phrase connection", 0), true
	case isSemaphoreWait(wait):
		return textOf("phrase semaphore"), true
	case wait.kind == report.WaitChanSend:
		return textOf("phrase place-in-channel"), true
	case isSlotPool(slots), a.queueWaits[wait]:
		return textOf("phrase place"), true
	}
	return textOf("phrase other-goroutine-short"), false
}

// movableWork returns the line of the service whose work happens while a lock or slot is held and could happen before or after:
// the call in the function that took the lock or slot, if that call was seen, else the line where the holder is.
func (a *attribution) movableWork(cand *candidate, top *causeRoute) *report.Site {
	if u := a.holderLine(cand, top); u != nil && waitingWriter(top.via) == nil { // there it is the line of the writer, which waits itself
		return u.Line
	}
	return top.nonStdSite()
}

// holderLine returns the line of the service that works in the function that took a candidate's lock or slot; nil if the trace
// does not show it.
func (a *attribution) holderLine(cand *candidate, top *causeRoute) *queues.HolderLine {
	return firstMatch(a.in.HolderLines, func(u *queues.HolderLine) bool {
		return u.WaitSite.LineKey() == cand.wait.site && u.HolderSite.Matches(top.Site) && isOwnCode(u.Line)
	})
}

// waitingWriter returns where a writer waits for an RWMutex, on a route that leads to it from a reader of the same; nil on other routes. That
// writer waits for a reader: if it waited for another writer, the unlocking of that one would have let the readers go first.
func waitingWriter(via []report.Via) *report.Site {
	for i := 1; i < len(via); i++ {
		if knowledge.Has(via[i-1].Call, knowledge.ReadLock) && knowledge.Has(via[i].Call, knowledge.WriteLock) {
			return via[i].Site
		}
	}
	return nil
}

// heaviestContendedRoute returns the longest route through a contended wait to its holder; if there is none, the longest of all. routes
// must not be empty and is sorted by time.
func heaviestContendedRoute(attr *attribution, routes []causeRoute) *causeRoute {
	return cmp.Or(firstMatch(routes, attr.leadsToHolder), &routes[0])
}

// leadsToHolder reports whether a route leads through a contended wait to its holder: no timer ended that wait.
func (a *attribution) leadsToHolder(route *causeRoute) bool {
	_, ok := a.contendedWait(route.via)
	return ok && !isAcquireTimeout(route.Cause, route.via)
}

// holderEvidence lists the three kinds of work with which holders spent most of the time that others waited, as shares of
// totalNS.
func holderEvidence(attr *attribution, cand *candidate, totalNS int64) (out []report.Evidence) {
	type sum struct {
		work  causeSite
		route *causeRoute
		ns    int64
	}
	var sums []sum
	for route := range each(cand.reportedRoutes()) {
		if !attr.leadsToHolder(route) {
			continue
		}
		work := causeSiteOf(route.Cause)
		entry.FindOrAppend(&sums, func(s sum) bool { return s.work == work }, sum{work: work, route: route}).ns += route.routeNS
	}
	slices.SortStableFunc(sums, func(a, b sum) int { return cmp.Compare(b.ns, a.ns) }) // many short routes may be longer than one
	for _, s := range sums[:min(len(sums), 3)] {
		if ratio(s.ns, totalNS) >= 0.03 {
			out = append(out, evidenceOf("evidence lock-holder", ratio(s.ns, totalNS), "share", "activity", s.route.activity()))
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

// lockWithLine names a lock by the file and line at which requests take it. A holder that computes in another function may have taken it
// elsewhere.
func lockWithLine(cand *candidate, top *causeRoute) string {
	line := cmp.Or(lineOfWait(cand, top), cand.wait.site.Site())
	switch position := names.Position(line); {
	case position == "":
	case top.Cause.Cause == report.CauseCPU && line.Func != top.ownLine().Func:
		return textOf("phrase the-lock-awaited", "line", position)
	default:
		return textOf("phrase the-lock-of", "line", position)
	}
	return textOf("phrase the-lock")
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
