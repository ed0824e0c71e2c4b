package finding

import (
	"slices"

	"github.com/whylate/whylate/report"
)

// Queues returns, by group id, the queues for slots, servers and streams in which the group's requests wait, however short they are.
// A lock is none of them: a wait for it is followed to its holder.
func Queues(in *Input) map[string][]*report.Queue {
	queues := map[string][]*report.Queue{}
	for i := range in.Report.Groups {
		if attr := in.attributionOf(&in.Report.Groups[i]); len(attr.queueWaits) > 0 {
			queues[attr.group.ID] = attr.queues()
		}
	}
	return queues
}

// queues returns the queues of a group: first those of its candidates, then those behind other waits, such as the holder of a lock
// waits in.
func (a *attribution) queues() (queues []*report.Queue) {
	for _, cand := range a.candidates {
		if cand.code != report.RulePoolTooSmall || !a.queueWaits[cand.wait] {
			continue
		}
		top := heaviestContendedRoute(a, cand.routes)
		if isAcquireTimeout(top.Cause) || a.paceNS(top) != 0 {
			continue // an intended limit, or no slot was released
		}
		queues = append(queues, a.queueOf(cand, top))
	}
	for cause, route := range a.routes(a.group.All()) {
		for i := range route.Via {
			v := &route.Via[i]
			wait := waitKeyOf(v)
			slots := a.in.slotWaitsAt(wait)
			// A goroutine that works for a lock's holder serves other requests than those that wait for the lock, but it is no queue.
			isPool := isSemaphoreWait(wait) || stdPool(wait.call).slotWait == neverOpens || isSlotPool(slots)
			if !isPool || !a.queueWaits[wait] || a.minorWaits[wait] || slices.ContainsFunc(queues, func(q *report.Queue) bool { return q.Contains(v) }) {
				continue
			}
			if first, ok := a.contendedWait(route.Via); ok && isLockWait(first) && !a.minorWaits[first] {
				kind := poolKindAtWait(wait, a.in.serviceAt(cause, route.Via), slots)
				queues = append(queues, &report.Queue{For: kind.nameWithoutSite, Waits: []report.Via{*v}})
			}
		}
	}
	return queues
}

// queueOf returns the queue of a candidate, as its finding names it.
func (a *attribution) queueOf(cand *candidate, top *causeRoute) *report.Queue {
	if isFanOutLimit(cand.wait, a.in.slotWaitsAt(cand.wait)) {
		return a.reportQueue(cand, textOf("phrase fan-out-place"))
	}
	facts := a.poolFactsOf(cand, top)
	queue := a.reportQueue(cand, facts.kind.nameWithoutSite)
	queue.OwnNS = facts.serviceNS
	return queue
}
