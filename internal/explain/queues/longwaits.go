package queues

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Who waits for work that is done for it has given that to somebody: it sent something, ended somebody's wait, or started a
// goroutine. Who reads news has not: it only waits, until there is some or its time is up, and is late with nothing.
//
// What is left behind a lock for somebody who comes for it at intervals is not seen. But he takes what lies there, works for it, and then
// wakes who left it: who comes while he works is too late for that turn, and has the next one. News is for all who wait when there is some.

// longWaitSum adds up the requests that wait at one line for most of their time.
type longWaitSum struct {
	waits        int64
	handedOver   int64 // of them, those that had given somebody something in the same request
	woken        int64 // of them, those whose wait somebody ended
	missedCycles int64 // came while who ends the waits was at work for others, whom he woke then, and were woken a turn later
	otherCycles  int64 // had another number of turns than those who left something: none that they came to in time, or several
}

func (s longWaitSum) plus(addend longWaitSum) longWaitSum {
	return longWaitSum{s.waits + addend.waits, s.handedOver + addend.handedOver, s.woken + addend.woken, s.missedCycles + addend.missedCycles, s.otherCycles + addend.otherCycles}
}

// An ownWait is a sleep of a request's own goroutine, or its wait for what another one does.
type ownWait struct {
	site       tracefmt.FrameID
	start, end int64
	waitIndex  int32 // number of the wait, -1: a sleep
}

// ownWaits returns those of a request. It is valid until the next call.
func (p *workerSum) ownWaits(w *path.WalkResult) []ownWait {
	r, list := w.Req, p.ownWaitScratch[:0]
	for i := range w.Segments {
		if s := &w.Segments[i]; s.G == r.G && s.FollowedWait < 0 && s.Code.Cause() == cause.Sleep {
			list = append(list, ownWait{s.Site, s.Start, s.End, -1})
		}
	}
	waits := w.FollowedWaits()
	for i := range waits {
		if v := &waits[i]; v.G == r.G && v.Parent < 0 {
			list = append(list, ownWait{p.stage.Sites.SiteOf(v.Stack), max(v.Start, r.Start), min(v.End, r.End), int32(i)})
		}
	}
	p.ownWaitScratch = list
	return list
}

// addLongWait takes note of what a request did before the wait that took most of its time.
func (p *workerSum) addLongWait(w *path.WalkResult, waits []ownWait) {
	r := w.Req
	var longest ownWait
	for _, wait := range waits {
		if wait.end-wait.start > longest.end-longest.start {
			longest = wait
		}
	}
	if 2*(longest.end-longest.start) <= r.End-r.Start {
		return
	}
	sum := longWaitSum{waits: 1}
	if p.handedOver(r.G, r.Start, longest.start) {
		sum.handedOver++
	}
	if longest.waitIndex >= 0 {
		waker := w.FollowedWaits()[longest.waitIndex].Waker
		if birth, hasBirth := p.stage.Win.Born(waker, longest.end); waker != 0 && !(hasBirth && birth.By == 0) { // that is a timer's function
			sum.woken++
			p.addBatchCycle(&sum, w, longest)
		}
	}
	p.longWaits[longest.site] = p.longWaits[longest.site].plus(sum)
}

// addBatchCycle takes note of the turns, from one sleep to the next, of the goroutine that ended a request's wait: which one that was at when the
// request came, and how many sleeps it waited through.
func (p *workerSum) addBatchCycle(sum *longWaitSum, w *path.WalkResult, wait ownWait) {
	waits := w.FollowedWaits()
	waker, workingAtArrival, sleeps := waits[wait.waitIndex].Waker, false, 0
	var firstSleepStart, lastSleepEnd int64 // when the first sleep began, when the last one ended
	for i, first := 0, true; i < len(w.Segments); i++ {
		segment := &w.Segments[i]
		if segment.FollowedWait < 0 || outermostWait(waits, segment.FollowedWait) != wait.waitIndex {
			continue
		}
		segmentCause := segment.Code.Cause()
		if first {
			first, workingAtArrival = false, segmentCause == cause.Network || segmentCause == cause.Syscall
		}
		if segment.G != waker || segmentCause != cause.Sleep {
			continue
		}
		if sleeps == 0 {
			firstSleepStart = segment.Start
		}
		if segment.Start != lastSleepEnd {
			sleeps++
		}
		lastSleepEnd = segment.End
	}
	if sleeps > 1 || sleeps == 0 && workingAtArrival {
		sum.otherCycles++
	}
	if sleeps != 1 || !workingAtArrival {
		return
	}
	var wakeStack tracefmt.StackID
	p.stage.Win.Woke(waker, wait.end, wait.end+1, func(_ uint64, stack tracefmt.StackID) bool {
		wakeStack = stack
		return false
	})
	wokeOthers := false
	p.stage.Win.Woke(waker, wait.start, firstSleepStart, func(_ uint64, stack tracefmt.StackID) bool {
		wokeOthers = stack == wakeStack
		return !wokeOthers
	})
	if wokeOthers && wakeStack != 0 {
		sum.missedCycles++
	}
}

// handedOver reports whether a goroutine gave somebody something in [from, to): the library of the connection that it serves does
// nothing of that sort for it.
func (p *workerSum) handedOver(g uint64, from, to int64) bool {
	found := false
	complete := p.stage.Win.Woke(g, from, to, func(_ uint64, stack tracefmt.StackID) bool {
		found = p.isHandover(stack)
		return !found
	})
	if found || !complete {
		return true
	}
	p.stage.Win.Children(g, from, to, func(child uint64, created int64) bool {
		birth, ok := p.stage.Win.Born(child, created+1)
		found = ok && p.isHandover(birth.Stack)
		return !found
	})
	return found
}

// isHandover reports whether a stack from which somebody was woken, or started, is that of a hand-over: not of a lock that is given
// back, nor of an answer to the client, nor of what net/http does for each request, such as to read its body and, in HTTP/2, tell the connection's goroutine.
func (p *workerSum) isHandover(stack tracefmt.StackID) bool {
	syms := p.stage.Syms
	for _, frame := range syms.Stack(stack) {
		if fn := syms.String(syms.Frame(frame).Func); stdlib.IsMutex(fn) || strings.HasPrefix(fn, "net/http.(*connReader).") || strings.Contains(fn, "http2") && strings.HasSuffix(fn, "equestBody).Read") {
			return false
		}
	}
	return !p.isAnswerWrite(stack)
}

// LongWaits sums up the requests that spent most of their time in one wait of their own at a line, in the slices of time that were
// looked at.
type LongWaits struct {
	Site *report.Site
	// Waits counts them; Gave is the part that had given somebody something before, News the part whose wait somebody ended.
	Waits                     int
	HandoverShare, WokenShare float64
	// Batched says that those who came while the one who ends the waits was at work had to wait for its next turn: what they wait for is
	// done for those who were there before it began.
	Batched bool
}

// LongWaits returns these sums. Merge must have been called.
func (s *Sum) LongWaits(sp *spell.Speller) []LongWaits {
	var out []LongWaits
	for site, sum := range s.workers[0].longWaits {
		n := float64(sum.waits)
		out = append(out, LongWaits{sp.Site(site), int(sum.waits), float64(sum.handedOver) / n, float64(sum.woken) / n, sum.missedCycles >= scale.Several && float64(sum.missedCycles) >= scale.Far*float64(sum.otherCycles)})
	}
	slices.SortFunc(out, func(a, b LongWaits) int { return a.Site.Compare(b.Site) })
	return out
}
