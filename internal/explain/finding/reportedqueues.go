package finding

import "github.com/whylate/whylate/report"

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

// queuesOfGroup returns the queues of a group's candidates of WL2003.
func (a *attribution) queuesOfGroup() (queues []*report.Queue) {
	for _, cand := range a.candidates {
		if cand.code != report.RulePoolTooSmall || !a.queueWaits[cand.wait] {
			continue
		}
		top := heaviestContendedRoute(a, cand.routes)
		if isAcquireTimeout(top.Cause, top.via) || a.tickerIntervalNS(top) != 0 {
			continue // an intended limit, or no slot was released
		}
		queues = append(queues, a.queueOf(cand, top))
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
