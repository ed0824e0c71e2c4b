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

// jobSource finds jobs: goroutines whose whole life is one unit of work, of a function that is started repeatedly. A
// goroutine that a job starts is a part of that job.
type jobSource struct {
	sourceStubs
	loops      *loopSource // if the goroutines loop, the iterations are the requests
	work       *workIndex
	jobs       map[uint64]*job // without those of states
	kinds      map[jobKey]*jobKind
	startFuncs map[tracefmt.StringID]*startFuncStats
	// namesByStarter holds, for jobs of a library's start function, the service function that ran, by the line that starts
	// the jobs.
	namesByStarter map[tracefmt.FrameID]tracefmt.FrameID
	// carriers are the start functions of the standard library. An entry is nil if the function carries no requests.
	carriers map[tracefmt.StringID]*carrier
	// Of this generation: the births by their key, those that are added one by one with their order by time, the kinds by index, and
	// the jobs.
	birthGroups map[birthKey]*birthGroup
	births      []timeline.BirthTime
	order       []int32
	kindList    []*jobKind
	states      []jobState
	// droppedLoops are the goroutines, of this generation, whose iterations are no requests since their lives are.
	droppedLoops map[uint64]bool
}

// A job is a goroutine whose whole life may be one unit of work.
type job struct {
	openRequest
	startStack   tracefmt.StackID // of the start function
	kind         *jobKind
	isPart       bool             // of another job or request
	starterFrame tracefmt.FrameID // the service line that started a library's function, 0 for none
	creatorStack tracefmt.StackID
	creatorID    uint64
	carrier      *carrier // for start functions of the standard library; kind is nil then until the job ends
}

// A jobState describes a goroutine, by its Number: whether it is a job, whether that is part of other work, and the
// index of its kind. Most jobs end in the generation in which they began. All else about them can be read again, so there is no
// entry for each.
type jobState uint32

const (
	isJob jobState = 1 << iota
	isPartJob
	isInMap      // the job is in jobSource.jobs, and the other fields are 0
	isUniform    // the job is one of jobKind.uniform
	hasNoStack   // set only of uniform jobs whose names are not known
	jobStateBits = iota
)

// A jobKey identifies a kind of job: by the start function and, if that belongs to a library, by the service line that
// started the goroutine.
type jobKey struct {
	startFunc    tracefmt.StringID
	starterFrame tracefmt.FrameID
}

// A jobKind counts the goroutines of one jobKey, until it is decided whether they are jobs.
type jobKind struct {
	*originStats
	key      jobKey
	index    int  // in jobSource.kindList
	areJobs  bool // decided: the goroutines are jobs
	areTests bool // started by package testing
	// isMeasured says that they run a test or a benchmark.
	isMeasured bool
	// Of those that began and end in this generation: how many there are, and how many run service code and have so few
	// pieces that they cannot have returned to a wait often.
	bornCount, shortCount int
	// uniform counts the jobs of this generation whose births are in a birthGroup and which end in it. isCounted says that they are
	// only counted, and are requests without any further inspection.
	uniform    uniformJobs
	isCounted  bool
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

// beginGeneration sets the sample for a generation, by the number of births in the one before.
func (s *startFuncStats) beginGeneration() {
	s.sampleMask, s.bornCount = 1<<bits.Len(uint(s.bornCount/inspectedPerFunc))-1, 0
}

// countBirth counts a new goroutine g of the start function. It returns true if g needs no inspection, because all goroutines of
// the function are parts of other work and g is outside of the sample. The sample depends on g alone, so it does not depend on
// the order of events.
func (s *startFuncStats) countBirth(g uint64) bool {
	if s == nil {
		return false
	}
	if s.bornCount++; !s.allParts || sample.Spread(g)>>32&s.sampleMask == 0 {
		return false
	}
	s.origin.total++
	return true
}

// newJobSource returns an empty jobSource that counts its work in an index.
func newJobSource(work *workIndex) *jobSource {
	return &jobSource{
		work: work,
		jobs: make(map[uint64]*job), kinds: make(map[jobKey]*jobKind), startFuncs: make(map[tracefmt.StringID]*startFuncStats),
		namesByStarter: make(map[tracefmt.FrameID]tracefmt.FrameID), carriers: make(map[tracefmt.StringID]*carrier),
		birthGroups: make(map[birthKey]*birthGroup),
	}
}

// add records the goroutines that were created in a generation as jobs (addJob) or as possible requests of a carrier
// (addCarriedJob), in order of time.
func (j *jobSource) add(c *collector, g *timeline.Gen) {
	j.beginGeneration(g)
	for _, carrier := range j.carriers {
		if carrier != nil {
			clear(carrier.starters)
		}
	}
	for _, s := range j.startFuncs {
		s.beginGeneration()
	}
	// Goroutines that a server starts for itself, net/http one for each request, are removed before sorting.
	isSelected := func(start tracefmt.StackID) bool { return j.inspectsStart(c, start) }
	var group *birthGroup
	g.EachBirth(isSelected, func(number uint32, b timeline.Birth) {
		if start := c.stackInfo(b.Start); start.role != roleUnclaimed {
			if b.Creator == 0 || c.isServing(b.Creator, b.Stack) {
				return
			}
		} else if j.startFuncs[start.startFunc].countBirth(b.G) {
			return
		} else if group = j.groupOf(c, g, &b, group); group != nil {
			j.addToGroup(c, g, group, number, &b)
			return
		}
		j.births = append(j.births, timeline.BirthTime{Time: b.Time, Number: number})
	})
	j.addGroups(c)
	j.order = g.OrderBirths(j.births, j.order)
	for _, i := range j.order {
		number := j.births[i].Number
		if b, _ := g.BirthAt(number); c.stackInfo(b.Start).role == roleUnclaimed {
			j.addJob(c, g, number, &b)
		} else {
			j.addCarriedJob(c, g, number, &b)
		}
	}
	for _, kind := range j.kinds {
		// Their ends will show that they are jobs, so their waits need not be observed.
		kind.areJobs = kind.areJobs || kind.shortCount >= threshold.TailSample && 2*kind.shortCount > kind.bornCount && !kind.areWorkers()
		kind.isCounted = j.canCount(kind) && j.isNamed(kind)
	}
}

// beginGeneration sets the states of goroutines that have jobs, and removes jobs of goroutines that the generation does not
// know, because a part of the trace was lost.
func (j *jobSource) beginGeneration(g *timeline.Gen) {
	j.births, j.kindList = j.births[:0], j.kindList[:0]
	clear(j.birthGroups)
	j.states = append(j.states[:0], make([]jobState, g.GoroutineCount()+1)...)
	for id := range j.jobs {
		if number := g.Number(id); number != 0 {
			j.states[number] = isJob | isInMap
		} else {
			delete(j.jobs, id)
		}
	}
	for _, kind := range j.kinds {
		kind.index, kind.bornCount, kind.shortCount, kind.uniform = len(j.kindList), 0, 0, uniformJobs{}
		j.kindList = append(j.kindList, kind)
	}
}

// jobStateOf returns whether a goroutine is a job (ok), whether that job is part of other work, its carrier, and its kind.
// carrier and kind may be nil.
func (j *jobSource) jobStateOf(g *timeline.Gen, id uint64) (ok, isPart bool, carrier *carrier, kind *jobKind) {
	switch s := j.states[g.Number(id)]; {
	case s&isInMap != 0:
		job := j.jobs[id]
		return true, job.isPart, job.carrier, job.kind
	case s&isJob != 0:
		return true, s&isPartJob != 0, nil, j.kindList[s>>jobStateBits]
	}
	return false, false, nil, nil
}

// newJob returns the job that begins with a birth, without its kind.
func newJob(c *collector, b *timeline.Birth) job {
	job := job{openRequest: openAt(b.Time), startStack: b.Start, creatorID: b.Creator, creatorStack: b.Stack}
	if start := c.stackInfo(b.Start); start.role == roleUnclaimed && start.outerServiceFrame == 0 {
		job.starterFrame = c.stackInfo(b.Stack).innerServiceFrame
	}
	return job
}

// addJob records a new goroutine as a job and decides whether it is part of other work: a handler, a mark or task, or another job
// started it. Its start function is not the standard library's.
func (j *jobSource) addJob(c *collector, g *timeline.Gen, number uint32, birth *timeline.Birth) {
	job := newJob(c, birth)
	startFunc, kind := j.kindFor(c, &job)
	origin := kind.originStats
	if kind.firstEnd != 0 {
		kind.laterStarts++
	}
	servingBefore := origin.servingCount
	origin.addStarter(c, birth.Creator, birth.Stack)
	if birth.Creator == 0 {
		origin.timerCount++
	}
	origin.inspected++
	origin.total++
	// A goroutine that a handler or a job starts is a part of that request or job.
	if ok, isPart, carrier, kind := j.jobStateOf(g, birth.Creator); ok {
		job.isPart = isPart
		if carrier != nil && c.stackInfo(birth.Stack).outerServiceFrame != 0 {
			job.isPart, carrier.carriesRequests = true, true
		}
		job.isPart = job.isPart || kind != nil && kind.originStats.inspected >= minJobs
	}
	if origin.servingCount == servingBefore && c.isAnnotatedAt(birth.Creator, birth.Time) {
		origin.servingCount++
	}
	job.isPart = job.isPart || origin.servingCount > servingBefore
	startFunc.count++
	if job.isPart {
		startFunc.partCount++
	}
	if startFunc.allParts = startFunc.partCount >= settledCount && startFunc.partCount == startFunc.count; !startFunc.allParts {
		if _, ends := j.addEnding(c, g, kind, number, birth.Start, job.isPart); !ends {
			job.kind = kind
			j.storeJob(number, birth.G, job)
		}
	}
}

// addEnding returns when goroutine number ends in this generation; ends is false if it outlives it. If it ends, it records it in
// states as a job, whether that is part of other work, and counts it in its kind.
func (j *jobSource) addEnding(c *collector, g *timeline.Gen, kind *jobKind, number uint32, start tracefmt.StackID, isPart bool) (end int64, ends bool) {
	if end, ends = g.DeathOf(number); !ends {
		return 0, false
	}
	j.states[number] = isJob | jobState(kind.index)<<jobStateBits
	if isPart {
		j.states[number] |= isPartJob
	}
	if kind.bornCount++; g.PiecesOf(number) < 2*threshold.SmallSample && c.stackInfo(start).outerServiceFrame != 0 {
		kind.shortCount++
	}
	return end, true
}

// storeJob stores the job of goroutine id, which outlives the generation. number is the goroutine's number there.
func (j *jobSource) storeJob(number uint32, id uint64, job job) {
	j.jobs[id], j.states[number] = &job, isJob|isInMap
}

// finishGeneration ends the jobs whose goroutines ended in the generation, in order of the goroutines' ids. It removes the
// iterations of goroutines whose whole lives turned out to be the units of work.
func (j *jobSource) finishGeneration(c *collector, g *timeline.Gen) {
	for _, kind := range j.kindList {
		if kind.isCounted {
			j.endUniform(c, kind)
		}
	}
	g.EachInOrder(func(id uint64, number uint32) {
		s := j.states[number]
		switch {
		case s&isJob == 0 || s&isPartJob != 0:
			return
		case j.isCounted(s) || s&isUniform != 0 && j.countRest(c, g, s, id):
			if !j.work.mayBeBatch {
				j.emitCounted(c, g, id, number)
			}
			return
		}
		end, ok := g.DeathOf(number)
		switch {
		case !ok:
		case s&isInMap != 0:
			job := j.jobs[id]
			delete(j.jobs, id)
			j.endJob(c, id, job, end)
		default:
			b, _ := g.BirthAt(number)
			job := newJob(c, &b)
			job.kind = j.kindList[s>>jobStateBits]
			if s&isUniform != 0 { // the others may be counted
				j.states[number] &^= isUniform
				job.kind.uniform.count--
				job.kind.uniform.lifeNS -= end - b.Time
			}
			j.endJob(c, id, &job, end)
		}
	})
	for _, kind := range j.kindList {
		if !kind.isCounted && j.canCount(kind) { // there are jobs without a stack, and their name is not known
			j.endUniform(c, kind)
		}
	}
	if len(j.droppedLoops) > 0 {
		c.series.removeLoops(j.droppedLoops)
		backlogs := &j.loops.backlogs
		backlogs.messages.remove(backlogs.firstRead, func(m *clientMessage) bool { return j.droppedLoops[m.goroutine] })
		j.droppedLoops = nil
	}
}

// endJob ends a job at t and decides whether goroutines of its kind are jobs. If they are, it emits the job and those of its kind
// that were pending; otherwise the job becomes pending.
func (j *jobSource) endJob(c *collector, id uint64, job *job, t int64) {
	if job.isPart || c.annotated[id] {
		return
	}
	var serviceFrame tracefmt.FrameID
	if job.carrier != nil {
		var ok bool
		if serviceFrame, ok = j.resolveCarriedJob(c, job, id, t); !ok {
			return
		}
	}
	kind := job.kind
	if c.isServed(id) {
		kind.workerCount++
	}
	if turn := j.loops.iterationOf(id); turn != nil && turn.count >= threshold.SmallSample {
		kind.workerCount++
	}
	request := j.requestOf(c, job, id, t)
	if job.carrier != nil {
		request.RootFrame = serviceFrame
	}
	if kind.firstEnd == 0 {
		kind.firstEnd = t
	} else if job.carrier != nil && job.start > kind.firstEnd {
		kind.laterStarts++
	}
	kind.endedCount++
	if kind.endedCount <= inspectedPerFunc && job.starterFrame != 0 &&
		request.RootFrame == job.starterFrame && job.hasCreatorAwaited(c, id, t) {
		kind.awaitedCount++
	}
	kind.lifeNS += t - job.start
	if job.carrier == nil {
		kind.originStats.isLibraryWait = kind.areLibraryWaits()
		kind.originStats.emittedNS += t - job.start
	}
	if kind.pending = append(kind.pending, request); !kind.decideJobs(t - c.traceStart) {
		if len(kind.pending) > threshold.TailSample {
			kind.pending = slices.Delete(kind.pending, 0, 1)
		}
		return
	}
	j.emitPending(c, kind)
	if job.carrier == nil && c.stackInfo(job.startStack).outerServiceFrame == 0 {
		j.addGroupKey(c, kind, request.RootFrame)
	}
}

// requestOf returns the request of a job that ended at t.
func (j *jobSource) requestOf(c *collector, job *job, id uint64, t int64) Request {
	request := Request{Kind: Goroutine, End: t, G: id, EntryStack: job.startStack, StarterFrame: job.starterFrame}
	if job.carrier == nil {
		request.RootFrame = j.nameFrame(c, job, id, t)
	}
	return job.complete(request)
}

// emitPending emits the jobs that ended before it was known that they are jobs.
func (j *jobSource) emitPending(c *collector, kind *jobKind) {
	for i := range kind.pending {
		r := &kind.pending[i]
		if j.loops.iterationOf(r.G) != nil {
			entry.Put(&j.droppedLoops, r.G, true) // its whole life is a job
		}
		if !j.work.drops(c, r.EntryStack) {
			c.emitJob(r)
		}
	}
	kind.pending = kind.pending[:0]
}

// addGroupKey records the name of jobs whose start function belongs to a library, by the frame that names them, 0 for the start function.
func (j *jobSource) addGroupKey(c *collector, kind *jobKind, frame tracefmt.FrameID) {
	key := originKey{Goroutine, kind.originStats.startFunc}
	if frame != 0 {
		key.name = c.syms.Frame(frame).Func
		j.work.aliases[key] = kind.originStats
	}
	if keys := &kind.originStats.groupKeys; !slices.Contains(*keys, key) {
		*keys = append(*keys, key)
	}
}

// areWorkers reports whether the goroutines are workers, whose iterations are the requests and not their lives.
func (e *jobKind) areWorkers() bool { return 2*e.workerCount > e.endedCount }

// areLibraryWaits reports whether more than half of the inspected goroutines are a library's way to wait for something
// (job.hasCreatorAwaited).
func (e *jobKind) areLibraryWaits() bool {
	return 2*e.awaitedCount > min(e.endedCount, inspectedPerFunc)
}

// hasCreatorAwaited reports whether the creator of a job (goroutine jobID, which ended at end) only waited for the job: the job
// ended a wait that took most of the job's life, and the creator's wait before was at the same stack or, if a fetch started the
// job, for an answer. A library that waits for messages in this way starts a job for each wait.
func (job *job) hasCreatorAwaited(c *collector, jobID uint64, end int64) bool {
	start, isStartedByFetch := job.start, c.stackInfo(job.creatorStack).isFetch
	var before tracefmt.StackID
	for _, s := range c.spans(job.creatorID, 2*start-end, end) {
		switch {
		case s.State != timeline.Waiting:
		case s.Start < start:
			before = s.Stack
		default:
			return s.Woken && s.Waker == jobID && (s.Stack == before || isStartedByFetch && c.isAnswerWait(before)) &&
				2*(s.End-s.Start) > end-start
		}
	}
	return false
}

// isAnswerWait reports whether a wait is in a library or in a client of the standard library, and so probably for an answer.
func (sr *stackReader) isAnswerWait(wait tracefmt.StackID) bool {
	if wait == 0 {
		return false
	}
	p := sr.stackInfo(wait)
	return p.isClientCall || p.isInLibrary
}

// decideJobs decides whether the goroutines of this kind are jobs, each a unit of work, and stores the decision. They are if they
// are no workers and many started after others had ended, or if their lives are short compared with observedNS, the time since
// the start of the trace.
func (e *jobKind) decideJobs(observedNS int64) bool {
	e.areJobs = e.areJobs || e.areTests && !e.areWorkers() ||
		e.endedCount >= minJobs && !e.areWorkers() && !e.areLibraryWaits() &&
			(e.laterStarts >= minJobs || e.endedCount >= threshold.TailSample || e.lifeNS < int64(e.endedCount)*(observedNS/4))
	return e.areJobs
}

// nameFrame returns the frame that names a job (goroutine id, which ended at end): 0 (the start function) if the start function
// is the service's. If it is a library's, it is the frame of the service function that ran, else that of the line that started
// the goroutine.
func (j *jobSource) nameFrame(c *collector, job *job, id uint64, end int64) tracefmt.FrameID {
	if c.stackInfo(job.startStack).outerServiceFrame != 0 {
		return 0
	}
	// A service line always gives the library the same function to run. In a library's loop it depends on the
	// message.
	named, ok := j.namesByStarter[job.starterFrame]
	if job.starterFrame == 0 {
		named = 0
	}
	if !ok || job.kind.areTests || job.starterFrame == 0 {
		for _, s := range c.spans(id, job.start, end) {
			if s.Stack != 0 && s.Start > job.start {
				if named = c.stackInfo(s.Stack).outerServiceFrame; named != 0 {
					j.namesByStarter[job.starterFrame] = named
					break
				}
			}
		}
	}
	return cmp.Or(named, job.starterFrame)
}

// isAlwaysPart reports whether all goroutines with a start function are parts of other work.
func (j *jobSource) isAlwaysPart(c *collector, start tracefmt.StackID) bool {
	s := j.startFuncs[c.stackInfo(start).startFunc]
	return s != nil && s.allParts
}

// kindFor returns the statistics of a job's start function, and the kind of the job. It creates them on first use.
func (j *jobSource) kindFor(c *collector, job *job) (*startFuncStats, *jobKind) {
	fn := c.syms.Frame(c.syms.Stack(job.startStack)[0]).Func
	key := jobKey{fn, job.starterFrame}
	startFunc, kind := entry.GetOrAdd(j.startFuncs, fn), j.kinds[key]
	if kind == nil {
		kind = &jobKind{originStats: j.work.originFor(Goroutine, fn, fn), key: key}
		if key.starterFrame != 0 {
			kind.originStats = j.work.originFor(Goroutine, c.syms.Frame(key.starterFrame).Func, fn)
		}
		kind.areTests, kind.isMeasured = c.namer.function(fn).Has(knowledge.Test), c.isMeasured(fn)
		kind.originStats.hasServiceCode = true // even if only library code runs in it
		j.kinds[key] = kind
		kind.index = len(j.kindList)
		j.kindList = append(j.kindList, kind)
	}
	startFunc.origin = kind.originStats
	return startFunc, kind
}

// visitOpen visits the jobs that have not ended and are known to be requests.
func (j *jobSource) visitOpen(visit func(*openRequest, Request)) {
	for id, job := range j.jobs {
		if !job.isPart && job.kind != nil && job.kind.areJobs && (!j.work.isBatch || job.kind.areTests) {
			r := Request{Kind: Goroutine, G: id, EntryStack: job.startStack}
			if job.starterFrame != 0 {
				r.StarterFrame, r.RootFrame = job.starterFrame, cmp.Or(j.namesByStarter[job.starterFrame], job.starterFrame)
			}
			visit(&job.openRequest, r)
		}
	}
}

// inspectsStart reports whether goroutines with this start function are inspected: not those of servers, and those of the standard
// library only if the function may carry requests.
func (j *jobSource) inspectsStart(c *collector, start tracefmt.StackID) bool {
	switch info := c.stackInfo(start); info.role {
	case roleMachinery:
		return info.startFunc != 0 && j.carrierOf(c, start) != nil
	case roleServer:
		return false
	}
	return true
}
