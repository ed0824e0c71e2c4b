package finding

import (
	"slices"

	"github.com/whylate/whylate/report"
)

// Queues returns, by group id, the queues in which the group's requests wait for slots, servers or streams, even if the waits are
// too short for a finding. A lock is not included, because the path follows a wait for it to its holder.
func Queues(in *Input) map[string][]*report.Queue {
	queues := map[string][]*report.Queue{}
	for i := range in.Report.Groups {
		if attr := in.attributionOf(&in.Report.Groups[i]); len(attr.queueWaits) > 0 {
			queues[attr.group.ID] = attr.queuesOfGroup()
		}
	}
	return queues
}

// queuesOfGroup returns the queues of a group: first those of its candidates of WL2003, then the slots of pools that the holders
// of locks wait for.
func (a *attribution) queuesOfGroup() (queues []*report.Queue) {
	for _, cand := range a.candidates {
		if cand.code != report.RulePoolTooSmall || !a.queueWaits[cand.wait] {
			continue
		}
		top := heaviestContendedRoute(a, cand.routes)
		if isAcquireTimeout(top.Cause) || a.tickerIntervalNS(top) != 0 {
			continue // an intended limit, or no slot was released
		}
		queues = append(queues, a.queueOf(cand, top))
	}
	for cause, route := range a.routes(a.group.All()) {
		for v := range each(route.Via) {
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

// queueOf returns the queue of a candidate with the name that its finding has, and the request's own service time in it.
func (a *attribution) queueOf(cand *candidate, top *causeRoute) *report.Queue {
	if isFanOutLimit(cand.wait, a.in.slotWaitsAt(cand.wait)) {
		return a.reportQueue(cand, textOf("phrase fan-out-place"))
	}
	facts := a.poolFactsOf(cand, top)
	queue := a.reportQueue(cand, facts.kind.nameWithoutSite)
	queue.OwnNS = facts.serviceNS
	return queue
}
