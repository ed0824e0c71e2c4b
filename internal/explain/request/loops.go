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
		seen := trait(0)
		for _, fr := range f.syms.Stack(tracefmt.StackID(l.scannedStacks)) {
			seen |= f.namer.frameFunction(fr).traits
		}
		l.isUnknownServer = seen&(acceptCall|foundServer) == acceptCall
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
func (l *loopFinder) idleRank(f *Finder, v *observation) (rank int, delays bool) {
	p := f.stackInfo(v.stack)
	if p.isClientCall {
		return 0, false
	}
	switch v.reason {
	case reasonNetwork:
		if p.isInLibrary && (p.ownedDepth > 0 || !l.isUnknownServer) || p.isWrite {
			return 1, p.isLibraryDelay // a client's wait for an answer, more often than not
		}
		if !l.isUnknownServer {
			return 2, p.isLibraryDelay // it asks: all who could ask this process are known
		}
		return idleMost, false
	case reasonReceive, reasonCond:
		return idleMost, p.isLibraryDelay
	case reasonSync:
		if p.isMutexWait { // somebody works, and comes there while he does
			return 0, false
		}
		return 2, p.isLibraryDelay
	case reasonSend:
		return 1, p.isLibraryDelay
	case reasonSleep:
		if p.isLoopPause {
			return 2, p.isLibraryDelay || p.isWorkSleep // the loop's own pause
		}
		return 1, p.isLibraryDelay || p.isWorkSleep
	}
	return 0, false
}

// idleMost is the rank of waits in which nearly every worker waits for work.
const idleMost = 3

// ClientWaits returns whether a wait for the network is one for what a client of the process asks next, by a protocol of its own. What is returned
// holds nothing else of the finder, and is not to be called beside Add.
func (f *Finder) ClientWaits() func(wait tracefmt.StackID) bool {
	known := f.loops.clientWaits
	return func(wait tracefmt.StackID) bool { return known[wait] }
}

func (l *loopFinder) add(f *Finder, g *timeline.Gen) {
	l.expectedIterations = 0
	removeUnknown(l.goroutines, g)
	l.scanForServer(f)
	l.listCandidates(f, g)
	l.collectObservations(f, g)
	for _, c := range l.candidates {
		if c.pieces > 2*scale.Few {
			l.narrowPath(f, c)
		}
	}
	for _, c := range l.candidates {
		l.findOwnedFrame(f, c)
		l.countWaits(f, g, c)
	}
	for _, r := range l.loopFuncs {
		if r != nil && r.idleWait == 0 {
			if r.chooseIdleWait(f); r.idleWait != 0 {
				l.expectedIterations += r.waits[r.idleWait].count
			}
		}
	}
	f.emitted = slices.Grow(f.emitted, l.expectedIterations+min(l.expectedIterations, len(f.births))) // jobs come behind the turns
	for _, c := range l.candidates {
		if c.canIterate {
			l.followIterations(f, g, c)
		}
	}
	l.emitUnclassified(f)
	for _, r := range l.loopFuncs {
		if r != nil && 2*r.clientCount > r.emittedCount {
			l.clientWaits[r.idleWait] = true
		}
	}
	for _, x := range l.collectors {
		x.states.length, x.waits.length = 0, 0
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
		c := l.goroutines[id]
		if c != nil && c.origin != nil && c.origin.isSettled {
			// Only counted, in the proportion that was seen before.
			o := c.origin
			o.total += pieces * o.inspected / max(o.pieceCount, 1)
			return
		}
		if j := f.jobs.jobs[id]; f.work.annotated[id] || f.messages.readers[id] != nil || j != nil && (j.isPart || j.kind.areJobs) {
			return
		}
		c = entry.In(l.goroutines, id)
		c.id, c.pieces, c.canIterate = id, pieces, false
		l.candidates = append(l.candidates, c)
	})
	slices.SortFunc(l.candidates, func(a, b *loopGoroutine) int { return cmp.Compare(a.id, b.id) })
}

// findOwnedFrame looks for the service's own function that a goroutine runs.
func (l *loopFinder) findOwnedFrame(f *Finder, c *loopGoroutine) {
	if c.ownedFrame != 0 {
		return
	}
	for v := range c.observations() {
		if v.stack != 0 && !v.isCreatorStack {
			if c.ownedFrame = f.stackInfo(v.stack).outerOwned; c.ownedFrame != 0 {
				return
			}
		}
	}
}

// countWaits adds up which waits there are.
func (l *loopFinder) countWaits(f *Finder, g *timeline.Gen, c *loopGoroutine) {
	var last *loopFunc
	c.resetCache()
	for v := range c.observations() {
		if v.stack == 0 || v.state != timeline.Syscall && v.state != timeline.Waiting {
			continue
		}
		r, _ := l.loopFuncAt(f, c, v.stack)
		if r == nil || v.state == timeline.Syscall && !r.isBenchmark {
			continue
		}
		p, bare := f.stackInfo(v.stack), f.canonicalStack(v.stack)
		c.canIterate = c.canIterate || r.idleWait == 0 || r.idleWait == bare
		if r.idleWait == bare {
			l.expectedIterations++
		}
		if r.idleWait != 0 && r.restWaits == nil {
			continue
		}
		w := r.waits[bare]
		if w == nil {
			w = &waitStats{isClientCall: p.isClientCall && p.isLibraryLoop}
			r.waits[bare] = w
		}
		if w.rank == 0 { // of one that had begun before the trace the reason is not known
			w.rank, w.isLibraryDelay = l.idleRank(f, v)
			if w.isClientCall = w.isClientCall || p.isLibraryLoop && w.isLibraryDelay && v.reason == reasonNetwork; w.isClientCall {
				w.rank = 0
			}
			w.isServed = w.rank == idleMost && v.reason == reasonNetwork
		}
		if v.waker == 0 && v.reason != reasonNetwork {
			w.timerCount++
		}
		if b, ok := g.BirthOf(v.waker); ok && b.By == c.id && !p.isFetch {
			w.selfEndedCount++
		}
		if last != r {
			last = r
			r.goroutines++
		}
		w.count++
		w.totalNS += v.end - max(v.start, g.Base)
		if r.idleWait != 0 { // a busy one's first rest may come late
			r.restWaits[bare] = w.isRest()
		}
	}
}

// followIterations hands out the turns of a goroutine: from each idle wait's end to the
// next one's beginning.
func (l *loopFinder) followIterations(f *Finder, g *timeline.Gen, c *loopGoroutine) {
	t := c.iteration
	var o *originStats
	var first observation // a wait that had begun before the trace
	next, rested := 0, 0
	c.resetCache()
	for v := range c.observations() {
		if v.stack == 0 {
			if t == nil {
				first = *v
			}
			continue
		}
		if o != nil && !o.isOwned && f.stackInfo(v.stack).outerOwned != 0 && !v.isCreatorStack {
			o.isOwned = true
		}
		r, idle := l.matchIdleWait(f, c, v)
		if !idle {
			switch {
			case t == nil || t.start == 0 || v.start < t.start:
			case r != nil && r.isBusy && v.state == timeline.Waiting && r.restWaits[f.canonicalStack(v.stack)]:
				if o == nil {
					o = l.originOf(f, g, c, t.busyWait)
				}
				l.endIteration(f, c, v.start, t.busyWait, r, o)
				if v.waker != 0 {
					t.restWaker = v.waker
				}
				rested++
				t.start, t.iterationContent = 0, iterationContent{}
			default:
				t.add(l, f, v)
			}
			continue
		}
		if t == nil {
			t = &iterationState{lastIdleStart: math.MinInt64}
			c.iteration = t
			if r.goroutines >= settledCount && !r.isBusy {
				// Where it waited before the trace is not known. Of many goroutines
				// nearly all waited where they wait most.
				t.start = first.end
			}
		}
		// What lies between two generations' borders is seen with both.
		if v.start < t.lastIdleStart || v.start == t.lastIdleStart && t.start != 0 {
			continue
		}
		t.lastIdleStart = v.start
		if o == nil {
			o = l.originOf(f, g, c, v.stack)
		}
		if t.start != 0 && t.start == first.end {
			first.reason = v.reason // as with where it waited
			l.addBeginning(f, o, &first)
			t.beginWait, first.end = first, 0
		}
		if t.start != 0 {
			l.endIteration(f, c, v.start, v.stack, r, o)
			if r.isBusy && f.stackInfo(v.stack).isLibraryLoop {
				next++
			}
		}
		t.start, t.iterationContent = 0, iterationContent{}
		switch {
		case r.isBusy:
			t.start, t.busyWait = v.start, v.stack
		case v.woken:
			t.start, t.beginWait, t.idleWait = v.end, *v, v.stack
			t.wakerFunc = f.stackInfo(v.wakerStack).innermost
			l.addBeginning(f, o, v)
		}
	}
	if next+rested > 0 && t.restWaker != 0 {
		o.backToBack += next
		o.rests += rested
		o.arrivals += l.countArrivals(f, g, t.restWaker)
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
func (l *loopFinder) originOf(f *Finder, g *timeline.Gen, c *loopGoroutine, wait tracefmt.StackID) *originStats {
	_, frame := l.loopFuncAt(f, c, wait)
	o := f.originFor(Loop, f.syms.Frame(frame).Func, f.stackInfo(wait).startFunc)
	o.isOwned = o.isOwned || f.stackInfo(wait).outerOwned != 0
	o.pieceCount += g.Pieces(c.id)
	c.origin = o
	return o
}

// endIteration ends a goroutine's turn, if it took any time.
func (l *loopFinder) endIteration(f *Finder, c *loopGoroutine, at int64, wait tracefmt.StackID, r *loopFunc, o *originStats) {
	t := c.iteration
	if at <= t.start {
		return
	}
	t.count++
	_, frame := l.loopFuncAt(f, c, wait)
	if t.ownedFrame != 0 && f.stackInfo(wait).outerOwned == 0 { // a library's loop calls what it has been given, another function each time
		if of := f.originFor(Loop, f.syms.Frame(t.ownedFrame).Func, f.stackInfo(wait).startFunc); of != o {
			if of.isOwned = true; t.beginWait.end == t.start {
				l.addBeginning(f, of, &t.beginWait)
			}
			o = of
		}
		frame = t.ownedFrame
	}
	l.finishIteration(f, endedIteration{start: t.start, end: at, goroutine: c.id, waitStack: wait, frame: frame, loopFunc: r, origin: o, iterationContent: t.iterationContent})
}

// matchIdleWait reports whether a goroutine waits for work, and the facts about the
// function that loops.
func (l *loopFinder) matchIdleWait(f *Finder, c *loopGoroutine, v *observation) (*loopFunc, bool) {
	if v.state != timeline.Waiting && v.state != timeline.Syscall {
		return nil, false
	}
	r, _ := l.loopFuncAt(f, c, v.stack)
	return r, r != nil && r.idleWait == f.canonicalStack(v.stack) && (v.state == timeline.Waiting || r.isBenchmark)
}

// addBeginning notes the waker of an idle wait.
func (l *loopFinder) addBeginning(f *Finder, o *originStats, v *observation) {
	switch {
	case v.reason == reasonNetwork:
		o.networkCount++
	case v.waker == 0:
		o.timerCount++
	default:
		was := o.servingCount
		o.addStarter(f, v.waker, v.wakerStack)
		if o.servingCount > was && o.handlerWaits+o.handlerDepartures < maxHandlersInspected {
			l.inspectHandler(f, o, v)
		}
	}
}

// inspectHandler looks whether a handler that handed something over waits until it is
// done, or goes on.
func (l *loopFinder) inspectHandler(f *Finder, o *originStats, v *observation) {
	const lookahead = 2e9
	f.spanBuffer = f.window.SpansCoarse(v.waker, v.end, v.end+lookahead, f.spanBuffer[:0])
	for i := range f.spanBuffer {
		w := &f.spanBuffer[i]
		switch {
		case w.State == timeline.Gone:
			o.handlerDepartures++
			return
		case w.State == timeline.Waiting && w.Start >= v.end:
			if f.reasonOf(w.Reason) == reasonNetwork {
				o.handlerDepartures++
			} else {
				o.handlerWaits++
			}
			return
		}
	}
}

// removeUnknown drops the goroutines that a generation does not know any more. Unlike gone, it keeps those that end in the generation.
func removeUnknown[V any](of map[uint64]V, g *timeline.Gen) {
	maps.DeleteFunc(of, func(id uint64, _ V) bool { return !g.Knows(id) })
}

// isRest reports whether a goroutine that nearly always has work waits there for more.
func (w *waitStats) isRest() bool {
	return w.rank == idleMost && !w.isLibraryDelay && 2*w.selfEndedCount < w.count
}

// chooseIdleWait takes the idle wait: the most likely kind of wait, then the one
// nearest to the function that loops, then the longest. Of a benchmark's iterations it
// takes what they do most often and nearest to its own function.
func (r *loopFunc) chooseIdleWait(f *Finder) {
	top := 0
	for _, w := range r.waits {
		top = max(top, w.count)
	}
	if top < scale.Few {
		return
	}
	var idle, busy []tracefmt.StackID
	for id, w := range r.waits {
		often := w.count*4 >= top
		switch {
		case r.isBenchmark:
			if often {
				busy = append(busy, id)
			}
		case w.count < scale.Few || !often && !w.isServed || 2*w.selfEndedCount >= w.count:
		case w.isClientCall:
			busy = append(busy, id) // a library that always has work called what asks others
		case w.rank == 0:
		case w.isLibraryDelay && 2*w.timerCount > w.count:
			busy = append(busy, id) // a library made it wait: a limiter, a backoff
		default:
			idle = append(idle, id)
		}
	}
	if len(idle)+len(busy) == 0 {
		return
	}
	if len(idle) == 0 {
		idle, r.isBusy = busy, true
	}
	r.idleWait = slices.MinFunc(idle, func(a, b tracefmt.StackID) int {
		v, w := r.waits[a], r.waits[b]
		p, q := *f.stackInfo(a), f.stackInfo(b)
		if r.isBenchmark {
			return cmp.Or(p.depth-q.depth, w.count-v.count, cmp.Compare(a, b))
		}
		return cmp.Or(w.rank-v.rank, p.ownedDepth-q.ownedDepth, p.depth-q.depth, cmp.Compare(w.totalNS, v.totalNS), cmp.Compare(a, b))
	})
	if r.isBenchmark {
		return
	}
	r.isIdleWaitServed = r.waits[r.idleWait].isServed
	if r.isBusy {
		r.restWaits = make(map[tracefmt.StackID]bool)
		for id, w := range r.waits {
			r.restWaits[id] = w.isRest()
		}
	}
}

// loopFuncAt returns the function that loops where a goroutine waits at a stack, nil if loops there are of no interest, and its frame.
func (l *loopFinder) loopFuncAt(f *Finder, c *loopGoroutine, id tracefmt.StackID) (*loopFunc, tracefmt.FrameID) {
	if c.cachedStack == id || c.cachedStack != 0 && len(c.commonPath) > 0 { // with a path those of all stacks are the same
		return c.cachedFunc, c.cachedFrame
	}
	path, frames := c.commonPath, f.syms.Stack(id)
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
	c.cachedStack, c.cachedFrame = id, path[k]
	if c.ownedFrame != 0 && !f.namer.isOwned(f.syms.Frame(path[k])) {
		c.cachedFrame = c.ownedFrame
	}
	c.cachedFunc = l.loopFuncOf(f, f.syms.Frame(c.cachedFrame).Func, frames)
	return c.cachedFunc, c.cachedFrame
}

// resetCache forgets what at has said.
func (c *loopGoroutine) resetCache() { c.cachedStack, c.cachedFunc, c.cachedFrame = 0, nil, 0 }

// loopFuncOf returns a function that loops, nil if loops there are of no interest.
func (l *loopFinder) loopFuncOf(f *Finder, fn tracefmt.StringID, frames []tracefmt.FrameID) *loopFunc {
	r, ok := l.loopFuncs[fn]
	if !ok {
		if !f.namer.function(fn).hasAny(standardLibrary) {
			r = &loopFunc{
				waits: make(map[tracefmt.StackID]*waitStats), wakers: make(map[tracefmt.StringID]wakeStats),
				cycles: cycleStats{once: make(map[string]int), repeated: make(map[string]int)},
			}
			r.isBenchmark = f.namer.frameFunction(frames[len(frames)-1]).hasAny(benchmarkFunc)
		}
		l.loopFuncs[fn] = r
	}
	if e := f.jobs.kinds[jobKey{startFunc: fn}]; e != nil && e.areJobs {
		return nil // its goroutines are the unit, not what they do repeatedly
	}
	return r
}

// narrowPath narrows what the stacks of a goroutine's waits have in common.
func (l *loopFinder) narrowPath(f *Finder, c *loopGoroutine) {
	last := tracefmt.StackID(0)
	for v := range c.observations() {
		if v.state != timeline.Waiting || v.stack == 0 || v.stack == last {
			continue
		}
		last = v.stack
		frames := f.syms.Stack(v.stack)
		if c.commonPath == nil {
			c.commonPath = appendOutermost(frames, nil)
			continue
		}
		path, n := c.commonPath, 0
		for n < len(path) && n < len(frames) && f.syms.Frame(path[n]).Func == f.syms.Frame(frames[len(frames)-1-n]).Func {
			n++
		}
		c.commonPath = path[:n]
	}
	for k := 0; k+1 < len(c.commonPath); k++ {
		fn, next := f.syms.Frame(c.commonPath[k]).Func, f.syms.Frame(c.commonPath[k+1]).Func
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
