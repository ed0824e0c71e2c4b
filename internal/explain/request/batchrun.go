package request

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// mainID is the id of the main goroutine, mainKey the PieceKey of its run.
const (
	mainID  = 1
	mainKey = ^uint64(0)
)

// Limits of the pieces of a run.
const (
	// maxPieceSpans is about how many states of its goroutine a piece has: all segments of a piece are in memory at once. After
	// manyPieces there are so many that only a sample is walked, of smaller ones, because more of them estimate shares better.
	maxPieceSpans   = 1 << 12
	manyPieces      = 16
	smallPieceSpans = 1 << 9
	// longWaitNS is from which length on pieces follow the goroutine that ended a wait, through up to maxFollowed waits.
	longWaitNS  = 10e6
	maxFollowed = 16
	// borderWaitNS is how long before the end of a generation a wait may begin that is left to the piece of the next one.
	// The window keeps that much.
	borderWaitNS = 40e6
)

// runSource emits the run of a program: the life of its main goroutine, in pieces.
//
// The main goroutine of a service is idle, and clients wait for parts of its work. In a batch program nothing waits for
// a single job or iteration: the main goroutine waits for all of them, or does the work, and a person waits for its end.
//
// A piece ends where the state of its goroutine changes, because the critical path is then on that goroutine. During a long
// wait, the path is on the goroutine that ended it, so the next pieces follow that one. The wait in which the main goroutine
// is at the end of a generation may last long, and the trace does not show yet what will end it. Then the pieces follow a
// goroutine that works at that instant, as one of those for which it waits.
//
// The pieces of a benchmark's goroutines are a separate run, named by the benchmark, because its command measures that.
type runSource struct {
	sourceStubs
	work    *workIndex
	loops   *loopSource
	life    openRequest
	isKnown bool
	// hasOthers says that a request was found that is neither a job nor an iteration.
	hasOthers bool
	idleNS    int64 // how long the goroutine waited without work of this process ending the wait
	// openWait is when the wait began that has not ended yet, 0 for none. openIdleNS is for how long the goroutine was idle in it.
	openWait, openIdleNS int64
	lastEnd              int64 // of the last generation
	// benchmark is the last benchmark, 0 for none, benchmarkCount how many there were.
	benchmark      tracefmt.FrameID
	benchmarkCount uint64
	pieces         []Request // of this generation
	pieceCount     int       // in all generations
}

// A mainSource reads the states of the main goroutine for a runSource before iterations are found, because they show that most
// programs are no batch programs. It does so while jobs are found, with a second collector, because the caches of one are not safe
// for concurrent use.
type mainSource struct {
	sourceStubs
	run       *runSource
	collector collector
	reading   sync.WaitGroup
}

// add begins to follow the main goroutine through a generation, if the program may be a batch program. Enough requests of other
// kinds than jobs and iterations decide against it.
func (m *mainSource) add(c *collector, g *timeline.Gen) {
	r, requestCount := m.run, c.requestCount
	for i := range c.emitted {
		if kind := c.emitted[i].Kind; kind != Goroutine && kind != Loop {
			requestCount++
			r.hasOthers = true
		}
	}
	r.work.mayBeBatch, r.pieces = false, r.pieces[:0]
	if r.hasOthers && requestCount >= threshold.MedianSample || !g.Knows(mainID) {
		return
	}
	if !r.isKnown {
		r.isKnown, r.life = true, openAt(g.Base)
	}
	r.lastEnd = g.End
	m.reading.Go(func() {
		m.collector.resolveReasons()
		m.collector.findMainModule()
		r.emitPieces(&m.collector, g, mainID, g.End, 0, 0)
		r.work.mayBeBatch = r.mayBeBatch()
	})
}

// A mainResult is the source after which it is known whether the program may be a batch program (mayBeBatch).
type mainResult struct {
	sourceStubs
	main *mainSource
}

func (m *mainResult) add(*collector, *timeline.Gen) { m.main.reading.Wait() }

// add decides, after jobs and iterations were found, whether the program is a batch program. If it is, they are parts of its run
// and are not emitted.
func (r *runSource) add(c *collector, g *timeline.Gen) {
	wasBatch := r.work.isBatch
	switch r.work.isBatch = r.work.mayBeBatch && r.isBatch(); {
	case wasBatch || !r.work.mayBeBatch:
	case r.work.isBatch:
		rest := slices.DeleteFunc(c.emitted, func(part Request) bool { return c.isPartOfRun(&part) })
		c.emitted = slices.Clone(rest) // the memory of the parts is not needed again
		c.series.remove(func(s *Series) bool { return !c.isMeasured(c.stackInfo(s.key.entryStack).startFunc) })
	default:
		r.loops.jobs.emitAllCounted(c, g)
	}
	c.emitted = append(c.emitted, r.pieces...)
	c.requestCount -= len(r.pieces)
}

// countIdle adds a wait of the main goroutine to its idle time: all of it if no work of this process ended it, nothing if a
// goroutine did. An open wait counts as idle as well, unless it is for goroutines and threads held Ps nearly all the time.
func (r *runSource) countIdle(c *collector, g *timeline.Gen, wait *timeline.Span) {
	start := wait.Start
	if r.openWait != 0 && start <= g.Base {
		start = r.openWait // the window may not have its beginning
	}
	if start != r.openWait {
		r.openIdleNS = 0
	}
	switch r.openWait = 0; {
	case !wait.Woken:
		r.openWait = start
		stack := cmp.Or(wait.Stack, g.AnyStack(mainID))
		if !c.stackInfo(stack).awaitsGoroutines || float64(g.NoneHeldTime()) > threshold.NoticeableShare*float64(g.End-g.Base) {
			r.openIdleNS += g.End - max(start, g.Base)
		}
	case isEndedOutsideProcess(c, g, wait):
		r.idleNS += wait.End - start
	}
}

// A pieceEnd ends a piece of a run at a time. If waker is not 0, a long wait begins there, which lasts until wake.
type pieceEnd struct {
	time, wake int64
	waker      uint64
}

// emitPieces emits the pieces of the run on goroutine id, from the end of the last piece until to. It follows the waker of a long
// wait, recursively: depth is the number of goroutines that wait for this one. benchmark is a frame of the running benchmark, 0
// for none.
func (r *runSource) emitPieces(c *collector, g *timeline.Gen, id uint64, to int64, depth int, benchmark tracefmt.FrameID) {
	var ends []pieceEnd
	var last timeline.Span
	spanCount := 0
	isBenchmark, name := false, tracefmt.FrameID(0)
	if b, hasBirth := g.BirthOf(id); hasBirth && b.Creator != 0 && b.Time > r.life.pieceStart && depth > 0 && depth < maxFollowed {
		r.emitPieces(c, g, b.Creator, b.Time, depth+1, benchmark)
	}
	c.spanBuffer = c.window.EachSpans(id, r.life.pieceStart, to, c.spanBuffer, func(spans []timeline.Span) bool {
		for i := range spans {
			last = spans[i]
			if depth == 0 && last.State == timeline.Waiting {
				r.countIdle(c, g, &last)
			}
			if last.Stack != 0 && name == 0 && depth > 0 && benchmark == 0 && last.Origin != timeline.OriginCreated {
				info := c.stackInfo(last.Stack)
				isBenchmark = c.namer.function(info.startFunc).Has(knowledge.Benchmark)
				name = info.outerServiceFrame
			}
			spanCount++
			maxSpans := maxPieceSpans
			if r.pieceCount+len(ends) >= manyPieces {
				maxSpans = smallPieceSpans
			}
			isLongWait := last.State == timeline.Waiting && last.Woken && last.Waker != 0 && last.End-last.Start >= longWaitNS && last.End <= to &&
				depth < maxFollowed && !isEndedOutsideProcess(c, g, &last)
			switch {
			case last.Start <= r.life.pieceStart && !isLongWait:
			case isLongWait:
				ends, spanCount = append(ends, pieceEnd{max(last.Start, r.life.pieceStart), last.End, last.Waker}), 0
			case spanCount >= maxSpans && last.State != timeline.Runnable:
				ends, spanCount = append(ends, pieceEnd{time: last.Start}), 0
			}
		}
		return true
	})
	if isBenchmark && name != 0 {
		benchmark = name
	}
	for _, end := range ends {
		r.emitPiece(c, id, end.time, benchmark)
		switch {
		case end.waker == 0:
		case c.namer.function(c.stackInfo(g.AnyStack(end.waker)).startFunc).Has(knowledge.TraceRecorder):
			// The recording ended, not what the goroutine waits for.
			r.emitPieces(c, g, workingGoroutine(c, g), end.wake, depth+1, benchmark)
		default:
			r.emitPieces(c, g, end.waker, end.wake, depth+1, benchmark)
		}
	}
	switch isOpenWait := last.State == timeline.Waiting && !last.Woken; {
	case to < g.End || depth > 0:
		r.emitPiece(c, id, to, benchmark)
	case !isOpenWait && last.Start <= r.life.pieceStart:
		r.emitPiece(c, id, to, benchmark)
	default:
		r.emitPiece(c, id, last.Start, benchmark)
		if isOpenWait && to-r.life.pieceStart > borderWaitNS {
			r.emitPieces(c, g, workingGoroutine(c, g), to, depth+1, benchmark)
		}
	}
}

// emitPiece emits the piece of the run that is on goroutine id until end, and begins a new run if another benchmark has begun.
func (r *runSource) emitPiece(c *collector, id uint64, end int64, benchmark tracefmt.FrameID) {
	if end <= r.life.pieceStart {
		return
	}
	if benchmark != 0 && c.syms.Frame(benchmark).Func != c.syms.Frame(r.benchmark).Func {
		r.endBenchmark()
		r.benchmark = benchmark
		r.benchmarkCount++
	}
	r.pieces = append(r.pieces, r.piece(id, end, MiddlePiece))
	r.pieceCount++
	r.life.pieceStart = end
}

// endBenchmark emits the last piece of the benchmark that ran. It is empty, because only the next benchmark shows that this one has
// ended.
func (r *runSource) endBenchmark() {
	if r.benchmark != 0 {
		r.pieces = append(r.pieces, r.piece(mainID, r.life.pieceStart, LastPiece))
	}
}

// piece returns the piece of the run on goroutine id, from the end of the last piece to end.
func (r *runSource) piece(id uint64, end int64, piece Piece) Request {
	key := mainKey
	if r.benchmark != 0 {
		key -= r.benchmarkCount
	}
	return Request{Kind: Run, Start: r.life.pieceStart, End: end, G: id, RootFrame: r.benchmark, Piece: piece, PieceKey: key}
}

// finishTrace emits the last piece of the run.
func (r *runSource) finishTrace(c *collector, end int64) {
	if !r.isKnown {
		return
	}
	r.pieces = r.pieces[:0]
	if r.endBenchmark(); r.benchmarkCount == 0 {
		r.pieces = append(r.pieces, r.piece(mainID, end, LastPiece))
	}
	c.emitted = append(c.emitted, r.pieces...)
}

// workingGoroutine returns a goroutine that works at the end of a generation and belongs to no server or library: one that runs,
// else one that is ready, else the one that began to wait last. It returns the main goroutine if there is none.
func workingGoroutine(c *collector, g *timeline.Gen) uint64 {
	best, bestRank, bestStart := uint64(mainID), 0, int64(0)
	endsInWait := false
	consider := func(id uint64, start tracefmt.StackID, _ int) {
		if id == mainID || g.EndsInWait(id) != endsInWait {
			return
		}
		if _, isDead := g.Death(id); isDead {
			return
		}
		if start == 0 {
			start = g.AnyStack(id)
		}
		if c.stackInfo(start).role != roleUnclaimed {
			return
		}
		spans := c.spans(id, g.End-1, g.End)
		if len(spans) == 0 {
			return
		}
		last, rank := &spans[len(spans)-1], 1
		switch last.State {
		case timeline.Running, timeline.Syscall:
			rank = 3
		case timeline.Runnable:
			rank = 2
		}
		if rank > bestRank || rank == bestRank && (last.Start > bestStart || last.Start == bestStart && id < best) {
			best, bestRank, bestStart = id, rank, last.Start
		}
	}
	if g.EachStart(consider); bestRank <= 1 {
		endsInWait = true
		g.EachStart(consider)
	}
	return best
}

// isEndedOutsideProcess reports whether a timer, the network or the runtime ended a wait, and not work of this process.
func isEndedOutsideProcess(c *collector, g *timeline.Gen, s *timeline.Span) bool {
	if s.Waker == 0 {
		return true
	}
	reason := c.reasonOf(s.Reason)
	b, hasBirth := g.BirthOf(s.Waker) // the runtime starts a goroutine for a context's deadline
	return reason == reasonSleep || reason == reasonNetwork || hasBirth && b.Creator == 0 && c.stackInfo(b.Start).role == roleMachinery
}

// isIdle reports whether the main goroutine was idle for most of the time: it slept, accepted connections, or waited for a
// signal. A wait that has not ended is idle, except for the end of a benchmark, and for goroutines that work all the time.
func (r *runSource) isIdle() bool {
	idleNS := r.idleNS
	if r.openWait != 0 && r.benchmark == 0 {
		idleNS += r.openIdleNS
	}
	return 2*idleNS > r.lastEnd-r.life.start
}

// mayBeBatch reports whether the process has no server and its main goroutine is not idle, as far as the trace was read.
func (r *runSource) mayBeBatch() bool {
	return r.isKnown && !r.hasOthers && !r.loops.isUnknownServer && !r.isIdle()
}

// isBatch reports whether nothing outside of the process waits for its work or began it, as far as the trace was read.
func (r *runSource) isBatch() bool { return r.mayBeBatch() && !r.work.isStartedOutside() }

// IsMainIdle reports whether the main goroutine was idle for most of the time.
func (f *Finder) IsMainIdle() bool { return f.runs.isKnown && f.runs.isIdle() }

// IsBatch reports whether nothing outside of the process waits for its work or began it. Then the run as a whole explains its
// time, and jobs and iterations are parts of it.
func (f *Finder) IsBatch() bool { return f.runs.isBatch() }

// HasBenchmark reports whether a benchmark ran.
func (f *Finder) HasBenchmark() bool { return f.runs.benchmark != 0 }

// isPartOfRun reports whether a request is a part of a batch program's run: a job or an iteration. Tests are jobs that the
// command that runs them reports one by one, and a benchmark measures its iterations.
func (c *collector) isPartOfRun(r *Request) bool {
	return (r.Kind == Goroutine || r.Kind == Loop) && !c.isMeasured(c.stackInfo(r.EntryStack).startFunc)
}

// isMeasured reports whether goroutines with a start function run a test or a benchmark.
func (c *collector) isMeasured(startFunc tracefmt.StringID) bool {
	fn := c.namer.function(startFunc)
	return fn.Has(knowledge.Test) || fn.Has(knowledge.Benchmark)
}

// isStartedOutside reports whether clients, the network or timers began work of the service's own code that takes
// threshold.NoticeableShare of the time of all such work. A program with such work is no batch program.
func (w *workIndex) isStartedOutside() bool {
	isOutside := w.workStartedOutside()
	var allNS, outsideNS int64
	for _, origin := range w.origins {
		if !origin.hasServiceCode || origin.total == 0 {
			continue
		}
		allNS += origin.emittedNS
		if isOutside[origin] || w.isTimerStarted(origin) {
			outsideNS += origin.emittedNS
		}
	}
	return float64(outsideNS) > threshold.NoticeableShare*float64(allNS)
}
