package queues

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A goroutine that waits for a result has handed work over first: it sent on a channel, woke a goroutine, or started one. A
// subscriber has not: it only waits until there is an event or its time is up, and an event does not make it late.
//
// A subscription at a goroutine that passes events on hands over no work: the goroutine waits again where the subscription woke it,
// and has woken no other goroutine. The event that ends the wait then comes from a goroutine that waited for a timer.
//
// Work that is added to a batch under a lock leaves no event either. If one of the requests that wait in a function started the
// goroutine that ends the batch, all have handed work over.
//
// Work that is queued under a lock for a periodic batcher leaves no event. The batcher is recognised by its cycle: it drains
// the queue, works, and then wakes all producers. A producer that arrives during a cycle is woken at the end of the next one.
// A goroutine that polls for work takes it one after another: it wakes one, works, and wakes the next. News, in contrast, reaches all waiters
// at once.
//
// Work that is handed over through a peer, such as a task in Redis, leaves no event either. The request called a peer before the
// wait, and the goroutine that it waits for called one after a pause: it looked there for work.

// A longWaitSum adds up the requests that spend most of their time in one wait at one line.
type longWaitSum struct {
	waits        int64
	waitNS       int64
	latencyNS    int64 // of the requests
	handedOver   int64 // requests that had handed work over before the wait
	subscribed   int64 // requests that had only subscribed before the wait
	woken        int64 // requests whose wait a goroutine ended
	gathered     int64 // requests that waited for answers at that line until a time limit, and had several before
	gatheredNS   int64 // of these, from the start of the request to the last answer
	limitNS      int64 // of these, from the first wait to the end of the last
	missedCycles int64 // requests that arrived while the waker worked for others, which it woke, and that were woken one cycle or other work later
	otherCycles  int64 // requests that waited through several cycles, or that the waker woke first although it was at work
}

func (s longWaitSum) plus(addend longWaitSum) longWaitSum {
	return longWaitSum{s.waits + addend.waits, s.waitNS + addend.waitNS, s.latencyNS + addend.latencyNS, s.handedOver + addend.handedOver, s.subscribed + addend.subscribed, s.woken + addend.woken,
		s.gathered + addend.gathered, s.gatheredNS + addend.gatheredNS, s.limitNS + addend.limitNS,
		s.missedCycles + addend.missedCycles, s.otherCycles + addend.otherCycles}
}

// An ownWait is a sleep of the request's own goroutine, or its wait for another goroutine.
type ownWait struct {
	site       tracefmt.FrameID
	start, end int64
	waitIndex  int32 // index in WalkResult.FollowedWaits; -1: a sleep
}

// ownWaits returns the sleeps of a request's own goroutine, and then its waits for other goroutines, each in order of the path.
// The result is valid until the next call.
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

// addLongWait classifies the longest wait of a request that is more than half of its latency: had the request handed work over
// before, did a goroutine end the wait, and did that goroutine work in cycles.
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
	sum := longWaitSum{waits: 1, waitNS: longest.end - longest.start, latencyNS: r.End - r.Start}
	switch handedOver := p.handedOver(r.G, r.Start, longest.start); {
	case handedOver && p.hasSubscribed(w, longest):
		sum.subscribed++
	case handedOver || p.startedInCall(w, longest) || isHandedOverByPeer(w, longest):
		sum.handedOver++
	}
	if longest.waitIndex >= 0 {
		waker := w.FollowedWaits()[longest.waitIndex].Waker
		// A goroutine without a creator runs a timer's function.
		birth, hasBirth := p.stage.Win.BirthBefore(waker, longest.end)
		switch {
		case waker == 0:
		case hasBirth && birth.Creator == 0:
			sum.addGathering(w, waits, longest)
		default:
			sum.woken++
			p.addBatchCycle(&sum, w.Segments, w.FollowedWaits(), longest)
		}
	}
	p.longWaits[longest.site] = p.longWaits[longest.site].plus(sum)
}

// addGathering counts a request whose longest wait a timer's function ended, if other goroutines have ended several of its waits at that
// line before: it received answers until its time was up.
func (s *longWaitSum) addGathering(w *path.WalkResult, waits []ownWait, longest ownWait) {
	followed, answers, first := w.FollowedWaits(), 0, longest.start
	for _, wait := range waits {
		if wait.site != longest.site || wait.waitIndex < 0 || wait.end > longest.start {
			continue
		}
		if waker := followed[wait.waitIndex].Waker; waker != 0 && waker != followed[longest.waitIndex].Waker {
			answers, first = answers+1, min(first, wait.start)
		}
	}
	if answers < 2 {
		return
	}
	s.gathered++
	s.gatheredNS += longest.start - w.Req.Start
	s.limitNS += longest.end - first
}

// hasSubscribed reports whether all that a request handed over before a wait were subscriptions, and a timer led to the event that ended
// the wait, unless the request's own time was up.
func (p *workerSum) hasSubscribed(w *path.WalkResult, wait ownWait) bool {
	r, waits := w.Req, w.FollowedWaits()
	waker, subscribers, hub, isSubscription := uint64(0), tracefmt.StackID(0), uint64(0), true
	if wait.waitIndex >= 0 {
		waker = waits[wait.waitIndex].Waker
	}
	complete := p.stage.Win.EachWoken(r.G, r.Start, wait.start, func(woken uint64, stack tracefmt.StackID) bool {
		if p.isHandover(stack) {
			isSubscription = (hub == 0 || hub == woken) && woken != 0
			hub, subscribers = woken, stack
		}
		return isSubscription
	})
	if !complete || !isSubscription || waker != 0 && waker != hub || p.startsWork(r.G, r.Start, wait.start) {
		return false
	}
	idleWait, ok := p.idleAfter(hub, r.G, r.Start, wait.end)
	if !ok || waker == 0 {
		return ok
	}
	var timerNS, totalNS int64
	for s := range entry.Each(w.Segments) {
		if s.FollowedWait < 0 || outermostWait(waits, s.FollowedWait) != wait.waitIndex {
			continue
		}
		totalNS += s.End - s.Start
		if passed := &waits[s.FollowedWait]; s.G != hub && s.Code.Cause() == cause.Sleep && passed.G == hub && passed.Stack == idleWait && p.stage.Sites.SiteOf(passed.WakerStack) != p.stage.Sites.SiteOf(subscribers) {
			timerNS += s.End - s.Start
		}
	}
	return float64(timerNS) >= threshold.MostShare*float64(totalNS)
}

// idleAfter returns where goroutine g waits again after subscriber woke it in [from, to), each time where it was woken. ok is false if it
// did anything else that the trace shows, except to wake the subscriber.
func (p *workerSum) idleAfter(g, subscriber uint64, from, to int64) (idleWait tracefmt.StackID, ok bool) {
	wokenAt := int64(0)
	p.spans = p.stage.Win.Spans(g, from, to, p.spans[:0])
	for s := range entry.Each(p.spans) {
		if wokenAt != 0 && s.State == timeline.Waiting {
			if s.Stack != idleWait {
				return 0, false
			}
			p.stage.Win.EachWoken(g, wokenAt, s.Start, func(woken uint64, _ tracefmt.StackID) bool {
				ok = woken == subscriber
				return ok
			})
			if !ok || p.startsWork(g, wokenAt, s.Start) {
				return 0, false
			}
			wokenAt = 0
		}
		if s.State == timeline.Waiting && s.Woken && s.Waker == subscriber && s.End < to {
			idleWait, wokenAt, ok = s.Stack, s.End, true
		}
		if wokenAt != 0 && s.State == timeline.Syscall {
			return 0, false
		}
	}
	return idleWait, ok && wokenAt == 0
}

// startedInCall reports whether a goroutine that the request waits for was started in the function in which the request waits,
// perhaps by another request. Then it works for all that wait there, such as a goroutine that waits until a batch is due.
func (p *workerSum) startedInCall(w *path.WalkResult, wait ownWait) bool {
	if wait.waitIndex < 0 {
		return false
	}
	waits, function, last := w.FollowedWaits(), p.stage.Syms.Frame(wait.site).Func, w.Req.G
	for segment := range entry.Each(w.Segments) {
		if segment.G == last || segment.G == w.Req.G || segment.FollowedWait < 0 || outermostWait(waits, segment.FollowedWait) != wait.waitIndex {
			continue
		}
		last = segment.G
		if birth, ok := p.stage.Win.BirthBefore(segment.G, segment.End); ok && slices.ContainsFunc(p.stage.Syms.Stack(birth.Stack), func(f tracefmt.FrameID) bool {
			return p.stage.Syms.Frame(f).Func == function
		}) {
			return true
		}
	}
	return false
}

// isHandedOverByPeer reports whether work may have been handed over through a peer (a queue in Redis): the request called a
// peer before the wait, and during the wait another goroutine called one after a sleep.
func isHandedOverByPeer(w *path.WalkResult, wait ownWait) bool {
	hasCalled, hasSlept := false, false
	for s := range entry.Each(w.Segments) {
		callsPeer := s.Code.Cause() == cause.Network && !s.Inbound
		switch {
		case s.End <= wait.start:
			hasCalled = hasCalled || callsPeer
		case s.G == w.Req.G || s.Start >= wait.end:
		case s.Code.Cause() == cause.Sleep:
			hasSlept = true
		case hasCalled && hasSlept && callsPeer:
			return true
		}
	}
	return false
}

// addBatchCycle counts in sum whether a wait of a request (for a goroutine: waitIndex is not -1), whose path has these segments, fits a batcher
// or a goroutine that polls for work:
//   - a missed cycle, if the waker was working for others when the request arrived, woke them, slept once or did other work, and then ended the
//     wait: news would have reached all at once. A wait for a message of a peer, which it has not asked, is no work;
//   - another cycle, which contradicts that, if it slept more than once, or was working at arrival and neither;
//   - neither, for anything else.
//
// LongWaits decides by the two numbers.
func (p *workerSum) addBatchCycle(sum *longWaitSum, segments []cause.Segment, waits []critpath.FollowedWait, wait ownWait) {
	waker, workingAtArrival, sleeps := waits[wait.waitIndex].Waker, false, 0
	firstSleepStart, lastSleepEnd, works := wait.end-threshold.IdleCheckNS, int64(0), true
	for i, first := 0, true; i < len(segments); i++ {
		segment := &segments[i]
		if segment.FollowedWait < 0 || outermostWait(waits, segment.FollowedWait) != wait.waitIndex {
			continue
		}
		segmentCause := segment.Code.Cause()
		if first {
			first, workingAtArrival = false, segmentCause == cause.Network || segmentCause == cause.Syscall || segmentCause == cause.CPU
		}
		isMessage := segmentCause == cause.Network && !p.stage.Sites.HasRole(waits[segment.FollowedWait].Stack, knowledge.HTTP1RoundTrip)
		works = works && !isMessage
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
	wokeOthers := false
	if workingAtArrival && sleeps <= 1 {
		var wakeStack tracefmt.StackID
		p.stage.Win.EachWoken(waker, wait.end, wait.end+1, func(_ uint64, stack tracefmt.StackID) bool {
			wakeStack = stack
			return false
		})
		isSame := func(_ uint64, stack tracefmt.StackID) bool { return stack == wakeStack && wakeStack != 0 }
		wokeOthers, _ = p.stage.Win.HasWoken(waker, wait.start, firstSleepStart, isSame)
	}
	switch {
	case wokeOthers && (sleeps == 1 || works || p.hasSentRequest(waker, wait.start, &critpath.FollowedWait{Start: wait.end, End: wait.end})):
		sum.missedCycles++
	case sleeps > 1 || sleeps == 0 && workingAtArrival:
		sum.otherCycles++
	}
}

// handedOver reports whether goroutine g handed work over in [from, to): it woke or created a goroutine, other than by what
// isHandover excludes. It reports true if the wakes of that time are not completely known.
func (p *workerSum) handedOver(g uint64, from, to int64) bool {
	found, complete := p.stage.Win.HasWoken(g, from, to, func(_ uint64, stack tracefmt.StackID) bool { return p.isHandover(stack) })
	return found || !complete || p.startsWork(g, from, to)
}

// startsWork reports whether goroutine g created a goroutine in [from, to), other than by what isHandover excludes.
func (p *workerSum) startsWork(g uint64, from, to int64) (found bool) {
	p.stage.Win.Children(g, from, to, func(child timeline.Birth) bool {
		found = p.isHandover(child.Stack)
		return !found
	})
	return found
}

// isHandover reports whether a stack that woke or created a goroutine hands work over. Four things do not: the release of a
// lock, an answer to the client, what net/http does for each request (it reads the body and, in HTTP/2, notifies the
// connection's goroutine), and the flow control of a peer's answer.
func (p *workerSum) isHandover(stack tracefmt.StackID) bool {
	return !slices.ContainsFunc([]knowledge.Role{knowledge.Mutex, knowledge.RequestUpkeep, knowledge.AnswerWrite, knowledge.AnswerRead}, func(role knowledge.Role) bool {
		return p.stage.Sites.HasRole(stack, role)
	})
}

// LongWaits describes the requests that spent most of their time in one wait of their own goroutine at one line, in the sampled
// slices of the trace.
type LongWaits struct {
	Site      *report.Site
	TimeShare float64 // of these requests' time
	// HandoverShare is the share of these requests that had handed work over before, SubscribedShare the share that had only
	// subscribed to events, WokenShare the share whose wait another goroutine ended.
	HandoverShare, SubscribedShare, WokenShare float64
	// GatheredShare is the share that received answers at that line until a time limit, the last of them GatheredNS after the start of
	// the request. LimitNS is the time from the first of these waits to the limit. Both are means.
	GatheredShare       float64
	GatheredNS, LimitNS int64
	// Batched reports that requests that arrived while the waker was at work had to wait for its next cycle, or for their turn: the waker is
	// a batcher, or polls for work.
	Batched bool
}

// LongWaits returns the long waits, one element a source line. Merge must have been called.
func (s *Sum) LongWaits(sp *spell.Speller) (out []LongWaits) {
	for site, sum := range s.workers[0].longWaits {
		n := float64(sum.waits)
		out = append(out, LongWaits{
			Site: sp.Site(site), TimeShare: float64(sum.waitNS) / float64(sum.latencyNS), HandoverShare: float64(sum.handedOver) / n, SubscribedShare: float64(sum.subscribed) / n, WokenShare: float64(sum.woken) / n,
			GatheredShare: float64(sum.gathered) / n, GatheredNS: sum.gatheredNS / max(sum.gathered, 1), LimitNS: sum.limitNS / max(sum.gathered, 1),
			Batched: sum.missedCycles >= threshold.Repeats && float64(sum.missedCycles) >= threshold.FarFactor*float64(sum.otherCycles),
		})
	}
	slices.SortFunc(out, func(a, b LongWaits) int { return a.Site.Compare(b.Site) })
	return out
}
