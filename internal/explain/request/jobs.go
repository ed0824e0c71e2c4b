package request

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// minJobs is how many goroutines of a start function must have ended before they count as jobs.
const minJobs = 8

// jobFinder finds jobs: goroutines whose whole life is one unit of work, of a function that is started repeatedly. A
// goroutine that a job starts is a part of that job.
type jobFinder struct {
	jobs       map[uint64]*job
	kinds      map[jobKey]*jobKind
	startFuncs map[tracefmt.StringID]*startFuncStats
	// namesByStarter holds, for jobs of a library's start function, the service function that ran, by the line that starts
	// the jobs.
	namesByStarter map[tracefmt.FrameID]tracefmt.FrameID
	// carriers are the start functions of the standard library. An entry is nil if the function carries no requests.
	carriers    map[tracefmt.StringID]*carrier
	mainLife    openRequest // for a trace without requests
	isMainKnown bool
	mainPieces  int // emitted in this generation
	// mainIdleNS is how long the main goroutine waited without work of this process ending the wait.
	mainIdleNS int64
}

type job struct {
	openRequest
	startStack       tracefmt.StackID // of the start function
	kind             *jobKind
	isStartOwned     bool             // the start function is service code
	isPart           bool             // of another job or request
	isStartedByFetch bool             // by a library that the service called for the next item of work
	starterFrame     tracefmt.FrameID // the service line that started it, 0 for none
	creatorID        uint64
	// For start functions of the standard library: their carrier and the creator's stack. kind is nil until the job
	// ends.
	carrier      *carrier
	creatorStack tracefmt.StackID
}

// A jobKey identifies a kind of job: by the start function and, if that belongs to a library, by the service line that
// started the goroutine.
type jobKey struct {
	startFunc    tracefmt.StringID
	starterFrame tracefmt.FrameID
}

type jobKind struct {
	*originStats
	areJobs    bool // decided: the goroutines are jobs
	areTests   bool // started by package testing
	endedCount int
	// firstEnd is when the first of them ended. laterStarts counts those that began after that: only a function that is
	// started repeatedly has them.
	firstEnd    int64
	laterStarts int
	lifeNS      int64 // sum of the lives that ended
	// workerCount counts the ended goroutines that returned to a wait repeatedly.
	workerCount int
	// awaitedCount counts, of the first inspectedPerFunc, those that ran no service code and whose creator waited for
	// nothing else. A library waits for messages in this way, in a loop that fetches the next.
	awaitedCount int
	pending      []Request // until the kind is decided
}

// startFuncStats counts the goroutines of one start function.
type startFuncStats struct {
	count, partCount int // partCount counts those that are parts of other work
	// allParts says that many were seen and all were parts. Then only a sample is inspected in each generation:
	// goroutines whose hash has no bit of sampleMask. The mask follows from the number of births in the generation
	// before.
	allParts   bool
	bornCount  int
	sampleMask uint64
	origin     *originStats
}

// inspectedPerFunc is about how many goroutines of a start function are inspected in a generation if all are parts.
const inspectedPerFunc = 32

func (s *startFuncStats) beginGeneration() {
	s.sampleMask, s.bornCount = 1<<bits.Len(uint(s.bornCount/inspectedPerFunc))-1, 0
}

// countOnly counts a goroutine. It returns true if the goroutine is outside of the sample and needs no inspection. The
// sample does not depend on the order in which goroutines are found.
func (s *startFuncStats) countOnly(g uint64) bool {
	if s == nil {
		return false
	}
	if s.bornCount++; !s.allParts || sample.Spread(g)>>32&s.sampleMask == 0 {
		return false
	}
	s.origin.total++
	return true
}

func newJobFinder() jobFinder {
	return jobFinder{
		jobs: make(map[uint64]*job), kinds: make(map[jobKey]*jobKind), startFuncs: make(map[tracefmt.StringID]*startFuncStats),
		namesByStarter: make(map[tracefmt.FrameID]tracefmt.FrameID), carriers: make(map[tracefmt.StringID]*carrier),
	}
}

// addBirths records the goroutines that were created in a generation.
func (j *jobFinder) addBirths(f *Finder, g *timeline.Gen) {
	for _, c := range j.carriers {
		if c != nil {
			clear(c.starters)
		}
	}
	j.mainPieces = 0
	if f.requestCount+len(f.emitted) < threshold.MedianSample {
		f.followMain(g)
	}
	for _, s := range j.startFuncs {
		s.beginGeneration()
	}
	// Goroutines that a server starts for itself, net/http one for each request, are removed before sorting.
	f.births = slices.DeleteFunc(g.Births(f.selectStart, f.births[:0]), func(b timeline.Birth) bool {
		start := f.stackInfo(b.Start)
		if start.role != roleUnclaimed {
			return b.Creator == 0 || f.isServing(b.Creator, b.Stack)
		}
		return j.startFuncs[start.startFunc].countOnly(b.G)
	})
	timeline.SortBirths(f.births)
	for i := range f.births {
		if b := &f.births[i]; f.stackInfo(b.Start).role == roleUnclaimed {
			j.addJob(f, b)
		} else {
			j.addCarriedJob(f, g, b)
		}
	}
}

// addJob records a goroutine whose start function belongs to the service or a library other than the standard one.
func (j *jobFinder) addJob(f *Finder, birth *timeline.Birth) {
	job := &job{
		openRequest: openRequest{start: birth.Time, pieceStart: birth.Time}, startStack: birth.Start,
		starterFrame: f.stackInfo(birth.Stack).innerOwned, creatorID: birth.Creator,
		isStartOwned: f.stackInfo(birth.Start).outerOwned != 0,
	}
	job.isStartedByFetch = !job.isStartOwned && f.stackInfo(birth.Stack).isFetch
	startFunc, kind := j.kindFor(f, job)
	origin := kind.originStats
	job.kind = kind
	if kind.firstEnd != 0 {
		kind.laterStarts++
	}
	servingBefore := origin.servingCount
	origin.addStarter(f, birth.Creator, birth.Stack)
	if birth.Creator == 0 {
		origin.timerCount++
	}
	origin.inspected++
	origin.total++
	// A goroutine that a handler or a job starts is a part of that request or job.
	if creator := j.jobs[birth.Creator]; creator != nil {
		job.isPart = creator.isPart
		if creator.carrier != nil && f.stackInfo(birth.Stack).outerOwned != 0 {
			job.isPart, creator.carrier.carriesRequests = true, true
		}
		if !job.isPart && creator.kind != nil && creator.kind.originStats.inspected >= minJobs {
			job.isPart = true
		}
	}
	if origin.servingCount == servingBefore && f.isAnnotatedAt(birth.Creator, birth.Time) {
		origin.servingCount++
	}
	if origin.servingCount > servingBefore {
		job.isPart = true
	}
	startFunc.count++
	if job.isPart {
		startFunc.partCount++
	}
	if startFunc.allParts = startFunc.partCount >= settledCount && startFunc.partCount == startFunc.count; !startFunc.allParts {
		j.jobs[birth.G] = job
	}
}

// endJobs emits the jobs that ended in a generation.
func (j *jobFinder) endJobs(f *Finder, g *timeline.Gen) {
	dropped := make(map[uint64]bool)
	removeEnded(j.jobs, g, func(id uint64, job *job, t int64) { j.endJob(f, id, job, t, dropped) })
	if len(dropped) > 0 {
		// Their lives are the requests, and not their iterations.
		f.emitted = slices.DeleteFunc(f.emitted, func(r Request) bool { return r.Kind == Loop && dropped[r.G] })
	}
}

// endJob emits a job that ended at t if its goroutines are known to be jobs. It adds goroutines to dropped whose
// iterations are no requests any more.
func (j *jobFinder) endJob(f *Finder, id uint64, job *job, t int64, dropped map[uint64]bool) {
	if job.isPart || f.work.annotated[id] {
		return
	}
	var ownedFrame tracefmt.FrameID
	if job.carrier != nil {
		var ok bool
		if ownedFrame, ok = j.resolveCarriedJob(f, job, id, t); !ok {
			return
		}
	}
	kind := job.kind
	if f.messages.readers[id] != nil {
		kind.workerCount++
	}
	if turn := f.loops.iterationOf(id); turn != nil && turn.count >= threshold.SmallSample {
		kind.workerCount++
	}
	request := job.complete(Request{Kind: Goroutine, End: t, G: id, EntryStack: job.startStack, RootFrame: ownedFrame})
	if job.carrier == nil {
		request.RootFrame = j.nameFrame(f, job, id, t)
	}
	if !job.isStartOwned {
		request.StarterFrame = job.starterFrame
	}
	if kind.firstEnd == 0 {
		kind.firstEnd = t
	} else if job.carrier != nil && job.start > kind.firstEnd {
		kind.laterStarts++
	}
	kind.endedCount++
	if kind.endedCount <= inspectedPerFunc && !job.isStartOwned && job.starterFrame != 0 &&
		request.RootFrame == job.starterFrame && f.hasCreatorAwaited(job, id, t) {
		kind.awaitedCount++
	}
	kind.lifeNS += t - job.start
	if job.carrier == nil {
		kind.originStats.isLibraryWait = kind.areLibraryWaits()
		kind.originStats.emittedNS += t - job.start
	}
	if kind.pending = append(kind.pending, request); !kind.decideJobs(t - f.traceStart) {
		if len(kind.pending) > threshold.TailSample {
			kind.pending = slices.Delete(kind.pending, 0, 1)
		}
		return
	}
	for _, request := range kind.pending {
		if f.loops.iterationOf(request.G) != nil {
			dropped[request.G] = true
		}
	}
	switch {
	case job.carrier != nil || job.isStartOwned:
	case request.RootFrame == 0:
		kind.originStats.groupKeys = appendUnique(kind.originStats.groupKeys, originKey{Goroutine, kind.originStats.startFunc})
	default:
		key := originKey{Goroutine, f.syms.Frame(request.RootFrame).Func}
		f.work.aliases[key] = kind.originStats
		kind.originStats.groupKeys = appendUnique(kind.originStats.groupKeys, key)
	}
	f.emitted = append(f.emitted, kind.pending...)
	kind.pending = kind.pending[:0]
}

// areWorkers reports whether the goroutines are workers, whose iterations are the requests and not their lives.
func (e *jobKind) areWorkers() bool { return 2*e.workerCount > e.endedCount }

// areLibraryWaits reports whether a library starts the goroutines to wait for something.
func (e *jobKind) areLibraryWaits() bool {
	return 2*e.awaitedCount > min(e.endedCount, inspectedPerFunc)
}

// hasCreatorAwaited reports whether a job's creator waited for the job and has no other work. The creator must have
// spent most of the job's life in a wait that the job ended. Its wait before must have been at the same stack, or, if a
// fetch started the job, a wait for an answer.
func (f *Finder) hasCreatorAwaited(job *job, jobID uint64, end int64) bool {
	start := job.start
	var before tracefmt.StackID
	f.spanBuffer = f.window.Spans(job.creatorID, 2*start-end, end, f.spanBuffer[:0])
	for i := range f.spanBuffer {
		s := &f.spanBuffer[i]
		switch {
		case s.State != timeline.Waiting:
		case s.Start < start:
			before = s.Stack
		default:
			return s.Woken && s.Waker == jobID && (s.Stack == before || job.isStartedByFetch && f.isAnswerWait(before)) &&
				2*(s.End-s.Start) > end-start
		}
	}
	return false
}

// isAnswerWait reports whether a wait is for an answer, in a library or in a client of the standard library.
func (f *Finder) isAnswerWait(wait tracefmt.StackID) bool {
	if wait == 0 {
		return false
	}
	p := f.stackInfo(wait)
	return p.isClientCall || p.isInLibrary
}

// decideJobs decides whether the goroutines are jobs, and returns the decision. They are if many started after others
// had ended, or if many had short lives compared with observedNS, the time since the start of the trace.
func (e *jobKind) decideJobs(observedNS int64) bool {
	e.areJobs = e.areJobs || e.areTests && !e.areWorkers() ||
		e.endedCount >= minJobs && !e.areWorkers() && !e.areLibraryWaits() &&
			(e.laterStarts >= minJobs || e.endedCount >= threshold.TailSample || e.lifeNS < int64(e.endedCount)*(observedNS/4))
	return e.areJobs
}

// nameFrame returns the frame that names a job, 0 for its start function. If the start function
// belongs to a library, it is the service function that ran, or if none was seen, the line that started the goroutine.
func (j *jobFinder) nameFrame(f *Finder, job *job, id uint64, end int64) tracefmt.FrameID {
	if f.stackInfo(job.startStack).outerOwned != 0 {
		return 0
	}
	// A service line always gives the library the same function to run. In a library's loop it depends on the
	// message.
	named, ok := j.namesByStarter[job.starterFrame]
	if job.starterFrame == 0 {
		named = 0
	}
	if !ok || job.kind.areTests || job.starterFrame == 0 {
		f.spanBuffer = f.window.Spans(id, job.start, end, f.spanBuffer[:0])
		for i := range f.spanBuffer {
			if s := &f.spanBuffer[i]; s.Stack != 0 && s.Start > job.start {
				if named = f.stackInfo(s.Stack).outerOwned; named != 0 {
					j.namesByStarter[job.starterFrame] = named
					break
				}
			}
		}
	}
	return cmp.Or(named, job.starterFrame)
}

// isAlwaysPart reports whether all goroutines with a start function are parts of other work.
func (j *jobFinder) isAlwaysPart(f *Finder, start tracefmt.StackID) bool {
	s := j.startFuncs[f.stackInfo(start).startFunc]
	return s != nil && s.allParts
}

// kindFor returns the statistics of a job's start function and of its kind. It creates missing ones.
func (j *jobFinder) kindFor(f *Finder, job *job) (*startFuncStats, *jobKind) {
	fn := f.syms.Frame(f.syms.Stack(job.startStack)[0]).Func
	key := jobKey{startFunc: fn}
	if f.stackInfo(job.startStack).outerOwned == 0 {
		key.starterFrame = job.starterFrame
	}
	startFunc, kind := entry.GetOrAdd(j.startFuncs, fn), j.kinds[key]
	if kind == nil {
		kind = &jobKind{originStats: f.originFor(Goroutine, fn, fn)}
		if key.starterFrame != 0 {
			kind.originStats = f.originFor(Goroutine, f.syms.Frame(key.starterFrame).Func, fn)
		}
		kind.areTests = f.namer.function(fn).Has(knowledge.Test)
		kind.originStats.isOwned = true // even if only library code runs in it
		j.kinds[key] = kind
	}
	startFunc.origin = kind.originStats
	return startFunc, kind
}

func (j *jobFinder) visitOpen(visit func(*openRequest, Request)) {
	for id, job := range j.jobs {
		if !job.isPart && job.kind != nil && job.kind.areJobs {
			r := Request{Kind: Goroutine, G: id, EntryStack: job.startStack}
			if !job.isStartOwned && job.starterFrame != 0 {
				r.StarterFrame, r.RootFrame = job.starterFrame, cmp.Or(j.namesByStarter[job.starterFrame], job.starterFrame)
			}
			visit(&job.openRequest, r)
		}
	}
}

// selectStart reports whether goroutines with a start function are to be inspected. Servers' goroutines are not; those
// of the standard library are if the function may carry requests.
func (f *Finder) selectStart(start tracefmt.StackID) bool {
	switch info := f.stackInfo(start); info.role {
	case roleMachinery:
		return info.startFunc != 0 && f.jobs.addCarrier(f, start)
	case roleServer:
		return false
	}
	return true
}

// mainKey is the PieceKey of the main goroutine's life.
const mainKey = ^uint64(0)

// followMain emits the main goroutine's life of a generation as one piece, for programs in which no request is found.
func (f *Finder) followMain(g *timeline.Gen) {
	jobs := &f.jobs
	if !g.Knows(1) {
		return
	}
	if !jobs.isMainKnown {
		jobs.isMainKnown, jobs.mainLife = true, openRequest{start: g.Base, pieceStart: g.Base}
	}
	f.spanBuffer = f.window.Spans(1, g.Base, g.End, f.spanBuffer[:0])
	for i := range f.spanBuffer {
		s := &f.spanBuffer[i]
		if s.State != timeline.Waiting {
			continue
		}
		if f.isEndedOutside(g, s) {
			jobs.mainIdleNS += min(s.End, g.End) - max(s.Start, g.Base)
		}
	}
	if to := f.pieceEnd(1, jobs.mainLife.pieceStart, g.End); to > jobs.mainLife.pieceStart {
		f.emitted = append(f.emitted, Request{
			Kind: Main, Start: jobs.mainLife.pieceStart, End: to, G: 1, Piece: MiddlePiece, PieceKey: mainKey,
		})
		jobs.mainLife.pieceStart = to
		jobs.mainPieces = 1
	}
}

// isEndedOutside reports whether no work of this process ended a wait: it has not ended, or a timer or the network
// ended it.
func (f *Finder) isEndedOutside(g *timeline.Gen, s *timeline.Span) bool {
	if !s.Woken || s.Waker == 0 {
		return true
	}
	switch f.reasonOf(s.Reason) {
	case reasonSleep, reasonNetwork:
		return true
	}
	b, born := g.BirthOf(s.Waker) // the runtime starts a goroutine for a context's deadline
	return born && b.Creator == 0 && f.stackInfo(b.Start).role == roleMachinery
}

// IsMainIdle reports whether the main goroutine was idle for most of the time: it slept, accepted connections, or
// waited for a signal.
func (f *Finder) IsMainIdle() bool {
	j := &f.jobs
	return j.isMainKnown && 2*j.mainIdleNS > j.mainLife.pieceStart-j.mainLife.start
}
