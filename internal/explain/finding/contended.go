package finding

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/report"
)

// A wait is contended if requests queue there for what other requests have.

// findQueues decides which waits are queues, by what most of the time behind each was.
func (cl *attribution) findQueues() {
	yes, all := map[waitKey]int64{}, map[waitKey]int64{}
	for c, r := range cl.routes(cl.group.All()) {
		for i := range r.Via {
			if v := &r.Via[i]; isHandOver(v.Wait) {
				k := waitKeyOf(v)
				p := cl.in.places(k)
				if isOwnWork(p) && !isFanOut(k, p) {
					continue // goroutines that the request started may queue elsewhere
				}
				all[k] += r.TotalNS
				if isNews(k, p) {
					break
				}
				if t := cl.in.turns(c, r.Via); isFanOut(k, p) || isSemaphore(k) || poolsOfStd[k.call].only || isPool(p) || t != nil && isQueue(t, c, v) {
					yes[k] += r.TotalNS
				}
				break
			}
		}
	}
	for k, ns := range yes {
		cl.queueWaits[k] = 2*ns > all[k]
	}
}

func isHandOver(wait report.WaitKind) bool {
	return wait == report.WaitChan || wait == report.WaitChanSend || wait == report.WaitSelect || wait == report.WaitCond
}

// isQueue reports whether requests that wait at v queue for turns at c: the
// goroutines there are other requests' own, or serve one request at a time
// while others wait. A goroutine that serves all waiters at once has no queue. Nor has one that reads all answers of a shared
// connection, unless it also sends each request itself: then it serves them one after the other.
func isQueue(t *queues.Turns, c *report.Cause, v *report.Via) bool {
	if t.Served < scale.Few {
		return false
	}
	if asksInPassing(t, c) {
		return true
	}
	if t.Together > 1.5 {
		return false
	}
	if t.Taken > 0.5 {
		return true
	}
	if c.Cause == report.CauseNetwork && t.Asked < scale.NearlyAll && !isPoolOfStd(v.Call) {
		return false
	}
	waiting := t.Waiting * (1 - t.Locked) // those that came through a lock queue at the lock
	return waiting >= 1.3 && waiting >= 1.2*t.Together
}

// asksInPassing reports whether a goroutine asks a peer for some requests while others wait for it. Those queue until its next answer,
// however many it serves with one.
func asksInPassing(t *queues.Turns, c *report.Cause) bool {
	return c.Cause == report.CauseNetwork && t.Asked >= scale.NearlyAll && t.Ahead >= scale.Much
}

// isFanOut reports whether a request waits because the number of goroutines that it may start is limited: they are its own, one for
// each piece of work, and not other requests' turns.
func isFanOut(k waitKey, p *queues.Places) bool {
	if k.kind == report.WaitChanSend && strings.HasPrefix(k.site.Func, "golang.org/x/sync/errgroup.(*Group).") {
		return true
	}
	return isOwnWork(p) && k.kind == report.WaitChanSend && p.Most > 1 && p.Each < 2
}

// isOwnWork reports whether the waits are ended by goroutines that the waiters started themselves.
func isOwnWork(p *queues.Places) bool { return p != nil && p.Children > 0.5 }

// isPool reports whether requests wait for a place that other requests free.
func isPool(p *queues.Places) bool {
	return p != nil && p.Ended >= scale.Few && p.Mutual >= scale.Much && p.Together <= 1.5
}

// isCrew reports whether requests wait for a free worker, which then does what they hand to it. This matters where the worker
// waits for the network: without it, a goroutine that reads all answers of a shared connection looks the same (see isQueue).
func isCrew(p *queues.Places) bool {
	return p != nil && p.Ended >= scale.Few && p.Serving > 0.5 && p.Together <= 1.5
}

// isNews reports whether requests wait for news from other requests (a long poll, a subscription): those end many waits and
// never waited there themselves. In a pool, some of those who hold a place have waited for it.
func isNews(k waitKey, p *queues.Places) bool {
	return !isPoolOfStd(k.call) && p != nil && p.Ended >= scale.Enough && p.Mutual == 0 && p.Serving == 0 && p.Others > 0.5
}

// places returns the facts about the goroutines that ended the waits at a line.
func (in *Input) places(k waitKey) *queues.Places {
	return first(in.Places, func(p *queues.Places) bool { return p.Wait == k.kind && p.Site.LineKey() == k.site })
}

// isSemaphore reports whether a request waits for a place of a semaphore. Every holder frees its place, so all waiters queue,
// whatever the holders do meanwhile and on which goroutine.
func isSemaphore(k waitKey) bool {
	return k.kind == report.WaitSelect && k.site.Func == acquire
}

const (
	semaphores = "golang.org/x/sync/semaphore."
	acquire    = semaphores + "(*Weighted).Acquire"
)

// inVain reports whether a request waits for a place until its own deadline passes: none was returned.
func inVain(c *report.Cause) bool {
	return verdict.KindOf(c) == verdict.Deadline && c.Site != nil && (c.Site.Func == acquire || poolsOfStd[c.Call].only)
}

// turns returns the facts about requests that waited for others at a cause.
func (in *Input) turns(c *report.Cause, via []report.Via) *queues.Turns {
	site := c.Site
	if c.Cause == report.CauseCPU {
		if len(via) == 0 {
			return nil
		}
		site = via[len(via)-1].Site
	}
	return first(in.Turns, func(t *queues.Turns) bool { return report.CauseName(t.Cause) == c.Cause && t.Site.Meets(site) })
}

// first returns the first of a list that matches, nil if none does.
func first[T any](list []T, match func(*T) bool) *T {
	for i := range list {
		if match(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// isLock reports whether a wait is for a lock that the service chose to take.
// The locks of an os.File and a log.Logger only keep writes in order: the fault
// is where they write to. A handler of log/slog, or another library's, is the
// service's choice, and so is its lock. A wait that began before the trace, whose
// kind and place are unknown, is not a lock.
func isLock(k waitKey) bool {
	return k.site.Func != "" && (k.kind == report.WaitOnce || k.kind == report.WaitLock && !isFileCall(k.call) && !isLogger(k.call))
}

// siblings reports whether those who hold a lock work for the same request as those who wait for it.
func (in *Input) siblings(k waitKey) bool {
	return isLock(k) && slices.ContainsFunc(in.Siblings, func(s queues.Siblings) bool { return s.Part >= scale.Most && s.Site.LineKey() == k.site })
}

func isLogger(call string) bool {
	return strings.HasPrefix(call, "log.")
}
