package finding

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkPoolTooSmall is WL2003, pool-too-small: requests queue for a slot, a server or a limiter. It selects the verdict by the
// kind of queue: a loop's next message, a slot that was not released in time, an intended rate, or a pool.
func checkPoolTooSmall(attr *attribution, cand *candidate) Verdict {
	switch top := heaviestContendedRoute(attr, cand.routes); {
	case cand.candidateKey == backlogKey:
		return backlogVerdict(attr, cand, top)
	case isAcquireTimeout(top.Cause, top.via):
		return acquireTimeoutVerdict(attr, cand, top)
	case cand.wait == waitKey{} || attr.tickerIntervalNS(top) != 0:
		return limiterVerdict(attr, cand, top)
	default:
		return poolVerdict(attr, cand, top)
	}
}

// A littleLaw describes a pool that requests queue for, by Little's law.
type littleLaw struct {
	rate       float64 // requests per second
	waitNS     float64 // mean wait
	holdNS     float64 // mean time for which a slot is held
	waiting    float64 // L of the queue
	inUse      float64 // L of the slots
	sufficient int     // number of slots that suffice for the requests that arrive
}

// newLittleLaw applies Little's law (L = rate * time) to a pool: requests is the number that arrived within durationNS, queuedNS
// their total time in the queue, holdNS the mean time for which a slot is held. sufficient is left 0.
func newLittleLaw(requests int, durationNS, queuedNS int64, holdNS float64) (l littleLaw) {
	if requests == 0 || durationNS <= 0 {
		return l
	}
	l.rate = float64(requests) / float64(durationNS) * 1e9
	l.waitNS, l.holdNS = float64(queuedNS)/float64(requests), holdNS
	l.waiting = l.rate * l.waitNS / 1e9
	l.inUse = l.rate * l.holdNS / 1e9
	return l
}

// A poolFacts describes a pool that requests queue for: by Little's law, by the slots' own events, or by the
// servers.
type poolFacts struct {
	littleLaw
	kind           poolKind
	slots          *queues.SlotWaits    // its slots, as far as the trace shows them; nil otherwise
	service        *queues.ServiceStats // service behind the wait; nil if unknown
	tasks          *queues.TaskWaits    // the tasks that queue for its workers; nil if none do
	load           *queues.SharedLoad   // one of its holders' calls would do for all that queue; nil if that is not known
	bulk           *report.Site         // where requests of another group wait for many of the unawaited tasks; nil if none do
	hasServers     bool                 // goroutines serve the queue, one request at a time
	isHandover     bool                 // requests wait only until a server that asks a peer takes their message
	isForeignWork  bool                 // the only server also does other work than that of most requests, and they queue behind that
	isLibraryLoop  bool                 // a library has the only server, or each of its servers has a queue of its own: their number is no choice of the service
	isBursty       bool                 // the number of slots needed depends on how many requests arrive together, which is unknown
	isSharedOnly   bool                 // requests would not queue if goroutines in the background held no slots
	isUnawaited    bool                 // the servers mostly do tasks that these requests do not wait for
	isUneven       bool                 // most of the servers are idle while requests queue for one
	holdersCompute bool                 // its holders spend their time computing
	serviceNS      int64                // the request's own service time, if it is part of the wait
	holderActivity string               // phrase for the activity of its holders
	isScattered    bool                 // the holders' activity is at many lines
	isForLongCalls bool                 // calls of other groups hold the slots, for far longer than these requests would
	callsOtherPeer bool                 // its holders call another service, for which they need no slot
	queuedNS       int64                // time for which requests queued
}

// poolFactsOf collects the facts about the pool of a candidate: its kind, its slots or servers, how long they are held, and how
// many would suffice. top is the heaviest contended route of the candidate. The time for which a slot is held comes from the
// slot's own events, else from the service time of the server, else from the requests' time behind the queue.
func (a *attribution) poolFactsOf(cand *candidate, top *causeRoute) *poolFacts {
	facts := &poolFacts{slots: a.in.slotWaitsAt(cand.wait), service: a.in.serviceAt(top.Cause, top.via), holdersCompute: top.Cause.Cause == report.CauseCPU, holderActivity: top.activity()}
	service := facts.service
	isQueued := service != nil && slices.ContainsFunc(top.via, func(v report.Via) bool { return waitKeyOf(&v) == cand.wait && isQueue(service, top.Cause, &v) })
	isOneCall := isConnectionQueue(facts.slots) && !isStdPool(cand.wait.call)
	if !isSlotPool(facts.slots) && (isOneCall || !isConnectionPool(facts.slots, cand, top) && (isQueued || !isWorkerPool(facts.slots))) {
		facts.slots = nil
	}
	facts.kind = poolKindOf(cand, top, service, facts.slots)
	if isOneCall && !facts.kind.isConnection {
		facts.kind = serverKind(textOf("phrase one-call-connection"), textOf("fix pool-more-connections"))
		facts.kind.isConnection, facts.kind.slotNoun = true, "connection"
	}
	facts.isUneven = facts.slots == nil && isUnevenlyDivided(service)
	facts.load = firstMatch(a.in.SharedLoads, func(l *queues.SharedLoad) bool {
		return top.ownLine() != nil && l.Line == top.ownLine().Line && l.File == top.ownLine().File
	})
	queuedNS, ownNS, requests := a.queueTimes(cand)
	facts.queuedNS = queuedNS
	// A worker's time for a request is on no other request's path: the last service time before the
	// wait ends is the request's own.
	hasServers := service != nil && service.OtherRequestShare <= 0.5 && facts.slots == nil
	holdNS := float64(ownNS) / float64(max(requests, 1))
	if tasks := a.in.taskWaitsAt(cand.wait); facts.slots == nil && tasks.IsQueue() {
		facts.tasks = tasks
	}
	if facts.slots != nil && facts.slots.HoldNS > 0 && (ownNS == 0 || !isHeldInBackground(facts.slots)) {
		holdNS = float64(facts.slots.HoldNS)
	} else if facts.tasks != nil && !isQueued {
		holdNS, facts.serviceNS = float64(facts.tasks.OwnNS()), facts.tasks.OwnNS()
		queuedNS = max(0, queuedNS-facts.serviceNS*int64(requests))
	} else if hasServers && ownNS == 0 {
		if holdNS = float64(service.ServiceNS); service.UnawaitedShare > threshold.HalfShare {
			facts.isUnawaited, holdNS = true, float64(service.DirectNS)
		} else if isSerialCaller(service, top.Cause) {
			holdNS /= service.BatchSize // for each of the requests that it serves after one answer
		}
		isHandover := a.isHandover(cand)
		if facts.isHandover = isSerialCaller(service, top.Cause) && isHandover; !isHandover {
			facts.serviceNS = int64(holdNS)
			queuedNS = max(0, queuedNS-int64(holdNS*float64(requests)))
		}
	}
	if share := a.sameWorkShare(cand, top); facts.holdersCompute && share < threshold.HalfShare {
		facts.holderActivity, facts.isScattered = textOf("phrase pool-computes", "site", top.nonStdSite()), true
	} else if facts.holdersCompute && top.Cause.SiteFrom == inferredSource && facts.slots != nil {
		facts.holderActivity, facts.isScattered = textOf("phrase pool-inferred", "activity", facts.holderActivity), true // the line may be that of the release
	}
	facts.littleLaw = newLittleLaw(requests, a.in.Report.Input.DurationNS, queuedNS, holdNS)
	facts.setSlotsInUse(requests, a.openRequestsAt(cand.wait))
	facts.callsOtherPeer = facts.kind.isConnection && !isHeldInBackground(facts.slots) && callsOtherPeer(cand, top)
	facts.isForLongCalls = facts.kind.isConnection && facts.slots != nil && !isHeldInBackground(facts.slots) && a.isForLongCalls(cand, top, holdNS)
	// A goroutine that works for the holder of a semaphore's slot is not the slot.
	facts.hasServers = hasServers && !isStdPool(cand.wait.call)
	if isSemaphoreWait(cand.wait) && facts.slots == nil && (service == nil || facts.hasServers) {
		facts.hasServers, facts.isBursty = false, true
	}
	// Requests that queue although most slots are free come in bursts: at least one more slot than today is needed.
	facts.sufficient = max(facts.sufficient, 2)
	if facts.hasServers {
		facts.sufficient = max(facts.sufficient, service.MaxServers+1)
		if facts.isUneven {
			facts.sufficient = service.Workers
		}
	}
	if facts.slots != nil {
		facts.sufficient = max(facts.sufficient, facts.slots.Slots+1, facts.slots.Demand)
		if facts.kind.slotNoun == permitSlot {
			facts.sufficient = max(facts.sufficient, facts.slots.Slots+facts.slots.MaxWaiters)
		}
	}
	facts.isForeignWork = facts.hasServers && service.MaxServers == 1 && facts.holdersCompute && !facts.isScattered && isOwnCode(top.nonStdSite()) &&
		(float64(top.Requests) < threshold.HalfShare*float64(requests) || a.isLongerThanQueue(top, service))
	facts.isLibraryLoop = facts.hasServers && !facts.kind.isConnection && (isOnlyServer(service, &top.via[0]) || loopLibrary(top) != nil)
	if facts.isUnawaited = facts.isUnawaited && !facts.isForeignWork && !facts.isLibraryLoop; facts.isUnawaited {
		facts.bulk = a.bulkProducer(top, holdNS)
	}
	// If holders compute, more slots than Ps gain nothing.
	if procs := a.in.Report.Input.GOMAXPROCS; facts.holdersCompute && procs >= 2 {
		if facts.slots != nil {
			procs = max(procs, facts.slots.Slots)
		}
		facts.sufficient = min(facts.sufficient, procs)
	}
	return facts
}

// isLongerThanQueue reports whether slow requests wait for the work of a route for far longer than it takes for all of a queue, if each needs
// as much of it as the faster half of the requests. A queue is about twice as long at its end as on average.
func (a *attribution) isLongerThanQueue(top *causeRoute, service *queues.ServiceStats) bool {
	workNS := func(b *report.Band) (ns int64) {
		for c := range each(b.Causes) {
			if causeSiteOf(c) == causeSiteOf(top.Cause) {
				ns += c.TotalNS
			}
		}
		return ns
	}
	fastNS, fastCount, slow := workNS(a.group.All()), a.group.All().Count, a.group.Tail()
	for b := range each(a.group.Bands) {
		if b.Band != report.BandAll && b.Band != report.BandOutliers {
			fastNS, fastCount = fastNS-workNS(b), fastCount-b.Count
		}
	}
	queueNS := 2 * service.WaitersPerServer * float64(fastNS) / float64(max(fastCount, 1))
	return float64(workNS(slow))/float64(max(slow.Count, 1)) > threshold.FarFactor*queueNS
}

// isForLongCalls reports whether requests queue for a slot because calls of other groups hold it, for far longer (holdNS) than they would: at a
// line that is not theirs, for an answer.
func (a *attribution) isForLongCalls(cand *candidate, top *causeRoute, holdNS float64) bool {
	if !isPeerWait(top.Cause) || a.sameWorkShare(cand, top) < threshold.HalfShare {
		return false
	}
	var ownNS int64
	for c, route := range a.routes(a.group.All()) {
		if _, isQueued := a.contendedWait(route.Via); isQueued || c.Cause != top.Cause.Cause || c.Site.LineKey() != top.Site.LineKey() {
			continue
		}
		if ownNS += route.TotalNS; nonStdSite(c, route.Via).OwnLine().Equal(top.ownLine()) {
			return false
		}
	}
	return threshold.FarFactor*float64(ownNS) < holdNS*float64(a.group.All().Count)
}

// loopLibrary returns the library in which requests wait for goroutines that each serve a queue of their own, such as actors, if it has advice
// for that; else nil.
func loopLibrary(top *causeRoute) *library {
	if l := libraryAt(top.via[0].Site); l != nil && l.loopAdvice != "" {
		return l
	}
	return nil
}

// isHandover reports whether requests wait only until a goroutine takes their message, and not for its work.
func (a *attribution) isHandover(cand *candidate) bool {
	return !slices.ContainsFunc(cand.routes, func(r causeRoute) bool {
		wait, _ := a.contendedWait(r.via)
		slots := a.in.slotWaitsAt(wait)
		return slots == nil || slots.SendShare <= threshold.HalfShare
	})
}

// setSlotsInUse computes how many slots are in use on average (inUse), and how many suffice for that. Little's law was applied to
// the requests that ended; open ones hold slots as well. While requests queue, all slots are in use. If goroutines in the
// background hold the slots, only that last number counts.
func (p *poolFacts) setSlotsInUse(ended, open int) {
	p.inUse *= float64(ended+open) / float64(max(ended, 1))
	if p.slots != nil {
		usedNow := float64(p.slots.Slots) * p.slots.QueuedShare
		p.isSharedOnly = isHeldInBackground(p.slots) && predict.SufficientSlots(p.inUse) <= p.slots.Slots
		if p.inUse = max(p.inUse, usedNow); isHeldInBackground(p.slots) {
			p.inUse = usedNow
		}
	}
	p.sufficient = predict.SufficientSlots(p.inUse)
}

// openRequestsAt returns how many of the group's requests are in a wait when the trace ends.
func (a *attribution) openRequestsAt(wait waitKey) (n int) {
	for w := range each(a.group.Open.Waits) {
		if w.Site != nil && w.Site.LineKey() == wait.site {
			n += w.Count
		}
	}
	return n
}

// isHeldInBackground reports whether goroutines that serve no request hold the slots for at least half of the time.
func isHeldInBackground(slots *queues.SlotWaits) bool {
	return slots != nil && slots.Slots > 0 && slots.BackgroundHolders > 0 && slots.BackgroundShare >= threshold.HalfShare
}

// queueTimes returns, for the pool of a candidate, the total time that requests queued, the total time at the same site without
// a queue (the time for which they held a slot themselves), and the number of requests on the route with the most.
func (a *attribution) queueTimes(cand *candidate) (queuedNS, ownNS int64, requests int) {
	for p := range each(cand.routes) {
		if _, ok := a.contendedWait(p.via); ok {
			queuedNS += p.routeNS
		} else {
			ownNS += p.routeNS
		}
		requests = max(requests, p.Requests)
	}
	return queuedNS, ownNS, requests
}

// isSizeKnown reports whether the number of slots is known. All slots are in use while a request waits. If the slots in use by
// Little's law contradict that, the holders spend time elsewhere: then neither the time for which slots are held nor the
// sufficient number is known.
func (p *poolFacts) isSizeKnown() bool {
	return p.hasServers || p.slots != nil && (p.slots.Slots > 0 || p.slots.HoldNS > 0) || 2*p.inUse >= 1 || p.waiting < 1
}

// additionalConnections returns how many connections a library's pool needs in addition to those that were seen in use; 0 if that
// is not known. The pool may be larger: a connection that a blocking command keeps is not released while requests queue, and so
// not seen.
func (p *poolFacts) additionalConnections() int {
	if !p.kind.isSharedConnection || p.slots == nil || p.slots.Slots == 0 {
		return 0
	}
	return max(1, p.sufficient-p.slots.Slots)
}

// wideHolder returns the line at which holders take many units of a semaphore at once, nil if there is none. The number of
// holders is then not the number of slots.
func (p *poolFacts) wideHolder() *report.Site {
	if p.slots == nil || p.slots.WideHolder == nil {
		return nil
	}
	return p.slots.WideHolder.OwnLine()
}

// otherTask returns where workers begin the tasks behind which requests queue, if these are others than theirs; else nil.
func (p *poolFacts) otherTask() *report.Site {
	if p.tasks == nil {
		return p.bulk
	}
	return p.tasks.Task
}

// bulkProducer returns where requests of another group wait, all at once, for many tasks that end like a route. Events do not show who put a task
// into a channel.
func (a *attribution) bulkProducer(top *causeRoute, holdNS float64) *report.Site {
	for group := range each(a.in.Report.Groups) {
		if group.ID == a.group.ID {
			continue
		}
		for c, route := range a.in.attributionOf(group).routes(group.All()) {
			if causeSiteOf(c) == causeSiteOf(top.Cause) && len(route.Via) > 0 && route.Via[0].Wait == report.WaitGroup &&
				float64(route.TotalNS) >= threshold.FarFactor*holdNS*float64(group.Count) {
				return route.Via[0].Site.OwnLine()
			}
		}
	}
	return nil
}

// lineOfWait returns the service's line at which a candidate's requests wait on a route.
func lineOfWait(cand *candidate, top *causeRoute) *report.Site {
	if v := firstMatch(top.via, func(v *report.Via) bool { return waitKeyOf(v) == cand.wait }); v != nil {
		return v.Site.OwnLine()
	}
	return nil
}

// poolVerdict returns the verdict on a pool with too few slots, or on a limit within each request (fanOutVerdict). Its gain is
// the time in the queue.
func poolVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	if slotWaits := attr.in.slotWaitsAt(cand.wait); isFanOutLimit(cand.wait, slotWaits) {
		return fanOutVerdict(attr, cand, top, slotWaits)
	}
	facts := attr.poolFactsOf(cand, top)
	v := attr.newVerdict(cand, top)
	if l := cand.sharingLibrary(); l != nil {
		return cand.sharedVerdict(v, l, top)
	}
	title := textKey("title pool")
	switch {
	case facts.kind.isConnection && !facts.isScattered && isPeerWait(top.Cause) && (top.ownLine() != top.nonStdSite() || isHeldInBackground(facts.slots)):
		title, facts.holderActivity = "title pool-held-by", textOf("phrase waits-for-answer") // the line that the title names asks for it
	case facts.kind.hasHolder, facts.kind.isConnection:
		title = "title pool-held"
	}
	v.Title = textOf(title, "pool", facts.kind.name, "activity", facts.holderActivity, "holder", facts.holderText(top))
	if site := facts.wideHolder(); site != nil {
		title, line := textKey("title pool-wide"), lineOfWait(cand, top)
		if v.Site = site; facts.slots.ReleasesFewToo {
			title, v.Site = "title pool-wide-some", line
		}
		v.Title = textOf(title, "holder", site, "site", line, "n", words.Figure(math.Round(facts.slots.WaitsPerRelease)))
	}
	if facts.isUneven {
		v.Title = textOf("title pool-uneven", "n", facts.service.Workers, "idle", facts.service.IdleWorkers, "activity", facts.holderActivity)
	}
	if task := facts.otherTask(); task != nil {
		v.Title, v.Site = textOf("title pool-other-tasks", "pool", facts.kind.name, "task", task), task
	} else if facts.isUnawaited {
		v.Title, v.Site = textOf("title pool-unawaited", "pool", facts.kind.name), lineOfWait(cand, top)
		v.addEvidence(evidenceOf("evidence pool-unawaited", facts.service.UnawaitedShare, "share"))
	}
	if facts.load != nil {
		v.Title = textOf("title pool-shared-load", "pool", facts.kind.name, "site", top.ownLine())
		v.addEvidence(evidenceOf("evidence shared-load", facts.load.Callers, "count", "n", facts.load.Callers+facts.load.Passers, "loads", facts.load.Loads))
	}
	if facts.holdersCompute && !(facts.isForeignWork && attr.in.Report.Runtime.Sched.PsIdle >= threshold.HalfShare) {
		v.doubt(0.7, textOf("phrase doubt-holders-compute"))
	}
	facts.addPoolNumbers(&v, cand)
	v.addEvidence(holderEvidence(attr, cand, facts.queuedNS)...)
	v.Fix = attr.slotAdvice(cand, top, facts)
	_, v.Gain = gainWithoutRoutes(attr.group, func(cause *report.Cause, via []report.Via) bool {
		_, ok := attr.contendedWait(attr.withTimedWait(cause, via))
		return ok && attr.candidateKeyOf(cause, via) == cand.candidateKey
	})
	v.Queue = attr.reportQueue(cand, facts.kind.nameWithoutSite)
	v.Changes, v.ChangeText = attr.slotChanges(cand, top, facts, v.Queue)
	if isFinalizerWait(top.Cause) {
		v.Title, v.Fix, v.Site = textOf("title pool-finalized", "pool", facts.kind.nameWithoutSite), textOf("fix pool-finalized", "site", lineOfWait(cand, top)), lineOfWait(cand, top)
		v.ChangeText = textOf("phrase change-released")
	}
	if site := attr.wakeUpSite(cand); site != nil {
		v.Title, v.Fix, v.Site, v.Changes = textOf("title pool-woken", "site", site), textOf("fix pool-woken", "site", site), site, []predict.Change{}
	}
	if v.Queue.OwnNS = facts.serviceNS; facts.tasks != nil {
		v.Gain = v.Gain.beyond(facts.serviceNS)
	}
	return v
}

// wakeUpSite returns the line at which the goroutine that serves the requests of a candidate waits for the next request to wake it, if the
// candidate's requests, which had woken it or found it awake, wait for that most of the time; else nil.
func (a *attribution) wakeUpSite(cand *candidate) (site *report.Site) {
	var idleNS, totalNS int64
	for r := range each(cand.routes) {
		totalNS += r.routeNS
		if len(r.via) == 2 && verdict.IsNextRequest(r.Cause, r.via) && isOwnCode(r.via[1].Site) {
			site, idleNS = r.via[1].Site, idleNS+r.routeNS
		}
	}
	if waits := a.in.longWaitsAt(cand.wait.site.Site()); 2*idleNS < totalNS || waits == nil || waits.HandoverShare < threshold.HalfShare {
		return nil
	}
	return site
}

// sharedVerdict rewrites v for requests that wait in a library for work that others have queued there. The change is that none waits.
func (c *candidate) sharedVerdict(v Verdict, l *library, top *causeRoute) Verdict {
	v.Site = lineOfWait(c, top)
	v.Title, v.Fix, v.ChangeText = textOf("title pool-shared", "library", l.name, "site", v.Site), l.fix(l.shareAdvice), textOf("phrase change-unshared")
	v.addSlowEvidence(evidenceOf("evidence slow-mean", c.gain.Slow.NS, "ns"))
	return v
}

// slotChanges returns the changes that give a pool enough slots, and their text: the sufficient number at each line where
// requests wait for a slot or, if the number of slots is unknown, that no request queues. It makes the pool known to predictions
// (Input.AddPool). It returns no change if holders compute and the Ps have no room for more of them.
func (a *attribution) slotChanges(cand *candidate, top *causeRoute, facts *poolFacts, queue *report.Queue) (changes []predict.Change, text string) {
	changes = []predict.Change{}
	if isClientWork(top, facts) || facts.callsOtherPeer {
		line := top.nonStdSite()
		if !facts.callsOtherPeer {
			line = a.movableWork(cand, top)
		}
		if c := predict.Unlock(predict.SiteText(line, top.Cause.Cause)); a.in.predict(a.group.ID, c) != nil {
			return append(changes, c), textOf("phrase change-unlock-slot")
		}
	}
	if facts.isForeignWork {
		return a.withoutForeignWork(cand, top), textOf("phrase change-elsewhere")
	}
	if facts.isLibraryLoop && !isPeerWait(top.Cause) && !a.isHandover(cand) || facts.holdersCompute && (2*facts.poolAt(nil).Slots > a.in.Report.Input.GOMAXPROCS || a.in.Report.Runtime.Sched.PsIdle < threshold.HalfShare) {
		return changes, ""
	}
	isOwnPool := facts.isUnawaited || facts.otherTask() != nil || facts.isForLongCalls || facts.isSharedOnly
	isSizeUnknown := facts.load != nil || facts.isLibraryLoop || isFinalizerWait(top.Cause) || isOwnPool || facts.isBursty || facts.isHandover || !facts.isSizeKnown() || facts.wideHolder() != nil
	for wait := range each(queue.Waits) {
		if a.in.AddPool != nil {
			a.in.AddPool(facts.poolAt(wait.Site))
		}
		site := wait.Call
		if !isStdPool(wait.Call) {
			site = predict.SiteText(wait.Site.LineKey().Site(), "")
		}
		c := predict.Slots(site, facts.sufficient)
		if isSizeUnknown {
			c = predict.Remove(predict.Queue, site)
		}
		if !slices.Contains(changes, c) {
			changes = append(changes, c)
		}
	}
	for r := range each(cand.routes) {
		if verdict.IsTimedWait(r.Cause, r.via) {
			changes = append(changes, predict.Remove(report.CauseSleep, predict.SiteText(r.Site.LineKey().Site(), "")))
			break // all are at the pool's line
		}
	}
	switch {
	case isOwnPool:
		return changes, textOf("phrase change-own-pool")
	case facts.load != nil:
		return changes, textOf("phrase change-one-load")
	case isSizeUnknown:
		return changes, textOf("phrase change-no-queue")
	case facts.kind.isConnection:
		return changes, textOf("phrase change-connections", "n", facts.sufficient, "slot", facts.kind.slotNoun)
	case facts.isUneven:
		return changes, textOf("phrase change-shared", "n", facts.sufficient)
	case facts.hasServers:
		return changes, textOf("phrase change-servers", "n", facts.sufficient, "server", "goroutine")
	}
	return changes, textOf("phrase change-slots", "n", facts.sufficient)
}

// withoutForeignWork returns the changes after which the only server of a queue does not do the work of a route. Computing at other
// lines of the same goroutine that only the events around it show was perhaps that work, too: it then takes as long as in fast requests.
func (a *attribution) withoutForeignWork(cand *candidate, top *causeRoute) []predict.Change {
	changes := []predict.Change{predict.Remove(report.CauseCPU, predict.SiteText(top.nonStdSite(), report.CauseCPU))}
	fast := a.group.Band(report.Band5090)
	for r := range each(cand.routes) {
		if r.Cause.Cause != report.CauseCPU || r.SiteFrom != inferredSource || len(r.via) != len(top.via) || fast == nil || fast.Count == 0 {
			continue
		}
		if usual := firstMatch(fast.Causes, func(c *report.Cause) bool { return c.Cause == r.Cause.Cause && c.Site.Equal(r.Site) }); usual != nil {
			changes = append(changes, predict.Change{Cause: report.CauseCPU, Site: predict.SiteText(r.Site, report.CauseCPU), To: time.Duration(usual.TotalNS / int64(fast.Count))})
		}
	}
	return changes
}

// isClientWork reports whether holders wait for their clients while they hold a slot, which they could do before they take the
// slot.
func isClientWork(top *causeRoute, facts *poolFacts) bool {
	return top.Cause.Cause == report.CauseNetwork && top.Cause.Kind == "inbound" && !facts.kind.isSingleSlot
}

// poolAt returns the pool as predictions need it, for the waits at a site. If the number of slots is unknown, it is the number in
// use, because all are in use while requests wait.
func (p *poolFacts) poolAt(site *report.Site) predict.Pool {
	out := predict.Pool{Site: site, Slots: int(max(1, math.Ceil(p.inUse-0.05))), HoldNS: int64(p.holdNS), OwnNS: p.serviceNS}
	switch {
	case p.slots != nil && p.slots.Slots > 0:
		out.Slots = p.slots.Slots
	case p.hasServers:
		out.Slots = p.service.MaxServers
	}
	return out
}

// addPoolNumbers adds the numbers of a pool as evidence: rate, wait, time held, requests in the queue, slots in use, and slots
// that suffice.
func (p *poolFacts) addPoolNumbers(v *Verdict, c *candidate) {
	if p.slots == nil {
		v.addEvidence(evidenceOf("evidence pool-rate", p.rate, "1/s", "pool", p.kind.name))
	} else {
		v.addEvidence(evidenceOf("evidence pool-max-waiters", p.slots.MaxWaiters, "count", "pool", p.kind.shortName()))
	}
	v.addEvidence(
		evidenceOf("evidence pool-wait", p.waitNS, "ns", "site", c.wait.site.Site()),
		evidenceOf("evidence pool-hold", p.holdNS, "ns"),
		evidenceOf("evidence pool-waiting", p.waiting, "count"),
		evidenceOf("evidence pool-in-use", p.inUse, "count"))
	if p.slots != nil {
		v.addEvidence(evidenceOf("evidence pool-rate", p.rate, "1/s", "pool", p.kind.shortName()))
		if p.slots.Slots > 0 && p.wideHolder() == nil {
			v.addEvidence(evidenceOf("evidence pool-size", p.slots.Slots, "count"))
		}
	}
	if p.hasServers {
		v.addEvidence(evidenceOf("evidence pool-goroutines", p.service.MaxServers, "count"))
	}
	if p.isUneven {
		v.addEvidence(evidenceOf("evidence pool-idle", p.service.IdleWorkers, "count", "n", p.service.Workers))
	} else if p.load == nil && !p.isUnawaited && !p.isBursty && p.isSizeKnown() && !p.kind.isSharedConnection && p.wideHolder() == nil {
		v.addEvidence(evidenceOf("evidence pool-sufficient", p.sufficient, "count"))
	}
}

// callsOtherPeer reports whether the holder of a connection waits for the answer to a call of another service, which does not need
// that connection.
func callsOtherPeer(cand *candidate, top *causeRoute) bool {
	return cand.wait.call != httpSlotFunc && top.Cause.Cause == report.CauseNetwork && slices.ContainsFunc(top.via, func(v report.Via) bool {
		return knowledge.Has(v.Call, knowledge.HTTP1RoundTrip) || knowledge.Has(v.Call, knowledge.PeerCall)
	})
}

// isPeerWait reports whether a cause is a wait for a peer, whose work no line of the service can shorten.
func isPeerWait(c *report.Cause) bool   { return c.Cause == report.CauseNetwork && c.Kind != "inbound" }
func isClientWait(c *report.Cause) bool { return c.Cause == report.CauseNetwork && c.Kind == "inbound" }

// slotAdvice returns the fix of a pool: more slots, with a number where it is known, or a shorter or earlier use of a slot,
// depending on what its holders do.
func (a *attribution) slotAdvice(cand *candidate, top *causeRoute, facts *poolFacts) string {
	switch site, task := facts.wideHolder(), facts.otherTask(); {
	case site != nil && facts.slots.ReleasesFewToo:
		return textOf("fix pool-wide-some", "site", lineOfWait(cand, top))
	case site != nil:
		return textOf("fix pool-wide", "holder", site)
	case facts.load != nil:
		return textOf("fix shared-load", "site", top.ownLine())
	case facts.isUneven:
		return textOf("fix pool-uneven", "n", facts.service.Workers)
	case task != nil:
		return textOf("fix pool-other-tasks", "task", task)
	case facts.isUnawaited:
		return textOf("fix pool-unawaited", "site", lineOfWait(cand, top))
	}
	if facts.isForeignWork || facts.isLibraryLoop {
		fix := textOf("fix pool-library-loop", "site", top.nonStdSite())
		if facts.isForeignWork {
			fix = textOf("fix pool-foreign-work", "site", top.nonStdSite())
		}
		if l := loopLibrary(top); l != nil {
			advice := textOf("fix in-library", "library", l.name, "advice", l.loopAdvice)
			if fix = textOf("fix pool-unused", "fix", fix, "advice", advice); isPeerWait(top.Cause) {
				fix = textOf("fix backlog-loop", "site", top.nonStdSite(), "advice", advice)
			}
		}
		return fix
	}
	workSite, holdText := top.nonStdSite(), words.Brief(int64(facts.holdNS))
	size, additional, copies := facts.poolAt(nil).Slots, facts.additionalConnections(), "several"
	if additional > 0 {
		copies = fmt.Sprint((size + additional + size - 1) / size)
	}
	fix := strings.ReplaceAll(facts.kind.advice, "{n}", copies)
	switch {
	case facts.isHandover:
		fix = textOf("fix pool-asks-for-all")
	case facts.hasServers && isSerialCaller(facts.service, top.Cause):
		fix = textOf("fix pool-asks-elsewhere")
	}
	if line := names.Position(lineOfWait(cand, top)); facts.kind.hasHolder && line != "" {
		fix = textOf("fix pool-at-line", "fix", fix, "line", line)
	}
	switch {
	case !facts.isSizeKnown(), strings.Contains(facts.kind.advice, "{n}"):
	case additional > 0:
		fix = textOf("fix pool-more", "fix", fix, "n", size+additional, "now", size)
	case facts.kind.isSharedConnection || size >= facts.sufficient:
	case facts.slots != nil && facts.slots.Slots > 0 || facts.hasServers:
		fix = textOf("fix pool-enough-instead", "fix", fix, "n", facts.sufficient, "now", size)
	default:
		fix = textOf("fix pool-enough", "fix", fix, "n", facts.sufficient, "now", size)
	}
	if facts.kind.isSingleSlot || facts.kind.hasHolder && facts.isSizeKnown() && size == 1 {
		fix = textOf("fix pool-one-slot", "fix", fix)
	}
	switch {
	case facts.callsOtherPeer:
		fix = textOf("fix pool-call-before", "fix", fix, "site", workSite, "slot", facts.kind.slotNoun)
	case facts.isForLongCalls:
		fix = textOf("fix pool-long-calls", "site", top.ownLine(), "pool", cmp.Or(stdPool(cand.wait.call).poolName, textOf("phrase pool")), "time", holdText, "fix", fix)
	case isHeldInBackground(facts.slots):
		fix = textOf("fix pool-background", "holders", facts.holderText(top), "pool", cmp.Or(stdPool(cand.wait.call).poolName, textOf("phrase pool")), "fix", fix)
	case facts.isSizeKnown() && facts.isScattered:
		fix = textOf("fix pool-or-compute-less", "fix", fix, "time", holdText)
	case facts.isSizeKnown() && !isPeerWait(top.Cause):
		fix = textOf("fix pool-or-shorter-work", "fix", fix, "site", workSite, "time", holdText)
	default:
		fix = textOf("fix pool-or-find-out", "fix", fix, "site", workSite)
	}
	switch advice := facts.kind.unusedAdvice; {
	case facts.isForLongCalls:
	case advice != "" && additional > 0:
		fix = textOf("fix pool-others-hold-some", "fix", fix, "advice", advice, "n", additional, "now", size)
	case advice != "":
		fix = textOf("fix pool-others-hold", "fix", fix, "advice", advice)
	}
	if advice := stdPool(cand.wait.call).unusedAdvice; facts.isSizeKnown() && advice != "" {
		fix = textOf("fix pool-unused", "fix", fix, "advice", advice)
	}
	if r := a.in.longWaitsAt(cand.wait.site.Site()); facts.hasServers && knowledge.Has(top.Call, knowledge.SleepWait) && cand.wait.kind != report.WaitChanSend && r != nil && r.HandoverShare <= threshold.NoticeableShare {
		fix = textOf("fix pool-intended-pause", "fix", fix)
	}
	if facts.kind.isSingleSlot {
		moved := ""
		if line := a.movableWork(cand, top).OwnLine(); !facts.isScattered && isOwnCode(line) {
			moved = textOf("phrase move-work", "site", line)
		}
		fix = textOf("fix pool-single-slot", "fix", fix, "moved", moved)
	}
	if isClientWork(top, facts) {
		fix = textOf("fix pool-client-work", "site", a.movableWork(cand, top), "fix", fix)
	}
	if facts.isBursty {
		fix = textOf("fix pool-bursty", "site", workSite, "time", holdText, "advice", facts.kind.advice, "number", fmt.Sprintf("%.2g", facts.inUse))
	}
	if facts.holdersCompute && a.in.Report.Input.GOMAXPROCS > 0 {
		fix = textOf("fix pool-holders-compute", "fix", fix, "ps", a.in.Report.Input.GOMAXPROCS, "busy", words.Percent(1-a.in.Report.Runtime.Sched.PsIdle))
	}
	return fix
}

// backlogKey owns the waits for peers in iterations of a library's loop, if most iterations find their work already
// there: then the next messages queue during the wait.
var backlogKey = candidateKey{code: report.RulePoolTooSmall}

// backlogVerdict is the verdict on messages that a library's loop takes from its queue one after another. A trace does
// not show when a message arrived, so the verdict states neither its time in the queue nor a gain.
func backlogVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	queuedShare, meanNS := attr.in.BacklogShares[attr.group.ID], attr.group.TotalNS/int64(max(attr.group.Count, 1))
	queued, fix := textKey("evidence pool-backlog"), textKey("fix pool-backlog")
	if attr.group.Kind == report.KindWebSocket {
		queued, fix = "evidence pool-backlog-websocket", "fix pool-backlog-websocket"
	}
	v := attr.newVerdict(cand, top)
	v.Changes = []predict.Change{}
	v.Title, v.Fix = textOf("title pool-backlog", "group", words.FuncName(attr.group.Name), "activity", top.activity()), textOf(fix, "site", v.Site)
	v.addEvidence(
		evidenceOf(queued, queuedShare, "share"),
		evidenceOf("evidence pool-message", meanNS, "ns"),
		evidenceOf("evidence pool-slow-message", cand.gain.Slow.NS, "ns"))
	return v
}

// reportQueue returns the queue of a candidate as the report shows it: its name, and the lines at which requests wait.
func (a *attribution) reportQueue(cand *candidate, name string) *report.Queue {
	queue := &report.Queue{For: name, Waits: []report.Via{}}
	for _, list := range [][]causeRoute{cand.routes, cand.slowRoutes} {
		for i := range list {
			via, _ := verdict.AfterLastAnswer(list[i].via)
			for k := range via {
				key := waitKeyOf(&via[k])
				if _, ok := a.contendedWait(via[k : k+1]); !ok {
					continue
				}
				if a.canonicalWait(key) == cand.wait && !queue.Contains(&via[k]) {
					queue.Waits = append(queue.Waits, via[k])
				}
				break
			}
		}
	}
	return queue
}

// inferredSource is the source of a site of running time that follows from the events around it, not from a sample.
const inferredSource = "bracket"

// sameWorkShare returns the share of the cause and site of p in the time behind the contended wait of a candidate; 1 if no time
// is behind it.
func (a *attribution) sameWorkShare(cand *candidate, p *causeRoute) float64 {
	var matchingNS, allNS int64
	for o := range each(cand.routes) {
		if _, ok := a.contendedWait(o.via); !ok {
			continue
		}
		if allNS += o.routeNS; causeSiteOf(o.Cause) == causeSiteOf(p.Cause) {
			matchingNS += o.routeNS
		}
	}
	if allNS == 0 {
		return 1
	}
	return float64(matchingNS) / float64(allNS)
}

// fanOutVerdict returns the verdict on a limit of the goroutines that one request starts, such as errgroup.SetLimit. It names no
// sufficient number, because that depends on how many goroutines a request starts, which waits do not show.
func fanOutVerdict(attr *attribution, cand *candidate, top *causeRoute, slotWaits *queues.SlotWaits) Verdict {
	queuedNS, _, requests := attr.queueTimes(cand)
	limiter, limit := textKey("phrase errgroup"), textKey("phrase errgroup-limit")
	if !knowledge.Has(cand.wait.site.Func, knowledge.Errgroup) {
		limiter, limit = "phrase own-limiter", "phrase own-limit"
	}
	v := attr.newVerdict(cand, top)
	v.Title = textOf("title pool-fan-out", "limiter", textOf(limiter), "activity", top.activity())
	limitText := textOf(limit)
	if slotWaits != nil && slotWaits.Slots > 0 {
		limitText = textOf("phrase limit-now", "limit", limitText, "n", slotWaits.Slots)
	}
	fix := textKey("fix pool-fan-out")
	if isPeerWait(top.Cause) {
		fix = "fix pool-fan-out-peer"
	}
	v.Fix = textOf(fix, "limit", limitText, "site", v.Site)
	v.addSlowEvidence(evidenceOf("evidence slow-mean", cand.gain.Slow.NS, "ns"))
	v.addEvidence(evidenceOf("evidence pool-fan-out-wait", float64(queuedNS)/float64(max(requests, 1)), "ns", "site", cand.wait.site.Site()))
	if slotWaits != nil && slotWaits.Slots > 0 {
		v.addEvidence(evidenceOf("evidence pool-fan-out-goroutines", slotWaits.Slots, "count"))
	}
	v.Queue = attr.reportQueue(cand, textOf("phrase fan-out-place"))
	v.Changes, v.ChangeText = []predict.Change{predict.Remove(predict.Queue, predict.SiteText(cand.wait.site.Site(), ""))}, textOf("phrase change-all-at-once")
	isUnpredicted := attr.in.predict(attr.group.ID, v.Changes...) == nil
	if isPeerWait(top.Cause) && isUnpredicted {
		v.MaxSeverity = report.SeverityMedium // how many calls at once the peer bears is unknown, and so is what they gain
	}
	if top.Cause.Cause == report.CauseCPU {
		if v.doubt(0.7, textOf("phrase doubt-holders-compute")); isUnpredicted {
			v.MaxSeverity = report.SeverityLow // as many goroutines as Ps gain nothing, and a request that computes may have fewer of them at once than its limit
		}
		v.Fix = textOf("fix pool-fan-out-computes", "fix", v.Fix, "ps", attr.in.Report.Input.GOMAXPROCS)
	}
	return v
}

// holderText returns a phrase for the holder of a connection: the line of the service and, for goroutines in the background,
// their number. If these hold the slots for long, requests mostly wait for each other, and not at their line.
func (p *poolFacts) holderText(top *causeRoute) string {
	if isHeldInBackground(p.slots) {
		key := textKey("phrase background-holders")
		if p.slots.Call == httpSlotFunc && p.slots.BackgroundSite != nil {
			key = "phrase long-calls"
		}
		return textOf(key, "n", p.slots.BackgroundHolders, "site", cmp.Or(p.slots.BackgroundSite.OwnLine(), top.ownLine()))
	}
	return lineText(top.ownLine())
}

// acquireTimeoutVerdict returns the verdict on requests that waited for a slot until their own deadline: how many, for how long,
// and to look for a leak. It makes no prediction, because the trace does not show which goroutines hold the slots.
func acquireTimeoutVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	name := poolKindAtWait(waitKey{kind: report.WaitSelect, call: top.Call, site: top.Site.LineKey()}, top.Site, nil, attr.in.slotWaitsAt(cand.wait)).name
	v := attr.newVerdict(cand, top)
	v.Cause, v.Changes = report.CauseSleep, []predict.Change{}
	v.Title, v.Fix = textOf("title pool-timeout", "pool", name, "site", v.Site), cmp.Or(stdPool(top.Call).leakAdvice, textOf("fix pool-leak"))
	v.addEvidence(
		evidenceOf("evidence pool-timeouts", top.Requests, "count"),
		evidenceOf("evidence pool-timeout-wait", float64(top.TotalNS)/float64(max(top.Requests, 1)), "ns"))
	return v
}
