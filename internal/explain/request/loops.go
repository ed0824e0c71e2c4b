package request

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// loopFinder finds workers: goroutines that come back to the same idle wait
// repeatedly. A turn, from the wake to the next such wait, is one request.
type loopFinder struct {
	clientWaits map[tracefmt.StackID]bool // waits for what a client asks next
	loopFuncs   map[tracefmt.StringID]*loopFunc
	// goroutines are the goroutines that may loop, list those of the current generation.
	goroutines map[uint64]*loopGoroutine
	candidates []*loopGoroutine
	// followers holds, by function, which functions follow it on loopers' paths. One that is
	// followed by several only launches goroutines, as errgroup.Group.Go does: the loop is
	// what it calls.
	followers   map[tracefmt.StringID]map[tracefmt.StringID]bool
	collectors  []*observationCollector
	outerFrames []tracefmt.FrameID // scratch
	spans       []timeline.Span    // scratch
	// unclassified are turns of the current generation of which it is not known what they are before all others are.
	unclassified chunkedList[endedIteration]
	// expectedIterations is how many idle waits there are in the current generation, and so turns, at most.
	expectedIterations int
	// isUnknownServer says that the process accepts connections which no known server serves; scanned is how many stacks were looked at for that.
	isUnknownServer bool
	scannedStacks   int
}

func newLoopFinder(workers int) loopFinder {
	l := loopFinder{
		clientWaits: make(map[tracefmt.StackID]bool), loopFuncs: make(map[tracefmt.StringID]*loopFunc), goroutines: make(map[uint64]*loopGoroutine),
		followers: make(map[tracefmt.StringID]map[tracefmt.StringID]bool),
	}
	for range max(workers, 1) {
		l.collectors = append(l.collectors, new(observationCollector))
	}
	return l
}

// scanForServer looks whether the process accepts connections for a protocol of its own: then data from the network may be what somebody
// asks it for, and else it is the answer to what it asked.
func (l *loopFinder) scanForServer(f *Finder) {
	for ; l.scannedStacks < f.syms.Stacks() && !l.isUnknownServer; l.scannedStacks++ {
		traits := trait(0)
		for _, fr := range f.syms.Stack(tracefmt.StackID(l.scannedStacks)) {
			traits |= f.namer.frameFunction(fr).traits
		}
		l.isUnknownServer = traits&(acceptCall|foundServer) == acceptCall
	}
}

// A looper is a goroutine that may loop.
type loopGoroutine struct {
	id uint64
	// commonPath is what all stacks of its waits have in common, outermost first; nil as long as no several are known.
	commonPath []tracefmt.FrameID
	// ownedFrame is, where a library's function runs in it, the outermost frame of the service's own: the loop is called by that.
	ownedFrame tracefmt.FrameID
	iteration  *iterationState // nil: no idle wait was seen
	origin     *originStats    // in which it had turns

	// Of the current generation.
	pieces     int
	canIterate bool // it waits somewhere where work may be waited for
	// collector is who looked at it, and found places from:to and waits from there on.
	collector                                   *observationCollector
	firstObservation, endObservation, firstWait int
	// cachedStack is the last stack for which at was asked, root and frame what it said.
	cachedStack tracefmt.StackID
	cachedFunc  *loopFunc
	cachedFrame tracefmt.FrameID
}

// A root is a function that goroutines were started with.
type loopFunc struct {
	waits      map[tracefmt.StackID]*waitStats
	goroutines int              // goroutines that were looked at
	idleWait   tracefmt.StackID // the idle wait, once chosen
	// isBusy says that the wait is no idle one: there is none, as the goroutines
	// always have work, and it comes once in a turn and is a part of it.
	isBusy bool
	// restWaits are, of busy goroutines, the waits for work where they wait now and
	// then: a turn ends there, too.
	restWaits map[tracefmt.StackID]bool
	// isBenchmark says that it is the function of a benchmark, whose iterations do
	// not wait for work: what each does once tells them apart.
	isBenchmark      bool
	cycles           cycleStats
	wakers           map[tracefmt.StringID]wakeStats // by the function that ended idle waits
	isIdleWaitServed bool                            // see waitStats, of the idle wait
	// emittedCount counts the turns that were handed out, asked those that a client's words began.
	emittedCount, clientCount int
}

type waitStats struct {
	count   int
	totalNS int64 // ns; says nothing of a benchmark, whose system calls count too: their visits have no end
	// isLibraryDelay says that the service's own code called a library that let it wait;
	// timer is how often a timer ended that.
	isLibraryDelay bool
	timerCount     int
	selfEndedCount int // ended by goroutines that the waiting one started: it waits for its own work, unless a library that was asked for the next started them
	// isServed says that a client may ask here for the next thing. It does not before it has its answer, so this ends the turn however
	// many other waits lie in it.
	isServed     bool
	isClientCall bool // others, where a library's loop calls the service
	rank         int
}

type iterationState struct {
	start         int64            // 0: idle, or not known
	lastIdleStart int64            // when the last idle wait seen began
	count         int              // turns so far
	beginWait     observation      // the idle wait that ended
	busyWait      tracefmt.StackID // of a busy one: the wait that it begins with
	restWaker     uint64           // ... and who ended its last rest
	iterationContent
}

// idleRank orders the waits in which a worker may wait for work; a worker
// sleeps or waits for a lock while it works, and for what it asks others for.
func (l *loopFinder) idleRank(f *Finder, obs *observation) (rank int, isLibraryDelay bool) {
	info := f.stackInfo(obs.stack)
	if info.isClientCall {
		return 0, false
	}
	switch obs.reason {
	case reasonNetwork:
		if info.isInLibrary && (info.ownedDepth > 0 || !l.isUnknownServer) || info.isWrite {
			return 1, info.isLibraryDelay // a client's wait for an answer, more often than not
		}
		if !l.isUnknownServer {
			return 2, info.isLibraryDelay // it asks: all who could ask this process are known
		}
		return idleMost, false
	case reasonReceive, reasonCond:
		return idleMost, info.isLibraryDelay
	case reasonSync:
		if info.isMutexWait { // somebody works, and comes there while he does
			return 0, false
		}
		return 2, info.isLibraryDelay
	case reasonSend:
		return 1, info.isLibraryDelay
	case reasonSleep:
		if info.isLoopPause {
			return 2, info.isLibraryDelay || info.isWorkSleep // the loop's own pause
		}
		return 1, info.isLibraryDelay || info.isWorkSleep
	}
	return 0, false
}

// idleMost is the rank of waits in which nearly every worker waits for work.
const idleMost = 3

// ClientWaits returns whether a wait for the network is one for what a client of the process asks next, by a protocol of its own. What is returned
// holds nothing else of the finder, and is not to be called beside Add.
func (f *Finder) ClientWaits() func(wait tracefmt.StackID) bool {
	clientWaits := f.loops.clientWaits
	return func(wait tracefmt.StackID) bool { return clientWaits[wait] }
}

func (l *loopFinder) add(f *Finder, g *timeline.Gen) {
	l.expectedIterations = 0
	removeUnknown(l.goroutines, g)
	l.scanForServer(f)
	l.listCandidates(f, g)
	l.collectObservations(f, g)
	for _, goroutine := range l.candidates {
		if goroutine.pieces > 2*scale.Few {
			l.narrowPath(f, goroutine)
		}
	}
	for _, goroutine := range l.candidates {
		l.findOwnedFrame(f, goroutine)
		l.countWaits(f, g, goroutine)
	}
	for _, loop := range l.loopFuncs {
		if loop != nil && loop.idleWait == 0 {
			if loop.chooseIdleWait(f); loop.idleWait != 0 {
				l.expectedIterations += loop.waits[loop.idleWait].count
			}
		}
	}
	f.emitted = slices.Grow(f.emitted, l.expectedIterations+min(l.expectedIterations, len(f.births))) // jobs come behind the turns
	for _, goroutine := range l.candidates {
		if goroutine.canIterate {
			l.followIterations(f, g, goroutine)
		}
	}
	l.emitUnclassified(f)
	for _, loop := range l.loopFuncs {
		if loop != nil && 2*loop.clientCount > loop.emittedCount {
			l.clientWaits[loop.idleWait] = true
		}
	}
	for _, collector := range l.collectors {
		collector.states.length, collector.waits.length = 0, 0
	}
}

// listCandidates lists the goroutines that may loop, in order: those that came
// back from a wait in the generation, and that nothing else claims.
func (l *loopFinder) listCandidates(f *Finder, g *timeline.Gen) {
	l.candidates = l.candidates[:0]
	g.EachStart(func(id uint64, start tracefmt.StackID, pieces int) {
		// One that is older has a status, and is woken or runs; what is born has
		// its creation, and runs: it did not wait yet.
		if pieces < 2 || pieces == 2 && start != 0 || f.startRoleOf(g, id, start) != roleUnclaimed || start != 0 && f.jobs.isAlwaysPart(f, start) {
			return
		}
		goroutine := l.goroutines[id]
		if goroutine != nil && goroutine.origin != nil && goroutine.origin.isSettled {
			// Only counted, in the proportion that was seen before.
			o := goroutine.origin
			o.total += pieces * o.inspected / max(o.pieceCount, 1)
			return
		}
		if j := f.jobs.jobs[id]; f.work.annotated[id] || f.messages.readers[id] != nil || j != nil && (j.isPart || j.kind.areJobs) {
			return
		}
		goroutine = entry.In(l.goroutines, id)
		goroutine.id, goroutine.pieces, goroutine.canIterate = id, pieces, false
		l.candidates = append(l.candidates, goroutine)
	})
	slices.SortFunc(l.candidates, func(a, b *loopGoroutine) int { return cmp.Compare(a.id, b.id) })
}

// findOwnedFrame looks for the service's own function that a goroutine runs.
func (l *loopFinder) findOwnedFrame(f *Finder, goroutine *loopGoroutine) {
	if goroutine.ownedFrame != 0 {
		return
	}
	for obs := range goroutine.observations() {
		if obs.stack != 0 && !obs.isCreatorStack {
			if goroutine.ownedFrame = f.stackInfo(obs.stack).outerOwned; goroutine.ownedFrame != 0 {
				return
			}
		}
	}
}

// countWaits adds up which waits there are.
func (l *loopFinder) countWaits(f *Finder, g *timeline.Gen, goroutine *loopGoroutine) {
	var lastLoop *loopFunc
	goroutine.resetCache()
	for obs := range goroutine.observations() {
		if obs.stack == 0 || obs.state != timeline.Syscall && obs.state != timeline.Waiting {
			continue
		}
		loop, _ := l.loopFuncAt(f, goroutine, obs.stack)
		if loop == nil || obs.state == timeline.Syscall && !loop.isBenchmark {
			continue
		}
		info, canonical := f.stackInfo(obs.stack), f.canonicalStack(obs.stack)
		goroutine.canIterate = goroutine.canIterate || loop.idleWait == 0 || loop.idleWait == canonical
		if loop.idleWait == canonical {
			l.expectedIterations++
		}
		if loop.idleWait != 0 && loop.restWaits == nil {
			continue
		}
		stats := loop.waits[canonical]
		if stats == nil {
			stats = &waitStats{isClientCall: info.isClientCall && info.isLibraryLoop}
			loop.waits[canonical] = stats
		}
		if stats.rank == 0 { // of one that had begun before the trace the reason is not known
			stats.rank, stats.isLibraryDelay = l.idleRank(f, obs)
			if stats.isClientCall = stats.isClientCall || info.isLibraryLoop && stats.isLibraryDelay && obs.reason == reasonNetwork; stats.isClientCall {
				stats.rank = 0
			}
			stats.isServed = stats.rank == idleMost && obs.reason == reasonNetwork
		}
		if obs.waker == 0 && obs.reason != reasonNetwork {
			stats.timerCount++
		}
		if b, ok := g.BirthOf(obs.waker); ok && b.By == goroutine.id && !info.isFetch {
			stats.selfEndedCount++
		}
		if lastLoop != loop {
			lastLoop = loop
			loop.goroutines++
		}
		stats.count++
		stats.totalNS += obs.end - max(obs.start, g.Base)
		if loop.idleWait != 0 { // a busy one's first rest may come late
			loop.restWaits[canonical] = stats.isRest()
		}
	}
}

// followIterations hands out the turns of a goroutine: from each idle wait's end to the
// next one's beginning.
func (l *loopFinder) followIterations(f *Finder, g *timeline.Gen, goroutine *loopGoroutine) {
	iteration := goroutine.iteration
	var origin *originStats
	var earlyWait observation // a wait that had begun before the trace
	backToBack, rests := 0, 0
	goroutine.resetCache()
	for obs := range goroutine.observations() {
		if obs.stack == 0 {
			if iteration == nil {
				earlyWait = *obs
			}
			continue
		}
		if origin != nil && !origin.isOwned && f.stackInfo(obs.stack).outerOwned != 0 && !obs.isCreatorStack {
			origin.isOwned = true
		}
		loop, isIdle := l.matchIdleWait(f, goroutine, obs)
		if !isIdle {
			switch {
			case iteration == nil || iteration.start == 0 || obs.start < iteration.start:
			case loop != nil && loop.isBusy && obs.state == timeline.Waiting && loop.restWaits[f.canonicalStack(obs.stack)]:
				if origin == nil {
					origin = l.originOf(f, g, goroutine, iteration.busyWait)
				}
				l.endIteration(f, goroutine, obs.start, iteration.busyWait, loop, origin)
				if obs.waker != 0 {
					iteration.restWaker = obs.waker
				}
				rests++
				iteration.start, iteration.iterationContent = 0, iterationContent{}
			default:
				iteration.add(l, f, obs)
			}
			continue
		}
		if iteration == nil {
			iteration = &iterationState{lastIdleStart: math.MinInt64}
			goroutine.iteration = iteration
			if loop.goroutines >= settledCount && !loop.isBusy {
				// Where it waited before the trace is not known. Of many goroutines
				// nearly all waited where they wait most.
				iteration.start = earlyWait.end
			}
		}
		// What lies between two generations' borders is seen with both.
		if obs.start < iteration.lastIdleStart || obs.start == iteration.lastIdleStart && iteration.start != 0 {
			continue
		}
		iteration.lastIdleStart = obs.start
		if origin == nil {
			origin = l.originOf(f, g, goroutine, obs.stack)
		}
		if iteration.start != 0 && iteration.start == earlyWait.end {
			earlyWait.reason = obs.reason // as with where it waited
			l.addBeginning(f, origin, &earlyWait)
			iteration.beginWait, earlyWait.end = earlyWait, 0
		}
		if iteration.start != 0 {
			l.endIteration(f, goroutine, obs.start, obs.stack, loop, origin)
			if loop.isBusy && f.stackInfo(obs.stack).isLibraryLoop {
				backToBack++
			}
		}
		iteration.start, iteration.iterationContent = 0, iterationContent{}
		switch {
		case loop.isBusy:
			iteration.start, iteration.busyWait = obs.start, obs.stack
		case obs.woken:
			iteration.start, iteration.beginWait, iteration.idleWait = obs.end, *obs, obs.stack
			iteration.wakerFunc = f.stackInfo(obs.wakerStack).innermost
			l.addBeginning(f, origin, obs)
		}
	}
	if backToBack+rests > 0 && iteration.restWaker != 0 {
		origin.backToBack += backToBack
		origin.rests += rests
		origin.arrivals += l.countArrivals(f, g, iteration.restWaker)
	}
}

// countArrivals counts how often a goroutine came by with something in a generation: after a wait for it.
func (l *loopFinder) countArrivals(f *Finder, g *timeline.Gen, id uint64) (n int) {
	l.spans = f.window.EachSpans(id, g.Base, g.End+1, l.spans, func(spans []timeline.Span) {
		for i := range spans {
			switch s := &spans[i]; f.reasonOf(s.Reason) {
			case reasonNetwork, reasonReceive, reasonCond:
				if s.State == timeline.Waiting && s.Woken {
					n++
				}
			}
		}
	})
	return n
}

// iterationOf returns what is known of a goroutine's turns; nil if it was not seen to wait for work.
func (l *loopFinder) iterationOf(id uint64) *iterationState {
	if c := l.goroutines[id]; c != nil {
		return c.iteration
	}
	return nil
}

// originOf returns the facts about the goroutines that loop where one does, which waits at a stack there.
func (l *loopFinder) originOf(f *Finder, g *timeline.Gen, goroutine *loopGoroutine, wait tracefmt.StackID) *originStats {
	_, frame := l.loopFuncAt(f, goroutine, wait)
	origin := f.originFor(Loop, f.syms.Frame(frame).Func, f.stackInfo(wait).startFunc)
	origin.isOwned = origin.isOwned || f.stackInfo(wait).outerOwned != 0
	origin.pieceCount += g.Pieces(goroutine.id)
	goroutine.origin = origin
	return origin
}

// endIteration ends a goroutine's turn, if it took any time.
func (l *loopFinder) endIteration(f *Finder, goroutine *loopGoroutine, end int64, wait tracefmt.StackID, loop *loopFunc, origin *originStats) {
	iteration := goroutine.iteration
	if end <= iteration.start {
		return
	}
	iteration.count++
	_, frame := l.loopFuncAt(f, goroutine, wait)
	if iteration.ownedFrame != 0 && f.stackInfo(wait).outerOwned == 0 { // a library's loop calls what it has been given, another function each time
		if given := f.originFor(Loop, f.syms.Frame(iteration.ownedFrame).Func, f.stackInfo(wait).startFunc); given != origin {
			if given.isOwned = true; iteration.beginWait.end == iteration.start {
				l.addBeginning(f, given, &iteration.beginWait)
			}
			origin = given
		}
		frame = iteration.ownedFrame
	}
	l.finishIteration(f, endedIteration{start: iteration.start, end: end, goroutine: goroutine.id, waitStack: wait, frame: frame, loopFunc: loop, origin: origin, iterationContent: iteration.iterationContent})
}

// matchIdleWait reports whether a goroutine waits for work, and the facts about the
// function that loops.
func (l *loopFinder) matchIdleWait(f *Finder, goroutine *loopGoroutine, obs *observation) (*loopFunc, bool) {
	if obs.state != timeline.Waiting && obs.state != timeline.Syscall {
		return nil, false
	}
	loop, _ := l.loopFuncAt(f, goroutine, obs.stack)
	return loop, loop != nil && loop.idleWait == f.canonicalStack(obs.stack) && (obs.state == timeline.Waiting || loop.isBenchmark)
}

// addBeginning notes the waker of an idle wait.
func (l *loopFinder) addBeginning(f *Finder, origin *originStats, wait *observation) {
	switch {
	case wait.reason == reasonNetwork:
		origin.networkCount++
	case wait.waker == 0:
		origin.timerCount++
	default:
		servingBefore := origin.servingCount
		origin.addStarter(f, wait.waker, wait.wakerStack)
		if origin.servingCount > servingBefore && origin.handlerWaits+origin.handlerDepartures < maxHandlersInspected {
			l.inspectHandler(f, origin, wait)
		}
	}
}

// inspectHandler looks whether a handler that handed something over waits until it is
// done, or goes on.
func (l *loopFinder) inspectHandler(f *Finder, origin *originStats, wait *observation) {
	const lookahead = 2e9
	f.spanBuffer = f.window.SpansCoarse(wait.waker, wait.end, wait.end+lookahead, f.spanBuffer[:0])
	for i := range f.spanBuffer {
		span := &f.spanBuffer[i]
		switch {
		case span.State == timeline.Gone:
			origin.handlerDepartures++
			return
		case span.State == timeline.Waiting && span.Start >= wait.end:
			if f.reasonOf(span.Reason) == reasonNetwork {
				origin.handlerDepartures++
			} else {
				origin.handlerWaits++
			}
			return
		}
	}
}

// removeUnknown drops the goroutines that a generation does not know any more. Unlike gone, it keeps those that end in the generation.
func removeUnknown[V any](byGoroutine map[uint64]V, g *timeline.Gen) {
	maps.DeleteFunc(byGoroutine, func(id uint64, _ V) bool { return !g.Knows(id) })
}

// isRest reports whether a goroutine that nearly always has work waits there for more.
func (w *waitStats) isRest() bool {
	return w.rank == idleMost && !w.isLibraryDelay && 2*w.selfEndedCount < w.count
}

// chooseIdleWait takes the idle wait: the most likely kind of wait, then the one
// nearest to the function that loops, then the longest. Of a benchmark's iterations it
// takes what they do most often and nearest to its own function.
func (r *loopFunc) chooseIdleWait(f *Finder) {
	maxCount := 0
	for _, stats := range r.waits {
		maxCount = max(maxCount, stats.count)
	}
	if maxCount < scale.Few {
		return
	}
	var idleWaits, busyWaits []tracefmt.StackID
	for id, stats := range r.waits {
		isFrequent := stats.count*4 >= maxCount
		switch {
		case r.isBenchmark:
			if isFrequent {
				busyWaits = append(busyWaits, id)
			}
		case stats.count < scale.Few || !isFrequent && !stats.isServed || 2*stats.selfEndedCount >= stats.count:
		case stats.isClientCall:
			busyWaits = append(busyWaits, id) // a library that always has work called what asks others
		case stats.rank == 0:
		case stats.isLibraryDelay && 2*stats.timerCount > stats.count:
			busyWaits = append(busyWaits, id) // a library made it wait: a limiter, a backoff
		default:
			idleWaits = append(idleWaits, id)
		}
	}
	if len(idleWaits)+len(busyWaits) == 0 {
		return
	}
	if len(idleWaits) == 0 {
		idleWaits, r.isBusy = busyWaits, true
	}
	r.idleWait = slices.MinFunc(idleWaits, func(a, b tracefmt.StackID) int {
		v, stats := r.waits[a], r.waits[b]
		p, q := *f.stackInfo(a), f.stackInfo(b)
		if r.isBenchmark {
			return cmp.Or(p.depth-q.depth, stats.count-v.count, cmp.Compare(a, b))
		}
		return cmp.Or(stats.rank-v.rank, p.ownedDepth-q.ownedDepth, p.depth-q.depth, cmp.Compare(stats.totalNS, v.totalNS), cmp.Compare(a, b))
	})
	if r.isBenchmark {
		return
	}
	r.isIdleWaitServed = r.waits[r.idleWait].isServed
	if r.isBusy {
		r.restWaits = make(map[tracefmt.StackID]bool)
		for id, stats := range r.waits {
			r.restWaits[id] = stats.isRest()
		}
	}
}

// loopFuncAt returns the function that loops where a goroutine waits at a stack, nil if loops there are of no interest, and its frame.
func (l *loopFinder) loopFuncAt(f *Finder, goroutine *loopGoroutine, id tracefmt.StackID) (*loopFunc, tracefmt.FrameID) {
	if goroutine.cachedStack == id || goroutine.cachedStack != 0 && len(goroutine.commonPath) > 0 { // with a path those of all stacks are the same
		return goroutine.cachedFunc, goroutine.cachedFrame
	}
	path, frames := goroutine.commonPath, f.syms.Stack(id)
	if len(frames) == 0 {
		return nil, 0
	}
	if len(path) == 0 { // no several waits of it are known
		l.outerFrames = appendOutermost(frames, l.outerFrames[:0])
		path = l.outerFrames
	}
	k := 0
	for k+1 < len(path) && len(l.followers[f.syms.Frame(path[k]).Func]) > 1 {
		k++
	}
	goroutine.cachedStack, goroutine.cachedFrame = id, path[k]
	if goroutine.ownedFrame != 0 && !f.namer.isOwned(f.syms.Frame(path[k])) {
		goroutine.cachedFrame = goroutine.ownedFrame
	}
	goroutine.cachedFunc = l.loopFuncOf(f, f.syms.Frame(goroutine.cachedFrame).Func, frames)
	return goroutine.cachedFunc, goroutine.cachedFrame
}

// resetCache forgets what at has said.
func (c *loopGoroutine) resetCache() { c.cachedStack, c.cachedFunc, c.cachedFrame = 0, nil, 0 }

// loopFuncOf returns a function that loops, nil if loops there are of no interest.
func (l *loopFinder) loopFuncOf(f *Finder, fn tracefmt.StringID, frames []tracefmt.FrameID) *loopFunc {
	loop, ok := l.loopFuncs[fn]
	if !ok {
		if !f.namer.function(fn).hasAny(standardLibrary) {
			loop = &loopFunc{
				waits: make(map[tracefmt.StackID]*waitStats), wakers: make(map[tracefmt.StringID]wakeStats),
				cycles: cycleStats{single: make(map[string]int), repeated: make(map[string]int)},
			}
			loop.isBenchmark = f.namer.frameFunction(frames[len(frames)-1]).hasAny(benchmarkFunc)
		}
		l.loopFuncs[fn] = loop
	}
	if e := f.jobs.kinds[jobKey{startFunc: fn}]; e != nil && e.areJobs {
		return nil // its goroutines are the unit, not what they do repeatedly
	}
	return loop
}

// narrowPath narrows what the stacks of a goroutine's waits have in common.
func (l *loopFinder) narrowPath(f *Finder, goroutine *loopGoroutine) {
	lastStack := tracefmt.StackID(0)
	for obs := range goroutine.observations() {
		if obs.state != timeline.Waiting || obs.stack == 0 || obs.stack == lastStack {
			continue
		}
		lastStack = obs.stack
		frames := f.syms.Stack(obs.stack)
		if goroutine.commonPath == nil {
			goroutine.commonPath = appendOutermost(frames, nil)
			continue
		}
		path, n := goroutine.commonPath, 0
		for n < len(path) && n < len(frames) && f.syms.Frame(path[n]).Func == f.syms.Frame(frames[len(frames)-1-n]).Func {
			n++
		}
		goroutine.commonPath = path[:n]
	}
	for k := 0; k+1 < len(goroutine.commonPath); k++ {
		fn, next := f.syms.Frame(goroutine.commonPath[k]).Func, f.syms.Frame(goroutine.commonPath[k+1]).Func
		if f.namer.function(next).hasAny(standardLibrary) {
			break
		}
		if l.followers[fn] == nil {
			l.followers[fn] = make(map[tracefmt.StringID]bool)
		}
		l.followers[fn][next] = true
	}
}

// maxPathDepth bounds how deep launchers are looked for.
const maxPathDepth = 8

// appendOutermost appends a stack's outermost frames to a list, from outside inwards.
func appendOutermost(frames, to []tracefmt.FrameID) []tracefmt.FrameID {
	for k := len(frames) - 1; k >= 0 && len(to) < maxPathDepth; k-- {
		to = append(to, frames[k])
	}
	return to
}
