package verdict

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// A causeKey is the aggregation key of a verdict: the cause and kind of the time, and the queue if the request is
// queued during it.
type causeKey struct {
	cause report.CauseName
	kind  string
	queue *report.Queue
	// service and wayTo are those of the row.
	service, wayTo string
}

// causeKeyOf returns the key of the part of a row that is not spent in a queue. All stops of the world have one key,
// whatever caused them, and so have all waits for a CPU and all page faults.
func causeKeyOf(c *report.Cause) causeKey {
	if c.Cause == report.CauseSTW || c.Cause == report.CauseCPUWait || c.Cause == report.CauseDisk {
		return causeKey{cause: c.Cause, service: c.Service}
	}
	return causeKey{cause: c.Cause, kind: KindOf(c), service: c.Service, wayTo: c.WayTo}
}

// groupQueues returns the queues that findings about a group name, and the first finding about the group; nil if there is none.
func groupQueues(r *report.Report, g *report.Group) (list []*report.Queue, first *report.Finding) {
	for f := range entry.Each(r.Findings) {
		if f.Group != g.ID {
			continue
		}
		if first = cmp.Or(first, f); f.Queue != nil {
			list = append(list, f.Queue)
		}
	}
	return list, first
}

// keepsConnections reports whether a finding's change is that requests no longer open connections, and not only that they look no name
// up. f may be nil.
func keepsConnections(f *report.Finding) bool {
	return f != nil && slices.ContainsFunc(f.Changes, func(c report.Change) bool {
		fn, _, _ := strings.Cut(c.Site, ":")
		return c.Kind == report.ChangeReuse && !knowledge.Has(fn, knowledge.DNS)
	})
}

// opensConnection reports whether a row is a wait in which a connection is opened.
func opensConnection(row *report.Cause) bool {
	return row.Cause == report.CauseNetwork && (knowledge.OpensConnection(row.Call) || row.Site != nil && knowledge.OpensConnection(row.Site.Func))
}

// serviceQueues returns the queues that findings about a service name; none if the service has no name.
func serviceQueues(r *report.Report, service string) (list []*report.Queue) {
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Queue != nil && service != "" && f.Service == service {
			list = append(list, f.Queue)
		}
	}
	return list
}

// QueueWait returns the first wait of a chain that is in one of the queues, with that queue; nil if none is. Only waits in this
// service, after the last in-process answer, count.
func QueueWait(queues []*report.Queue, via []report.Via) (queue *report.Queue, wait *report.Via) {
	waits, _ := report.DivideAtServices(via)
	waits, _ = AfterLastAnswer(waits)
	return queueWaitIn(queues, waits)
}

// WithTimedWait returns a chain of waits to a cause. If the cause is a timer that ended a wait in a queue, the chain ends with that wait:
// the timer is only how long the request queues at most.
func WithTimedWait(c *report.Cause, via []report.Via, isQueue func(*report.Via) bool) []report.Via {
	if wait := timedWait(c); c.Cause == report.CauseSleep && c.Site != nil && !IsTimedWait(c, via) && isQueue(&wait) {
		return append(slices.Clip(via), wait)
	}
	return via
}

// IsTimedWait reports whether a chain to a cause ends with the wait that the cause's timer ended.
func IsTimedWait(c *report.Cause, via []report.Via) bool {
	timer := report.Queue{Waits: []report.Via{timedWait(c)}}
	return c.Cause == report.CauseSleep && len(via) > 0 && timer.Contains(&via[len(via)-1])
}

// timedWait returns the wait that the timer of a cause ended.
func timedWait(c *report.Cause) report.Via {
	return report.Via{Wait: report.WaitSelect, Call: c.Call, Site: c.Site}
}

// queueWaitIn returns the first wait of a chain that is a wait in one of the queues, with that queue; nil if none is.
func queueWaitIn(queues []*report.Queue, via []report.Via) (queue *report.Queue, wait *report.Via) {
	for i := range via {
		for _, q := range queues {
			if q.Contains(&via[i]) {
				return q, &via[i]
			}
		}
	}
	return nil, nil
}

// A rowPart is the part of a row that has one causeKey.
type rowPart struct {
	causeKey
	row    *report.Cause
	ns     int64
	share  float64
	routes []report.Route
}

// divideRows divides the rows of a band into parts with one causeKey each: a part for each queue in which requests wait, and the
// rest. The time behind a wait in a queue is the work of other requests. If the wait includes the request's own service time
// (Queue.OwnNS), that is a part without the queue: one of average length for each request. If the first finding is about connections
// that are opened (isReuse), these waits are a part of their own.
func divideRows(r *report.Report, b *report.Band, queues []*report.Queue, isReuse bool) (parts []rowPart) {
	type queueTotal struct{ ns, requests int64 }
	totals := map[*report.Queue]*queueTotal{}
	unlabelled := queues
	if slices.ContainsFunc(b.Causes, func(c report.Cause) bool { return c.Cause == report.CauseQueue }) {
		unlabelled = lockQueues(queues)
	}
	for row := range entry.Each(b.Causes) {
		unqueued := rowPart{causeKey: causeKeyOf(row), row: row}
		if isReuse && opensConnection(row) {
			unqueued.kind = Connect
		}
		routes, allRoutesNS := row.AllRoutes(), int64(0)
		for _, r := range routes {
			allRoutesNS += r.TotalNS
		}
		first := len(parts)
		isLabelled := row.Cause == report.CauseQueue
		remoteQueues := serviceQueues(r, row.Service)
		for _, r := range routes {
			q, _ := QueueWait(unlabelled, r.Via)
			if _, inner := report.DivideAtServices(r.Via); q == nil && row.Service != "" {
				q, _ = queueWaitIn(remoteQueues, inner)
			}
			if isLabelled && q == nil && row.Service == "" {
				q = queueOfRow(row, queues)
			}
			if q == nil {
				unqueued.routes = append(unqueued.routes, r)
				continue
			}
			part := entry.FindOrAppend(&parts, func(p rowPart) bool { return p.row == row && p.queue == q },
				rowPart{causeKey: causeKey{unqueued.cause, unqueued.kind, q, row.Service, row.WayTo}, row: row})
			part.routes, part.ns = append(part.routes, r), part.ns+r.TotalNS
		}
		unqueued.ns, unqueued.share = row.TotalNS, row.Share
		for p := range entry.Each(parts[first:]) { // scale the routes' time to the row's, as routes may be incomplete
			fraction := float64(p.ns) / float64(max(allRoutesNS, 1))
			p.ns, p.share = int64(fraction*float64(row.TotalNS)), fraction*row.Share
			unqueued.ns, unqueued.share = unqueued.ns-p.ns, unqueued.share-p.share
			total := entry.GetOrAdd(totals, p.queue)
			total.ns, total.requests = total.ns+p.ns, max(total.requests, int64(row.Requests))
		}
		if len(unqueued.routes) > 0 && IsNextRequest(row, unqueued.routes[0].Via) {
			unqueued.kind = NextRequest
		}
		if unqueued.ns > 0 {
			parts = append(parts, unqueued)
		}
	}
	for i := range parts {
		p := &parts[i]
		if p.queue == nil || p.queue.OwnNS == 0 || p.cause == report.CauseQueue {
			continue
		}
		total := totals[p.queue]
		ownPart := *p
		fraction := min(1, float64(p.queue.OwnNS)*float64(total.requests)/float64(max(total.ns, 1)))
		ownPart.queue, ownPart.ns, ownPart.share = nil, int64(fraction*float64(p.ns)), fraction*p.share
		p.ns, p.share = p.ns-ownPart.ns, p.share-ownPart.share
		parts = append(parts, ownPart)
	}
	return parts
}

// lockQueues returns those of the queues that are for locks. Time in them keeps the cause of what the holder does, and is never a
// row of the cause queue.
func lockQueues(queues []*report.Queue) (locks []*report.Queue) {
	for _, q := range queues {
		if len(q.Waits) > 0 && (q.Waits[0].Wait == report.WaitLock || q.Waits[0].Wait == report.WaitOnce) {
			locks = append(locks, q)
		}
	}
	return locks
}

// queueOfRow returns the queue of a row whose cause is queue: the one of a finding, else a new one with the row's own wait; nil
// if no route has that wait.
func queueOfRow(row *report.Cause, queues []*report.Queue) (q *report.Queue) {
	for _, r := range row.AllRoutes() {
		via, _ := AfterLastAnswer(r.Via)
		i := slices.IndexFunc(via, func(v report.Via) bool { return v.Call == row.Call && v.Site.Equal(row.Site) })
		if i < 0 {
			continue
		}
		for _, known := range queues {
			if known.For == row.Kind && known.Contains(&via[i]) {
				return known
			}
		}
		q = &report.Queue{For: row.Kind, Waits: []report.Via{via[i]}}
	}
	return q
}

// AfterLastAnswer returns the part of a chain of waits that belongs to the request which answers the last in-process call: the
// waits after the last wait for an answer of this process itself. answers is the number of waits for such answers.
func AfterLastAnswer(via []report.Via) (inner []report.Via, answers int) {
	inner = via
	for i := range via {
		if via[i].Wait == report.WaitPeer {
			inner, answers = via[i+1:], answers+1
		}
	}
	return inner, answers
}
