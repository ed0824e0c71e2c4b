package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A pool is recognised by its waiters: the goroutine that ends a wait at a line has itself waited at that line before,
// because it acquired a slot there and now releases it. How the pool is implemented does not matter. A goroutine that answers
// others does not wait where they do. A goroutine that calls on through the same function began to wait later than its
// caller.
//
// A slot may also be a goroutine: an idle worker ends the wait of a goroutine, which then hands it work and waits until the
// same worker has done it. A goroutine that demultiplexes responses is not a worker: it blocks between two waiters that it
// wakes, never between two wakes of the same waiter.

// A slotKey identifies waits that are added up together: same kind of wait, same site, same library function.
type slotKey struct {
	wait critpath.WaitKind
	site tracefmt.FrameID
	call tracefmt.StringID
}

// compareSlotKeys returns an order of keys that is the same in each run.
func compareSlotKeys(sp *spell.Speller) func(a, b slotKey) int {
	return func(a, b slotKey) int {
		return cmp.Or(cmp.Compare(a.wait, b.wait), sp.CompareFrames(a.site, b.site), cmp.Compare(sp.Syms.String(a.call), sp.Syms.String(b.call)))
	}
}

// A handover is the end of a wait by another goroutine, which may have released a slot of a pool to the waiter.
type handover struct {
	key                slotKey
	line               tracefmt.Line // of key.site; zero if waits at several lines of a service may be for one pool
	waiter             uint64        // goroutine ids
	waitStart, waitEnd int64
	requestEnd         int64 // end of the waiter's request
	requestStart       int64
	requestG           uint64
	waker              uint64
	wakerCreator       uint64 // goroutine that created the waker; 0: unknown
	wakerCreated       int64
	// when the same waker ended the same goroutine's next wait at another site: a worker has done the waiter's work; 0: never
	serviceEnd     int64
	prevServiceEnd int64            // when the waker had last ended a wait of another goroutine, during this wait; 0: it had not
	wakerSeenSince int64            // since when the waker's own waits are known
	isSend         bool             // the waker received what the waiter sends
	isUnordered    bool             // the pool may not serve waiters in the order of their arrival
	release        tracefmt.FrameID // where the waker released units of a semaphore; 0: the pool is no semaphore
	wakerSite      tracefmt.FrameID // where the waker ended the wait
	wakerWaitStart int64            // when the waker's last wait at the same line began
	wakerAcquired  int64            // when that wait ended; 0: it has not waited there since wakerSeenSince
	route          tracefmt.FrameID // of a wait for a connection of net/http, see routeSite
	holders        *holderSample    // who held connections during the wait; nil: not sampled
	isBeforeCall   bool             // see isBeforeCall
	isWithin       bool             // the request itself started the waker
}

// maxRequestWaits bounds the waits of one request that are recorded.
const maxRequestWaits = 32

// addHandovers records the waits on a request's path that may be for a slot and that another goroutine ended: waits of the
// request's goroutine, and of goroutines that work for it. Loops and background runs are left out: their stages wait for each
// other and hold no slots.
func (p *workerSum) addHandovers(w *path.WalkResult) {
	if w.Req.Kind == request.Loop && !w.Req.AnswersClient || w.Req.Kind == request.Run {
		return // the stages of a pipeline wait one after the other, at one line, and hold no slots
	}
	count, before := 0, len(p.handovers)
	waits := w.FollowedWaits()
	var readers []uint64
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
		if !p.stage.IsOnBehalf(w.Req, wait.G, wait.End) {
			continue
		}
		if readers == nil {
			readers = p.answerReaders(w)
		}
		first := len(p.handovers)
		p.addHandover(w, wait)
		p.handovers[first].isBeforeCall = p.isBeforeCall(w, readers, i)
		if h := &p.handovers[first]; wait.G != w.Req.G && wait.Waker != w.Req.G && !p.stage.Sites.HasRole(wait.Stack, knowledge.HTTP1RoundTrip) && !slices.ContainsFunc(p.handovers[before:first], func(o handover) bool { return o.key == h.key }) {
			p.addOtherWaits(w, wait, &count)
		}
	}
}

// addOtherWaits records the waits of a request's other goroutines with the stack of a wait on its path: the path has those of the last one
// only, and not all holders of the slots.
func (p *workerSum) addOtherWaits(w *path.WalkResult, onPath *critpath.FollowedWait, count *int) {
	p.stage.Win.Children(w.Req.G, w.Req.Start, onPath.End, func(child timeline.Birth) bool {
		p.childSpans = p.stage.Win.SpansCoarse(child.G, child.Time, w.Req.End, p.childSpans[:0])
		for _, span := range p.childSpans {
			if span.State != timeline.Waiting || span.Stack != onPath.Stack || span.Waker == 0 || span.Waker == w.Req.G || span.End > w.Req.End ||
				slices.ContainsFunc(w.FollowedWaits(), func(o critpath.FollowedWait) bool { return o.G == child.G && o.End == span.End }) {
				continue
			}
			*count++
			p.addHandover(w, &critpath.FollowedWait{Kind: onPath.Kind, Stack: span.Stack, WakerStack: span.WakerStack, G: child.G, Waker: span.Waker, Start: span.Start, End: span.End})
		}
		return *count < maxRequestWaits
	})
}

// addHandover records a wait of a request's goroutine, or of one that works for it.
func (p *workerSum) addHandover(w *path.WalkResult, wait *critpath.FollowedWait) {
	handover := handover{
		key: slotKey{wait.Kind, p.stage.Sites.SiteOf(wait.Stack), p.stage.Sites.CallOf(wait.Stack)}, waiter: wait.G, waitStart: wait.Start, waitEnd: wait.End,
		requestEnd: w.Req.End, requestStart: w.Start, requestG: w.Req.G, waker: wait.Waker,
		isWithin: wait.Waker != w.Req.G && p.isStartedBy(w.Req, wait.Waker, wait.End),
	}
	handover.line = p.stage.Syms.Line(handover.key.site)
	handover.isUnordered = wait.Kind == critpath.WaitCond || p.stage.Sites.HasRole(wait.Stack, knowledge.UnorderedPool)
	p.findAcquisition(&handover, w.Req)
	if p.stage.Sites.HasRole(wait.Stack, knowledge.ConnectionWait) {
		handover.route = p.routeSite(wait.Stack)
	}
	if p.stage.Syms.Frame(handover.key.site).Caller != 0 || handover.route != 0 { // in a library
		handover.holders = p.sampleHolders(wait, handover.line)
	}
	if p.stage.Sites.HasRole(wait.Stack, knowledge.PoolWait) {
		handover.line = tracefmt.Line{}
	}
	p.stage.Win.EachWoken(wait.Waker, wait.End, wait.End+1, func(_ uint64, stack tracefmt.StackID) bool {
		handover.wakerSite = p.stage.Sites.SiteOf(stack)
		handover.isSend = wait.Kind == critpath.WaitSend || wait.Kind == critpath.WaitSelect && p.stage.Sites.HasRole(stack, knowledge.ReceiveWait)
		return false
	})
	if p.stage.Sites.HasRole(wait.Stack, knowledge.SemaphoreAcquire) {
		handover.release = handover.wakerSite
	}
	if b, ok := p.stage.Win.BirthBefore(wait.Waker, wait.End); ok {
		handover.wakerCreator, handover.wakerCreated = b.Creator, b.Time
	}
	waits := w.FollowedWaits()
	for k := range waits[:min(len(waits), 4*maxRequestWaits)] {
		if o := &waits[k]; o.G == wait.G && o.Waker == wait.Waker && o.Start >= wait.End && o.Waker != 0 &&
			(handover.serviceEnd == 0 || o.End < handover.serviceEnd) && p.stage.Sites.SiteOf(o.Stack) != handover.key.site {
			handover.serviceEnd = o.End
		}
	}
	p.handovers = append(p.handovers, handover)
}

// holderSearchFactor is for how many times the length of a wait its waker is searched for an acquisition of the slot.
const holderSearchFactor = 4

// findAcquisition looks in the waker's own timeline for the wait in which it acquired the slot that it now releases, and sets
// wakerAcquired to its end; 0 if there is none in the searched time. This also finds holders that serve no request, such as
// background loops. If the waker waited in the same function at another line, it may have acquired the slot there, so the
// search starts after that.
func (p *workerSum) findAcquisition(h *handover, waiter *request.Request) {
	if h.waker == 0 {
		return
	}
	h.wakerSeenSince = h.waitStart - holderSearchFactor*(h.waitEnd-h.waitStart)
	p.spans = p.stage.Win.SpansCoarse(h.waker, h.wakerSeenSince, h.waitEnd, p.spans[:0])
	for span := range entry.Each(p.spans) {
		if span.State != timeline.Waiting {
			continue
		}
		site := p.stage.Sites.SiteOf(span.Stack)
		if p.stage.Sites.RolesOf(site).Has(knowledge.HTTP1Connection) || waiter.ReadsClient && site == p.stage.Sites.SiteOf(waiter.EntryStack) {
			h.wakerWaitStart, h.wakerAcquired = 0, 0 // it serves another request by now
		}
		if p.stage.Sites.CallOf(span.Stack) != h.key.call || span.End >= h.waitEnd {
			continue
		}
		if p.stage.Sites.HasRole(span.Stack, knowledge.PoolWait) || p.stage.Syms.Line(site) == h.line {
			h.wakerWaitStart, h.wakerAcquired = span.Start, span.End
		} else {
			h.wakerSeenSince = span.End
		}
	}
}

// A slotWaitSum adds up the waits with one slotKey. From the goroutines that ended the waits it infers whether there is a pool
// and how many slots it has.
type slotWaitSum struct {
	waits                int64 // number of waits that a goroutine ended
	wakeInstants         int64 // instants at which one goroutine ended waits
	byFormerWaiter       int64 // part of waits: ended by a goroutine that had waited there earlier, or by one that it had created
	byLaterWaiter        int64 // part of waits: ended by a goroutine that started to wait there after this waiter did
	byChild              int64 // part of waits: ended by a goroutine that the waiter had created
	sends                int64 // part of waits: to send something to the goroutine that ended the wait
	childWakers          int64 // number of the goroutines of byChild
	byOtherRequest       int64 // part of waits: ended by a goroutine that was serving another request
	byOwnRequest         int64 // part of waits: ended by a goroutine that the same request had started
	beforeCalls          int64 // part of waits: before a call on a connection that has one at a time
	slots                int   // number of slots that were held at once; 0 if perhaps not all were observed
	maxWaiters           int   // largest number of simultaneous waits
	demand               int   // see demandOf
	queuedNS             int64 // time during which a goroutine waited
	holdNS               int64 // sum of the lengths of holdCount holds, from the end of the holder's wait to the end of the next wait, or of the service
	holdCount            int64
	partialNS            int64 // sum of the parts during queue periods of holds that had begun before
	partialHolds         int64
	backgroundNS         int64 // part of holdNS and partialNS: by goroutines that served no request
	backgroundHolders    int   // largest number of these goroutines that held a slot at once
	byWorker             int64 // part of waits: ended by a worker that had just finished other work, and then did the waiter's
	byInterleavingWorker int64 // the same, but the worker was not done with other work
	workNS               int64 // length of the services of byWorker
	idleNS               int64 // from the end of the worker's previous service to the end of the wait
	releases             map[tracefmt.FrameID]releaseSum
	holds                []Hold // only while a generation is added
	sampled              sampledHolders
}

// A releaseSum counts the releases of a semaphore's units at one site, and the waits that these ended. Of these, wide and wideWaits count
// the releases that ended wideRelease waits or more.
type releaseSum struct{ releases, waits, wide, wideWaits int64 }

// wideRelease is how many waits at least end by a release of many units. A wait for two units may follow a wait for one, at any semaphore.
const wideRelease = threshold.Repeats

// aggregateHandovers adds the handovers that all workers recorded in a generation to the sums, once for each wait. Waits at one
// source line are treated together, see addPool.
func (s *Sum) aggregateHandovers() {
	var list []*handover // pointers, because they are sorted twice
	for _, p := range s.workers {
		for i := range p.handovers {
			list = append(list, &p.handovers[i])
		}
	}
	setPrevServiceEnds(list)
	slices.SortFunc(list, func(a, b *handover) int {
		return cmp.Or(cmp.Compare(a.key.wait, b.key.wait), cmp.Compare(a.key.call, b.key.call), a.line.Compare(b.line), cmp.Compare(a.key.site, b.key.site),
			a.compareByWaitEnd(b))
	})
	// One wait may be on the paths of several requests.
	list = slices.CompactFunc(list, func(a, b *handover) bool {
		return a.key == b.key && a.waiter == b.waiter && a.waitEnd == b.waitEnd
	})
	for atLine := range entry.EqualRuns(list, func(a, b *handover) bool {
		return a.key.wait == b.key.wait && a.key.call == b.key.call && a.line == b.line
	}) {
		s.addPool(atLine)
	}
}

// addPool adds the waits at one source line to the sums of its sites (one for each caller). If callers end each other's waits,
// they share one pool, and each sum gets the slots and holds of all callers together.
func (s *Sum) addPool(list []*handover) {
	sums := map[slotKey]*slotWaitSum{}
	for atSite := range entry.EqualRuns(list, func(a, b *handover) bool { return a.key == b.key }) {
		sum := new(slotWaitSum)
		sum.inferHolds(atSite, s.requestGoroutines)
		if sum.isWithinRequests() {
			sum = sumOfRequests(atSite, s.requestGoroutines)
		}
		sums[atSite[0].key] = sum
	}
	if len(sums) > 1 {
		joined := new(slotWaitSum)
		slices.SortFunc(list, (*handover).compareByWaitEnd)
		if isShared := joined.inferHolds(list, s.requestGoroutines); isShared {
			for _, sum := range sums {
				sum.slots, sum.demand, sum.holdNS, sum.holdCount, sum.holds = joined.slots, joined.demand, joined.holdNS, joined.holdCount, joined.holds
				sum.queuedNS, sum.partialNS, sum.partialHolds = joined.queuedNS, joined.partialNS, joined.partialHolds
				sum.backgroundNS, sum.backgroundHolders, sum.releases, sum.sampled = joined.backgroundNS, joined.backgroundHolders, joined.releases, joined.sampled
			}
		}
	}
	s.recordSlotHolders(list, sums)
	for k, sum := range sums {
		entry.GetOrAdd(s.slotWaits, k).merge(sum)
	}
}

// isWithinRequests reports whether goroutines of the same request end most of the waits: each request has its own slots.
func (s *slotWaitSum) isWithinRequests() bool {
	return float64(s.byOwnRequest) >= threshold.MostShare*float64(s.waits)
}

// sumOfRequests returns the sum of waits at one site with a queue in each request.
func sumOfRequests(list []*handover, requests goroutineSet) *slotWaitSum {
	sum := new(slotWaitSum)
	slices.SortStableFunc(list, func(a, b *handover) int {
		return cmp.Or(cmp.Compare(a.requestG, b.requestG), cmp.Compare(a.requestEnd, b.requestEnd))
	})
	for ofRequest := range entry.EqualRuns(list, func(a, b *handover) bool { return a.requestG == b.requestG && a.requestEnd == b.requestEnd }) {
		addend := new(slotWaitSum)
		addend.inferHolds(ofRequest, requests)
		sum.merge(addend)
		sum.holds = append(sum.holds, addend.holds...)
	}
	return sum
}

// compareByWaitEnd orders handovers by the ends of the waits, and then by all other fields: several requests may record the
// same wait, and which of these records is used must not depend on the workers.
func (h *handover) compareByWaitEnd(second *handover) int {
	if h.waitEnd != second.waitEnd {
		return cmp.Compare(h.waitEnd, second.waitEnd)
	}
	return cmp.Or(cmp.Compare(h.waiter, second.waiter), cmp.Compare(h.waitStart, second.waitStart),
		cmp.Compare(h.requestEnd, second.requestEnd), cmp.Compare(h.requestG, second.requestG), cmp.Compare(h.serviceEnd, second.serviceEnd), cmp.Compare(h.waker, second.waker))
}

// setPrevServiceEnds sets prevServiceEnd in the handovers that have a serviceEnd: when, during the wait, the waker last ended a
// wait of another goroutine. It sorts the list by waker and time.
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

// queuePeriodStarts divides the time into queue periods, in which at least one goroutine waits. It returns, in the order of
// list, the start of the period of each wait, and the length of all periods in ns. During a period all slots are held, every
// slot is acquired after a wait, and every release ends a wait.
func queuePeriodStarts(list []*handover) (periodStarts []int64, totalNS int64) {
	byWaitStart := make([]int, len(list))
	for i := range byWaitStart {
		byWaitStart[i] = i
	}
	slices.SortFunc(byWaitStart, func(a, b int) int { return cmp.Compare(list[a].waitStart, list[b].waitStart) })
	periodStarts = make([]int64, len(list))
	var start, end int64
	for k, i := range byWaitStart {
		if h := list[i]; k == 0 || h.waitStart >= end {
			totalNS += end - start
			start, end = h.waitStart, h.waitEnd
		} else {
			end = max(end, h.waitEnd)
		}
		periodStarts[i] = start
	}
	return periodStarts, totalNS + end - start
}

// findWorkers returns, for a list ordered by the ends of waits, the set of wakers that ended waits of several goroutines at
// different times: workers that continue with other work. Such a goroutine does not work for its creator alone, even if a
// request created it because capacity was free.
func findWorkers(list []*handover) map[uint64]bool {
	lastByWaker, workers := map[uint64]*handover{}, map[uint64]bool{}
	for _, h := range list {
		if last := lastByWaker[h.waker]; last != nil && last.waiter != h.waiter && h.waitEnd-last.waitEnd > threshold.IdleCheckNS {
			workers[h.waker] = true
		}
		lastByWaker[h.waker] = h
	}
	return workers
}

// inferHolds adds waits, which must be sorted by their ends, and infers from them the holds and the number of slots. requests has the
// goroutines that serve requests; other holders are background work.
//
// For each wait it decides why the waker ended it: the waker was created by the waiter (byChild), it releases a slot for which
// it had itself waited there (byFormerWaiter, byLaterWaiter), or it is a worker that has just finished other work (byWorker).
// The number of slots is the largest number of overlapping holds. isShared says that goroutines which had waited at one site ended waits at another.
func (s *slotWaitSum) inferHolds(list []*handover, requests goroutineSet) (isShared bool) {
	type slotHold struct {
		holder              uint64
		waitStart, acquired int64 // when the holder started to wait for the slot, and when it got it
		requestEnd          int64 // by this time the holder, or a goroutine that it created, has released the slot
		site                tracefmt.FrameID
		released            bool
	}
	holdByWaiter := map[uint64]*slotHold{} // latest hold of each goroutine
	lastWakeByWaker, endedByRelease, childWakers := map[uint64]int64{}, map[uint64]int64{}, map[uint64]bool{}
	var holds, partialHolds, backgroundHolds []interval
	waits := make([]interval, 0, len(list))
	childrenByWaiter := map[uint64][]interval{} // lifetimes of the goroutines that a waiter created and waited for
	workerFreeAt := map[uint64]int64{}          // when a worker is done with the latest work
	periodStarts, queuedNS := queuePeriodStarts(list)
	workers := findWorkers(list)
	s.queuedNS += queuedNS
	addHold := func(hold interval, list *[]interval, holder uint64, isBackground bool, site tracefmt.FrameID) {
		*list = append(*list, hold)
		s.holds = append(s.holds, Hold{interval: hold, holder: holder, site: site, isBackground: isBackground, isPartial: list == &partialHolds})
		if isBackground {
			backgroundHolds = append(backgroundHolds, hold)
			s.backgroundNS += hold.end - hold.start
		}
	}
	for i, h := range list {
		period, lastWake := periodStarts[i], lastWakeByWaker[h.waker]
		// A waiter works for a request. A connection's reader hands on connections of net/http: their holders are sampled.
		isBackground := h.route == 0 && !requests.contains(h.waker) && !requests.contains(h.wakerCreator)
		byChild := h.wakerCreator == h.waiter && !workers[h.waker]
		waits = append(waits, interval{h.waitStart, h.waitEnd})
		s.waits++
		if h.isSend {
			s.sends++
		}
		if h.isBeforeCall {
			s.beforeCalls++
		}
		if h.isWithin {
			s.byOwnRequest++
		}
		released := releaseSum{waits: 1}
		if lastWake == 0 || h.waitEnd-lastWake > threshold.IdleCheckNS {
			s.wakeInstants++
			released.releases, endedByRelease[h.waker] = 1, 0
		}
		endedByRelease[h.waker]++
		switch n := endedByRelease[h.waker]; {
		case n == wideRelease:
			released.wide, released.wideWaits = 1, n
		case n > wideRelease:
			released.wideWaits = 1
		}
		if h.release != 0 {
			s.addRelease(h.release, released)
		}
		lastWakeByWaker[h.waker] = h.waitEnd
		if requests.contains(h.waker) {
			s.byOtherRequest++
		}
		releasedHold := holdByWaiter[h.waker]
		if releasedHold != nil && h.waitEnd > releasedHold.requestEnd {
			releasedHold = nil // the connection's goroutine serves another request by now
		}
		if creatorHold := holdByWaiter[h.wakerCreator]; releasedHold == nil && h.wakerCreator != h.waiter && creatorHold != nil &&
			creatorHold.acquired <= h.wakerCreated && h.wakerCreated <= creatorHold.requestEnd {
			releasedHold = creatorHold
		}
		switch {
		case byChild:
			s.byChild++
			childWakers[h.waker] = true
			childrenByWaiter[h.waiter] = append(childrenByWaiter[h.waiter], interval{h.wakerCreated, h.waitEnd})
		case releasedHold == nil && h.wakerAcquired == 0:
		case releasedHold != nil && releasedHold.waitStart <= h.waitStart || releasedHold == nil && h.wakerWaitStart <= h.waitStart:
			s.byFormerWaiter++
			isShared = isShared || releasedHold != nil && releasedHold.site != h.key.site
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
				addHold(interval{h.waitEnd, h.serviceEnd}, &holds, h.waiter, false, h.key.site)
			}
			workerFreeAt[h.waker] = max(workerFreeAt[h.waker], h.serviceEnd)
		case releasedHold != nil && releasedHold.acquired >= period:
			if !releasedHold.released {
				addHold(interval{releasedHold.acquired, h.waitEnd}, &holds, releasedHold.holder, false, releasedHold.site)
			}
		case releasedHold == nil && h.wakerAcquired > max(period, lastWake):
			addHold(interval{h.wakerAcquired, h.waitEnd}, &holds, h.waker, isBackground, h.wakerSite)
		case lastWake <= period:
			addHold(interval{max(period, h.wakerSeenSince), h.waitEnd}, &partialHolds, h.waker, isBackground, h.wakerSite)
		}
		if releasedHold != nil {
			releasedHold.released = true
		}
		holdByWaiter[h.waiter] = &slotHold{holder: h.waiter, waitStart: h.waitStart, acquired: h.waitEnd, requestEnd: h.requestEnd, site: h.key.site}
	}
	s.sampled.addSamples(list, requests)
	s.maxWaiters, s.childWakers = max(s.maxWaiters, maxOverlap(waits)), s.childWakers+int64(len(childWakers))
	s.holdNS, s.holdCount = s.holdNS+totalLength(holds), s.holdCount+int64(len(holds))
	s.partialNS, s.partialHolds = s.partialNS+totalLength(partialHolds), s.partialHolds+int64(len(partialHolds))
	s.backgroundHolders = maxOverlap(backgroundHolds)
	if s.byWorker == 0 && !list[0].isUnordered { // else a goroutine may have overtaken the waiters
		holds = append(holds, partialHolds...)
	} else {
		s.holds = slices.DeleteFunc(s.holds, func(h Hold) bool { return h.isPartial })
	}
	// A slot that was acquired before the queue period shows only when it is released. All are observed once each was
	// released twice.
	if n := maxOverlap(holds); len(holds) >= 2*n {
		s.slots = n
	}
	for _, lifetimes := range childrenByWaiter {
		s.slots = max(s.slots, maxOverlap(lifetimes))
	}
	if len(holds) > 0 {
		s.demand = demandOf(list, periodStarts, s.slots, totalLength(holds)/int64(len(holds)))
	}
	return isShared
}

// demandOf returns how many slots would be held at once with as many as the waiters of list need, by three of four of them: the waits that begin
// within the mean time for which a slot is held, and the slots that were held before the first of them. periodStarts is that of queuePeriodStarts.
func demandOf(list []*handover, periodStarts []int64, slots int, holdNS int64) int {
	starts, held := make([]int64, len(list)), make([]int64, len(list))
	for i, h := range list {
		starts[i] = h.waitStart
	}
	slices.Sort(starts)
	for i, h := range list {
		first, _ := slices.BinarySearch(starts, h.waitStart-holdNS)
		next, _ := slices.BinarySearch(starts, h.waitStart+1)
		if held[i] = int64(next - first); periodStarts[i] > h.waitStart-holdNS {
			held[i] += int64(slots)
		}
	}
	slices.Sort(held)
	return int(sample.Quantile(held, 0.75))
}

// addRelease adds releases of a semaphore at a site, and the waits that they ended.
func (s *slotWaitSum) addRelease(site tracefmt.FrameID, addend releaseSum) {
	sum := s.releases[site]
	entry.Put(&s.releases, site, releaseSum{sum.releases + addend.releases, sum.waits + addend.waits, sum.wide + addend.wide, sum.wideWaits + addend.wideWaits})
}

// totalLength returns the sum of the lengths of intervals.
func totalLength(intervals []interval) (ns int64) {
	for _, i := range intervals {
		ns += i.end - i.start
	}
	return ns
}

// counters returns the numbers and times that are added up.
func (s *slotWaitSum) counters() [20]*int64 {
	return [20]*int64{
		&s.waits, &s.wakeInstants, &s.byFormerWaiter, &s.byLaterWaiter, &s.byChild, &s.sends, &s.childWakers, &s.byOtherRequest, &s.holdNS,
		&s.holdCount, &s.queuedNS, &s.partialNS, &s.partialHolds, &s.backgroundNS, &s.byWorker, &s.byInterleavingWorker, &s.workNS, &s.idleNS, &s.beforeCalls, &s.byOwnRequest,
	}
}

// merge adds a sum of another generation with the same key. Numbers and times are added; slots and simultaneous waiters are
// maxima.
func (s *slotWaitSum) merge(addend *slotWaitSum) {
	to, from := s.counters(), addend.counters()
	for i := range to {
		*to[i] += *from[i]
	}
	s.slots, s.maxWaiters, s.backgroundHolders = max(s.slots, addend.slots), max(s.maxWaiters, addend.maxWaiters), max(s.backgroundHolders, addend.backgroundHolders)
	s.demand = max(s.demand, addend.demand)
	s.sampled.merge(&addend.sampled)
	for site, released := range addend.releases {
		s.addRelease(site, released)
	}
}

// SlotWaits describes the waits at one line that other goroutines ended, in the sampled slices of the trace: whether they are
// waits for slots of a pool, and how large the pool is. Shares are shares of Waits.
type SlotWaits struct {
	Wait report.WaitKind
	Site *report.Site
	Call string // the library function in which the goroutines waited; "": none
	// Waits counts the waits. BatchSize is the mean number of waits that one goroutine ended at one instant.
	Waits     int
	BatchSize float64
	// FormerWaiterShare is the share ended by a goroutine that had waited there before, or whose creator had: it released a
	// slot. ChildShare is the share ended by a goroutine that the waiter had created for itself alone, WaitsPerChild how many
	// waits such a goroutine ended on average. OtherRequestShare is the share ended by a goroutine that was serving another
	// request.
	FormerWaiterShare, ChildShare, WaitsPerChild, OtherRequestShare float64
	// IsWithinRequests says that goroutines which the same request had started ended nearly all: each request has its own slots.
	IsWithinRequests bool
	// BeforeCallShare is the share ended by the answer to a call of another, before the waiter sent its own on that connection.
	BeforeCallShare float64
	// SendShare is the share of waits to send something to the goroutine that ended them, which works for the waiter only afterwards.
	SendShare float64
	// WorkerShare is the share ended by a goroutine that then worked for the waiter, one at a time: each worker is a slot.
	WorkerShare float64
	// Slots is the number of slots: how many were held at once, while so many waited that each was released twice; 0 if the
	// waits were too few for that. MaxWaiters is how many goroutines waited at once.
	Slots, MaxWaiters int
	// Demand is how many slots would be held at once if there were enough, as three of four waiters find them; 0: unknown.
	Demand int
	// HoldNS is the mean time that a slot was held; 0 if the holds that were seen are too few.
	HoldNS int64
	// QueuedShare is the share of the time during which there was at least one waiter. All slots were held then.
	QueuedShare float64
	// BackgroundShare is the share of the holding time that was seen of goroutines that served no request, BackgroundHolders
	// how many of them held a slot at once, and BackgroundSite where they wait with it; nil if that is not known.
	BackgroundShare   float64
	BackgroundHolders int
	BackgroundSite    *report.Site
	// WideHolder is where holders of a semaphore release many units at once, and WaitsPerRelease how many waits that ended on
	// average; nil if one release ends about one wait. ReleasesFewToo says that others release few units at that line.
	WideHolder      *report.Site
	WaitsPerRelease float64
	ReleasesFewToo  bool
}

// SlotWaits returns, for each slotKey, the waits that other goroutines ended, the most frequent first. Merge must have been
// called.
func (s *Sum) SlotWaits(sp *spell.Speller) (out []SlotWaits) {
	compareKeys := compareSlotKeys(sp)
	keys := slices.SortedFunc(maps.Keys(s.slotWaits), func(a, b slotKey) int {
		return cmp.Or(cmp.Compare(s.slotWaits[b].waits, s.slotWaits[a].waits), compareKeys(a, b))
	})
	for _, key := range keys {
		sum := s.slotWaits[key]
		stats := SlotWaits{Wait: report.WaitKind(key.wait.String()), Site: sp.Site(key.site), Call: sp.Syms.String(key.call), Waits: int(sum.waits),
			BatchSize: float64(sum.waits) / float64(max(sum.wakeInstants, 1)), Slots: sum.slots, MaxWaiters: sum.maxWaiters, Demand: sum.demand,
			QueuedShare: min(1, float64(sum.queuedNS)/float64(max(s.sliceNS, 1))), BackgroundHolders: sum.backgroundHolders,
			BackgroundShare: float64(sum.backgroundNS) / float64(max(sum.holdNS+sum.partialNS, 1)),
			ChildShare:      float64(sum.byChild) / float64(sum.waits), SendShare: float64(sum.sends) / float64(sum.waits), OtherRequestShare: float64(sum.byOtherRequest) / float64(sum.waits), BeforeCallShare: float64(sum.beforeCalls) / float64(sum.waits), IsWithinRequests: sum.isWithinRequests()}
		if background := &sum.sampled; background.isMajority() {
			stats.Slots, stats.BackgroundHolders = max(stats.Slots, background.maxHolders), max(stats.BackgroundHolders, background.maxBackground)
			stats.BackgroundShare, stats.BackgroundSite = float64(background.background)/float64(background.all), background.site(sp)
		} else {
			stats.Slots = max(stats.Slots, background.ownLimit())
		}
		if sum.byFormerWaiter > 4*sum.byLaterWaiter {
			stats.FormerWaiterShare = float64(sum.byFormerWaiter) / float64(sum.waits)
		}
		if sum.byWorker > 4*sum.byInterleavingWorker && sum.workNS > 4*sum.idleNS {
			stats.WorkerShare = float64(sum.byWorker) / float64(sum.waits)
		}
		if sum.byChild > 0 {
			stats.WaitsPerChild = float64(sum.byChild) / float64(sum.childWakers)
		}
		if sum.holdCount >= threshold.SmallSample {
			stats.HoldNS = sum.holdNS / sum.holdCount
			// Those that were seen from start to end are the short ones if others take much of the slots' time. Each of these ended
			// in the period, but began before it: on average, the part before is as long as the parts of those that end after it.
			if float64(sum.partialNS) >= threshold.HalfShare*float64(sum.partialNS+sum.holdNS) {
				stats.HoldNS = (sum.holdNS + 2*sum.partialNS) / (sum.holdCount + sum.partialHolds)
			}
		}
		for _, site := range slices.SortedFunc(maps.Keys(sum.releases), sp.CompareFrames) {
			released := sum.releases[site]
			n := float64(released.waits) / float64(max(released.releases, 1))
			isMixed := 2*released.wide < released.releases && stats.FormerWaiterShare >= threshold.MajorShare // else only others release it
			if isMixed && released.wide >= threshold.Repeats && float64(released.wideWaits) >= threshold.MajorShare*float64(sum.waits) {
				n = float64(released.wideWaits) / float64(released.wide)
			} else {
				isMixed = false
			}
			if (isMixed || released.releases >= threshold.SmallSample) && n >= 2 && n > stats.WaitsPerRelease {
				stats.WideHolder, stats.WaitsPerRelease, stats.ReleasesFewToo = sp.Site(site), n, isMixed
			}
		}
		out = append(out, stats)
	}
	return out
}
