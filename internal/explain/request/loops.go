package request

import (
	"cmp"
	"maps"
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
	// unclassified are the ended iterations of the current generation that can only be split when all have been
	// counted.
	unclassified chunkedList[endedIteration]
	// expectedIterations is the number of idle waits in the current generation, an upper bound of its iterations.
	expectedIterations int
	// isUnknownServer says that the process accepts connections for a protocol that no source knows. scannedStacks is
	// how many stacks were searched for that.
	isUnknownServer bool
	scannedStacks   int
	backlogs        backlogFinder
}

func newLoopSource(workers int, jobs *jobSource, work *workIndex, messages *messageSource) *loopSource {
	l := &loopSource{
		jobs: jobs, work: work, messages: messages,
		clientWaits: make(map[tracefmt.StackID]bool), loopFuncs: make(map[tracefmt.StringID]*loopFunc),
		goroutines: make(map[uint64]*loopGoroutine),
		followers:  make(map[tracefmt.StringID]map[tracefmt.StringID]bool),
		backlogs:   backlogFinder{readers: make(map[uint64]*networkReader), reads: make(map[*originStats][]readTurn)},
	}
	for range max(workers, 1) {
		l.collectors = append(l.collectors, new(observationCollector))
	}
	return l
}

// scanForServer searches new stacks for an accept call outside of known servers. If there is one, data from the network
// may be a request of a client; otherwise it is an answer to the process's own request.
func (l *loopSource) scanForServer(c *collector) {
	for ; l.scannedStacks < c.syms.Stacks() && !l.isUnknownServer; l.scannedStacks++ {
		var roles knowledge.Roles
		for _, fr := range c.syms.Stack(tracefmt.StackID(l.scannedStacks)) {
			roles = roles.Union(c.namer.frameFunction(fr).Roles)
		}
		l.isUnknownServer = roles.Has(knowledge.Accept) && !roles.Has(knowledge.KnownServer)
	}
}

// A loopGoroutine is a goroutine that may loop.
type loopGoroutine struct {
	id uint64
	// commonPath holds the outermost frames that all its waits share, outermost first. It is nil until several waits
	// are known.
	commonPath []tracefmt.FrameID
	// ownedFrame is the outermost service frame, if a library's function started the goroutine. It names the loop.
	ownedFrame tracefmt.FrameID
	iteration  *iterationState // nil if no idle wait was seen
	origin     *originStats    // of its iterations
	receives   bool            // it waits for the network

	// Of the current generation.
	pieces     int
	canIterate bool // it has a wait that may be the idle one
	// maxSpans is how many states are observed at first. observedUntil is the end of those that were: see observeRest.
	maxSpans      int
	observedUntil int64
	// collector holds the goroutine's observations firstObservation to endObservation, and its waits from firstWait on.
	collector                                   *observationCollector
	firstObservation, endObservation, firstWait int
	// cachedStack is the last argument of loopFuncAt, cachedFunc and cachedFrame its results.
	cachedStack tracefmt.StackID
	cachedFunc  *loopFunc
	cachedFrame tracefmt.FrameID
}

// A loopFunc is a function that loops in one or more goroutines.
type loopFunc struct {
	waits      map[tracefmt.StackID]*waitStats
	goroutines int              // inspected so far
	idleWait   tracefmt.StackID // 0 until it is chosen
	// isBusy says that the goroutines always have work, so that idleWait is a wait within the work that comes once in
	// an iteration.
	isBusy bool
	// restWaits are the waits in which busy goroutines sometimes wait for work. An iteration ends there, too.
	restWaits map[tracefmt.StackID]bool
	// isBenchmark says that the function is a benchmark's. Its iterations do not wait for work. sequence has its first waits
	// and system calls: they separate the iterations if they repeat regularly.
	isBenchmark      bool
	sequence         []tracefmt.StackID
	isDecided        bool // whether and by what the iterations are separated, by those of the first generation
	cycles           cycleStats
	reading          readingStats                     // of the iterations that readers began
	wakers           map[tracefmt.StringID]*wakeStats // by the function that ended an idle wait
	isIdleWaitServed bool                             // waitStats.isServed of idleWait
	isIdleWaitRead   bool                             // idleWait is for the next packet of a socket
	sharesSocket     bool                             // its goroutines read one socket
	// emittedCount counts the emitted iterations, clientCount those with AnswersClient.
	emittedCount, clientCount int
}

type waitStats struct {
	count   int
	totalNS int64
	// isLibraryDelay says that service code called a library that waits for another reason than to fetch work.
	// timerCount is how often a timer ended the wait.
	isLibraryDelay bool
	timerCount     int
	// receivedCount is how often a goroutine that reads from the network passed on the next item of work. A loop that falls
	// behind seldom waits for it.
	receivedCount int
	isPause       bool // a sleep of the looping function itself
	// selfEndedCount counts the waits that a goroutine ended which the waiting one had started. The waiting goroutine
	// waits for its own work then, except when a library, in its wait or in a call before it, started the other to fetch work.
	selfEndedCount int
	// isServed says that a client may send the next request here. The client has its answer by then, so the wait ends
	// the iteration even if the iteration has many other waits.
	isServed     bool
	isClientCall bool // also of a service function that a library's loop calls
	rank         int
}

type iterationState struct {
	start         int64            // 0 if idle or unknown
	lastIdleStart int64            // when the last idle wait began
	count         int              // iterations so far
	beginWait     observation      // the idle wait that began the iteration
	busyWait      tracefmt.StackID // if the loop is busy: the wait that began the iteration
	restWaker     uint64           // if the loop is busy: the goroutine that ended its last rest
	iterationContent
}

// idleRank ranks a wait by how likely it is the loop's wait for work; 0 means it is not. Waits for locks, clients'
// calls and most sleeps are part of the work.
func (l *loopSource) idleRank(c *collector, obs *observation) (rank int, isLibraryDelay bool) {
	info := c.stackInfo(obs.stack)
	if info.isClientCall {
		return 0, false
	}
	switch obs.reason {
	case reasonNetwork:
		if info.isInLibrary && (info.ownedDepth > 0 || !l.isUnknownServer) || info.isWrite {
			return 1, info.isLibraryDelay // probably a client's wait for an answer
		}
		if !l.isUnknownServer {
			return 2, info.isLibraryDelay // the process is the client: all servers in it are known
		}
		return idleMost, false
	case reasonReceive, reasonCond:
		if info.isLibraryDelay {
			return 2, true // less likely than a pause of the loop's own, see chooseIdleWait
		}
		return idleMost, false
	case reasonSync:
		if info.isMutexWait { // the goroutine reached the lock while it worked
			return 0, false
		}
		return 2, info.isLibraryDelay
	case reasonSend:
		return 1, info.isLibraryDelay
	case reasonSleep:
		if info.isLoopPause {
			return 2, info.isLibraryDelay || info.isWorkSleep // the pause between two iterations
		}
		return 1, info.isLibraryDelay || info.isWorkSleep
	}
	return 0, false
}

// idleMost is the rank of the waits in which nearly every worker waits for work.
const idleMost = 3

// IsUnknownServer reports whether the process accepts connections for a protocol that no source knows.
func (f *Finder) IsUnknownServer() bool { return f.loops.isUnknownServer }

// ClientWaits returns a function that reports whether a network wait is for a client, if that is known of its stack: for its
// next request in a protocol of the service's own it is; for a peer that a handler calls over a WebSocket it is not. The
// function holds no reference to the Finder and must not run concurrently with Add.
func (f *Finder) ClientWaits() func(wait tracefmt.StackID) (isClient, isKnown bool) {
	clientWaits, peerStacks := f.loops.clientWaits, f.messages.peerStacks
	return func(wait tracefmt.StackID) (bool, bool) {
		return clientWaits[wait], clientWaits[wait] || peerStacks[wait]
	}
}

func (l *loopSource) add(c *collector, g *timeline.Gen) {
	l.expectedIterations = 0
	removeUnknown(l.goroutines, g)
	l.scanForServer(c)
	l.listCandidates(c, g)
	l.limitObservations(c, g)
	l.addObservations(c, g)
}

// addObservations observes the candidates' states and ends their iterations.
func (l *loopSource) addObservations(c *collector, g *timeline.Gen) {
	l.collectObservations(c, g)
	for _, goroutine := range l.candidates {
		if goroutine.pieces > 2*threshold.SmallSample {
			l.narrowPath(c, goroutine)
		}
	}
	for _, goroutine := range l.candidates {
		l.findOwnedFrame(c, goroutine)
		l.countWaits(c, g, goroutine)
	}
	for _, loop := range l.loopFuncs {
		if loop != nil && loop.idleWait == 0 {
			if loop.chooseIdleWait(c); loop.waits[loop.idleWait] != nil {
				l.expectedIterations += loop.waits[loop.idleWait].count
			}
		}
	}
	// Jobs are appended after the iterations.
	if !l.work.mayBeBatch {
		c.expect(l.expectedIterations + min(l.expectedIterations, len(l.jobs.births)))
	}
	for _, goroutine := range l.candidates {
		if goroutine.canIterate {
			l.followIterations(c, g, goroutine)
		}
	}
	l.addReceived(c, g)
	l.emitUnclassified(c)
	for _, loop := range l.loopFuncs {
		if loop != nil && 2*loop.clientCount > loop.emittedCount {
			l.clientWaits[loop.idleWait] = true
		}
	}
	for _, collector := range l.collectors {
		collector.states.length, collector.waits.length = 0, 0
	}
}

func (l *loopSource) settle(c *collector, g *timeline.Gen) {
	l.observeRest(c, g)
	l.work.settle(c, g)
}

// Limits of the states that are observed of goroutines whose iterations may be parts of a batch program's run: of all goroutines
// together, and the least of one.
const (
	maxPartSpans = 1 << 17
	minPartSpans = 1 << 11
)

// limitObservations sets how many states of each candidate are observed. Parts of a batch program's run are only counted, for which
// the first ones of a generation are enough.
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

// observeRest processes the states that limitObservations left out. If the program is a batch program, it estimates their
// iterations by those that were observed. Otherwise it observes them.
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

// listCandidates lists the goroutines that may loop, by id: those that returned from a wait in the generation and that
// no other source claims.
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
		if isJob, isPart, _, kind := l.jobs.stateOf(g, id); c.annotated[id] || c.isServed(id) || isJob && (isPart || kind.areJobs) {
			return
		}
		goroutine = entry.GetOrAdd(l.goroutines, id)
		goroutine.id, goroutine.pieces, goroutine.canIterate = id, pieces, false
		l.candidates = append(l.candidates, goroutine)
	})
	slices.SortFunc(l.candidates, func(a, b *loopGoroutine) int { return cmp.Compare(a.id, b.id) })
}

// findOwnedFrame sets the outermost service frame of a goroutine.
func (l *loopSource) findOwnedFrame(c *collector, goroutine *loopGoroutine) {
	if goroutine.ownedFrame != 0 {
		return
	}
	for obs := range goroutine.observations() {
		if obs.stack != 0 && !obs.isCreatorStack {
			if goroutine.ownedFrame = c.stackInfo(obs.stack).outerOwned; goroutine.ownedFrame != 0 {
				return
			}
		}
	}
}

// countWaits adds a goroutine's waits to the statistics of its loop.
func (l *loopSource) countWaits(c *collector, g *timeline.Gen, goroutine *loopGoroutine) {
	var lastLoop *loopFunc
	goroutine.resetCache()
	for obs := range goroutine.observations() {
		if obs.stack == 0 || obs.state != timeline.Syscall && obs.state != timeline.Waiting {
			continue
		}
		loop, _ := l.loopFuncAt(c, goroutine, obs.stack)
		if loop == nil || obs.state == timeline.Syscall && !loop.isBenchmark {
			continue
		}
		info, canonical := c.stackInfo(obs.stack), c.canonicalStack(obs.stack)
		loop.sharesSocket = loop.sharesSocket || info.isReadTurn
		goroutine.canIterate = goroutine.canIterate || loop.idleWait == 0 || loop.idleWait == canonical
		if loop.idleWait == canonical {
			l.expectedIterations++
		}
		if loop.idleWait != 0 && loop.restWaits == nil {
			continue
		}
		if loop.isBenchmark {
			if len(loop.sequence) < maxSequence && !loop.isDecided {
				loop.sequence = append(loop.sequence, canonical)
			}
			continue
		}
		stats := loop.waits[canonical]
		if stats == nil {
			stats = &waitStats{isClientCall: info.isClientCall && info.isLibraryLoop}
			loop.waits[canonical] = stats
		}
		if stats.rank == 0 { // a wait that began before the trace has no reason
			stats.rank, stats.isLibraryDelay = l.idleRank(c, obs)
			isAnswerWait := info.isLibraryLoop && stats.isLibraryDelay && obs.reason == reasonNetwork
			if stats.isClientCall = stats.isClientCall || isAnswerWait; stats.isClientCall {
				stats.rank = 0
			}
			stats.isServed = stats.rank == idleMost && obs.reason == reasonNetwork
			stats.isPause = obs.reason == reasonSleep && stats.rank == 2 && !stats.isLibraryDelay
		}
		if l.isReader(obs.waker) && (info.isFetch || info.outerOwned == 0) {
			stats.receivedCount++
		}
		if obs.waker == 0 && obs.reason != reasonNetwork {
			stats.timerCount++
		}
		if b, ok := g.BirthOf(obs.waker); ok && b.Creator == goroutine.id && !info.isFetch && !c.stackInfo(b.Stack).isFetch {
			stats.selfEndedCount++
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

// followIterations ends the iterations of a goroutine: each lasts from the end of an idle wait to the beginning of the
// next.
func (l *loopSource) followIterations(c *collector, g *timeline.Gen, goroutine *loopGoroutine) {
	iteration := goroutine.iteration
	var origin *originStats
	var earlyWait observation // a wait that began before the trace
	backToBack, rests := 0, 0
	goroutine.resetCache()
	for obs := range goroutine.observations() {
		if obs.stack == 0 {
			if iteration == nil {
				earlyWait = *obs
			}
			continue
		}
		if origin != nil && !origin.isOwned && c.stackInfo(obs.stack).outerOwned != 0 && !obs.isCreatorStack {
			origin.isOwned = true
		}
		loop, isIdle := l.matchIdleWait(c, goroutine, obs)
		if !isIdle {
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
			case iteration.nextRead != 0 && l.leavesWaitCall(c, iteration.idleWait, obs.stack):
				if origin == nil {
					origin = l.originOf(c, g, goroutine, iteration.idleWait)
				}
				loop, _ = l.loopFuncAt(c, goroutine, iteration.idleWait)
				l.beginAtRead(c, goroutine, loop, origin)
				iteration.add(l, c, obs)
			case loop != nil && loop.isIdleWaitRead && iteration.hasWorked && obs.state == timeline.Syscall && !l.leavesWaitCall(c, iteration.idleWait, obs.stack):
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
			continue
		}
		iteration.lastIdleStart = obs.start
		if origin == nil {
			origin = l.originOf(c, g, goroutine, obs.stack)
		}
		if iteration.count == 0 && iteration.start == 0 {
			early := iterationState{start: max(earlyWait.end, c.traceStart)}
			l.addWorkPeriod(goroutine.id, &early, obs.start, loop, origin)
		}
		if iteration.start != 0 && iteration.start == earlyWait.end {
			earlyWait.reason = obs.reason // assumed, as its stack is
			l.addBeginning(c, origin, &earlyWait)
			iteration.beginWait, earlyWait.end = earlyWait, 0
		}
		if iteration.start != 0 {
			l.endIteration(c, goroutine, obs.start, obs.stack, loop, origin)
			if loop.isBusy && c.stackInfo(obs.stack).isLibraryLoop {
				backToBack++
			}
		}
		iteration.start, iteration.iterationContent = 0, iterationContent{}
		switch {
		case loop.isBusy:
			iteration.start, iteration.busyWait = obs.start, obs.stack
		case obs.woken:
			iteration.start, iteration.beginWait, iteration.idleWait = obs.end, *obs, obs.stack
			iteration.wakerFunc = c.stackInfo(obs.wakerStack).innermost
			l.addBeginning(c, origin, obs)
		}
	}
	if backToBack+rests > 0 && iteration.restWaker != 0 {
		origin.backToBack += backToBack
		origin.rests += rests
		origin.arrivals += l.countArrivals(c, g, iteration.restWaker)
	}
}

// beginAtRead ends an iteration where the goroutine read data without a wait, and begins the next one there: the data was available.
func (l *loopSource) beginAtRead(c *collector, goroutine *loopGoroutine, loop *loopFunc, origin *originStats) {
	iteration := goroutine.iteration
	start, wait := iteration.nextRead, iteration.idleWait
	l.endIteration(c, goroutine, start, wait, loop, origin)
	iteration.start, iteration.beginWait = start, observation{observedWait: observedWait{end: start}}
	iteration.iterationContent = iterationContent{idleWait: wait, isReady: true}
}

// countArrivals counts how often a goroutine got new work in a generation: the ends of its waits for it.
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

// originOf returns the statistics of the loop that has the given idle wait, and sets them as the goroutine's.
func (l *loopSource) originOf(c *collector, g *timeline.Gen, goroutine *loopGoroutine, wait tracefmt.StackID) *originStats {
	_, frame := l.loopFuncAt(c, goroutine, wait)
	origin := l.work.originFor(Loop, c.syms.Frame(frame).Func, c.stackInfo(wait).startFunc)
	origin.isOwned = origin.isOwned || c.stackInfo(wait).outerOwned != 0
	origin.pieceCount += g.Pieces(goroutine.id)
	goroutine.origin = origin
	return origin
}

// endIteration ends a goroutine's iteration, if it has a duration.
func (l *loopSource) endIteration(
	c *collector, goroutine *loopGoroutine, end int64, wait tracefmt.StackID, loop *loopFunc, origin *originStats,
) {
	iteration := goroutine.iteration
	if end <= iteration.start {
		return
	}
	iteration.count++
	if loop.isIdleWaitRead && iteration.hasWorked && len(l.backlogs.reads[origin]) < maxBacklogRecords {
		l.backlogs.reads[origin] = append(l.backlogs.reads[origin], readTurn{iteration.start, end, goroutine.id, iteration.isReady})
		origin.sharesSocket = origin.sharesSocket || loop.sharesSocket
	}
	_, frame := l.loopFuncAt(c, goroutine, wait)
	// A library's loop runs the functions that it is given: each iteration belongs to the function that ran.
	if iteration.ownedFrame != 0 && c.stackInfo(wait).outerOwned == 0 {
		if ranOrigin := l.work.originFor(Loop, c.syms.Frame(iteration.ownedFrame).Func, c.stackInfo(wait).startFunc); ranOrigin != origin {
			if ranOrigin.isOwned = true; iteration.beginWait.end == iteration.start {
				l.addBeginning(c, ranOrigin, &iteration.beginWait)
			}
			origin = ranOrigin
		}
		frame = iteration.ownedFrame
	}
	l.addWorkPeriod(goroutine.id, iteration, end, loop, origin)
	l.finishIteration(c, endedIteration{
		start: iteration.start, end: end, goroutine: goroutine.id, waitStack: wait, frame: frame, loopFunc: loop, origin: origin,
		reader:           l.readerOf(iteration),
		iterationContent: iteration.iterationContent,
	})
}

// matchIdleWait returns the loop in which an observed goroutine waits, nil if it does not wait, and whether its stack is that of
// the loop's idle wait. A system call is one in a benchmark's loop only.
func (l *loopSource) matchIdleWait(c *collector, goroutine *loopGoroutine, obs *observation) (*loopFunc, bool) {
	if obs.state != timeline.Waiting && obs.state != timeline.Syscall {
		return nil, false
	}
	loop, _ := l.loopFuncAt(c, goroutine, obs.stack)
	return loop, loop != nil && loop.idleWait == c.canonicalStack(obs.stack) && (obs.state == timeline.Waiting || loop.isBenchmark)
}

// addBeginning counts what ended an idle wait: the network, a timer or a goroutine.
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

// inspectHandler checks what a handler does after it passed work to a loop: whether it waits for the result or
// proceeds.
func (l *loopSource) inspectHandler(c *collector, origin *originStats, wait *observation) {
	const lookahead = 2e9
	c.spanBuffer = c.window.SpansCoarse(wait.waker, wait.end, wait.end+lookahead, c.spanBuffer[:0])
	for i := range c.spanBuffer {
		span := &c.spanBuffer[i]
		switch {
		case span.State == timeline.NotAlive:
			origin.handlerDepartures++
			return
		case span.State == timeline.Waiting && span.Start >= wait.end:
			if c.reasonOf(span.Reason) == reasonNetwork {
				origin.handlerDepartures++
			} else {
				origin.handlerWaits++
			}
			return
		}
	}
}

// isRest reports whether a busy goroutine waits for more work in this wait.
func (w *waitStats) isRest() bool {
	return w.rank == idleMost && !w.isLibraryDelay && 2*w.selfEndedCount < w.count
}

// maxSequence bounds the waits and system calls in which the iterations of a benchmark are searched for.
const maxSequence = 1 << 20

// findIterations returns the wait or system call that separates the iterations of a benchmark: the rarest one that repeats
// regularly for most of the time. If several lines of the benchmark itself repeat, it is at the one that does so least often,
// because the others may be in an inner loop. It returns 0 if there is none: the beginning of an iteration leaves no event, and
// waits of an inner loop, or by chance, separate none.
func findIterations(c *collector, sequence []tracefmt.StackID) tracefmt.StackID {
	sequence = longestCall(c, sequence)
	indexes, lineRuns := make(map[tracefmt.StackID][]int), make(map[tracefmt.FrameID]int)
	lastLine := tracefmt.FrameID(0)
	for i, id := range sequence {
		indexes[id] = append(indexes[id], i)
		if line := c.stackInfo(id).outerOwned; line != lastLine {
			lineRuns[line]++
			lastLine = line
		}
	}
	repeatedLines, fewestRuns := 0, len(sequence)
	for _, runs := range lineRuns {
		if runs > 1 {
			repeatedLines, fewestRuns = repeatedLines+1, min(fewestRuns, runs)
		}
	}
	candidates := slices.SortedFunc(maps.Keys(indexes), func(a, b tracefmt.StackID) int {
		return cmp.Or(len(indexes[a])-len(indexes[b]), indexes[a][0]-indexes[b][0])
	})
	for _, candidate := range candidates {
		list := indexes[candidate]
		isOuter := repeatedLines < 2 || lineRuns[c.stackInfo(candidate).outerOwned] >= len(list) && len(list) <= fewestRuns+1
		if len(list) >= minJobs && isOuter && 2*(list[len(list)-1]-list[0]) >= len(sequence) && isRegular(sequence, list) {
			return candidate
		}
	}
	return 0
}

// longestCall returns the longest part of a sequence in which one call of the benchmark was on all stacks. The benchmark is
// called several times, and package testing waits in between.
func longestCall(c *collector, sequence []tracefmt.StackID) (longest []tracefmt.StackID) {
	first := 0
	for i := range len(sequence) + 1 {
		if i == len(sequence) || c.stackInfo(sequence[i]).outerOwned == 0 {
			if i-first > len(longest) {
				longest = sequence[first:i]
			}
			first = i + 1
		}
	}
	return longest
}

// isRegular reports whether a sequence is about the same between consecutive indexes. The lengths between events that come by chance
// vary as much as their mean.
func isRegular(sequence []tracefmt.StackID, indexes []int) bool {
	const maxVariation = 0.4 // by chance, eight exponential lengths vary so little once in 50 times
	contents, mostFrequent := make(map[string]int), 0
	meanLength := float64(indexes[len(indexes)-1]-indexes[0]) / float64(len(indexes)-1)
	variance := 0.0
	for k, end := range indexes[1:] {
		distinct := slices.Clone(sequence[indexes[k]+1 : end])
		slices.Sort(distinct)
		var content []byte
		for _, id := range slices.Compact(distinct) {
			content = appendID(content, uint32(id))
		}
		contents[string(content)]++
		mostFrequent = max(mostFrequent, contents[string(content)])
		deviation := float64(end-indexes[k]) - meanLength
		variance += deviation * deviation / float64(len(indexes)-1)
	}
	return float64(mostFrequent) >= threshold.MostShare*float64(len(indexes)-1) && variance <= maxVariation*maxVariation*meanLength*meanLength
}

// chooseIdleWait chooses the loop's idle wait: by rank, then by distance from the looping function, then by total
// duration.
func (r *loopFunc) chooseIdleWait(c *collector) {
	if r.isBenchmark {
		if len(r.sequence) >= threshold.MedianSample && !r.isDecided {
			r.idleWait = findIterations(c, r.sequence)
			r.isBusy, r.isDecided, r.sequence = r.idleWait != 0, true, nil
		}
		return
	}
	maxCount, maxRank, isPaced := 0, 0, false
	for _, stats := range r.waits {
		maxCount, maxRank = max(maxCount, stats.count), max(maxRank, stats.rank)
		isPaced = isPaced || stats.isPause && stats.count > 1 // a function that sleeps twice at one line loops
	}
	if maxCount < threshold.SmallSample && (!isPaced || maxRank == idleMost) {
		return
	}
	var idleWaits, busyWaits []tracefmt.StackID
	for id, stats := range r.waits {
		isFrequent := stats.count*4 >= maxCount
		switch {
		case stats.count < threshold.SmallSample && !stats.isPause || !isFrequent && !stats.isServed && 2*stats.receivedCount <= stats.count || 2*stats.selfEndedCount >= stats.count:
		case stats.isClientCall:
			busyWaits = append(busyWaits, id) // a client's call in a library's loop that always has work
		case stats.rank == 0:
		case stats.isLibraryDelay && 2*stats.timerCount > stats.count:
			busyWaits = append(busyWaits, id) // a library delayed the loop: a limiter or a backoff
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
		p, q := *c.stackInfo(a), c.stackInfo(b)
		return cmp.Or(stats.rank-v.rank, numberOf(stats.isPause)-numberOf(v.isPause), p.ownedDepth-q.ownedDepth, p.depth-q.depth,
			cmp.Compare(stats.totalNS, v.totalNS), cmp.Compare(a, b))
	})
	r.isIdleWaitServed, r.isIdleWaitRead = r.waits[r.idleWait].isServed, c.stackInfo(r.idleWait).isPacketRead
	if r.isBusy {
		r.restWaits = make(map[tracefmt.StackID]bool)
		for id, stats := range r.waits {
			r.restWaits[id] = stats.isRest()
		}
	}
}

func numberOf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// loopFuncAt returns the function that loops in a goroutine that waits at a stack, and its frame. The function is nil
// if loops there are of no interest.
func (l *loopSource) loopFuncAt(c *collector, goroutine *loopGoroutine, id tracefmt.StackID) (*loopFunc, tracefmt.FrameID) {
	// With a common path, all stacks have the same function.
	if goroutine.cachedStack == id || goroutine.cachedStack != 0 && len(goroutine.commonPath) > 0 {
		return goroutine.cachedFunc, goroutine.cachedFrame
	}
	path, frames := goroutine.commonPath, c.syms.Stack(id)
	if len(frames) == 0 {
		return nil, 0
	}
	if len(path) == 0 { // fewer than two waits are known
		l.outerFrames = appendOutermost(frames, l.outerFrames[:0])
		path = l.outerFrames
	}
	k := 0
	for k+1 < len(path) && len(l.followers[c.syms.Frame(path[k]).Func]) > 1 {
		k++
	}
	goroutine.cachedStack, goroutine.cachedFrame = id, path[k]
	if goroutine.ownedFrame != 0 && !c.namer.isOwned(c.syms.Frame(path[k])) {
		goroutine.cachedFrame = goroutine.ownedFrame
	}
	goroutine.cachedFunc = l.loopFuncOf(c, c.syms.Frame(goroutine.cachedFrame).Func, frames)
	return goroutine.cachedFunc, goroutine.cachedFrame
}

// resetCache discards the cached result of loopFuncAt.
func (c *loopGoroutine) resetCache() { c.cachedStack, c.cachedFunc, c.cachedFrame = 0, nil, 0 }

// loopFuncOf returns a looping function, nil if loops there are of no interest.
func (l *loopSource) loopFuncOf(c *collector, fn tracefmt.StringID, frames []tracefmt.FrameID) *loopFunc {
	loop, ok := l.loopFuncs[fn]
	if !ok {
		if !c.namer.function(fn).Has(knowledge.Stdlib) {
			loop = &loopFunc{
				waits: make(map[tracefmt.StackID]*waitStats), wakers: make(map[tracefmt.StringID]*wakeStats),
				cycles: cycleStats{single: make(map[string]int), repeated: make(map[string]int)},
			}
			loop.isBenchmark = c.namer.frameFunction(frames[len(frames)-1]).Has(knowledge.Benchmark)
		}
		l.loopFuncs[fn] = loop
	}
	if e := l.jobs.kinds[jobKey{startFunc: fn}]; e != nil && e.areJobs {
		return nil // the goroutine's life is the unit
	}
	return loop
}

// narrowPath reduces commonPath to what the stacks of the goroutine's new waits share with it, and records followers.
func (l *loopSource) narrowPath(c *collector, goroutine *loopGoroutine) {
	lastStack := tracefmt.StackID(0)
	for obs := range goroutine.observations() {
		if obs.state != timeline.Waiting || obs.stack == 0 || obs.stack == lastStack {
			continue
		}
		lastStack = obs.stack
		frames := c.syms.Stack(obs.stack)
		if goroutine.commonPath == nil {
			goroutine.commonPath = appendOutermost(frames, nil)
			continue
		}
		path, n := goroutine.commonPath, 0
		for n < len(path) && n < len(frames) && c.syms.Frame(path[n]).Func == c.syms.Frame(frames[len(frames)-1-n]).Func {
			n++
		}
		goroutine.commonPath = path[:n]
	}
	for k := 0; k+1 < len(goroutine.commonPath); k++ {
		fn, next := c.syms.Frame(goroutine.commonPath[k]).Func, c.syms.Frame(goroutine.commonPath[k+1]).Func
		if c.namer.function(next).Has(knowledge.Stdlib) {
			break
		}
		if l.followers[fn] == nil {
			l.followers[fn] = make(map[tracefmt.StringID]bool)
		}
		l.followers[fn][next] = true
	}
}

// maxPathDepth bounds how many outermost frames are searched for launchers.
const maxPathDepth = 8

// appendOutermost appends the outermost frames of a stack to a list, outermost first.
func appendOutermost(frames, to []tracefmt.FrameID) []tracefmt.FrameID {
	for k := len(frames) - 1; k >= 0 && len(to) < maxPathDepth; k-- {
		to = append(to, frames[k])
	}
	return to
}
