package finding

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// targetUtilisation is the utilisation of a pool above which the wait for a slot grows steeply: in an M/M/c queue the
// mean wait at 70 % is about a third of the mean wait at 90 % (Erlang C, c = 2 to 8).
const targetUtilisation = 0.7

// checkPoolTooSmall is WL2003, pool-too-small.
func checkPoolTooSmall(attr *attribution, cand *candidate) Verdict {
	switch top := heaviestContendedRoute(attr, cand.routes); {
	case cand.candidateKey == backlogKey:
		return backlogVerdict(attr, cand, top)
	case isAcquireTimeout(top.Cause):
		return acquireTimeoutVerdict(attr, cand, top)
	case cand.wait == waitKey{} || attr.paceNS(top) != 0:
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
	sufficient int     // number of slots that suffice
}

// newLittleLaw computes the numbers of a pool from the requests in a trace, their total time in the queue, and the
// mean time for which a slot is held.
func newLittleLaw(requests int, durationNS, queuedNS int64, holdNS float64) littleLaw {
	var l littleLaw
	if requests == 0 || durationNS <= 0 {
		return l
	}
	l.rate = float64(requests) / float64(durationNS) * 1e9
	l.waitNS, l.holdNS = float64(queuedNS)/float64(requests), holdNS
	l.waiting = l.rate * l.waitNS / 1e9
	l.inUse = l.rate * l.holdNS / 1e9
	l.sufficient = int(max(math.Ceil(l.inUse/targetUtilisation-0.05), math.Round(l.inUse+l.waiting)))
	return l
}

// A poolFacts is the known facts about a pool that requests queue for.
type poolFacts struct {
	littleLaw
	kind           poolKind
	slots          *queues.SlotWaits    // its slots, as far as the trace shows them; nil otherwise
	service        *queues.ServiceStats // service behind the wait; nil if unknown
	hasServers     bool                 // goroutines serve the queue, one request at a time
	isBursty       bool                 // the number of slots needed depends on how many requests arrive together, which is unknown
	holdersCompute bool                 // its holders spend their time computing
	serviceNS      int64                // the request's own service time, if it is part of the wait
	holderActivity string               // phrase for the activity of its holders
	isScattered    bool                 // the holders' activity is at many lines
}

// poolFactsOf collects the facts about a candidate's pool. top is its heaviest contended route.
func (a *attribution) poolFactsOf(cand *candidate, top *causeRoute) *poolFacts {
	facts := &poolFacts{slots: a.in.slotWaitsAt(cand.wait), service: a.in.serviceAt(top.Cause, top.via), holdersCompute: top.Cause.Cause == report.CauseCPU, holderActivity: top.activity()}
	service := facts.service
	isQueued := service != nil && slices.ContainsFunc(top.via, func(v report.Via) bool { return waitKeyOf(&v) == cand.wait && isQueue(service, top.Cause, &v) })
	if !isSlotPool(facts.slots) && (isQueued || !isWorkerPool(facts.slots)) {
		facts.slots = nil
	}
	facts.kind = poolKindOf(cand, top, service, facts.slots)
	queuedNS, ownNS, requests := a.queueTimes(cand)
	// A worker's time for a request is on no other request's path: the last service time before the
	// wait ends is the request's own.
	hasServers := service != nil && service.OtherRequestShare <= 0.5 && facts.slots == nil
	holdNS := float64(ownNS) / float64(max(requests, 1))
	if facts.slots != nil && facts.slots.HoldNS > 0 {
		holdNS = float64(facts.slots.HoldNS)
	} else if hasServers && ownNS == 0 {
		if holdNS = float64(service.ServiceNS); isSerialAsker(service, top.Cause) {
			holdNS /= service.BatchSize // for each of the requests that it serves after one answer
		}
		facts.serviceNS = int64(holdNS)
		queuedNS = max(0, queuedNS-int64(holdNS*float64(requests)))
	}
	if share := a.sameWorkShare(cand, top); facts.holdersCompute && share < threshold.HalfShare {
		facts.holderActivity, facts.isScattered = fmt.Sprintf("computes, %s of that in %s", words.Percent(share), siteText(top.nonStdSite())), true
	} else if facts.holdersCompute && top.Cause.SiteFrom == inferredSource && facts.slots != nil {
		facts.holderActivity, facts.isScattered = facts.holderActivity+" (inferred)", true // the line may be that of the release
	}
	if hasServers && facts.isScattered && ownNS > 0 {
		holdNS = float64(a.ownServiceNS(top.Cause.Cause)) / float64(max(requests, 1))
	}
	facts.littleLaw = newLittleLaw(requests, a.in.Report.Input.DurationNS, queuedNS, holdNS)
	// A goroutine that works for the holder of a semaphore's slot is not the slot.
	facts.hasServers = hasServers && !isStdPool(cand.wait.call)
	if isSemaphoreWait(cand.wait) && facts.slots == nil && (service == nil || facts.hasServers) {
		facts.hasServers, facts.isBursty = false, true
	}
	// Requests that queue although most slots are free come in bursts: at least one more slot than today is needed.
	facts.sufficient = max(facts.sufficient, 2)
	if facts.hasServers {
		facts.sufficient = max(facts.sufficient, service.MaxServers+1)
	}
	if facts.slots != nil {
		facts.sufficient = max(facts.sufficient, facts.slots.Slots+1)
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

// queueTimes returns for how long requests queued for a candidate's pool, for how long they held it, and how many did.
func (a *attribution) queueTimes(cand *candidate) (queuedNS, ownNS int64, requests int) {
	for i := range cand.routes {
		p := &cand.routes[i]
		if _, ok := a.contendedWait(p.via); ok {
			queuedNS += p.routeNS
		} else {
			ownNS += p.routeNS
		}
		requests = max(requests, p.Requests)
	}
	return queuedNS, ownNS, requests
}

// isSizeKnown reports whether the number of slots is known. While a request waits, all slots are in use. If that
// contradicts the time for which slots are held, the holders do something else: then neither that time nor the
// sufficient number is known.
func (p *poolFacts) isSizeKnown() bool {
	return p.hasServers || p.slots != nil && (p.slots.Slots > 0 || p.slots.HoldNS > 0) || 2*p.inUse >= 1 || p.waiting < 1
}

// poolVerdict returns the verdict on a pool with too few slots. The prediction assumes enough of them, if holders do
// not compute.
func poolVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	if slotWaits := attr.in.slotWaitsAt(cand.wait); isFanOutLimit(cand.wait, slotWaits) {
		return fanOutVerdict(attr, cand, top, slotWaits)
	}
	facts := attr.poolFactsOf(cand, top)
	v := attr.newVerdict(cand, top)
	v.Title = fmt.Sprintf("requests queue for %s while %s %s", facts.kind.name, facts.kind.holder, facts.holderActivity)
	if facts.holdersCompute {
		v.Confidence = 0.7
	}
	facts.addNumbers(&v, cand)
	v.Fix = attr.slotAdvice(cand, top, facts)
	_, v.Gain = weighRoutes(attr.group, func(cause *report.Cause, via []report.Via) bool {
		_, ok := attr.contendedWait(via)
		return ok && attr.keyOf(cause, via) == cand.candidateKey
	})
	if !facts.holdersCompute && top.Cause.Site != nil {
		// The prediction assumes the fix: enough slots that no request queues, whichever line called. If there is no other
		// queue, it applies to all activities of the holders.
		site := predict.SiteText(top.Cause.Site.LineKey().Site(), top.Cause.Cause)
		if attr.queueShare(cand) >= threshold.NearlyAllShare {
			site = ""
		}
		v.Predicted = attr.in.predict(attr.group.ID, predict.Remove(predict.Queue, site))
	}
	if facts.slots != nil && v.Predicted == nil && 2*facts.slots.Slots <= attr.in.Report.Input.GOMAXPROCS && attr.in.Report.Runtime.Sched.PsIdle >= 0.5 && attr.queueShare(cand) >= 0.9 {
		// With twice as many slots and a P for each, the queue is less than half as long. The holders compute at many lines,
		// so the change applies to all queueing.
		v.Predicted = attr.in.predict(attr.group.ID, predict.Change{Cause: predict.Queue, Relative: true, Scale: 0.5})
	}
	v.Queue = attr.reportQueue(cand, facts.kind.nameWithoutSite())
	v.Queue.OwnNS = facts.serviceNS
	return v
}

// addNumbers adds the numbers of a pool as evidence.
func (p *poolFacts) addNumbers(v *Verdict, c *candidate) {
	if p.slots == nil {
		v.addEvidence(measurement("requests that need "+p.kind.name, p.rate, "1/s"))
	} else {
		v.addEvidence(measurement("largest number of requests waiting for "+p.kind.shortName()+" at once", p.slots.MaxWaiters, "count"))
	}
	v.addEvidence(
		measurement("mean wait for it, at "+siteText(c.wait.site.Site()), p.waitNS, "ns"),
		measurement("mean time for which it is held", p.holdNS, "ns"),
		measurement("mean number waiting (rate x wait)", p.waiting, "count"),
		measurement("mean number in use (rate x time)", p.inUse, "count"))
	if p.slots != nil {
		v.addEvidence(measurement("requests that need "+p.kind.shortName(), p.rate, "1/s"))
		if p.slots.Slots > 0 {
			v.addEvidence(measurement("pool size seen in use", p.slots.Slots, "count"))
		}
	}
	if p.hasServers {
		v.addEvidence(measurement("goroutines that serve the queue", p.service.MaxServers, "count"))
	}
	if !p.isBursty && p.isSizeKnown() {
		v.addEvidence(measurement("places sufficient at this load", p.sufficient, "count"))
	}
}

// slotAdvice returns the advice to add slots, or to hold them for less time.
func (a *attribution) slotAdvice(cand *candidate, top *causeRoute, facts *poolFacts) string {
	fix, workSite, holdText := facts.kind.advice, siteText(top.nonStdSite()), words.Brief(int64(facts.holdNS))
	if facts.hasServers && isSerialAsker(facts.service, top.Cause) {
		fix = "let it ask on another goroutine and continue with what arrives meanwhile; or let more goroutines serve the queue"
	}
	if facts.isSizeKnown() {
		fix += fmt.Sprintf(": about %d are enough for this load", facts.sufficient)
	}
	switch {
	case facts.isSizeKnown() && facts.isScattered:
		fix += fmt.Sprintf(", or compute for less than %s while holding it", holdText)
	case facts.isSizeKnown():
		fix += fmt.Sprintf(", or make the work at %s shorter than %s", workSite, holdText)
	default:
		fix += fmt.Sprintf(", or find out why its holders wait so long at %s", workSite)
	}
	if pool := stdPools[cand.wait.call]; facts.isSizeKnown() && pool.unusedAdvice != "" {
		fix += "; " + pool.unusedAdvice
	}
	if r := a.in.longWaitsAt(cand.wait.site.Site()); facts.hasServers && top.Call == sleepCall && cand.wait.kind != report.WaitChanSend && r != nil && r.HandoverShare <= threshold.NoticeableShare {
		fix += "; if the pause is an intended limit, reject the excess immediately"
	}
	if facts.kind.isSingleSlot {
		fix = fmt.Sprintf("hold it for less time: do the work at %s before taking it or after returning it; if it guards no data, %s", siteText(a.movableWork(cand, top)), fix)
	}
	if facts.isBursty {
		fix = fmt.Sprintf("return it before the work at %s, or make that work shorter than %s; or %s: %.2g were in use on average, and all of them when requests arrived together", workSite, holdText, facts.kind.advice, facts.inUse)
	}
	if facts.holdersCompute {
		fix += fmt.Sprintf("; the holders compute, so more places help only while processors are free (GOMAXPROCS %d, all busy %.0f %% of the time)",
			a.in.Report.Input.GOMAXPROCS, 100*(1-a.in.Report.Runtime.Sched.PsIdle))
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
	evidenceText, groupAdvice := "share of messages that were already waiting when the previous one was done (since when is not in the trace)", ", or subscribe several times as a group"
	if attr.group.Kind == report.KindWebSocket {
		evidenceText, groupAdvice = "share of handling time at whose end the next message already lay unread in its connection (since when is not in the trace)", ""
	}
	v := attr.newVerdict(cand, top)
	v.Changes = []predict.Change{}
	v.Title = fmt.Sprintf("messages queue for %s, which serves them one after another, while it %s", attr.group.Name, top.activity())
	v.addEvidence(
		measurement(evidenceText, queuedShare, "share"),
		measurement("mean time for one message", meanNS, "ns"),
		measurement("mean time per slow message spent on that", cand.gain.Slow.NS, "ns"))
	v.Fix = fmt.Sprintf("serve several at once: hand each message to a goroutine of its own, and limit how many there are%s; or make the work at %s shorter", groupAdvice, siteText(v.Site))
	return v
}

// reportQueue returns the queue of a candidate, with the lines at which requests wait.
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

// ownServiceNS returns the time of a cause on other goroutines behind waits that are not contended: the service times
// of the requests themselves.
func (a *attribution) ownServiceNS(cause report.CauseName) (ns int64) {
	for c, r := range a.routes(a.group.All()) {
		if _, ok := a.contendedWait(r.Via); !ok && len(r.Via) > 0 && c.Cause == cause {
			ns += r.TotalNS
		}
	}
	return ns
}

// queueShare returns the share of a candidate's queue in the time for which the group's requests queue.
func (a *attribution) queueShare(cand *candidate) float64 {
	var matchingNS, allNS int64
	for cause, r := range a.routes(a.group.All()) {
		if _, ok := a.contendedWait(r.Via); ok {
			if allNS += r.TotalNS; a.keyOf(cause, r.Via) == cand.candidateKey {
				matchingNS += r.TotalNS
			}
		}
	}
	return float64(matchingNS) / float64(max(allNS, 1))
}

// inferredSource is the source of a site of running time that follows from the events around it, not from a sample.
const inferredSource = "bracket"

// sameWorkShare returns the share of p's cause and line in the time behind the wait of a candidate.
func (a *attribution) sameWorkShare(cand *candidate, p *causeRoute) float64 {
	var matchingNS, allNS int64
	for i := range cand.routes {
		o := &cand.routes[i]
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

// fanOutVerdict is the verdict on a limit within each request. The sufficient number of slots depends on how many
// goroutines a request starts, which waits do not show.
func fanOutVerdict(attr *attribution, cand *candidate, top *causeRoute, slotWaits *queues.SlotWaits) Verdict {
	queuedNS, _, requests := attr.queueTimes(cand)
	limiter, fix := "an errgroup", "the limit given to SetLimit"
	if !strings.HasPrefix(cand.wait.site.Func, "golang.org/x/sync/errgroup.") {
		limiter, fix = "their limiter", "the limit"
	}
	v := attr.newVerdict(cand, top)
	v.Title = fmt.Sprintf("requests cannot start all their goroutines at once: %s has too few places, while one %s", limiter, top.activity())
	v.addEvidence(
		measurement("mean per slow request", cand.gain.Slow.NS, "ns"),
		measurement("mean wait per request for a place, at "+siteText(cand.wait.site.Site()), float64(queuedNS)/float64(max(requests, 1)), "ns"))
	if slotWaits != nil && slotWaits.Slots > 0 {
		v.addEvidence(measurement("goroutines of one request seen at the same time", slotWaits.Slots, "count"))
	}
	v.Queue = attr.reportQueue(cand, "a place among the goroutines that a request may start")
	v.Fix = fmt.Sprintf("raise %s to the number that a request starts, if what is behind %s can take it, or make that work shorter", fix, siteText(v.Site))
	if top.Cause.Cause == report.CauseCPU {
		v.Confidence = 0.7
		v.Fix += fmt.Sprintf("; they compute, so more places help only while processors are free (GOMAXPROCS %d)", attr.in.Report.Input.GOMAXPROCS)
	}
	return v
}

// A poolKind is the kind of slot that requests wait for, and how to get more of them.
type poolKind struct {
	name, holder, advice string
	isSingleSlot         bool // its holder releases it, like a lock; it may guard data, which excludes more slots
}

// shortName returns a short name of the slot.
func (k *poolKind) shortName() string {
	if k.holder == "it" {
		return k.name
	}
	return "a place"
}

// nameWithoutSite returns the name of the slot without its site.
func (k *poolKind) nameWithoutSite() string {
	name, _, _ := strings.Cut(strings.TrimSuffix(k.name, ","), " at ")
	return name
}

// poolKindOf returns the kind of a candidate's pool. A library may build its pool on a semaphore, a Cond or a channel,
// which its user cannot change.
func poolKindOf(cand *candidate, top *causeRoute, service *queues.ServiceStats, slotWaits *queues.SlotWaits) poolKind {
	if v := firstMatch(top.via, func(v *report.Via) bool { return waitKeyOf(v) == cand.wait }); v != nil && !isStdPool(cand.wait.call) {
		if l := libraryAt(v.Site); l != nil && l.poolAdvice != "" {
			return poolKind{name: "a connection of " + l.name, holder: "it", advice: l.poolAdvice}
		}
	}
	return poolKindAtWait(cand.wait, service, slotWaits)
}

// poolKindAtWait returns the kind of pool of a wait; slotWaits is nil if its slots are unknown.
func poolKindAtWait(wait waitKey, service *queues.ServiceStats, slotWaits *queues.SlotWaits) poolKind {
	const moreSlots, moreWeight, moreGoroutines = "give the semaphore or pool more places", "give the semaphore a larger weight", "let more goroutines serve the queue"
	switch p, isStd := stdPools[wait.call]; {
	case isStd:
		return poolKind{name: p.slotName, holder: "it", advice: p.sizeAdvice}
	case isSemaphoreWait(wait) && slotWaits != nil && slotWaits.Slots == 1:
		return poolKind{"the only place of a golang.org/x/sync/semaphore", "its holder", moreWeight, true}
	case isSemaphoreWait(wait) && slotWaits != nil && slotWaits.Slots > 1:
		return poolKind{name: fmt.Sprintf("one of %d places of a golang.org/x/sync/semaphore", slotWaits.Slots), holder: "its holder", advice: moreWeight}
	case strings.HasPrefix(wait.site.Func, semaphorePackage):
		return poolKind{name: "a golang.org/x/sync/semaphore", holder: "its holder", advice: moreWeight}
	case slotWaits != nil && slotWaits.Slots == 1:
		return poolKind{"the only place at " + siteText(wait.site.Site()) + ",", "its holder", moreSlots, isSlotPool(slotWaits)}
	case slotWaits != nil && slotWaits.Slots > 1:
		return poolKind{name: fmt.Sprintf("one of %d places at %s,", slotWaits.Slots, siteText(wait.site.Site())), holder: "its holder", advice: moreSlots}
	case service != nil && service.OtherRequestShare > 0.5 || slotWaits != nil:
		return poolKind{name: "a place that other requests hold", holder: "its holder", advice: moreSlots}
	case service != nil && service.MaxServers > 1 && service.Requests >= 5*service.MaxServers:
		return poolKind{name: fmt.Sprintf("one of %d worker goroutines", service.MaxServers), holder: "it", advice: moreGoroutines}
	case service != nil && service.MaxServers == 1:
		return poolKind{name: "the only goroutine that serves it", holder: "it", advice: moreGoroutines}
	}
	return poolKind{name: "a worker goroutine", holder: "it", advice: moreGoroutines}
}

// paceNS returns the interval at which a ticker releases requests one after another: an intended limit such as a rate
// limiter's, not a goroutine that is busy with requests. It is 0 if there is no such ticker.
func (a *attribution) paceNS(top *causeRoute) int64 {
	if top.Cause.Cause != report.CauseSleep || top.Call == sleepCall {
		return 0
	}
	if t := a.in.serviceAt(top.Cause, top.via); t != nil && t.OtherRequestShare <= 0.5 {
		return t.PeriodNS
	}
	return 0
}

// acquireTimeoutVerdict makes no prediction: it is unknown what holds the slots, and for how long.
func acquireTimeoutVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	name := poolKindAtWait(waitKey{kind: report.WaitSelect, call: top.Call, site: top.Site.LineKey()}, nil, nil).name
	if l := libraryAt(top.Site); l != nil && l.poolAdvice != "" {
		name = "a connection of " + l.name
	}
	fix := "find out what keeps the places: return each one on every path, also after an error (defer), and hold it for less time; a shorter deadline only limits the damage"
	if p := stdPools[top.Call]; p.leakAdvice != "" {
		fix = p.leakAdvice
	}
	v := attr.newVerdict(cand, top)
	v.Cause, v.Changes = report.CauseSleep, []predict.Change{}
	v.Title, v.Fix = "requests wait for "+name+" until their own deadline, at "+siteText(v.Site), fix
	v.addEvidence(
		measurement("requests whose wait a deadline ended", top.Requests, "count"),
		measurement("mean wait of each", float64(top.TotalNS)/float64(max(top.Requests, 1)), "ns"))
	return v
}

// limiterVerdict makes no prediction: the limit is intended.
func limiterVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	l := newLittleLaw(top.Requests, attr.in.Report.Input.DurationNS, top.routeNS, 0)
	v := attr.newVerdict(cand, top)
	v.Cause, v.Changes = report.CauseSleep, []predict.Change{}
	v.Title = "requests wait for a rate limiter"
	v.addEvidence(
		measurement("requests held up by it", l.rate, "1/s"),
		measurement("mean wait for it", l.waitNS, "ns"),
		measurement("mean number waiting (rate x wait)", l.waiting, "count"))
	v.Fix = "requests come faster than it lets them through, at least in bursts: reject the excess immediately (Allow instead of Wait); or, if what is behind it can take more, raise its rate or its burst"
	if intervalNS := attr.paceNS(top); intervalNS != 0 {
		v.Title = fmt.Sprintf("requests are paced: one every %s, set at %s", words.Brief(intervalNS), siteText(v.Site))
		v.Fix = "requests come faster than that lets them through: if the limit is intended, reject the excess immediately, or ask less often; if not, make the interval shorter"
	}
	return v
}
