package finding

import (
	"iter"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// A wait is contended if requests queue at it for what other requests hold.

// findQueueWaits fills queueWaits: it decides at which channels, selects and Conds requests queue. A wait is a queue if more
// than half of the time behind it is: the wait is for a semaphore, a slot, a limit of the request's own goroutines, or a
// goroutine that serves requests one after the other (isQueue).
func (a *attribution) findQueueWaits() {
	queuedNS, totalNS := map[waitKey]int64{}, map[waitKey]int64{}
	for cause, route := range a.routes(a.group.All()) {
		if a.isInHerd(cause, route.Via) {
			continue
		}
		isBehind := false // behind a goroutine that works for the request, and may itself queue for a slot
		for i := range route.Via {
			v := &route.Via[i]
			wait := waitKeyOf(v)
			if isLockWait(wait) {
				break // the later waits are the holder's
			}
			if slots, isTaskQueue := a.in.slotWaitsAt(wait), a.in.taskWaitsAt(wait).IsQueue(); (isHandoverWait(v.Wait) || isTaskQueue) && !isRoundTrip(v) {
				if isEndedByChildren(slots) && !isFanOutLimit(wait, slots) && !isTaskQueue {
					continue // the goroutines are the request's own, and may themselves queue elsewhere
				}
				if isBehind && !isSlotPool(slots) {
					continue
				}
				totalNS[wait] += route.TotalNS
				if isNotification(wait, slots) || i == 0 && a.in.isSubscription(v.Site) || a.in.taskWaitsAt(wait).IsOwnWork() {
					break
				}
				if service := a.in.serviceAt(cause, route.Via); isFinalizerWait(cause) || isFanOutLimit(wait, slots) || isSemaphoreWait(wait) || stdPool(wait.call).slotWait == neverOpens || a.isFullPool(&causeRoute{cause, route.Via, route.TotalNS}, wait, slots) || isSlotPool(slots) || isConnectionQueue(slots) || service != nil && isQueue(service, cause, v) && !isLibraryLoop(service, cause, route.Via, v) || isTaskQueue {
					queuedNS[wait] += route.TotalNS
					break
				}
				isBehind = true
			}
		}
	}
	for wait, ns := range queuedNS {
		a.queueWaits[wait] = 2*ns > totalNS[wait]
	}
}

// isHandoverWait reports whether a wait is at a channel, a select or a Cond: it ends when another goroutine hands something over.
func isHandoverWait(wait report.WaitKind) bool {
	return wait == report.WaitChan || wait == report.WaitChanSend || wait == report.WaitSelect || wait == report.WaitCond
}

// isRoundTrip reports whether a wait is for the answer to the waiter's own call over HTTP/1.
func isRoundTrip(v *report.Via) bool { return knowledge.Has(v.Call, knowledge.HTTP1RoundTrip) }

// isOwnWork reports whether the requests themselves do work like that of the goroutine for which they queue: it is no part of the queue.
func (a *attribution) isOwnWork(c *report.Cause, via []report.Via) bool {
	service := a.in.serviceAt(c, via)
	return service != nil && service.OtherRequestShare <= 0.5 && isSerialCaller(service, c) && !slices.ContainsFunc(via, func(v report.Via) bool { return !isRoundTrip(&v) })
}

// isQueue reports whether requests that wait at v queue for the goroutines in service, whose activity is cause. They do if these
// are goroutines of other requests, or serve one request at a time while others wait. They do not if a goroutine serves all
// waiters at once, also if few wait, or only reads the answers of a shared connection without sending the queries.
func isQueue(service *queues.ServiceStats, cause *report.Cause, v *report.Via) bool {
	if service.Requests < threshold.SmallSample || isSharedCall(service) {
		return false
	}
	if isSerialCaller(service, cause) || v.Wait == report.WaitChanSend && isOnlyServer(service, v) { // it receives after the work before
		return true
	}
	if service.BatchSize > 1.5 || service.IsBatcher {
		return false
	}
	if service.OtherRequestShare > 0.5 && !isClientRead(cause) { // see isBehindOtherClient
		return true
	}
	if cause.Cause == report.CauseNetwork && service.ServerWroteShare < threshold.NearlyAllShare && !isStdPool(v.Call) {
		return false
	}
	waiting := service.WaitersPerServer * (1 - service.BehindLockShare) // requests behind a lock queue at the lock
	return waiting >= 1.3 && waiting >= 1.2*service.BatchSize
}

// isLibraryLoop reports whether requests wait in a library for its only goroutine, which does the library's own work: it has no number that
// the service could raise, so the rule of the cause reports the work.
func isLibraryLoop(service *queues.ServiceStats, cause *report.Cause, via []report.Via, v *report.Via) bool {
	work := nonStdSite(cause, via)
	return isOnlyServer(service, v) && !isOwnCode(work) && (work.CalledFrom == nil || work.CalledFrom.Calls == "")
}

// isOnlyServer reports whether requests wait in a library for its only server.
func isOnlyServer(service *queues.ServiceStats, wait *report.Via) bool {
	return service.MaxServers == 1 && wait.Site != nil && wait.Site.Module != ""
}

// isSharedCall reports whether nearly each goroutine that ends waits at a site ends them all at one instant: requests join a call
// that one of them began, and all get its answer. Nothing is queued.
func isSharedCall(service *queues.ServiceStats) bool {
	return service.OtherRequestShare <= 0.5 && service.BatchSize > 0 && float64(service.Servers)*service.BatchSize >= threshold.NearlyAllShare*float64(service.Requests)
}

// isSerialCaller reports whether the goroutine that requests wait for sends queries to a peer for some of them while the others
// wait: these queue until the next answer, however many requests one answer serves.
func isSerialCaller(service *queues.ServiceStats, c *report.Cause) bool {
	return c.Cause == report.CauseNetwork && service.ServerWroteShare >= threshold.NearlyAllShare && service.AlreadyRunningShare >= threshold.MajorShare
}

// isUnevenlyDivided reports whether nearly all other workers are idle while requests queue for one. If work is divided at random, so few
// are at work only while no request queues.
func isUnevenlyDivided(service *queues.ServiceStats) bool {
	return service != nil && service.Workers >= threshold.SmallSample && float64(service.IdleWorkers) >= threshold.MostShare*float64(service.Workers-1)
}

// isFanOutLimit reports whether a request waits because a limit bounds the number of goroutines that it may start itself, as
// errgroup.SetLimit does. Each of these goroutines serves only this request.
func isFanOutLimit(wait waitKey, slots *queues.SlotWaits) bool {
	return isSlotPool(slots) && slots.IsWithinRequests || wait.kind == report.WaitChanSend &&
		(knowledge.Has(wait.site.Func, knowledge.FanOutLimiter) || isEndedByChildren(slots) && slots.Slots > 1 && slots.WaitsPerChild < 2)
}

// isFullPool reports whether requests wait for a connection of the standard library's pool that opens none for them: a pool below its
// limit opens one for each request that finds none idle, and some of these would be there first.
func (a *attribution) isFullPool(route *causeRoute, wait waitKey, slots *queues.SlotWaits) bool {
	if !isStdPool(wait.call) || slots == nil || slots.Waits < threshold.MedianSample {
		return false
	}
	calls := a.peerCallsAt(route)
	return calls != nil && float64(calls.ConnOpenRequests) < threshold.NoiseShare*float64(slots.Waits)
}

// isEndedByChildren reports whether goroutines that the waiters started end most of the waits.
func isEndedByChildren(slots *queues.SlotWaits) bool { return slots != nil && slots.ChildShare > 0.5 }

// isSlotPool reports whether requests wait for a slot that an earlier waiter releases: threshold.MajorShare of the goroutines
// that end a wait have waited there themselves, and each ends one wait at a time. One that held many units of a semaphore ends several,
// and has perhaps waited elsewhere.
func isSlotPool(slots *queues.SlotWaits) bool {
	return slots != nil && slots.Waits >= threshold.SmallSample && (slots.WideHolder != nil || slots.FormerWaiterShare >= threshold.MajorShare && slots.BatchSize <= 1.5)
}

// isConnectionQueue reports whether requests wait, before they send a call, until the one before is answered: their connection has one at
// a time.
func isConnectionQueue(slots *queues.SlotWaits) bool {
	return !isSlotPool(slots) && slots != nil && slots.Waits >= threshold.SmallSample && slots.BeforeCallShare > 0.5 && slots.BatchSize <= 1.5
}

// isWorkerPool reports whether requests wait until a free worker takes the work that they hand over. It is needed where the
// worker waits for the network, because a goroutine that reads all answers of a shared connection looks the same otherwise
// (isQueue).
func isWorkerPool(slots *queues.SlotWaits) bool {
	return slots != nil && slots.Waits >= threshold.SmallSample && slots.WorkerShare > 0.5 && slots.BatchSize <= 1.5
}

// isNotification reports whether requests wait for an event from other requests (a long poll, a subscription): the goroutines
// that end many waits have never waited there themselves. In a pool, some of them have.
func isNotification(wait waitKey, slots *queues.SlotWaits) bool {
	return !isStdPool(wait.call) && slots != nil && slots.Waits >= threshold.MedianSample && slots.FormerWaiterShare == 0 && slots.WorkerShare == 0 && slots.OtherRequestShare > 0.5
}

// isSubscription reports whether most requests that wait longest at a line had only subscribed to events before.
func (in *Input) isSubscription(site *report.Site) bool {
	r := in.longWaitsAt(site)
	return r != nil && r.SubscribedShare >= threshold.HalfShare
}

// slotWaitsAt returns the facts about the goroutines that ended the waits at a line, nil if there are none.
func (in *Input) slotWaitsAt(wait waitKey) *queues.SlotWaits {
	return firstMatch(in.SlotWaits, func(p *queues.SlotWaits) bool {
		return p.Wait == wait.kind && p.Call == wait.call && p.Site.LineKey() == wait.site
	})
}

// taskWaitsAt returns the facts about the tasks that are waited for at a line, nil if there are none.
func (in *Input) taskWaitsAt(wait waitKey) *queues.TaskWaits {
	return firstMatch(in.TaskWaits, func(t *queues.TaskWaits) bool {
		return t.Wait == wait.kind && t.Call == wait.call && t.Site.LineKey() == wait.site
	})
}

// isSemaphoreWait reports whether a wait is for a slot of a semaphore that the knowledge lists. All its waiters queue, because
// each holder releases its own slot.
func isSemaphoreWait(wait waitKey) bool {
	return wait.kind == report.WaitSelect && knowledge.Has(wait.site.Func, knowledge.SemaphoreAcquire)
}

// isAcquireTimeout reports whether a cause is a wait for a slot that a timer or the request's own deadline ended: no slot was released
// in time.
func isAcquireTimeout(c *report.Cause, via []report.Via) bool {
	return verdict.IsTimedWait(c, via) || verdict.KindOf(c) == verdict.Deadline && c.Site != nil && (knowledge.Has(c.Site.Func, knowledge.SemaphoreAcquire) || stdPool(c.Call).slotWait == neverOpens)
}

// serviceAt returns the facts about the goroutines that requests waited for at a cause, nil if there are none. Computing has no
// site that both sides share, so the last wait of the route identifies the goroutines.
func (in *Input) serviceAt(c *report.Cause, via []report.Via) *queues.ServiceStats {
	site := c.Site
	if c.Cause == report.CauseCPU {
		if len(via) == 0 {
			return nil
		}
		site = via[len(via)-1].Site
	}
	return firstMatch(in.Services, func(t *queues.ServiceStats) bool { return report.CauseName(t.Cause) == c.Cause && t.Site.Matches(site) })
}

// each yields a pointer to each element.
func each[T any](list []T) iter.Seq[*T] { return entry.Each(list) }

// firstMatch returns the first element that matches, nil if none does.
func firstMatch[T any](list []T, match func(*T) bool) *T {
	for element := range each(list) {
		if match(element) {
			return element
		}
	}
	return nil
}

// isLockWait reports whether a wait is for a lock that the service chose to take. The locks of an os.File and a log.Logger only
// keep writes in order: the fault is where they write to. A handler of log/slog, or of another library, is the service's
// choice, and so is its lock. A wait that began before the trace has no known kind or site, and is not a lock.
func isLockWait(wait waitKey) bool {
	return wait.site.Func != "" && (wait.kind == report.WaitOnce || wait.kind == report.WaitLock && !knowledge.Has(wait.call, knowledge.File) && !knowledge.Has(wait.call, knowledge.Logger))
}

// isHeldBySiblings reports whether goroutines of the same request mostly hold the lock that its goroutines wait for.
func (in *Input) isHeldBySiblings(wait waitKey) bool {
	return isLockWait(wait) && slices.ContainsFunc(in.SiblingShares, func(s queues.SiblingShare) bool {
		return s.Share >= threshold.MostShare && s.Site.LineKey() == wait.site
	})
}
