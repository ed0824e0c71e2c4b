package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Whoever has a place of a pool gives it back, and so ends the wait of somebody who stands in line for one. That somebody
// gives it back in turn: where those who end waits had waited there before, as those whose waits they end do now, what is
// waited for is a place, whatever it is made of. A goroutine that answers others does not wait where they do; one that asks
// further through the same function began to wait after the one it answers.
//
// A place may also be a goroutine: a worker that is free ends the wait of somebody, who then hands it work and waits until the
// same goroutine has done it. Who only reads answers that others wait for gives nothing out: it waits itself between what it
// brings to one and to the next, not between what it brings to one.

// A slotKey is where places are waited for.
type slotKey struct {
	wait critpath.WaitKind
	site tracefmt.FrameID
}

// A line is one of the source.
type sourceLine struct {
	fn, file tracefmt.StringID
	number   uint32
}

func (l sourceLine) compare(o sourceLine) int {
	return cmp.Or(cmp.Compare(l.fn, o.fn), cmp.Compare(l.file, o.file), cmp.Compare(l.number, o.number))
}

// A handover is the end of a wait for a place, or for what looks like one.
type handover struct {
	key                slotKey
	line               sourceLine // of key.site, wherever that was called from
	waiter             uint64     // who waited, from when to when
	waitStart, waitEnd int64
	requestEnd         int64  // of the request that it was for
	waker              uint64 // who ended it
	wakerCreator       uint64 // the goroutine that started that one, 0: not known
	wakerCreated       int64
	serviceEnd         int64 // when that one ended the next wait of the same request elsewhere, 0: it did not
	prevServiceEnd     int64 // when that one had ended a wait of somebody else before
}

// maxRequestWaits bounds the waits of one request that are looked at.
const maxRequestWaits = 32

// addHandovers takes note of the waits of a request that others ended, its own and those behind them.
func (p *workerSum) addHandovers(w *path.Walked) {
	if w.Req.Kind == request.Loop && !w.Req.AnswersClient || w.Req.Kind == request.Main {
		return // those that hand on what they are given wait in a row, and at one line
	}
	count := 0
	waits := w.Waits()
	for i := range waits {
		wait := &waits[i]
		switch wait.Kind {
		case critpath.WaitChan, critpath.WaitSend, critpath.WaitSelect, critpath.WaitCond:
		default:
			continue
		}
		if count++; count > maxRequestWaits {
			return
		}
		if wait.G != w.Req.G {
			if b, ok := p.stage.Win.Born(wait.G, wait.End); !ok || b.By != w.Req.G {
				continue // not on the request's own behalf
			}
		}
		h := handover{key: slotKey{wait.Kind, p.stage.Sites.Of(wait.Stack)}, waiter: wait.G, waitStart: wait.Start, waitEnd: wait.End, requestEnd: w.Req.End, waker: wait.Waker}
		frame := p.stage.Syms.Frame(h.key.site)
		h.line = sourceLine{frame.Func, frame.File, frame.Line}
		if b, ok := p.stage.Win.Born(wait.Waker, wait.End); ok {
			h.wakerCreator, h.wakerCreated = b.By, b.Time
		}
		for k := range waits[:min(len(waits), 4*maxRequestWaits)] {
			if o := &waits[k]; o.G == wait.G && o.Waker == wait.Waker && o.Start >= wait.End && o.Waker != 0 && (h.serviceEnd == 0 || o.End < h.serviceEnd) && p.stage.Sites.Of(o.Stack) != h.key.site {
				h.serviceEnd = o.End
			}
		}
		p.handovers = append(p.handovers, h)
	}
}

// slotWaitSum adds up the waits at one place.
type slotWaitSum struct {
	waits                int64 // waits that somebody ended
	wakeInstants         int64 // at which one goroutine ended any
	byFormerWaiter       int64 // of ended: by one that had waited there, or that such a one had started
	byLaterWaiter        int64 // by one that had come to wait there only when the other one waited already
	byChild              int64 // by a goroutine that who waited had started
	childWakers          int64 // how many those were
	byOtherRequest       int64 // by a goroutine that was serving another request
	slots                int   // places that were held at once, 0 if not all can have been seen
	maxWaiters           int   // requests that waited at once
	holdNS               int64 // from the end of a wait to the end of somebody's that is due to it, or to when the worker is done
	holds                int64
	byWorker             int64 // waits ended by a worker that was done with somebody else's work meanwhile, and then did the waiting one's
	byInterleavingWorker int64 // the same, by one that was doing others' at that time
	workNS               int64 // what that took
	idleNS               int64 // what lay between the end of somebody else's and that of the wait
}

// aggregateHandovers brings together what all workers saw of a generation.
func (s *Sum) aggregateHandovers() {
	var list []*handover // they are moved often
	for _, p := range s.workers {
		for i := range p.handovers {
			list = append(list, &p.handovers[i])
		}
	}
	setPrevServiceEnds(list)
	slices.SortFunc(list, func(a, b *handover) int {
		return cmp.Or(cmp.Compare(a.key.wait, b.key.wait), a.line.compare(b.line), cmp.Compare(a.key.site, b.key.site), a.compareByWaitEnd(b))
	})
	// One wait is on the paths of all who wait behind it.
	list = slices.CompactFunc(list, func(a, b *handover) bool { return a.key == b.key && a.waiter == b.waiter && a.waitEnd == b.waitEnd })
	for atLine := range equalRuns(list, func(a, b *handover) bool { return a.key.wait == b.key.wait && a.line == b.line }) {
		s.addPool(atLine)
	}
}

// addPool adds the waits at one line, from wherever it is called. Those who call it from different lines have one pool if they end each other's
// waits: then its places are those of all.
func (s *Sum) addPool(list []*handover) {
	sums, byFormerWaiter := map[slotKey]*slotWaitSum{}, int64(0)
	for atSite := range equalRuns(list, func(a, b *handover) bool { return a.key == b.key }) {
		sum := new(slotWaitSum)
		sum.add(atSite, s.requestGoroutines)
		sums[atSite[0].key], byFormerWaiter = sum, byFormerWaiter+sum.byFormerWaiter
	}
	if len(sums) > 1 {
		joined := new(slotWaitSum)
		slices.SortFunc(list, (*handover).compareByWaitEnd)
		if joined.add(list, s.requestGoroutines); joined.byFormerWaiter > byFormerWaiter {
			for _, sum := range sums {
				sum.slots, sum.holdNS, sum.holds = joined.slots, joined.holdNS, joined.holds
			}
		}
	}
	for k, sum := range sums {
		entry.In(s.slotWaits, k).merge(sum)
	}
}

// compareByWaitEnd orders waits by their ends, and those of one end by all else that tells them apart: one wait is seen by several requests, and which of
// these stands for it must not depend on the workers.
func (h *handover) compareByWaitEnd(second *handover) int {
	if h.waitEnd != second.waitEnd {
		return cmp.Compare(h.waitEnd, second.waitEnd)
	}
	return cmp.Or(cmp.Compare(h.waiter, second.waiter), cmp.Compare(h.waitStart, second.waitStart), cmp.Compare(h.requestEnd, second.requestEnd), cmp.Compare(h.serviceEnd, second.serviceEnd), cmp.Compare(h.waker, second.waker))
}

// setPrevServiceEnds finds when each of those who end waits had last ended somebody else's.
func setPrevServiceEnds(list []*handover) {
	slices.SortFunc(list, func(a, b *handover) int {
		if a.waker != b.waker {
			return cmp.Compare(a.waker, b.waker)
		}
		return a.compareByWaitEnd(b)
	})
	for i, h := range list {
		if h.serviceEnd == 0 {
			continue
		}
		for k := i - 1; k >= 0 && list[k].waker == h.waker && list[k].waitEnd >= h.waitStart; k-- {
			if list[k].waiter != h.waiter {
				h.prevServiceEnd = list[k].waitEnd
				break
			}
		}
	}
}

// A stretch is a time in which somebody held a place, or waited for one.
type interval struct{ start, end int64 }

// queuePeriodStarts returns since when somebody waited at all times, for the end of each wait. Then nobody had a place without having
// waited for it, and whoever gave one back is seen to have.
func queuePeriodStarts(list []*handover) []int64 {
	byWaitStart := make([]int, len(list))
	for i := range byWaitStart {
		byWaitStart[i] = i
	}
	slices.SortFunc(byWaitStart, func(a, b int) int { return cmp.Compare(list[a].waitStart, list[b].waitStart) })
	periodStarts := make([]int64, len(list))
	var start, end int64
	for k, i := range byWaitStart {
		if h := list[i]; k == 0 || h.waitStart >= end {
			start, end = h.waitStart, h.waitEnd
		} else {
			end = max(end, h.waitEnd)
		}
		periodStarts[i] = start
	}
	return periodStarts
}

// findWorkers returns the goroutines that ended the waits of several at different times. Whoever starts a worker because a place is free starts
// it for all: it goes on with what others ask for.
func findWorkers(list []*handover) map[uint64]bool {
	lastByWaker, workers := map[uint64]*handover{}, map[uint64]bool{}
	for _, h := range list {
		if last := lastByWaker[h.waker]; last != nil && last.waiter != h.waiter && h.waitEnd-last.waitEnd > scale.Turn {
			workers[h.waker] = true
		}
		lastByWaker[h.waker] = h
	}
	return workers
}

// add adds the waits at one place, in the order in which they ended.
func (s *slotWaitSum) add(list []*handover, requests map[uint64]struct{}) {
	type slotHold struct {
		waitStart, acquired int64 // when it came to wait for a place, and when it was given
		requestEnd          int64 // of the request that it was for: by then it is given back, or by what was started
		released            bool  // given back
	}
	holdByWaiter := map[uint64]*slotHold{} // by who waited
	lastWakeByWaker, childWakers := map[uint64]int64{}, map[uint64]bool{}
	holdsByPeriod, waits := map[int64][]interval{}, make([]interval, 0, len(list)) // held by since when somebody waited
	childrenByWaiter := map[uint64][]interval{}                                    // of those who start goroutines and wait for these: what each held
	workerFreeAt := map[uint64]int64{}                                             // when a worker was done with the last one's work
	periodStarts, workers := queuePeriodStarts(list), findWorkers(list)
	for i, h := range list {
		byChild := h.wakerCreator == h.waiter && !workers[h.waker]
		waits = append(waits, interval{h.waitStart, h.waitEnd})
		s.waits++
		if lastWake, ok := lastWakeByWaker[h.waker]; !ok || h.waitEnd-lastWake > scale.Turn {
			s.wakeInstants++
		}
		lastWakeByWaker[h.waker] = h.waitEnd
		if _, ok := requests[h.waker]; ok {
			s.byOtherRequest++
		}
		releasedHold := holdByWaiter[h.waker]
		if releasedHold != nil && h.waitEnd > releasedHold.requestEnd {
			releasedHold = nil // another request of the same connection
		}
		if creatorHold := holdByWaiter[h.wakerCreator]; releasedHold == nil && h.wakerCreator != h.waiter && creatorHold != nil && creatorHold.acquired <= h.wakerCreated && h.wakerCreated <= creatorHold.requestEnd {
			releasedHold = creatorHold
		}
		switch {
		case byChild:
			s.byChild++
			childWakers[h.waker] = true
			childrenByWaiter[h.waiter] = append(childrenByWaiter[h.waiter], interval{h.wakerCreated, h.waitEnd})
		case releasedHold == nil:
		case releasedHold.waitStart <= h.waitStart:
			s.byFormerWaiter++
		default:
			s.byLaterWaiter++
		}
		switch {
		case byChild:
		case releasedHold == nil && h.serviceEnd > h.waitEnd && h.prevServiceEnd > 0 && h.prevServiceEnd >= h.waitStart:
			if workerFreeAt[h.waker] > h.waitEnd {
				s.byInterleavingWorker++
			} else {
				s.byWorker++
				s.workNS += h.serviceEnd - h.waitEnd
				s.idleNS += h.waitEnd - h.prevServiceEnd
				holdsByPeriod[periodStarts[i]] = append(holdsByPeriod[periodStarts[i]], interval{h.waitEnd, h.serviceEnd})
				s.holdNS += h.serviceEnd - h.waitEnd
				s.holds++
			}
			workerFreeAt[h.waker] = max(workerFreeAt[h.waker], h.serviceEnd)
		case releasedHold != nil && !releasedHold.released && releasedHold.acquired >= periodStarts[i]:
			holdsByPeriod[periodStarts[i]] = append(holdsByPeriod[periodStarts[i]], interval{releasedHold.acquired, h.waitEnd})
			s.holdNS += h.waitEnd - releasedHold.acquired
			s.holds++
		}
		if releasedHold != nil {
			releasedHold.released = true
		}
		holdByWaiter[h.waiter] = &slotHold{waitStart: h.waitStart, acquired: h.waitEnd, requestEnd: h.requestEnd}
	}
	s.maxWaiters, s.childWakers = max(s.maxWaiters, maxOverlap(waits)), s.childWakers+int64(len(childWakers))
	for _, holds := range holdsByPeriod {
		// Whose place was had before all waited shows only once it is given back: all are seen when each was given back twice.
		if n := maxOverlap(holds); len(holds) >= 2*n {
			s.slots = max(s.slots, n)
		}
	}
	for _, lifetimes := range childrenByWaiter {
		s.slots = max(s.slots, maxOverlap(lifetimes))
	}
}

// maxOverlap returns how many stretches overlap at most. One that begins when another ends does not overlap it.
func maxOverlap(intervals []interval) int {
	starts, ends := make([]int64, len(intervals)), make([]int64, len(intervals))
	for i, s := range intervals {
		starts[i], ends[i] = s.start, s.end
	}
	slices.Sort(starts)
	slices.Sort(ends)
	overlap, ended := 0, 0
	for index, t := range starts {
		for ended < len(ends) && ends[ended] <= t {
			ended++
		}
		overlap = max(overlap, index+1-ended)
	}
	return overlap
}

func (s *slotWaitSum) merge(addend *slotWaitSum) {
	s.waits += addend.waits
	s.wakeInstants += addend.wakeInstants
	s.byFormerWaiter += addend.byFormerWaiter
	s.byLaterWaiter += addend.byLaterWaiter
	s.byChild += addend.byChild
	s.childWakers += addend.childWakers
	s.byOtherRequest += addend.byOtherRequest
	s.slots, s.maxWaiters = max(s.slots, addend.slots), max(s.maxWaiters, addend.maxWaiters)
	s.holdNS += addend.holdNS
	s.holds += addend.holds
	s.byWorker += addend.byWorker
	s.byInterleavingWorker += addend.byInterleavingWorker
	s.workNS += addend.workNS
	s.idleNS += addend.idleNS
}

// SlotWaits sums up the waits at one line that other goroutines ended, in the slices of time that were looked at.
type SlotWaits struct {
	Wait report.WaitKind
	Site *report.Site
	// Waits counts the waits; Together is how many of them one goroutine ended at one and the same instant, on average.
	Waits     int
	BatchSize float64
	// FormerWaiterShare is the part of them that one ended who had waited there before, or had started the goroutine that did; Children
	// the part that a goroutine ended which the waiting one had started for itself alone, and Each how many of these a goroutine ended; Others
	// the part that one ended which was serving another request.
	FormerWaiterShare, ChildShare, WaitsPerChild, OtherRequestShare float64
	// WorkerShare is the part of them that a goroutine ended which then worked for the one that had waited, for one at a time: a
	// worker that is a place itself.
	WorkerShare float64
	// Slots is how many had a place at once while others waited so long that each place was given back twice: as many as there
	// are; 0 if nobody waited for so long. Waiting is how many waited for one at once.
	Slots, MaxWaiters int
	// HoldNS is for how long a place was held, on average over those times in which others waited throughout; 0 if there are
	// too few of them.
	HoldNS int64
}

// SlotWaits returns the sums of all waits that others ended. Merge must have been called.
func (s *Sum) SlotWaits(sp *spell.Speller) []SlotWaits {
	keys := slices.SortedFunc(maps.Keys(s.slotWaits), func(a, b slotKey) int {
		return cmp.Or(cmp.Compare(s.slotWaits[b].waits, s.slotWaits[a].waits), cmp.Compare(a.wait, b.wait), sp.CompareFrames(a.site, b.site))
	})
	var out []SlotWaits
	for _, k := range keys {
		sum := s.slotWaits[k]
		stats := SlotWaits{Wait: report.WaitKind(k.wait.String()), Site: sp.Site(k.site), Waits: int(sum.waits),
			BatchSize: float64(sum.waits) / float64(max(sum.wakeInstants, 1)), Slots: sum.slots, MaxWaiters: sum.maxWaiters,
			ChildShare: float64(sum.byChild) / float64(sum.waits), OtherRequestShare: float64(sum.byOtherRequest) / float64(sum.waits)}
		if sum.byFormerWaiter > 4*sum.byLaterWaiter {
			stats.FormerWaiterShare = float64(sum.byFormerWaiter) / float64(sum.waits)
		}
		if sum.byWorker > 4*sum.byInterleavingWorker && sum.workNS > 4*sum.idleNS {
			stats.WorkerShare = float64(sum.byWorker) / float64(sum.waits)
		}
		if sum.byChild > 0 {
			stats.WaitsPerChild = float64(sum.byChild) / float64(sum.childWakers)
		}
		if sum.holds >= scale.Few {
			stats.HoldNS = sum.holdNS / sum.holds
		}
		out = append(out, stats)
	}
	return out
}
