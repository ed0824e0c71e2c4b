package finding

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

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
	sufficient int     // number of slots that suffice for the requests that arrive
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
	queuedNS       int64                // time for which requests queued
}

// poolFactsOf collects the facts about a candidate's pool. top is its heaviest contended route.
func (a *attribution) poolFactsOf(cand *candidate, top *causeRoute) *poolFacts {
	facts := &poolFacts{slots: a.in.slotWaitsAt(cand.wait), service: a.in.serviceAt(top.Cause, top.via), holdersCompute: top.Cause.Cause == report.CauseCPU, holderActivity: top.activity()}
	service := facts.service
	isQueued := service != nil && slices.ContainsFunc(top.via, func(v report.Via) bool { return waitKeyOf(&v) == cand.wait && isQueue(service, top.Cause, &v) })
	if !isSlotPool(facts.slots) && !isConnectionPool(facts.slots, cand, top) && (isQueued || !isWorkerPool(facts.slots)) {
		facts.slots = nil
	}
	facts.kind = poolKindOf(cand, top, service, facts.slots)
	queuedNS, ownNS, requests := a.queueTimes(cand)
	facts.queuedNS = queuedNS
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
		facts.holderActivity, facts.isScattered = textOf("phrase pool-computes", "share", words.Percent(share), "site", top.nonStdSite()), true
	} else if facts.holdersCompute && top.Cause.SiteFrom == inferredSource && facts.slots != nil {
		facts.holderActivity, facts.isScattered = textOf("phrase pool-inferred", "activity", facts.holderActivity), true // the line may be that of the release
	}
	if hasServers && facts.isScattered && ownNS > 0 {
		holdNS = float64(a.ownServiceNS(top.Cause.Cause)) / float64(max(requests, 1))
	}
	facts.littleLaw = newLittleLaw(requests, a.in.Report.Input.DurationNS, queuedNS, holdNS)
	facts.setUse(requests, a.openRequestsAt(cand.wait))
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

// setUse computes the slots in use if all requests that arrived, ended or open, held one, and how many slots suffice for that.
// While requests queue, all slots are in use. For how long goroutines in the background hold them does not depend on requests.
func (p *poolFacts) setUse(ended, open int) {
	p.inUse *= float64(ended+open) / float64(max(ended, 1))
	if p.slots != nil {
		usedNow := float64(p.slots.Slots) * p.slots.QueuedShare
		if p.inUse = max(p.inUse, usedNow); p.isHeldInBackground() {
			p.inUse = usedNow
		}
	}
	p.sufficient = predict.SufficientSlots(p.inUse)
}

// openRequestsAt returns how many of the group's requests are in a wait at the end of the trace.
func (a *attribution) openRequestsAt(wait waitKey) (n int) {
	for i := range a.group.Open.Waits {
		if w := &a.group.Open.Waits[i]; w.Site != nil && w.Site.LineKey() == wait.site {
			n += w.Count
		}
	}
	return n
}

// isHeldInBackground reports whether goroutines that serve no request hold the slots for most of the time.
func (p *poolFacts) isHeldInBackground() bool { return isHeldInBackground(p.slots) }

func isHeldInBackground(slots *queues.SlotWaits) bool {
	return slots != nil && slots.Slots > 0 && slots.BackgroundHolders > 0 && slots.BackgroundShare >= threshold.HalfShare
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

// additional returns how many connections a library's pool needs beyond those seen in use, 0 if that is not known. Its size may be
// larger: a goroutine that keeps a connection for a blocking command releases none while requests queue.
func (p *poolFacts) additional() int {
	if !p.kind.isSharedConnection || p.slots == nil || p.slots.Slots == 0 {
		return 0
	}
	return max(1, p.sufficient-p.slots.Slots)
}

// wideHolder returns the line of holders that take many units of a semaphore at once, nil if there are none. The number of holders is
// then no number of places.
func (p *poolFacts) wideHolder() *report.Site {
	if p.slots == nil || p.slots.WideHolder == nil {
		return nil
	}
	return p.slots.WideHolder.OwnLine()
}

// poolVerdict returns the verdict on a pool with too few slots. The prediction assumes enough of them, if holders do
// not compute.
func poolVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	if slotWaits := attr.in.slotWaitsAt(cand.wait); isFanOutLimit(cand.wait, slotWaits) {
		return fanOutVerdict(attr, cand, top, slotWaits)
	}
	facts := attr.poolFactsOf(cand, top)
	v := attr.newVerdict(cand, top)
	title := textKey("title pool")
	switch {
	case facts.kind.hasHolder:
		title = "title pool-held"
	case facts.kind.isConnection && !facts.isScattered && top.ownLine() != top.nonStdSite():
		title, facts.holderActivity = "title pool-held-by", activityWithoutCaller(top)
	}
	v.Title = textOf(title, "pool", facts.kind.name, "activity", facts.holderActivity, "holder", facts.holderText(top))
	if site := facts.wideHolder(); site != nil {
		v.Title = textOf("title pool-wide", "holder", site, "n", words.Figure(math.Round(facts.slots.WaitsPerRelease)))
	}
	if facts.holdersCompute {
		v.Confidence = 0.7
	}
	facts.addNumbers(&v, cand)
	v.addEvidence(holderEvidence(attr, cand, facts.queuedNS)...)
	v.Fix = attr.slotAdvice(cand, top, facts)
	_, v.Gain = weighRoutes(attr.group, func(cause *report.Cause, via []report.Via) bool {
		_, ok := attr.contendedWait(via)
		return ok && attr.keyOf(cause, via) == cand.candidateKey
	})
	v.Queue = attr.reportQueue(cand, facts.kind.nameWithoutSite)
	v.Changes, v.ChangeText = attr.slotChanges(cand, top, facts, v.Queue)
	v.Queue.OwnNS = facts.serviceNS
	return v
}

// slotChanges returns the change that gives a pool enough slots, and its text: their number at each line where requests wait for
// one or, if the number is not known, that no request queues. It returns no change if holders compute and have no Ps for more.
func (a *attribution) slotChanges(cand *candidate, top *causeRoute, facts *poolFacts, queue *report.Queue) ([]predict.Change, string) {
	changes := []predict.Change{}
	if isClientWork(top, facts) {
		if line := a.movableWork(cand, top); a.in.predict(a.group.ID, predict.Unlock(predict.SiteText(line, top.Cause.Cause))) != nil {
			return append(changes, predict.Unlock(predict.SiteText(line, top.Cause.Cause))), textOf("phrase change-unlock-slot")
		}
	}
	if facts.holdersCompute && (2*facts.poolAt(nil).Slots > a.in.Report.Input.GOMAXPROCS || a.in.Report.Runtime.Sched.PsIdle < threshold.HalfShare) {
		return changes, ""
	}
	isSizeUnknown := facts.isBursty || !facts.isSizeKnown() || facts.wideHolder() != nil
	if isSizeUnknown && facts.holdersCompute {
		return changes, ""
	}
	for i := range queue.Waits {
		wait := &queue.Waits[i]
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
	if isSizeUnknown {
		return changes, textOf("phrase change-no-queue")
	}
	key := textKey("phrase change-slots")
	switch more := facts.additional(); {
	case more > 0:
		return changes, textOf("phrase change-more", "n", more)
	case facts.hasServers:
		key = "phrase change-servers"
	case !facts.kind.hasHolder:
		key = "phrase change-connections"
	}
	return changes, textOf(key, "n", facts.sufficient)
}

// isClientWork reports whether holders of a slot wait for their clients: they can do that before they take the slot.
func isClientWork(top *causeRoute, facts *poolFacts) bool {
	return top.Cause.Cause == report.CauseNetwork && top.Cause.Kind == "inbound" && !facts.kind.isSingleSlot
}

// poolAt returns the pool for predictions of waits at a site. While requests wait, all slots are in use.
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

// addNumbers adds the numbers of a pool as evidence.
func (p *poolFacts) addNumbers(v *Verdict, c *candidate) {
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
	if !p.isBursty && p.isSizeKnown() && !p.kind.isSharedConnection && p.wideHolder() == nil {
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

// slotAdvice returns the advice to add slots, or to hold them for less time.
func (a *attribution) slotAdvice(cand *candidate, top *causeRoute, facts *poolFacts) string {
	if site := facts.wideHolder(); site != nil {
		return textOf("fix pool-wide", "holder", site)
	}
	fix, workSite, holdText := facts.kind.advice, top.nonStdSite(), words.Brief(int64(facts.holdNS))
	if facts.hasServers && isSerialAsker(facts.service, top.Cause) {
		fix = textOf("fix pool-asks-elsewhere")
	}
	switch more := facts.additional(); {
	case !facts.isSizeKnown():
	case more > 0:
		fix = textOf("fix pool-more", "fix", fix, "n", more)
	case !facts.kind.isSharedConnection:
		fix = textOf("fix pool-enough", "fix", fix, "n", facts.sufficient)
	}
	if advice := facts.kind.unusedAdvice; advice != "" {
		fix = textOf("fix pool-others-hold", "fix", fix, "advice", advice)
	}
	switch {
	case facts.isHeldInBackground():
		fix = textOf("fix pool-background", "n", facts.slots.BackgroundHolders, "site", top.ownLine(), "fix", fix)
	case facts.isSizeKnown() && facts.kind.isConnection && callsOtherPeer(cand, top):
		fix = textOf("fix pool-or-call-before", "fix", fix, "site", workSite)
	case facts.isSizeKnown() && facts.isScattered:
		fix = textOf("fix pool-or-compute-less", "fix", fix, "time", holdText)
	case facts.isSizeKnown():
		fix = textOf("fix pool-or-shorter-work", "fix", fix, "site", workSite, "time", holdText)
	default:
		fix = textOf("fix pool-or-find-out", "fix", fix, "site", workSite)
	}
	if advice := stdPool(cand.wait.call).unusedAdvice; facts.isSizeKnown() && advice != "" {
		fix = textOf("fix pool-unused", "fix", fix, "advice", advice)
	}
	if r := a.in.longWaitsAt(cand.wait.site.Site()); facts.hasServers && knowledge.Has(top.Call, knowledge.SleepWait) && cand.wait.kind != report.WaitChanSend && r != nil && r.HandoverShare <= threshold.NoticeableShare {
		fix = textOf("fix pool-intended-pause", "fix", fix)
	}
	if facts.kind.isSingleSlot {
		fix = textOf("fix pool-single-slot", "site", a.movableWork(cand, top), "fix", fix)
	}
	if isClientWork(top, facts) {
		fix = textOf("fix pool-client-work", "site", a.movableWork(cand, top), "fix", fix)
	}
	if facts.isBursty {
		fix = textOf("fix pool-bursty", "site", workSite, "time", holdText, "advice", facts.kind.advice, "number", fmt.Sprintf("%.2g", facts.inUse))
	}
	if facts.holdersCompute && a.in.Report.Input.GOMAXPROCS > 0 {
		fix = textOf("fix pool-holders-compute", "fix", fix, "ps", a.in.Report.Input.GOMAXPROCS, "busy", fmt.Sprintf("%.0f", 100*(1-a.in.Report.Runtime.Sched.PsIdle)))
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
	limiter, limit := textKey("phrase errgroup"), textKey("phrase errgroup-limit")
	if !knowledge.Has(cand.wait.site.Func, knowledge.Errgroup) {
		limiter, limit = "phrase own-limiter", "phrase own-limit"
	}
	v := attr.newVerdict(cand, top)
	v.Title = textOf("title pool-fan-out", "limiter", textOf(limiter), "activity", top.activity())
	v.Fix = textOf("fix pool-fan-out", "limit", textOf(limit), "site", v.Site)
	v.addSlowEvidence(evidenceOf("evidence slow-mean", cand.gain.Slow.NS, "ns"))
	v.addEvidence(evidenceOf("evidence pool-fan-out-wait", float64(queuedNS)/float64(max(requests, 1)), "ns", "site", cand.wait.site.Site()))
	if slotWaits != nil && slotWaits.Slots > 0 {
		v.addEvidence(evidenceOf("evidence pool-fan-out-goroutines", slotWaits.Slots, "count"))
	}
	v.Queue = attr.reportQueue(cand, textOf("phrase fan-out-place"))
	v.Changes, v.ChangeText = []predict.Change{predict.Remove(predict.Queue, predict.SiteText(cand.wait.site.Site(), ""))}, textOf("phrase change-all-at-once")
	if top.Cause.Cause == report.CauseCPU {
		v.Confidence = 0.7
		v.Fix = textOf("fix pool-fan-out-computes", "fix", v.Fix, "ps", attr.in.Report.Input.GOMAXPROCS)
	}
	return v
}

// A poolKind is the kind of slot that requests wait for, and how to get more of them.
type poolKind struct {
	name, nameWithoutSite, advice string
	unusedAdvice                  string // what else may keep its slots
	hasHolder                     bool   // requests hold the slot, and no goroutine or connection serves them
	isConnection                  bool   // a connection, which the pool of a library opens
	isSharedConnection            bool   // of a library outside the standard library, so holders that no wait shows may have more of them
	isSingleSlot                  bool   // its holder releases it, like a lock; it may guard data, which excludes more slots
}

// shortName returns a short name of the slot.
func (k *poolKind) shortName() string {
	if k.hasHolder {
		return textOf("phrase place")
	}
	return k.name
}

// poolKindOf returns the kind of a candidate's pool. A library may build its pool on a semaphore, a Cond or a channel,
// which its user cannot change.
func poolKindOf(cand *candidate, top *causeRoute, service *queues.ServiceStats, slotWaits *queues.SlotWaits) poolKind {
	if v := firstMatch(top.via, func(v *report.Via) bool { return waitKeyOf(v) == cand.wait }); v != nil && !isStdPool(cand.wait.call) {
		if l := libraryAt(v.Site); l != nil && l.poolAdvice != "" {
			if isHeldInBackground(slotWaits) {
				return connectionOf(l.name, l.poolAdvice, slotWaits)
			}
			kind := connectionOf(l.name, l.poolAdvice, nil)
			kind.isSharedConnection, kind.unusedAdvice = true, l.unusedAdvice
			return kind
		}
	}
	return poolKindAtWait(cand.wait, service, slotWaits)
}

// poolKindAtWait returns the kind of pool of a wait; slotWaits is nil if its slots are unknown.
func poolKindAtWait(wait waitKey, service *queues.ServiceStats, slotWaits *queues.SlotWaits) poolKind {
	n, site, serverAdvice := 0, wait.site.Site(), textOf("fix pool-more-goroutines")
	if slotWaits != nil {
		n = slotWaits.Slots
	}
	switch p := stdPool(wait.call); {
	case p.poolName != "":
		return connectionOf(p.poolName, p.sizeAdvice, slotWaits)
	case knowledge.Has(wait.site.Func, knowledge.Semaphore):
		kind := held(textOf("phrase semaphore"), textOf("fix pool-more-weight"))
		switch {
		case slotWaits != nil && slotWaits.WideHolder != nil:
		case isSemaphoreWait(wait) && n == 1:
			kind.name, kind.isSingleSlot = textOf("phrase only-place-of-semaphore"), true
		case isSemaphoreWait(wait) && n > 1:
			kind.name = textOf("phrase place-of-semaphore", "n", n)
		}
		kind.nameWithoutSite = kind.name
		return kind
	case n == 1:
		kind := held(textOf("phrase only-place"), textOf("fix pool-more-places"))
		kind.name, kind.isSingleSlot = textOf("phrase only-place-at", "site", site), isSlotPool(slotWaits)
		return kind
	case n > 1:
		kind := held(textOf("phrase one-place", "n", n), textOf("fix pool-more-places"))
		kind.name = textOf("phrase one-place-at", "n", n, "site", site)
		return kind
	case service != nil && service.OtherRequestShare > 0.5 || slotWaits != nil:
		return held(textOf("phrase place-held-by-requests"), textOf("fix pool-more-places"))
	case service != nil && service.MaxServers > 1 && service.Requests >= 5*service.MaxServers:
		return served(textOf("phrase one-worker", "n", service.MaxServers), serverAdvice)
	case service != nil && service.MaxServers == 1:
		return served(textOf("phrase only-worker"), serverAdvice)
	}
	return served(textOf("phrase worker"), serverAdvice)
}

// connectionOf returns the kind of a connection of a pool.
func connectionOf(pool, advice string, slotWaits *queues.SlotWaits) poolKind {
	key, n := textKey("phrase connection"), 0
	if slotWaits != nil {
		n = slotWaits.Slots
	}
	switch {
	case n == 1:
		key = "phrase only-connection"
	case n > 1:
		key = "phrase one-connection"
	}
	kind := served(textOf(key, "n", n, "library", pool), advice)
	kind.isConnection = true
	return kind
}

// isConnectionPool reports whether requests wait for a connection of a library's pool. Some pools do not serve the first
// waiter first.
func isConnectionPool(slots *queues.SlotWaits, cand *candidate, top *causeRoute) bool {
	return slots != nil && slots.Waits >= threshold.SmallSample && slots.Slots > 0 && poolKindOf(cand, top, nil, nil).isConnection
}

// holderText names the holder of a connection: the line of the service, and how many goroutines if they serve no requests.
func (p *poolFacts) holderText(top *causeRoute) string {
	if p.isHeldInBackground() {
		return textOf("phrase background-holders", "n", p.slots.BackgroundHolders, "site", top.ownLine())
	}
	return lineText(top.ownLine())
}

// activityWithoutCaller is causeRoute.activity for a sentence that has named the service's line already.
func activityWithoutCaller(top *causeRoute) string {
	cause := *top.Cause
	if cause.Site != nil {
		site := *cause.Site
		site.CalledFrom, cause.Site = nil, &site
	}
	return activityAt(&cause, top.via)
}

// held and served return the kind of a slot that requests hold, and of a goroutine or connection that serves them.
func held(name, advice string) poolKind {
	return poolKind{name: name, nameWithoutSite: name, advice: advice, hasHolder: true}
}

func served(name, advice string) poolKind {
	return poolKind{name: name, nameWithoutSite: name, advice: advice}
}

// paceNS returns the interval at which a ticker releases requests one after another: an intended limit such as a rate
// limiter's, not a goroutine that is busy with requests. It is 0 if there is no such ticker.
func (a *attribution) paceNS(top *causeRoute) int64 {
	if top.Cause.Cause != report.CauseSleep || knowledge.Has(top.Call, knowledge.SleepWait) {
		return 0
	}
	if t := a.in.serviceAt(top.Cause, top.via); t != nil && t.OtherRequestShare <= 0.5 {
		return t.PeriodNS
	}
	return 0
}

// acquireTimeoutVerdict says how many requests gave up waiting for a slot, after how long, and to look for a leak. It makes no
// prediction: it is unknown what holds the slots, and for how long.
func acquireTimeoutVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	name := poolKindAtWait(waitKey{kind: report.WaitSelect, call: top.Call, site: top.Site.LineKey()}, nil, nil).name
	if l := libraryAt(top.Site); l != nil && l.poolAdvice != "" {
		name = textOf("phrase connection", "library", l.name)
	}
	v := attr.newVerdict(cand, top)
	v.Cause, v.Changes = report.CauseSleep, []predict.Change{}
	v.Title, v.Fix = textOf("title pool-timeout", "pool", name, "site", v.Site), cmp.Or(stdPool(top.Call).leakAdvice, textOf("fix pool-leak"))
	v.addEvidence(
		evidenceOf("evidence pool-timeouts", top.Requests, "count"),
		evidenceOf("evidence pool-timeout-wait", float64(top.TotalNS)/float64(max(top.Requests, 1)), "ns"))
	return v
}

// limiterVerdict returns the verdict on a rate limiter. If its queue becomes empty now and then, it delays only requests that come
// together, and none if it admits as many at once. Else there is no prediction: the limit is intended.
func limiterVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	durationNS := attr.in.Report.Input.DurationNS
	l := newLittleLaw(top.Requests, durationNS, top.routeNS, 0)
	v := attr.newVerdict(cand, top)
	changes := v.Changes
	v.Cause, v.Changes = report.CauseSleep, []predict.Change{}
	v.Title, v.Fix = textOf("title limiter", "site", v.Site), textOf("fix limiter")
	v.addEvidence(
		evidenceOf("evidence limiter-rate", l.rate, "1/s"),
		evidenceOf("evidence limiter-wait", l.waitNS, "ns"),
		evidenceOf("evidence pool-waiting", l.waiting, "count"))
	if intervalNS := attr.paceNS(top); intervalNS != 0 {
		v.Title, v.Fix = textOf("title limiter-paced", "interval", words.Brief(intervalNS), "site", v.Site), textOf("fix limiter-paced")
		return v
	}
	limiter := firstMatch(attr.in.Limiters, func(l *queues.Limiter) bool { return l.Site.Matches(top.Site) })
	if limiter == nil || limiter.Rate == 0 || durationNS <= 0 {
		return v
	}
	arrivals := float64(attr.group.Count+attr.group.Open.Count) / float64(durationNS) * 1e9
	v.Title = textOf("title limiter-rate", "rate", words.Figure(limiter.Rate), "site", v.Site)
	v.addEvidence(evidenceOf("evidence limiter-grants", limiter.Rate, "1/s"), evidenceOf("evidence limiter-arrivals", arrivals, "1/s"))
	if limiter.QueuedShare >= threshold.NearlyAllShare {
		arrivals = max(arrivals, limiter.Rate)
		v.Fix = textOf("fix limiter-full", "arrivals", words.Figure(math.Round(arrivals)), "rate", words.Figure(math.Round(limiterRoom*arrivals)))
		return v
	}
	v.Fix = textOf("fix limiter-bursts", "arrivals", words.Figure(math.Round(arrivals)), "n", limiter.MaxWaiters)
	v.Changes, v.ChangeText = changes, textOf("phrase change-no-queue")
	return v
}

// limiterRoom times the rate of requests that arrive at random lets them wait for one interval on average (M/D/1).
const limiterRoom = 1.5
