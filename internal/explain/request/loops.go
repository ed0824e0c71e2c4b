package request

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// loopSource finds worker loops: goroutines that return to the same idle wait repeatedly. An iteration is one request.
// It lasts from the wake of one idle wait to the beginning of the next.
type loopSource struct {
	sourceStubs
	jobs        *jobSource // if the goroutines' lives are units of work, their iterations are none
	work        *workIndex
	messages    *messageSource
	clientWaits map[tracefmt.StackID]bool // waits for the next request of a client
	loopFuncs   map[tracefmt.StringID]*loopFunc
	// goroutines are all that may loop, candidates those of the current generation.
	goroutines map[uint64]*loopGoroutine
	candidates []*loopGoroutine
	// followers holds, by function, the functions that follow it in the common paths of goroutines. A function with
	// several followers only launches goroutines, as errgroup.Group.Go does, and the loop is in one of the followers.
	followers   map[tracefmt.StringID]map[tracefmt.StringID]bool
	collectors  []*observationCollector
	outerFrames []tracefmt.FrameID // buffer
	spans       []timeline.Span    // buffer
	ended       endedIteration     // buffer
	// unclassified are the ended iterations of the current generation that can only be split when all have been
	// counted.
	unclassified chunkedList[endedIteration]
	spareWaits   []iterationWait // memory for newWaits
	// isUnknownServer says that the process accepts connections for a protocol that no source knows. scannedStacks is
	// how many stacks were searched for that. hasReadLocks says that a goroutine waited for another one that reads the same socket.
	isUnknownServer, hasReadLocks bool
	scannedStacks                 int
	// readinessWaits are the stacks of system calls in which event loops wait for the next event: idle time, as a wait for the network.
	readinessWaits map[tracefmt.StackID]bool
	backlogs       backlogFinder
}

// newLoopSource returns a loopSource with one observationCollector for each worker.
func newLoopSource(workers int, jobs *jobSource, work *workIndex, messages *messageSource) *loopSource {
	l := &loopSource{
		jobs: jobs, work: work, messages: messages,
		clientWaits: make(map[tracefmt.StackID]bool), readinessWaits: make(map[tracefmt.StackID]bool), loopFuncs: make(map[tracefmt.StringID]*loopFunc),
		goroutines: make(map[uint64]*loopGoroutine),
		followers:  make(map[tracefmt.StringID]map[tracefmt.StringID]bool),
		backlogs: backlogFinder{
			readers: make(map[uint64]*networkReader), reads: make(map[*originStats][]readIteration),
			periods: make(map[*originStats][]workPeriod), answers: make(map[uint64]int),
		},
	}
	for range max(workers, 1) {
		l.collectors = append(l.collectors, &observationCollector{readinessWaits: l.readinessWaits})
	}
	return l
}

// scanStacks searches stacks that are new for waits of event loops, and for an accept call outside of known servers. If there is one,
// it sets isUnknownServer: in such a process, data from the network may be a client's request; in others it answers the process's own.
func (l *loopSource) scanStacks(c *collector) {
	for ; l.scannedStacks < c.syms.Stacks(); l.scannedStacks++ {
		var roles knowledge.Roles
		for _, fr := range c.syms.Stack(tracefmt.StackID(l.scannedStacks)) {
			roles = roles.Union(c.namer.frameFunction(fr).Roles)
		}
		l.hasReadLocks = l.hasReadLocks || roles.Has(knowledge.FDReadLock)
		l.isUnknownServer = l.isUnknownServer || roles.Has(knowledge.Accept) && !roles.Has(knowledge.KnownServer)
		if id := tracefmt.StackID(l.scannedStacks); roles.Has(knowledge.ReadinessWait) && c.stackInfo(id).isReadinessWait {
			l.readinessWaits[id] = true
		}
	}
}

// A loopGoroutine is a goroutine that may loop.
type loopGoroutine struct {
	id        uint64
	startFunc tracefmt.StringID // 0 if no wait of it was seen
	// commonPath holds the outermost frames that all its waits share, outermost first. It is nil until several waits
	// are known.
	commonPath []tracefmt.FrameID
	// serviceFrame is the outermost service frame, if a library's function started the goroutine. It names the loop.
	serviceFrame    tracefmt.FrameID
	iteration       *iterationState // nil if no idle wait was seen
	origin          *originStats    // of its iterations
	waitsForNetwork bool
	readsConnection bool
	receipts        []receipt // of the current generation, from blocked senders

	// Of the current generation.
	pieces     int
	canIterate bool // it has a wait that may be the idle one
	// maxSpans is how many states are observed at first. observedUntil is the end of those that were: see observeRest.
	maxSpans      int
	observedUntil int64
	iterations    timerIterations
	// lastSpan is the last observed span, generation the number of the last generation that it outlasted.
	lastSpan   timeline.Span
	generation uint64
	// collector holds the goroutine's observations firstObservation to endObservation, and its waits from firstWait on.
	collector                                   *observationCollector
	firstObservation, endObservation, firstWait int
	// The goroutine's waits are at collector.waitStacks[firstWaitStack:endWaitStack].
	firstWaitStack, endWaitStack int
	// cachedStack is the last argument of loopFuncAt, cachedFunc and cachedFrame its results.
	cachedStack tracefmt.StackID
	cachedFunc  *loopFunc
	cachedFrame tracefmt.FrameID
	// isCachedForAll says that the results are those for all stacks.
	isCachedForAll bool
}

// An iterationState is the open iteration of a looping goroutine.
type iterationState struct {
	start         int64            // 0 if idle or unknown
	lastIdleStart int64            // when the last idle wait began
	count         int              // iterations so far
	beginWait     observation      // the idle wait that began the iteration
	busyWait      tracefmt.StackID // if the loop is busy: the wait that began the iteration
	restWaker     uint64           // if the loop is busy: the goroutine that ended its last rest
	iterationContent
}

// IsUnknownServer reports whether the process accepts connections for a protocol that no source knows.
func (f *Finder) IsUnknownServer() bool { return f.loops.isUnknownServer }

// ClientWaits returns a function that reports whether the network wait at a stack is for a client: it is for the next request in
// a protocol that only the service knows, and not for a peer that a handler calls by WebSocket; of other stacks it is not known.
// The function holds no reference to the Finder and must not run concurrently with Add.
func (f *Finder) ClientWaits() func(wait tracefmt.StackID) (isClient, isKnown bool) {
	clientWaits, peerStacks := f.loops.clientWaits, f.messages.peerStacks
	return func(wait tracefmt.StackID) (bool, bool) {
		return clientWaits[wait], clientWaits[wait] || peerStacks[wait]
	}
}

// add follows the goroutines that may loop through a generation and emits the iterations that ended.
func (l *loopSource) add(c *collector, g *timeline.Gen) {
	removeUnknown(l.goroutines, g)
	l.scanStacks(c)
	l.listCandidates(c, g)
	l.limitObservations(c, g)
	l.addObservations(c, g)
}

// addObservations observes the states of the candidates, chooses the idle waits of loops that have none yet, and ends iterations.
func (l *loopSource) addObservations(c *collector, g *timeline.Gen) {
	l.collectObservations(c, g)
	for _, goroutine := range l.candidates {
		if goroutine.pieces > 2*threshold.SmallSample {
			l.narrowPath(c, goroutine)
		}
		l.findServiceFrame(c, goroutine)
		goroutine.resetCache()
	}
	for _, goroutine := range l.candidates {
		l.countWaits(c, g, goroutine)
	}
	for _, loop := range l.loopFuncs {
		if loop != nil && loop.idleWait == 0 {
			if !loop.isEventLoop && loop.separateByWork(c, g) || loop.isSeparatedByReceipts {
				continue
			}
			loop.chooseIdleWait(c)
		}
	}
	if loop := l.findSilentFeeder(c, g); loop != nil {
		loop.separateByWork(c, g)
	}
	for _, goroutine := range l.candidates {
		if len(goroutine.receipts) > 0 {
			if loop, _ := l.loopFuncAt(c, goroutine, goroutine.receipts[0].stack); loop != nil && loop.isSeparatedByReceipts {
				l.followReceipts(c, g, goroutine, loop)
				continue
			}
		}
		if goroutine.canIterate {
			l.followIterations(c, g, goroutine)
		}
	}
	l.collectReceived(c)
	l.emitUnclassified(c)
	for _, loop := range l.loopFuncs {
		if loop != nil && 2*loop.clientCount > loop.emittedCount {
			l.clientWaits[loop.idleWait] = true
		}
	}
	for _, collector := range l.collectors {
		collector.states.reset()
		collector.waits.reset()
		collector.times.reset()
		collector.waitStacks = collector.waitStacks[:0]
	}
}

// finishGeneration processes the states that were left out, when it is known whether the program is a batch program, and decides
// which loops are only counted from then on.
func (l *loopSource) finishGeneration(c *collector, g *timeline.Gen) {
	l.observeRest(c, g)
	l.work.decideCountedOnly(c, g)
}

// Limits of the states that are observed of goroutines whose iterations may be parts of a batch program's run: of all goroutines
// together, and the least of one.
const (
	maxPartSpans = 1 << 17
	minPartSpans = 1 << 11
)

// limitObservations sets how many states of each candidate are observed at first (maxSpans): all, except where iterations may be
// parts of a batch program's run. These are only counted, for which the first states of a generation are enough.
func (l *loopSource) limitObservations(c *collector, g *timeline.Gen) {
	limit := max(maxPartSpans/max(len(l.candidates), 1), minPartSpans)
	for _, goroutine := range l.candidates {
		goroutine.maxSpans, goroutine.observedUntil = math.MaxInt, g.Base
		if l.work.mayBeBatch && goroutine.pieces > limit && !c.isMeasured(c.stackInfo(g.AnyStack(goroutine.id)).startFunc) {
			goroutine.maxSpans = limit
		}
	}
	for _, origin := range l.work.origins {
		origin.lastInspected, origin.observedNS = origin.inspected, 0
	}
}

// observeRest processes the states of a generation that limitObservations left out. If the program is a batch program, also with
// the iterations estimated for the rest, it keeps these estimates and drops iterations that the limit left open. Otherwise it
// takes the estimates back and observes the rest.
func (l *loopSource) observeRest(c *collector, g *timeline.Gen) {
	var rest []*loopGoroutine
	restPieces, pieces := make(map[*originStats]int), make(map[*originStats]int)
	for _, goroutine := range l.candidates {
		if goroutine.observedUntil < g.End {
			rest = append(rest, goroutine)
			restPieces[goroutine.origin] += g.PiecesAfter(goroutine.id, goroutine.observedUntil)
		}
		pieces[goroutine.origin] += goroutine.pieces
	}
	if len(rest) == 0 {
		return
	}
	addEstimates := func(sign float64) {
		for origin, n := range restPieces {
			if origin != nil && n < pieces[origin] {
				ratio := sign * float64(n) / float64(pieces[origin]-n)
				origin.total += int(ratio * float64(origin.inspected-origin.lastInspected))
				origin.emittedNS += int64(ratio * float64(origin.observedNS))
			}
		}
	}
	addEstimates(1)
	if !l.isUnknownServer && !l.work.isStartedOutside() {
		for _, goroutine := range rest {
			if iteration := goroutine.iteration; iteration != nil {
				iteration.start, iteration.iterationContent = 0, iterationContent{}
			}
		}
		return
	}
	addEstimates(-1)
	for _, goroutine := range rest {
		goroutine.maxSpans = math.MaxInt
	}
	l.candidates = rest
	l.addObservations(c, g)
}

// listCandidates lists, ordered by id, the goroutines that may loop: those that returned from a wait in the generation and that
// no other source follows. Of loops that are known to serve requests, iterations are only counted.
func (l *loopSource) listCandidates(c *collector, g *timeline.Gen) {
	l.candidates = l.candidates[:0]
	g.EachStart(func(id uint64, start tracefmt.StackID, pieces int) {
		// An older goroutine that never waited in the generation has one piece: its status. A new one has two: its
		// creation and its run.
		if pieces < 2 || pieces == 2 && start != 0 || l.work.startRoleOf(c, g, id, start) != roleUnclaimed ||
			start != 0 && l.jobs.isAlwaysPart(c, start) {
			return
		}
		goroutine := l.goroutines[id]
		if goroutine != nil && goroutine.origin != nil && goroutine.origin.isSettled {
			// This work serves requests, so it is only counted, at the ratio that was measured before.
			o := goroutine.origin
			o.total += pieces * o.inspected / max(o.pieceCount, 1)
			return
		}
		if isJob, isPart, _, kind := l.jobs.jobStateOf(g, id); c.annotated[id] || c.isServed(id) || isJob && (isPart || kind.areJobs) {
			return
		}
		goroutine = entry.GetOrAdd(l.goroutines, id)
		goroutine.id, goroutine.pieces, goroutine.canIterate, goroutine.receipts = id, pieces, false, goroutine.receipts[:0]
		l.candidates = append(l.candidates, goroutine)
	})
	slices.SortFunc(l.candidates, func(a, b *loopGoroutine) int { return cmp.Compare(a.id, b.id) })
}

// findServiceFrame sets serviceFrame, the outermost service frame that was observed on a goroutine.
func (l *loopSource) findServiceFrame(c *collector, goroutine *loopGoroutine) {
	if goroutine.serviceFrame != 0 {
		return
	}
	for obs := range goroutine.observations(skipIterations) {
		obs.skipsRepeated = true
		if obs.stack != 0 && !obs.isCreatorStack {
			if goroutine.serviceFrame = c.stackInfo(obs.stack).outerServiceFrame; goroutine.serviceFrame != 0 {
				return
			}
		}
	}
}

// countWaits adds a goroutine's observed waits to the statistics of the function that loops, from which chooseIdleWait chooses
// the idle wait.
func (l *loopSource) countWaits(c *collector, g *timeline.Gen, goroutine *loopGoroutine) {
	var lastLoop *loopFunc
	isBenchmark := false
	var calls []tracefmt.StackID // system calls since the last wait
	addIterations := func(iterations *timerIterations) bool {
		loop, _ := l.loopFuncAt(c, goroutine, iterations.stack)
		return loop == nil || loop.idleWait != 0 && loop.restWaits == nil || loop.countIterations(c, iterations)
	}
	for obs := range goroutine.observations(addIterations) {
		if obs.waker != 0 && obs.wakerStack != 0 {
			l.countReceipt(c, g, goroutine, obs)
		}
		if obs.state == timeline.Waiting {
			if obs.skipsRepeated = obs.repeated > 0 && !isBenchmark; !obs.skipsRepeated {
				calls = calls[:0]
			}
			for _, stack := range calls { // they are repeated, too
				loop, _ := l.loopFuncAt(c, goroutine, stack)
				l.countSocketCall(c, loop, goroutine, stack)
			}
		}
		if obs.stack == 0 || obs.state != timeline.Syscall && obs.state != timeline.Waiting {
			continue
		}
		if goroutine.startFunc == 0 && !obs.isCreatorStack {
			goroutine.startFunc = c.stackInfo(obs.stack).startFunc
		}
		loop, _ := l.loopFuncAt(c, goroutine, obs.stack)
		if loop != nil && obs.state == timeline.Syscall {
			l.countSocketCall(c, loop, goroutine, obs.stack)
			calls, isBenchmark = append(calls, obs.stack), isBenchmark || loop.isBenchmark
		}
		if loop == nil || obs.state == timeline.Syscall && !loop.isBenchmark {
			continue
		}
		info, canonical := c.stackInfo(obs.stack), c.canonicalStack(obs.stack)
		loop.sharesSocket, loop.isEventLoop = loop.sharesSocket || info.isFDReadLock, loop.isEventLoop || info.isReadinessWait
		goroutine.canIterate = goroutine.canIterate || loop.idleWait == 0 || loop.idleWait == canonical
		if loop.idleWait != 0 && loop.restWaits == nil {
			continue
		}
		if loop.isBenchmark {
			if len(loop.sequence) < maxSequence && !loop.isDecided {
				loop.sequence = append(loop.sequence, canonical)
			}
			continue
		}
		stats := entry.GetOrMake(loop.waits, canonical, func() *waitStats { return &waitStats{isClientCall: info.isClientCall && info.isLibraryLoop} })
		if stats.rank == 0 { // a wait that began before the trace has no reason
			stats.rank, stats.isLibraryDelay = l.idleRank(c, obs)
			stats.isSend = obs.reason == reasonSend
			isAnswerWait := info.isLibraryLoop && stats.isLibraryDelay && obs.reason == reasonNetwork
			if stats.isClientCall = stats.isClientCall || isAnswerWait; stats.isClientCall {
				stats.rank = 0
			}
			stats.isServed = stats.rank == idleMost && obs.reason == reasonNetwork
			stats.isPause = obs.reason == reasonSleep && stats.rank == 2 && !stats.isLibraryDelay
		}
		if (info.isFetch || info.outerServiceFrame == 0) && l.isReader(obs.waker) {
			stats.receivedCount++
		}
		if obs.waker == 0 && obs.reason != reasonNetwork {
			stats.timerCount++
		}
		if obs.waker != 0 && !info.isFetch {
			if b, ok := g.BirthOf(obs.waker); ok && b.Creator == goroutine.id && !c.stackInfo(b.Stack).isFetch {
				stats.selfEndedCount++
			}
		}
		if lastLoop != loop {
			lastLoop = loop
			loop.goroutines++
		}
		stats.count++
		stats.totalNS += obs.end - max(obs.start, g.Base)
		if loop.idleWait != 0 { // a busy goroutine may rest for the first time after the choice
			loop.restWaits[canonical] = stats.isRest()
		}
	}
}

// countIterations counts the waits of iterations, as countWaits does. It returns false if the wait before them has no statistics.
func (r *loopFunc) countIterations(c *collector, iterations *timerIterations) bool {
	stats := r.waits[c.canonicalStack(iterations.stack)]
	if stats == nil || stats.rank == 0 || r.isBenchmark {
		return false
	}
	for i := range iterations.count - 1 {
		stats.totalNS += iterations.at(i+1).Wake - iterations.at(i).End
	}
	stats.count += iterations.count - 1
	stats.timerCount += iterations.count - 1
	if r.idleWait != 0 {
		r.restWaits[c.canonicalStack(iterations.stack)] = stats.isRest()
	}
	return true
}

// followIterations begins and ends the iterations of a goroutine. An iteration lasts from the end of an idle wait to the
// beginning of the next. If the loop always has work, it lasts from one idleWait to the next, or to a rest. If the goroutine
// reads more work without a wait, that read separates iterations.
func (l *loopSource) followIterations(c *collector, g *timeline.Gen, goroutine *loopGoroutine) {
	iteration := goroutine.iteration
	var origin *originStats
	var earlyWait observation // a wait that began before the trace
	backToBack, rests := 0, 0
	isRepeatable := false // the iteration began here, and had no wait
	goroutine.resetCache()
	addIterations := func(iterations *timerIterations) bool {
		return earlyWait.end == 0 && l.addIterations(c, goroutine, iterations, origin)
	}
	for obs := range goroutine.observations(addIterations) {
		if obs.stack == 0 {
			if iteration == nil {
				earlyWait = *obs
			}
			continue
		}
		if origin != nil && !origin.hasServiceCode && c.stackInfo(obs.stack).outerServiceFrame != 0 && !obs.isCreatorStack {
			origin.hasServiceCode = true
		}
		loop, isIdle := l.matchIdleWait(c, goroutine, obs)
		if !isIdle {
			isRepeatable = isRepeatable && obs.state != timeline.Waiting
			switch {
			case iteration == nil || iteration.start == 0 || obs.start < iteration.start:
			case loop != nil && loop.isBusy && obs.state == timeline.Waiting && loop.restWaits[c.canonicalStack(obs.stack)]:
				if origin == nil {
					origin = l.originOf(c, g, goroutine, iteration.busyWait)
				}
				l.endIteration(c, goroutine, obs.start, iteration.busyWait, loop, origin)
				if obs.waker != 0 {
					iteration.restWaker = obs.waker
				}
				rests++
				iteration.start, iteration.iterationContent = 0, iterationContent{}
			case iteration.nextRead != 0 && l.isOutsideWaitCall(c, iteration.idleWait, obs.stack):
				if origin == nil {
					origin = l.originOf(c, g, goroutine, iteration.idleWait)
				}
				loop, _ = l.loopFuncAt(c, goroutine, iteration.idleWait)
				l.beginAtRead(c, goroutine, loop, origin)
				iteration.add(l, c, obs)
			case loop != nil && loop.isEventLoop && iteration.hasHandled && obs.state == timeline.Syscall && c.stackInfo(obs.stack).isRead:
				iteration.nextRead = cmp.Or(iteration.nextRead, obs.start)
			case loop != nil && (loop.isIdleWaitRead || c.stackInfo(obs.stack).isFetch) && iteration.hasWorked && obs.state == timeline.Syscall && !l.isOutsideWaitCall(c, iteration.idleWait, obs.stack):
				iteration.nextRead = cmp.Or(iteration.nextRead, obs.start)
			default:
				iteration.add(l, c, obs)
			}
			continue
		}
		if iteration == nil {
			iteration = &iterationState{lastIdleStart: math.MinInt64}
			goroutine.iteration = iteration
			if loop.goroutines >= settledCount && !loop.isBusy {
				// The trace does not show the stack of this wait. Nearly all of many goroutines wait in their idle
				// wait.
				iteration.start = earlyWait.end
			}
		}
		// Both generations report a wait that crosses their border.
		if obs.start < iteration.lastIdleStart || obs.start == iteration.lastIdleStart && iteration.start != 0 {
			isRepeatable = false
			continue
		}
		iteration.lastIdleStart = obs.start
		if origin == nil {
			origin = l.originOf(c, g, goroutine, obs.stack)
		}
		if iteration.count == 0 && iteration.start == 0 {
			early := iterationState{start: max(earlyWait.end, c.traceStart)}
			l.addWorkPeriod(c, goroutine.id, &early, obs.start, loop, origin, 0, 0)
		}
		if iteration.start != 0 && iteration.start == earlyWait.end {
			earlyWait.reason = obs.reason // assumed, as its stack is
			l.addBeginning(c, origin, &earlyWait)
			iteration.beginWait, earlyWait.end = earlyWait, 0
		}
		if iteration.start != 0 {
			if obs.woken && !loop.isBusy && c.stackInfo(obs.stack).isFetch && len(origin.fetchWaits) < maxFetchWaits {
				origin.fetchWaits = append(origin.fetchWaits, fetchWait{obs.start - iteration.start, obs.end - obs.start})
				origin.addBusy(loop, goroutine.id, iteration.start, obs.end, c.stackInfo(obs.stack).innerServiceFrame)
			}
			l.endIteration(c, goroutine, obs.start, obs.stack, loop, origin)
			if loop.isBusy && c.stackInfo(obs.stack).isLibraryLoop {
				backToBack++
			}
		}
		// The same observations lead to the same content, where no read in it began another iteration.
		obs.skipsRepeated = isRepeatable && obs.repeated > 0 && obs.woken && !loop.isBusy && !loop.isBenchmark && iteration.idleWait == obs.stack && iteration.nextRead == 0 && !iteration.isReady
		if iteration.start = 0; !obs.skipsRepeated {
			iteration.iterationContent = iterationContent{}
		}
		isRepeatable = obs.woken
		switch {
		case loop.isBusy:
			iteration.start, iteration.busyWait = obs.start, obs.stack
		case obs.woken:
			iteration.start, iteration.beginWait, iteration.idleWait = obs.end, *obs, obs.stack
			iteration.wakerFunc = c.stackInfo(obs.wakerStack).innermost
			l.addBeginning(c, origin, obs)
			if loop.isEventLoop && obs.end-obs.start < readyCallNS {
				iteration.start, iteration.isReady, iteration.beginWait = obs.start, true, observation{observedWait: observedWait{end: obs.start}}
			}
		}
	}
	if backToBack+rests > 0 && iteration.restWaker != 0 {
		origin.backToBack += backToBack
		origin.rests += rests
		origin.arrivals += l.countArrivals(c, g, iteration.restWaker)
	}
}

// addIterations ends iterations that are observed in bulk, except for the last one, which remains open. It returns false if they may
// have done work, or are not each from the end of an idle wait to the next.
func (l *loopSource) addIterations(c *collector, goroutine *loopGoroutine, iterations *timerIterations, origin *originStats) bool {
	iteration := goroutine.iteration
	loop, frame := l.loopFuncAt(c, goroutine, iterations.stack)
	if iteration == nil || origin == nil || iteration.start != iterations.at(0).Wake || iteration.idleWait != iterations.stack || loop == nil || loop.isBusy || loop.isBenchmark || loop.isIdleWaitServed ||
		loop.idleWait != c.canonicalStack(iterations.stack) || c.stackInfo(iterations.stack).isFetch {
		return false
	}
	last := iterations.count - 1
	isDropped := l.work.drops(c, iterations.stack)
	for i := range last {
		times := iterations.at(i)
		origin.emittedNS += times.End - times.Wake
		origin.observedNS += times.End - times.Wake
		if !isDropped {
			c.series.add(seriesKey{Loop, true, false, false, iterations.stack, frame, 0}, times.Wake, times.End, goroutine.id)
		}
	}
	origin.inspected += last
	origin.total += last
	origin.timerCount += last
	iteration.count += last
	loop.emittedCount += last
	entry.GetOrAdd(loop.wakers, 0).withoutWork += last
	iteration.start, iteration.lastIdleStart = iterations.at(last).Wake, iterations.at(last-1).End
	iteration.beginWait = iterations.observation
	iteration.beginWait.start, iteration.beginWait.end = iteration.lastIdleStart, iteration.start
	iteration.serviceFrame = c.stackInfo(iterations.stack).outerServiceFrame
	return true
}

// readyCallNS is the longest system call of an event loop that found events. One that waits for them takes longer: the kernel must wake
// its thread.
const readyCallNS = 20e3

// receiverOf returns the frame that receives messages of a loop: see Backlog.Frame. In an event loop it is the one that waits.
func (l *loopSource) receiverOf(c *collector, loop *loopFunc, wait tracefmt.StackID, frame tracefmt.FrameID) tracefmt.FrameID {
	if loop.isEventLoop {
		return c.stackInfo(wait).waitCaller
	}
	return c.frameOf(wait, frame)
}

// beginAtRead ends an iteration where the goroutine read data without a wait, and begins the next one there: the data was available.
func (l *loopSource) beginAtRead(c *collector, goroutine *loopGoroutine, loop *loopFunc, origin *originStats) {
	iteration := goroutine.iteration
	start, wait := iteration.nextRead, iteration.idleWait
	l.endIteration(c, goroutine, start, wait, loop, origin)
	iteration.start, iteration.beginWait = start, observation{observedWait: observedWait{end: start}}
	iteration.iterationContent = iterationContent{idleWait: wait, isReady: true}
}

// countArrivals returns how often a goroutine got new work in a generation: how many of its waits for the network, a channel or a
// Cond ended.
func (l *loopSource) countArrivals(c *collector, g *timeline.Gen, id uint64) (n int) {
	l.spans = c.window.EachSpans(id, g.Base, g.End+1, l.spans, func(spans []timeline.Span) bool {
		for i := range spans {
			switch s := &spans[i]; c.reasonOf(s.Reason) {
			case reasonNetwork, reasonReceive, reasonCond:
				if s.State == timeline.Waiting && s.Woken {
					n++
				}
			}
		}
		return true
	})
	return n
}

// iterationOf returns the iteration of a goroutine, nil if the goroutine never waited for work.
func (l *loopSource) iterationOf(id uint64) *iterationState {
	if c := l.goroutines[id]; c != nil {
		return c.iteration
	}
	return nil
}

// originOf returns the statistics of the work of the loop with this idle wait, and stores them in the goroutine.
func (l *loopSource) originOf(c *collector, g *timeline.Gen, goroutine *loopGoroutine, wait tracefmt.StackID) *originStats {
	_, frame := l.loopFuncAt(c, goroutine, wait)
	origin := l.work.originFor(Loop, c.syms.Frame(frame).Func, c.stackInfo(wait).startFunc)
	origin.hasServiceCode = origin.hasServiceCode || c.stackInfo(wait).outerServiceFrame != 0
	origin.pieceCount += g.Pieces(goroutine.id)
	goroutine.origin = origin
	return origin
}

// endIteration ends the iteration of a goroutine at end; one without a duration is dropped. wait is the stack of the idle wait.
// An iteration of a library's loop belongs to the service function that ran in it.
func (l *loopSource) endIteration(
	c *collector, goroutine *loopGoroutine, end int64, wait tracefmt.StackID, loop *loopFunc, origin *originStats,
) {
	iteration := goroutine.iteration
	if end <= iteration.start || loop.isEventLoop && (!iteration.hasWorked || iteration.serviceFrame == 0) {
		return // an event loop also polls for events when there are none, and handles those of the library itself
	}
	iteration.count++
	_, frame := l.loopFuncAt(c, goroutine, wait)
	if (loop.isIdleWaitRead || loop.isEventLoop) && iteration.hasWorked && len(l.backlogs.reads[origin]) < maxBacklogRecords {
		l.backlogs.reads[origin] = append(l.backlogs.reads[origin], readIteration{iteration.start, end, goroutine.id, iteration.isReady, l.receiverOf(c, loop, wait, frame)})
		origin.sharesSocket, origin.isEventLoop = origin.sharesSocket || loop.sharesSocket, loop.isEventLoop
	}
	// A library's loop runs the functions that it is given: each iteration belongs to the function that ran.
	if iteration.serviceFrame != 0 && c.stackInfo(wait).outerServiceFrame == 0 {
		if ranOrigin := l.work.originFor(Loop, c.syms.Frame(iteration.serviceFrame).Func, c.stackInfo(wait).startFunc); ranOrigin != origin {
			if ranOrigin.hasServiceCode = true; iteration.beginWait.end == iteration.start {
				l.addBeginning(c, ranOrigin, &iteration.beginWait)
			}
			origin = ranOrigin
		}
		frame = iteration.serviceFrame
	}
	if loop.isBusy {
		origin.addBusy(loop, goroutine.id, iteration.start, end, frame)
	}
	t := &l.ended // filled in place, as observations are
	t.reader, t.isWorkPeriod = l.addWorkPeriod(c, goroutine.id, iteration, end, loop, origin, wait, frame)
	t.start, t.end, t.goroutine, t.waitStack, t.frame, t.loopFunc, t.origin = iteration.start, end, goroutine.id, wait, frame, loop, origin
	t.iterationContent = iteration.iterationContent
	l.finishIteration(c, t)
}

// matchIdleWait returns the loop in which an observed goroutine waits, and whether this is the loop's idle wait. The loop is nil
// if the goroutine does not wait; a system call counts as a wait only in a benchmark's loop.
func (l *loopSource) matchIdleWait(c *collector, goroutine *loopGoroutine, obs *observation) (loop *loopFunc, isIdleWait bool) {
	if obs.state != timeline.Waiting && obs.state != timeline.Syscall {
		return nil, false
	}
	loop, _ = l.loopFuncAt(c, goroutine, obs.stack)
	return loop, loop != nil && loop.idleWait == c.canonicalStack(obs.stack) && (obs.state == timeline.Waiting || loop.isBenchmark)
}

// addBeginning counts what ended the idle wait before an iteration: the network, a timer, or a goroutine, which may be a handler
// of requests.
func (l *loopSource) addBeginning(c *collector, origin *originStats, wait *observation) {
	switch {
	case wait.reason == reasonNetwork:
		origin.networkCount++
	case wait.waker == 0:
		origin.timerCount++
	default:
		servingBefore := origin.servingCount
		origin.addStarter(c, wait.waker, wait.wakerStack)
		if origin.servingCount > servingBefore && origin.handlerWaits+origin.handlerDepartures < maxHandlersInspected {
			l.inspectHandler(c, origin, wait)
		}
	}
}

// inspectHandler counts what a handler does after it passed work to a loop: whether it waits for the result, or proceeds to its
// client (a wait for the network, or its end).
func (l *loopSource) inspectHandler(c *collector, origin *originStats, wait *observation) {
	const lookahead = 2e9
	c.spanBuffer = c.window.EachSpans(wait.waker, wait.end, wait.end+lookahead, c.spanBuffer, func(spans []timeline.Span) bool {
		for i := range spans {
			switch span := &spans[i]; {
			case span.State == timeline.NotAlive, span.State == timeline.Waiting && span.Start >= wait.end && c.reasonOf(span.Reason) == reasonNetwork:
				origin.handlerDepartures++
				return false
			case span.State == timeline.Waiting && span.Start >= wait.end:
				origin.handlerWaits++
				return false
			}
		}
		return true
	})
}
