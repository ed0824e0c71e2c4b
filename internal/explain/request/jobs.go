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
func (j *jobFinder) addJob(f *Finder, b *timeline.Birth) {
	l := &job{openRequest: openRequest{start: b.Time, pieceStart: b.Time}, startStack: b.Start, starterFrame: f.stackInfo(b.Stack).innerOwned, creatorID: b.By, isStartOwned: f.stackInfo(b.Start).outerOwned != 0}
	l.isStartedByFetch = !l.isStartOwned && f.stackInfo(b.Stack).isFetch
	s, e := j.kindFor(f, l)
	o := e.originStats
	l.kind = e
	if e.firstEnd != 0 {
		e.laterStarts++
	}
	was := o.servingCount
	o.addStarter(f, b.By, b.Stack)
	if b.By == 0 {
		o.timerCount++
	}
	o.inspected++
	o.total++
	// What a handler starts is a part of its request, and what a job starts a
	// part of that one.
	if p := j.jobs[b.By]; p != nil {
		l.isPart = p.isPart
		if p.carrier != nil && f.stackInfo(b.Stack).outerOwned != 0 {
			l.isPart, p.carrier.carriesRequests = true, true
		}
		if !l.isPart && p.kind != nil && p.kind.originStats.inspected >= minJobs {
			l.isPart = true
		}
	}
	if o.servingCount == was && f.isAnnotatedAt(b.By, b.Time) {
		o.servingCount++
	}
	if o.servingCount > was {
		l.isPart = true
	}
	s.count++
	if l.isPart {
		s.partCount++
	}
	if s.allParts = s.partCount >= settledCount && s.partCount == s.count; !s.allParts {
		j.jobs[b.G] = l
	}
}

// endJobs hands out the jobs that ended in a generation.
func (j *jobFinder) endJobs(f *Finder, g *timeline.Gen) {
	dropped := make(map[uint64]bool)
	removeEnded(j.jobs, g, func(id uint64, l *job, t int64) { j.endJob(f, id, l, t, dropped) })
	if len(dropped) > 0 {
		// Their lives are the unit, not what they did repeatedly.
		f.emitted = slices.DeleteFunc(f.emitted, func(r Request) bool { return r.Kind == Loop && dropped[r.G] })
	}
}

// endJob hands out a job that ended at t, once its kind is known to be one of jobs. The goroutines whose turns are no requests then are dropped.
func (j *jobFinder) endJob(f *Finder, id uint64, l *job, t int64, dropped map[uint64]bool) {
	if l.isPart || f.work.annotated[id] {
		return
	}
	var own tracefmt.FrameID
	if l.carrier != nil {
		var ok bool
		if own, ok = j.resolveCarriedJob(f, l, id, t); !ok {
			return
		}
	}
	e := l.kind
	if f.messages.readers[id] != nil {
		e.workerCount++
	}
	if turn := f.loops.iterationOf(id); turn != nil && turn.count >= scale.Few {
		e.workerCount++
	}
	r := l.complete(Request{Kind: Goroutine, End: t, G: id, EntryStack: l.startStack, RootFrame: own})
	if l.carrier == nil {
		r.RootFrame = j.nameFrame(f, l, id, t)
	}
	if !l.isStartOwned {
		r.StarterFrame = l.starterFrame
	}
	if e.firstEnd == 0 {
		e.firstEnd = t
	} else if l.carrier != nil && l.start > e.firstEnd {
		e.laterStarts++
	}
	e.endedCount++
	if e.endedCount <= inspectedPerFunc && !l.isStartOwned && l.starterFrame != 0 && r.RootFrame == l.starterFrame && f.hasCreatorAwaited(l, id, t) {
		e.awaitedCount++
	}
	e.lifeNS += t - l.start
	if l.carrier == nil {
		e.originStats.isLibraryWait = e.areLibraryWaits()
		e.originStats.emittedNS += t - l.start
	}
	if e.pending = append(e.pending, r); !e.decideJobs(t - f.traceStart) {
		if len(e.pending) > scale.Many {
			e.pending = slices.Delete(e.pending, 0, 1)
		}
		return
	}
	for _, r := range e.pending {
		if f.loops.iterationOf(r.G) != nil {
			dropped[r.G] = true
		}
	}
	switch {
	case l.carrier != nil || l.isStartOwned:
	case r.RootFrame == 0:
		e.originStats.groupKeys = appendUnique(e.originStats.groupKeys, originKey{Goroutine, e.originStats.startFunc})
	default:
		k := originKey{Goroutine, f.syms.Frame(r.RootFrame).Func}
		f.work.aliases[k] = e.originStats
		e.originStats.groupKeys = appendUnique(e.originStats.groupKeys, k)
	}
	f.emitted = append(f.emitted, e.pending...)
	e.pending = e.pending[:0]
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
func (f *Finder) hasCreatorAwaited(l *job, job uint64, end int64) bool {
	start := l.start
	var before tracefmt.StackID
	f.spanBuffer = f.window.Spans(l.creatorID, 2*start-end, end, f.spanBuffer[:0])
	for i := range f.spanBuffer {
		s := &f.spanBuffer[i]
		switch {
		case s.State != timeline.Waiting:
		case s.Start < start:
			before = s.Stack
		default:
			return s.Woken && s.Waker == job && (s.Stack == before || l.isStartedByFetch && f.isAnswerWait(before)) && 2*(s.End-s.Start) > end-start
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
func (e *jobKind) decideJobs(seen int64) bool {
	e.areJobs = e.areJobs || e.areTests && !e.areWorkers() || e.endedCount >= minJobs && !e.areWorkers() && !e.areLibraryWaits() && (e.laterStarts >= minJobs || e.endedCount >= scale.Many || e.lifeNS < int64(e.endedCount)*(seen/4))
	return e.areJobs
}

// nameFrame returns the frame of the function that a job is called by: 0 for the one
// that it was started with. Where that only runs what it is given, it is the
// service's own function that it ran, and if none of them was ever seen, the one
// that started it.
func (j *jobFinder) nameFrame(f *Finder, l *job, id uint64, end int64) tracefmt.FrameID {
	if f.stackInfo(l.startStack).outerOwned != 0 {
		return 0
	}
	// A line of the service's own gives a library something to run, always the same; a library's own loop runs what it has read.
	named, ok := j.namesByStarter[l.starterFrame]
	if l.starterFrame == 0 {
		named = 0
	}
	if !ok || l.kind.areTests || l.starterFrame == 0 {
		f.spanBuffer = f.window.Spans(id, l.start, end, f.spanBuffer[:0])
		for i := range f.spanBuffer {
			if s := &f.spanBuffer[i]; s.Stack != 0 && s.Start > l.start {
				if named = f.stackInfo(s.Stack).outerOwned; named != 0 {
					j.namesByStarter[l.starterFrame] = named
					break
				}
			}
		}
	}
	return cmp.Or(named, l.starterFrame)
}

// isAlwaysPart reports whether all goroutines of a start function are parts of other
// work.
func (j *jobFinder) isAlwaysPart(f *Finder, start tracefmt.StackID) bool {
	s := j.startFuncs[f.stackInfo(start).startFunc]
	return s != nil && s.allParts
}

// kindFor returns the facts about goroutines like one.
func (j *jobFinder) kindFor(f *Finder, l *job) (*startFuncStats, *jobKind) {
	fn := f.syms.Frame(f.syms.Stack(l.startStack)[0]).Func
	k := jobKey{startFunc: fn}
	if f.stackInfo(l.startStack).outerOwned == 0 {
		k.starterFrame = l.starterFrame
	}
	s, e := entry.In(j.startFuncs, fn), j.kinds[k]
	if e == nil {
		e = &jobKind{originStats: f.originFor(Goroutine, fn, fn)}
		if k.starterFrame != 0 {
			e.originStats = f.originFor(Goroutine, f.syms.Frame(k.starterFrame).Func, fn)
		}
		e.areTests = f.namer.function(fn).hasAny(testFunc)
		e.originStats.isOwned = true // also where a library does the work
		j.kinds[k] = e
	}
	s.origin = e.originStats
	return s, e
}

func (j *jobFinder) visitOpen(visit func(*openRequest, Request)) {
	for id, l := range j.jobs {
		if !l.isPart && l.kind != nil && l.kind.areJobs {
			r := Request{Kind: Goroutine, G: id, EntryStack: l.startStack}
			if !l.isStartOwned && l.starterFrame != 0 {
				r.StarterFrame, r.RootFrame = l.starterFrame, cmp.Or(j.namesByStarter[l.starterFrame], l.starterFrame)
			}
			visit(&l.openRequest, r)
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
	j := &f.jobs
	if !g.Knows(1) {
		return
	}
	if !j.isMainKnown {
		j.isMainKnown, j.mainLife = true, openRequest{start: g.Base, pieceStart: g.Base}
	}
	f.spanBuffer = f.window.Spans(1, g.Base, g.End, f.spanBuffer[:0])
	for i := range f.spanBuffer {
		s := &f.spanBuffer[i]
		if s.State != timeline.Waiting {
			continue
		}
		if f.isEndedOutside(g, s) {
			j.mainIdleNS += min(s.End, g.End) - max(s.Start, g.Base)
		}
	}
	if to := f.pieceEnd(1, j.mainLife.pieceStart, g.End); to > j.mainLife.pieceStart {
		f.emitted = append(f.emitted, Request{Kind: Main, Start: j.mainLife.pieceStart, End: to, G: 1, Piece: MiddlePiece, PieceKey: mainKey})
		j.mainLife.pieceStart = to
		j.mainPieces = 1
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
