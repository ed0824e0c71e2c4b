package queues

import (
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Hedges describes calls that requests make another time because the first answer has not come within a delay. The first call is
// still under way, and the request continues with whichever answer comes first.
type Hedges struct {
	// Requests counts the requests that make such calls, Calls these calls. DelayNS is the time from the first call to the second, and
	// AnswerNS that to the first answer, both summed over these requests.
	Requests, Calls, DelayNS, AnswerNS int64
	Pause                              *report.Site // where the caller waits for an answer or the delay
}

// findHedges finds the hedges of the call whose answer ended a wait on a request's path: the waiter started the goroutine that ended
// the wait, and others in the same function, each after a timer had ended its select. An earlier one was then under way, and at least one
// of them still waits in the same call when the first answer comes: else the request waits for all of them. The result is zero if there are none;
// pausesAt is where the caller waits.
func (p *workerSum) findHedges(w *path.WalkResult, wait *critpath.FollowedWait) (hedges Hedges, pausesAt tracefmt.FrameID) {
	win := p.stage.Win
	winner, ok := win.BirthBefore(wait.Waker, wait.End)
	if !ok || winner.Creator != wait.G || winner.Time < w.Req.Start {
		return hedges, 0
	}
	first, latest, children, count, othersWait := int64(0), int64(0), 0, 0, false
	win.Children(wait.G, w.Req.Start, wait.End, func(child timeline.Birth) bool {
		if children++; children > 4*maxRequestWaits {
			return false
		}
		if child.Stack != winner.Stack && !p.isInSameFunction(child.Stack, winner.Stack) {
			return true
		}
		count++
		othersWait = othersWait || child.G != wait.Waker && p.isInFunctionOf(p.waitAt(child.G, wait.End), p.stage.Syms.Stack(wait.WakerStack), 1)
		if count == 1 {
			first = child.Time
		} else if pause := p.timerBefore(wait.G, latest, child.Time); pause != 0 {
			if hedges.Calls++; hedges.Calls == 1 {
				hedges.DelayNS = child.Time - first
			}
			pausesAt = p.stage.Sites.SiteOf(pause)
		}
		latest = child.Time
		return true
	})
	if !othersWait || hedges.Calls != int64(count-1) {
		return Hedges{}, 0
	}
	hedges.Requests, hedges.AnswerNS = 1, wait.End-first
	return hedges, pausesAt
}

// isInSameFunction reports whether two stacks differ only in their lines. Functions of the standard library do not count: net.Dialer dials the
// addresses of one host after the other.
func (p *workerSum) isInSameFunction(first, second tracefmt.StackID) bool {
	frames := p.withoutStdlib(first)
	return len(frames) == len(p.stage.Syms.Stack(first)) && len(frames) == len(p.stage.Syms.Stack(second)) && p.isInFunctionOf(frames, p.stage.Syms.Stack(second), len(frames))
}

// waitAt returns the stack of a goroutine that waits at a time, nil if it does not.
func (p *workerSum) waitAt(g uint64, time int64) []tracefmt.FrameID {
	if p.spans = p.stage.Win.SpansCoarse(g, time, time+1, p.spans[:0]); len(p.spans) > 0 && p.spans[0].State == timeline.Waiting {
		return p.stage.Syms.Stack(p.spans[0].Stack)
	}
	return nil
}

// timerBefore returns the stack of a goroutine's latest wait in [from, to), if that is a select that a timer ended, or a goroutine that keeps
// many timers by a ticker, as a timing wheel does; else 0. If a tick is half of the wait or more, the wait is for the tick.
func (p *workerSum) timerBefore(g uint64, from, to int64) (stack tracefmt.StackID) {
	p.spans = p.stage.Win.SpansCoarse(g, from, to, p.spans[:0])
	for i := range p.spans {
		if span := &p.spans[i]; span.State == timeline.Waiting && span.Start >= from {
			isSelect := span.Woken && p.stage.Syms.String(span.Reason) == "select"
			if stack = 0; isSelect && (span.Waker == 0 || p.isKeptByTicks(span)) {
				stack = span.Stack
			}
		}
	}
	return stack
}

// isKeptByTicks reports whether the goroutine that ended a wait had itself waited for a timer just before, for less than half of that wait.
func (p *workerSum) isKeptByTicks(wait *timeline.Span) (ok bool) {
	for _, span := range p.stage.Win.SpansCoarse(wait.Waker, wait.Start, wait.End, nil) {
		if span.State == timeline.Waiting && span.End <= wait.End {
			ok = span.Woken && span.Waker == 0 && 2*(span.End-span.Start) < wait.End-wait.Start
		}
	}
	return ok
}

// findFanOut measures the goroutines that a request started in parallel and waited for until time resumed. lastG is the one
// that ended last; the others have the same start function, or had ended by then. It returns their number, the lifetime of the last one, and
// the mean lifetime of the others; 0 if there are fewer than two, or if they ran one after the other.
func (p *workerSum) findFanOut(w *path.WalkResult, lastG uint64, resumed int64) (goroutines, lastNS, othersNS int64) {
	win := p.stage.Win
	lastBirth, ok := win.BirthBefore(lastG, resumed)
	if !ok || lastBirth.Creator != w.Req.G || lastBirth.Time < w.Req.Start {
		return 0, 0, 0
	}
	firstEnd, children := resumed, 0 // firstEnd is when the first of them ended
	win.Children(w.Req.G, w.Req.Start, resumed, func(child timeline.Birth) bool {
		if children++; children > 4*maxRequestWaits {
			return false
		}
		isOther := child.Start != lastBirth.Start
		if isOther && p.startsInStdlib(child.Start) {
			return true
		}
		done, ended := win.Death(child.G, child.Time)
		if ended = ended && done <= resumed; !ended {
			done = resumed
		}
		if isOther && !ended {
			return true
		}
		if child.Time >= firstEnd {
			goroutines = 0 // one after the other, not in parallel
			return false
		}
		goroutines, othersNS = goroutines+1, othersNS+done-child.Time
		firstEnd = min(firstEnd, done)
		return true
	})
	if goroutines < 2 {
		return 0, 0, 0
	}
	lastNS = resumed - lastBirth.Time
	return goroutines, lastNS, max(0, othersNS-lastNS) / (goroutines - 1)
}

// addFanOutCalls adds up the calls of the goroutines that a request started in parallel, and finds the longest. If the request's path has one
// call, each goroutine makes one.
func (p *workerSum) addFanOutCalls(w *path.WalkResult, calls *requestCalls) {
	if calls.FanOut == 0 || calls.Calls < 2 {
		calls.FanOutCalls, calls.FanOutNS = calls.FanOut, calls.FanOutLastNS+max(0, calls.FanOut-1)*calls.FanOutOthersNS
		return
	}
	children := 0
	p.stage.Win.Children(w.Req.G, w.Req.Start, w.Req.End, func(child timeline.Birth) bool {
		children++
		p.addChildCalls(calls, child, w.Req.End)
		return children < 4*maxRequestWaits
	})
}

// addChildCalls adds the calls for whose answers a goroutine waits, with the stack of other calls, up to a time. Several waits in which it sends
// nothing are one call.
func (p *workerSum) addChildCalls(calls *requestCalls, child timeline.Birth, end int64) {
	previousEnd, lastNS := child.Time, int64(0)
	for _, span := range p.stage.Win.SpansCoarse(child.G, child.Time, end, nil) {
		if span.State != timeline.Waiting || span.Stack != calls.stack {
			continue
		}
		if lastNS == 0 || p.hasSentRequest(child.G, previousEnd, &critpath.FollowedWait{Start: span.Start, End: span.End}) {
			calls.FanOutCalls, lastNS = calls.FanOutCalls+1, 0
		}
		waitNS := span.End - span.Start
		previousEnd, lastNS, calls.FanOutNS = span.End, lastNS+waitNS, calls.FanOutNS+waitNS
		calls.LongestNS = max(calls.LongestNS, lastNS)
	}
}

// startsInStdlib reports whether a goroutine starts with a function of the standard library.
func (p *workerSum) startsInStdlib(start tracefmt.StackID) bool {
	frames := p.stage.Syms.Stack(start)
	return len(frames) == 0 || p.stage.Sites.RolesOf(frames[0]).Has(knowledge.Stdlib)
}
