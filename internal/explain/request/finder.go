package request

import (
	"math"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// maxOpenGenerations is how many generations a request may stay open before it is emitted in pieces, so that old
// generations can be dropped.
const maxOpenGenerations = 6

// A Finder passes generations to the sources and returns the requests that they emit. It is not safe for concurrent use.
type Finder struct {
	collector
	stages       [][]source
	eventSources [timeline.LogMessage + 1]annotation // by the kind of user event that they process
	identities   *identityFinder

	// Sources that have more results than requests.
	marks    *markSource
	tasks    *taskSource
	messages *messageSource
	runs     *runSource
	loops    *loopSource
	starts   *startSource
	calls    *callSource
	work     *workIndex

	saturated      map[originKey]*SaturatedLoop // nil until they are looked for
	lastGeneration uint64                       // its number
	lastPieceKey   uint64
}

// Options select what a Finder reports.
type Options struct {
	// MatchFunc, if not nil, selects the functions whose calls are the requests. All other sources are off then.
	MatchFunc func(fn string) bool
	// IgnoreMarks ignores the marks of service/mark.
	IgnoreMarks bool
	// Workers is how many goroutines the Finder may use.
	Workers int
}

// NewFinder returns a Finder over a window of generations, with one source for each way to find requests; the order of the stages
// is their precedence. The caller appends each generation to the window and then calls Add with it.
func NewFinder(syms *tracefmt.Symbols, win *timeline.Window, opts Options) *Finder {
	work := &workIndex{
		origins: make(map[originKey]*originStats), aliases: make(map[originKey]*originStats), roles: make(map[uint64]startRole),
	}
	marks := &markSource{
		isIgnored: opts.IgnoreMarks || opts.MatchFunc != nil,
		markers:   make(map[uint64]*marker), keys: make(map[tracefmt.StringID]markKey),
	}
	tasks := &taskSource{
		marks: marks, open: make(map[uint64]*task), ended: make(map[uint64]*[]endedTask), represents: make(map[tracefmt.StringID]bool),
	}
	connections := &http1Source{connections: make(map[uint64]*http1Conn)}
	streams := &streamSource{streams: make(map[uint64]*stream)}
	longStreams := &longStreamSource{streams: make(map[uint64]*longStream)}
	workers := &grpcWorkerSource{workers: make(map[uint64]*grpcWorker)}
	regions := &regionSource{marks: marks, connections: connections, streams: streams, work: work, open: make(map[uint64][]region)}
	messages := newMessageSource(connections)
	hijacked := &hijackedSource{http1: connections, messages: messages, connections: make(map[uint64]*hijackedConn)}
	jobs := newJobSource(work)
	loops := newLoopSource(opts.Workers, jobs, work, messages)
	jobs.loops = loops
	f := &Finder{
		collector:  newCollector(syms, win, opts.Workers),
		identities: newIdentityFinder(), work: work, marks: marks, tasks: tasks, messages: messages, loops: loops,
		runs:   &runSource{work: work, loops: loops},
		starts: &startSource{work: work, byStartFunc: make(map[tracefmt.StringID]*startStats), byGoroutine: make(map[uint64]*startStats)},
		calls:  &callSource{matchName: opts.MatchFunc, calls: make(map[uint64]*userCall)},
	}
	if opts.MatchFunc != nil {
		f.stages = [][]source{{f.calls}}
		return f
	}
	f.annotations = []annotation{marks, tasks, regions}
	f.protocols = []protocol{connections, streams, longStreams, workers, messages, hijacked}
	main := &mainSource{run: f.runs, collector: newCollector(syms, win, 1)}
	f.stages = [][]source{
		{marks, regions, connections, streams, longStreams, workers, messages, hijacked, tasks}, // tasks resolves what the protocols ended
		{main, jobs, &mainResult{main: main}, loops},
		{f.runs, &hangingSource{connections: connections, longStreams: longStreams, messages: messages}, f.starts},
	}
	f.eventSources = [...]annotation{
		timeline.TaskBegin: tasks, timeline.TaskEnd: tasks, timeline.RegionBegin: regions, timeline.RegionEnd: regions,
		timeline.LogMessage: marks,
	}
	return f
}

// Add processes the window's last generation. It returns, in no order, the requests that ended in it and pieces of requests that
// have been open for long, except for those that Series returns. The slice is valid until the next call.
func (f *Finder) Add(g *timeline.Gen) []Request {
	f.emitted = f.emitted[:0]
	f.series.reset()
	if f.lastGeneration == 0 {
		f.traceStart = g.Base
	}
	if g.Num != f.lastGeneration+1 {
		clear(f.marks.markers) // generations are missing, and ends of marks with them
	}
	f.lastGeneration = g.Num
	f.resolveReasons()
	f.findMainModule()
	f.identities.add(g, f.syms)
	for i := range g.User {
		if s := f.eventSources[g.User[i].Kind]; s != nil {
			s.addEvent(&f.collector, &g.User[i])
		}
	}
	for _, stage := range f.stages {
		for _, s := range stage {
			s.add(&f.collector, g)
		}
		for _, s := range stage {
			s.finishGeneration(&f.collector, g)
		}
	}
	f.requestCount += len(f.emitted) + f.series.count()
	f.loops.backlogs.addMessages(f.emitted)
	removeUnknown(f.annotated, g)
	clear(f.annotatedSpans)
	f.emitLongPieces(g)
	if f.identities.hasIDs {
		f.emitted = AppendUnits(f.emitted, f.Series()...)
		f.series.reset()
	}
	f.identities.attach(f.emitted)
	return f.emitted
}

// Series returns the requests of the last generation that Add left out. They are valid until the next call of Add.
func (f *Finder) Series() []*Series { return f.series.list }

// OldestOpen returns the earliest pieceStart of the open requests, or the largest int64 if none is open. Generations
// that end before it can be dropped.
func (f *Finder) OldestOpen() int64 {
	t := int64(math.MaxInt64)
	f.visitOpen(func(o *openRequest, _ Request) { t = min(t, o.pieceStart) })
	return t
}

// visitOpen calls visit with each open request of all stages.
func (f *Finder) visitOpen(visit func(*openRequest, Request)) {
	for _, stage := range f.stages {
		f.visitOpenOf(stage, visit)
	}
}

// visitOpenOf calls visit with each open request of one stage, once for each request: a request within a mark is left out, and a
// request of a protocol with a task that represents it is visited as the task.
func (f *Finder) visitOpenOf(stage []source, visit func(*openRequest, Request)) {
	for _, s := range stage {
		s.visitOpen(func(o *openRequest, r Request) {
			if r.Kind != Mark && r.Kind.IsServed() && f.marks.isMarked(r.G, o) {
				return
			}
			if r.Kind.HasProtocol() {
				name := o.pieceTask
				if o.pieceKey == 0 {
					name = f.tasks.nameOfRepresentingTask(r.G, o)
				}
				if name != 0 {
					r.Kind, r.Name = Task, name
				}
			} else if served := f.openServed(r.G); r.Kind == Task && served != nil && served.start <= o.start {
				return
			}
			visit(o, r)
		})
	}
}

// emitLongPieces emits a piece of each request that has been open for more than maxOpenGenerations, so that the generations of
// the piece can be dropped.
func (f *Finder) emitLongPieces(g *timeline.Gen) {
	if len(f.window.Gens) < maxOpenGenerations {
		return
	}
	limit := f.window.Gens[len(f.window.Gens)-maxOpenGenerations].Base
	f.visitOpen(func(begin *openRequest, piece Request) {
		if begin.pieceStart > limit {
			return
		}
		end := f.pieceEnd(piece.G, begin.pieceStart, g.Base)
		if end <= begin.pieceStart {
			return
		}
		if begin.pieceKey == 0 {
			f.lastPieceKey++
			begin.pieceKey = f.lastPieceKey
			if f.openServed(piece.G) == begin {
				begin.pieceTask = piece.Name
			}
		}
		piece.Start, piece.End, piece.Piece, piece.PieceKey = begin.pieceStart, end, MiddlePiece, begin.pieceKey
		begin.pieceStart = end
		f.emitted = append(f.emitted, piece)
	})
}

// Finish processes the end of the trace at time end. It returns the requests that are still open and those that only the end
// shows, in order of Compare.
func (f *Finder) Finish(end int64) []Request {
	f.traceEnd = end
	f.emitted = f.emitted[:0]
	for _, stage := range f.stages {
		for _, s := range stage {
			s.finishTrace(&f.collector, end)
		}
		f.visitOpenOf(stage, func(o *openRequest, r Request) {
			f.openAtEnd[r.G] = true
			r.End, r.Open = end, true
			f.emit(o, r)
		})
	}
	f.identities.attach(f.emitted)
	slices.SortFunc(f.emitted, Compare)
	return f.emitted
}
