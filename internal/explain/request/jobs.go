package request

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// minJobs is how often a function must have been started as a goroutine and
// have ended before its goroutines count as jobs.
const minJobs = 8

// jobFinder follows goroutines whose whole life is one unit of work: a
// function started repeatedly. One started by another job is a part of
// that one.
type jobFinder struct {
	jobs           map[uint64]*job
	kinds          map[jobKey]*jobKind
	startFuncs     map[tracefmt.StringID]*startFuncStats
	namesByStarter map[tracefmt.FrameID]tracefmt.FrameID // by the place that starts them: what jobs of a library's function ran
	// carriers are functions of the standard library with which goroutines are started.
	carriers    map[tracefmt.StringID]*carrier
	mainLife    openRequest // main's life, for a trace that has no requests at all
	isMainKnown bool
	mainPieces  int // parts of it in this generation
	// mainIdleNS is for how long main slept, or waited for what did not come, or for
	// the network.
	mainIdleNS int64
}

type job struct {
	openRequest
	startStack       tracefmt.StackID // the function that it was started with
	kind             *jobKind
	isStartOwned     bool             // the start function is the service's own
	isPart           bool             // of another job
	isStartedByFetch bool             // a library that was asked for the next thing to do started it
	starterFrame     tracefmt.FrameID // the service's own line that started it, 0 for none
	// creatorID started it.
	creatorID uint64
	// Of a goroutine that was started with a function of the standard library: what is known of that, and the stack of its creator. Its
	// kind is known in the end.
	carrier      *carrier
	creatorStack tracefmt.StackID
}

// A jobKey is a function that goroutines were started with and, where that
// is a library's, which runs what it is given, the place that started them.
type jobKey struct {
	startFunc    tracefmt.StringID
	starterFrame tracefmt.FrameID
}

type jobKind struct {
	*originStats
	areJobs    bool // decided
	areTests   bool // of package testing
	endedCount int
	// firstEnd is when the first of them ended, again how many began after that:
	// those are started repeatedly, not once each.
	firstEnd    int64
	laterStarts int
	lifeNS      int64 // by all that ended
	// workerCount counts, of those, the ones that came back to a wait repeatedly.
	workerCount int
	// awaitedCount counts, of the first inspectedPerFunc, those of a library that ran none of the service's own code, whose creator waited for them,
	// and for nothing else since the one before: a library's way to wait for messages, in a loop that asks for the next.
	awaitedCount int
	pending      []Request // until there are many
}

// A started holds the facts about all goroutines that a function was started in.
type startFuncStats struct {
	count, partCount int // parts of other work
	// AllParts says that all of many were: then only a few are looked at in each
	// generation: those with a hash of no bits in mask, by how many were born in the one before.
	allParts   bool
	bornCount  int
	sampleMask uint64
	origin     *originStats
}

// inspectedPerFunc is about how many goroutines of a function all of whose are parts are looked at in a generation.
const inspectedPerFunc = 32

// beginGeneration begins a generation.
func (s *startFuncStats) beginGeneration() {
	s.sampleMask, s.bornCount = 1<<bits.Len(uint(s.bornCount/inspectedPerFunc))-1, 0
}

// countOnly reports whether a goroutine is one of so many that it is only counted. Which ones are does not depend on the order in which
// they are found.
func (s *startFuncStats) countOnly(g uint64) bool {
	if s == nil {
		return false
	}
	if s.bornCount++; !s.allParts || g*0x9e3779b97f4a7c15>>32&s.sampleMask == 0 {
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

// addBirths takes note of the goroutines that were created in a generation.
func (j *jobFinder) addBirths(f *Finder, g *timeline.Gen) {
	for _, c := range j.carriers {
		if c != nil {
			clear(c.starters)
		}
	}
	j.mainPieces = 0
	if f.requestCount+len(f.emitted) < scale.Enough {
		f.followMain(g)
	}
	for _, s := range j.startFuncs {
		s.beginGeneration()
	}
	// What a server's goroutines start for themselves, net/http one for each request, is left out before all are put in order.
	f.births = slices.DeleteFunc(g.Births(f.selectStart, f.births[:0]), func(b timeline.Birth) bool {
		start := f.stackInfo(b.Start)
		if start.role != roleUnclaimed {
			return b.By == 0 || f.isServing(b.By, b.Stack)
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

// addJob takes note of a goroutine that was started with a function of the service's own, or of a library's.
func (j *jobFinder) addJob(f *Finder, birth *timeline.Birth) {
	job := &job{openRequest: openRequest{start: birth.Time, pieceStart: birth.Time}, startStack: birth.Start, starterFrame: f.stackInfo(birth.Stack).innerOwned, creatorID: birth.By, isStartOwned: f.stackInfo(birth.Start).outerOwned != 0}
	job.isStartedByFetch = !job.isStartOwned && f.stackInfo(birth.Stack).isFetch
	startFunc, kind := j.kindFor(f, job)
	origin := kind.originStats
	job.kind = kind
	if kind.firstEnd != 0 {
		kind.laterStarts++
	}
	servingBefore := origin.servingCount
	origin.addStarter(f, birth.By, birth.Stack)
	if birth.By == 0 {
		origin.timerCount++
	}
	origin.inspected++
	origin.total++
	// What a handler starts is a part of its request, and what a job starts a
	// part of that one.
	if creator := j.jobs[birth.By]; creator != nil {
		job.isPart = creator.isPart
		if creator.carrier != nil && f.stackInfo(birth.Stack).outerOwned != 0 {
			job.isPart, creator.carrier.carriesRequests = true, true
		}
		if !job.isPart && creator.kind != nil && creator.kind.originStats.inspected >= minJobs {
			job.isPart = true
		}
	}
	if origin.servingCount == servingBefore && f.isAnnotatedAt(birth.By, birth.Time) {
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

// endJobs hands out the jobs that ended in a generation.
func (j *jobFinder) endJobs(f *Finder, g *timeline.Gen) {
	dropped := make(map[uint64]bool)
	removeEnded(j.jobs, g, func(id uint64, job *job, t int64) { j.endJob(f, id, job, t, dropped) })
	if len(dropped) > 0 {
		// Their lives are the unit, not what they did repeatedly.
		f.emitted = slices.DeleteFunc(f.emitted, func(r Request) bool { return r.Kind == Loop && dropped[r.G] })
	}
}

// endJob hands out a job that ended at t, once its kind is known to be one of jobs. The goroutines whose turns are no requests then are dropped.
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
	if turn := f.loops.iterationOf(id); turn != nil && turn.count >= scale.Few {
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
	if kind.endedCount <= inspectedPerFunc && !job.isStartOwned && job.starterFrame != 0 && request.RootFrame == job.starterFrame && f.hasCreatorAwaited(job, id, t) {
		kind.awaitedCount++
	}
	kind.lifeNS += t - job.start
	if job.carrier == nil {
		kind.originStats.isLibraryWait = kind.areLibraryWaits()
		kind.originStats.emittedNS += t - job.start
	}
	if kind.pending = append(kind.pending, request); !kind.decideJobs(t - f.traceStart) {
		if len(kind.pending) > scale.Many {
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

// areWorkers reports whether goroutines of a kind are workers, whose turns are the
// unit, not their lives.
func (e *jobKind) areWorkers() bool { return 2*e.workerCount > e.endedCount }

// areLibraryWaits reports whether goroutines of a kind are a library's way to wait.
func (e *jobKind) areLibraryWaits() bool {
	return 2*e.awaitedCount > min(e.endedCount, inspectedPerFunc)
}

// hasCreatorAwaited reports whether the goroutine that started a job, which ended at end, spent most of the job's life in a wait that the job
// ended, and its wait before that one was at the same place or, where the library was asked for the next thing to do, a part of its work.
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
			return s.Woken && s.Waker == jobID && (s.Stack == before || job.isStartedByFetch && f.isAnswerWait(before)) && 2*(s.End-s.Start) > end-start
		}
	}
	return false
}

// isAnswerWait reports whether a wait is one for an answer, of a library or of the standard library's clients.
func (f *Finder) isAnswerWait(wait tracefmt.StackID) bool {
	if wait == 0 {
		return false
	}
	p := f.stackInfo(wait)
	return p.isClientCall || p.isInLibrary
}

// decideJobs reports whether its goroutines' lives are the unit: many were started
// after others had ended, or many were short against the time that was seen.
func (e *jobKind) decideJobs(observedNS int64) bool {
	e.areJobs = e.areJobs || e.areTests && !e.areWorkers() || e.endedCount >= minJobs && !e.areWorkers() && !e.areLibraryWaits() && (e.laterStarts >= minJobs || e.endedCount >= scale.Many || e.lifeNS < int64(e.endedCount)*(observedNS/4))
	return e.areJobs
}

// nameFrame returns the frame of the function that a job is called by: 0 for the one
// that it was started with. Where that only runs what it is given, it is the
// service's own function that it ran, and if none of them was ever seen, the one
// that started it.
func (j *jobFinder) nameFrame(f *Finder, job *job, id uint64, end int64) tracefmt.FrameID {
	if f.stackInfo(job.startStack).outerOwned != 0 {
		return 0
	}
	// A line of the service's own gives a library something to run, always the same; a library's own loop runs what it has read.
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

// isAlwaysPart reports whether all goroutines of a start function are parts of other
// work.
func (j *jobFinder) isAlwaysPart(f *Finder, start tracefmt.StackID) bool {
	s := j.startFuncs[f.stackInfo(start).startFunc]
	return s != nil && s.allParts
}

// kindFor returns the facts about goroutines like one.
func (j *jobFinder) kindFor(f *Finder, job *job) (*startFuncStats, *jobKind) {
	fn := f.syms.Frame(f.syms.Stack(job.startStack)[0]).Func
	key := jobKey{startFunc: fn}
	if f.stackInfo(job.startStack).outerOwned == 0 {
		key.starterFrame = job.starterFrame
	}
	startFunc, kind := entry.In(j.startFuncs, fn), j.kinds[key]
	if kind == nil {
		kind = &jobKind{originStats: f.originFor(Goroutine, fn, fn)}
		if key.starterFrame != 0 {
			kind.originStats = f.originFor(Goroutine, f.syms.Frame(key.starterFrame).Func, fn)
		}
		kind.areTests = f.namer.function(fn).hasAny(testFunc)
		kind.originStats.isOwned = true // also where a library does the work
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

// selectStart reports whether goroutines of a start function are to be looked at:
// those of the standard library and of servers' machinery are not.
func (f *Finder) selectStart(start tracefmt.StackID) bool {
	switch info := f.stackInfo(start); info.role {
	case roleMachinery:
		return info.startFunc != 0 && f.jobs.addCarrier(f, start)
	case roleServer:
		return false
	}
	return true
}

// mainKey is the key of the parts of main's life.
const mainKey = ^uint64(0)

// followMain hands out what the main goroutine did, a part a generation: it is
// what can be explained of a program in which no requests are found.
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
		f.emitted = append(f.emitted, Request{Kind: Main, Start: jobs.mainLife.pieceStart, End: to, G: 1, Piece: MiddlePiece, PieceKey: mainKey})
		jobs.mainLife.pieceStart = to
		jobs.mainPieces = 1
	}
}

// isEndedOutside reports whether a wait was not ended by work of this process: it
// goes on, or a timer or the network ended it.
func (f *Finder) isEndedOutside(g *timeline.Gen, s *timeline.Span) bool {
	if !s.Woken || s.Waker == 0 {
		return true
	}
	switch f.reasonOf(s.Reason) {
	case reasonSleep, reasonNetwork:
		return true
	}
	b, born := g.BirthOf(s.Waker) // a context's deadline has a goroutine of the runtime's
	return born && b.By == 0 && f.stackInfo(b.Start).role == roleMachinery
}

// IsMainIdle reports whether main did next to nothing for most of the time: it
// slept, accepted connections, or waited for a signal. That is no request.
func (f *Finder) IsMainIdle() bool {
	j := &f.jobs
	return j.isMainKnown && 2*j.mainIdleNS > j.mainLife.pieceStart-j.mainLife.start
}
