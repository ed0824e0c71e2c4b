package request

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// maxOpenGenerations is how many generations a request may stay open before it is handed
// out in parts, so that it does not pin the window.
const maxOpenGenerations = 6

// A Finder follows goroutines from generation to generation and hands out the
// requests that ended. Not safe for concurrent use.
type Finder struct {
	syms   *tracefmt.Symbols
	window *timeline.Window
	opts   Options

	// What names, texts and stacks say.
	namer           *Namer
	stackInfos      []stackInfo
	canonicalStacks map[string]tracefmt.StackID // see bare
	reasonIDs       [len(reasonTexts)]tracefmt.StringID
	identities      *identityFinder

	// The ways to find requests, and what each keeps, mostly by goroutine.
	markers     map[uint64]*marker
	markKeys    map[tracefmt.StringID]markKey
	tasks       map[uint64]*task
	endedTasks  map[uint64][]endedTask // by the goroutine on which it began
	openRegions map[uint64][]region
	connections map[uint64]*http1Conn
	streams     map[uint64]*stream
	grpcWorkers map[uint64]*grpcWorker
	messages    messageFinder
	jobs        jobFinder
	loops       loopFinder
	work        workIndex // of jobs and loops
	calls       *callFinder
	starts      startCounter

	// The trace so far.
	traceStart     int64  // its start
	lastGeneration uint64 // the last generation's
	generations    int
	requestCount   int    // requests
	lastPieceKey   uint64 // of those that were handed out in parts

	// Of one generation, and scratch.
	emitted       []Request
	workerOutputs [][]Request // of connMarks' workers
	births        []timeline.Birth
	newStreams    []newStream
	spanBuffer    []timeline.Span
	workerSpans   [][]timeline.Span // of births' workers
}

// Options change what is looked for.
type Options struct {
	// MatchFunc, if not nil, says which functions are requests; nothing else is
	// looked for then.
	MatchFunc func(fn string) bool
	// NoMarks leaves marks of service/mark aside.
	NoMarks bool
	// Workers is how many goroutines may look at once.
	Workers int
}

// NewFinder returns a Finder over a window, to whose end each generation is
// appended before Add is called with it.
func NewFinder(syms *tracefmt.Symbols, win *timeline.Window, opts Options) *Finder {
	f := &Finder{
		syms: syms, window: win, opts: opts, namer: NewNamer(syms),
		connections:     make(map[uint64]*http1Conn),
		streams:         make(map[uint64]*stream),
		grpcWorkers:     make(map[uint64]*grpcWorker),
		tasks:           make(map[uint64]*task),
		openRegions:     make(map[uint64][]region),
		endedTasks:      make(map[uint64][]endedTask),
		markers:         make(map[uint64]*marker),
		markKeys:        make(map[tracefmt.StringID]markKey),
		identities:      newIdentityFinder(),
		canonicalStacks: make(map[string]tracefmt.StackID),
		work:            newWorkIndex(),
		loops:           newLoopFinder(opts.Workers),
		jobs:            newJobFinder(),
		messages:        newMessageFinder(),
	}
	if opts.MatchFunc != nil {
		f.calls = newCallFinder(opts.MatchFunc)
	}
	return f
}

// openRequest is what all open requests have in common.
type openRequest struct {
	start      int64
	pieceStart int64  // start of the part that is still to be handed out
	pieceKey   uint64 // not 0 once a part was
	cutAtStart bool
}

// Add looks at the window's last generation and returns the requests that
// ended in it, and parts of those that have been open for long, in no order.
// The slice is valid until the next call.
func (f *Finder) Add(g *timeline.Gen) []Request {
	f.emitted = f.emitted[:0]
	if f.generations++; f.generations == 1 {
		f.traceStart = g.Base
	}
	if g.Num != f.lastGeneration+1 {
		clear(f.markers) // what was between is lost, ends of marks with it
	}
	f.lastGeneration = g.Num
	f.resolveReasons()
	f.identities.add(g, f.syms)
	if f.calls != nil {
		f.calls.add(f, g)
	} else {
		f.findMainModule()
		f.followAnnotations(g)
		f.followHTTP1(g)
		f.followStreams(g)
		f.followGRPCWorkers(g)
		f.messages.add(f, g)
		f.emitFreeTasks()
		f.emitFreeMarks(g)
		f.addWork(g)
		// Main's life is handed out in case that nothing else is found.
		if f.requestCount += len(f.emitted) - f.jobs.mainPieces; f.requestCount == 0 {
			f.starts.add(f, g)
		}
	}
	f.emitLongPieces(g)
	f.attachIdentities(f.emitted)
	return f.emitted
}

// attachIdentities gives requests what a tracer wrote about them.
func (f *Finder) attachIdentities(reqs []Request) {
	if f.identities.isEmpty() {
		return
	}
	for i := range reqs {
		if r := &reqs[i]; r.Identity == nil && r.Piece != MiddlePiece && !r.CutAtStart {
			r.Identity = f.identities.identityOf(r)
		}
	}
}

// Compare orders requests by their end, and those of one end by what else
// tells them apart.
func Compare(a, b Request) int {
	return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func (f *Finder) emit(o *openRequest, r Request) { f.emitted = append(f.emitted, o.complete(r)) }

// complete fills in an open request that has ended.
func (o *openRequest) complete(r Request) Request {
	r.Start, r.CutAtStart, r.wholeStart = o.start, o.cutAtStart, o.start
	if o.pieceKey != 0 { // what lies before was handed out
		r.Start, r.Piece, r.PieceKey = o.pieceStart, LastPiece, o.pieceKey
	}
	r.End = max(r.End, r.Start)
	return r
}

// emitFromProtocol hands out a request that a protocol shows, unless marks or tasks in it stand for it.
func (f *Finder) emitFromProtocol(out *[]Request, begin *openRequest, request Request) {
	switch {
	case f.emitMarks(out, request.G, begin, request.End):
	case begin.cutAtStart:
		if len(f.endedTasks) > 0 {
			delete(f.endedTasks, request.G)
		}
		*out = append(*out, Request{Kind: request.Kind, End: request.End, G: request.G, CutAtStart: true})
	case !f.emitTasksInstead(request.G, begin.start, request.End):
		*out = append(*out, begin.complete(request))
	}
}

// removeEnded drops what is kept of goroutines that have ended, for which it calls ended, in order, and of those that were lost with a part of the trace.
func removeEnded[V any](byGoroutine map[uint64]V, g *timeline.Gen, onEnd func(id uint64, v V, endTime int64)) {
	for _, id := range slices.Sorted(maps.Keys(byGoroutine)) {
		t, dead := g.Death(id)
		if !dead && g.Knows(id) {
			continue
		}
		v := byGoroutine[id]
		delete(byGoroutine, id)
		if dead && onEnd != nil {
			onEnd(id, v, t)
		}
	}
}

// OldestOpen returns the start of the oldest part that is still open: what lies
// before can be forgotten. It is max if nothing is open.
func (f *Finder) OldestOpen() int64 {
	const noneOpen = 1<<63 - 1
	t := int64(noneOpen)
	f.visitOpen(func(o *openRequest, _ Request) { t = min(t, o.pieceStart) })
	return t
}

func (f *Finder) visitOpen(visit func(*openRequest, Request)) {
	for id, c := range f.connections {
		if c.phase == connActive && !c.openRequest.cutAtStart && (c.isHandlerEntered || !c.awaitsFirstByte) && c.finishStart == 0 && !f.isMarked(id, &c.openRequest) {
			visit(&c.openRequest, Request{Kind: HTTP1, G: id})
		}
	}
	for id, s := range f.streams {
		if !f.isMarked(id, &s.openRequest) {
			visit(&s.openRequest, Request{Kind: s.kind, G: id})
		}
	}
	for id, w := range f.grpcWorkers {
		if w.busy && !w.openRequest.cutAtStart && !f.isMarked(id, &w.openRequest) {
			visit(&w.openRequest, Request{Kind: GRPC, G: id})
		}
	}
	for _, t := range f.tasks {
		if t.isRequest && !f.isMarked(t.goroutine, &t.openRequest) {
			visit(&t.openRequest, Request{Kind: Task, G: t.goroutine, Name: t.name})
		}
	}
	for id, rs := range f.openRegions {
		if len(rs) > 0 && rs[0].isOutermost && !f.isMarked(id, &rs[0].openRequest) {
			visit(&rs[0].openRequest, Request{Kind: Region, G: id, Name: rs[0].name})
		}
	}
	for id, m := range f.markers {
		if m.depth > 0 {
			visit(&m.mark.openRequest, Request{Kind: Mark, G: id, Name: m.mark.name, Identity: &m.mark.id})
		}
	}
	f.messages.visitOpen(f, visit)
	f.jobs.visitOpen(visit)
	if f.calls != nil {
		for id, c := range f.calls.calls {
			visit(&c.openRequest, c.toRequest(id))
		}
	}
}

// emitLongPieces hands out pieces of requests that have been open for long, so that
// the generations they lie in can be dropped.
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
		}
		piece.Start, piece.End, piece.Piece, piece.PieceKey = begin.pieceStart, end, MiddlePiece, begin.pieceKey
		begin.pieceStart = end
		f.emitted = append(f.emitted, piece)
	})
}

// pieceEnd returns where to end a part of a long request that began at from, by time to: where the goroutine's state at that time began, so that the end
// of a long wait is still to come; a wait that has lasted the whole part is cut where it is.
func (f *Finder) pieceEnd(id uint64, from, to int64) int64 {
	f.spanBuffer = f.window.Spans(id, to-1, to, f.spanBuffer[:0])
	if len(f.spanBuffer) > 0 && f.spanBuffer[0].Start > from && f.spanBuffer[0].Start < to {
		return f.spanBuffer[0].Start
	}
	return to
}

// Finish returns the requests that are still open at the trace's end.
func (f *Finder) Finish(end int64) []Request {
	f.emitted = f.emitted[:0]
	for _, id := range slices.Sorted(maps.Keys(f.connections)) {
		// One whose answer went out is over, though its goroutine came to nothing else.
		if c := f.connections[id]; c.phase == connActive && c.finishStart != 0 {
			f.endHTTP1(&f.emitted, id, c, c.finishStart)
		}
	}
	if f.calls != nil {
		f.calls.narrowOpenCalls()
	}
	openGoroutines := make(map[uint64]bool)
	f.visitOpen(func(o *openRequest, r Request) {
		openGoroutines[r.G] = true
		r.End, r.Open = end, true
		f.emit(o, r)
	})
	if f.calls == nil {
		f.emitOpenThroughout(end, openGoroutines)
	}
	if j := &f.jobs; j.isMainKnown {
		f.emitted = append(f.emitted, Request{Kind: Main, Start: j.mainLife.pieceStart, End: end, G: 1, Piece: LastPiece, PieceKey: mainKey})
	}
	f.attachIdentities(f.emitted)
	slices.SortFunc(f.emitted, Compare)
	return f.emitted
}

// emitOpenThroughout hands out the requests that had begun before the trace and have
// not ended in it: what hangs, and connections taken over. Nothing marks them
// but where their goroutines are.
func (f *Finder) emitOpenThroughout(end int64, openGoroutines map[uint64]bool) {
	if len(f.window.Gens) == 0 {
		return
	}
	g := f.window.Gens[len(f.window.Gens)-1]
	g.Goroutines(func(id uint64) {
		if openGoroutines[id] || f.messages.readers[id] != nil {
			return
		}
		if _, dead := g.Death(id); dead {
			return
		}
		if _, born := g.BirthOf(id); born {
			return // until it runs, its stack is its creator's
		}
		f.spanBuffer = f.window.Spans(id, end-1, end, f.spanBuffer[:0])
		if len(f.spanBuffer) == 0 {
			return
		}
		stack := f.spanBuffer[len(f.spanBuffer)-1].Stack
		kind := f.handlerKind(stack)
		if kind == 0 || f.stackInfo(stack).isMessageWait {
			return // a connection on which no message came
		}
		r := Request{Kind: kind, Start: f.traceStart, End: end, G: id, Open: true, CutAtStart: true}
		if c := f.connections[id]; c != nil {
			// The connection has done others in the trace: this one followed the
			// last of them without an idle wait, and has left no mark yet.
			r.Start, r.CutAtStart = max(c.start, c.idleSince, c.finishStart, c.finishLast), false
		}
		f.emitted = append(f.emitted, r)
	})
}

// handlerKind returns the kind of request in whose handler a stack is, or 0.
func (f *Finder) handlerKind(id tracefmt.StackID) Kind {
	frames := f.syms.Stack(id)
	if len(frames) == 0 {
		return 0
	}
	outer := f.namer.frameFunction(frames[len(frames)-1])
	if outer.hasAny(http1Connection|grpcWorkerFunc) && !slices.ContainsFunc(frames, func(fr tracefmt.FrameID) bool { return f.namer.frameFunction(fr).hasAny(handlerRoot) }) {
		return 0
	}
	return outer.servedKind()
}

// followStreams follows goroutines that serve one stream each.
func (f *Finder) followStreams(g *timeline.Gen) {
	f.newStreams = f.newStreams[:0]
	f.births = g.Births(func(start tracefmt.StackID) bool { return f.stackInfo(start).streamKind != 0 }, f.births[:0])
	for _, b := range f.births {
		f.newStreams = append(f.newStreams, newStream{birth: b, kind: f.stackInfo(b.Start).streamKind})
	}
	// Most begin and end here. They are looked at at once, since they do not know of each other.
	runParallel(&f.workerSpans, f.opts.Workers, f.newStreams, streamBatch, func(spans *[]timeline.Span, list []newStream) {
		for i := range list {
			n := &list[i]
			n.start, n.wokenAt, *spans = f.frameArrival(n.birth, *spans)
			n.deathTime, n.dead = g.Death(n.birth.G)
		}
	})
	removeEnded(f.streams, g, f.endStream)
	for i := range f.newStreams {
		n := &f.newStreams[i]
		s := stream{kind: n.kind, openRequest: openRequest{start: n.start, pieceStart: n.start}, wokenAt: n.wokenAt}
		if n.dead {
			f.endStream(n.birth.G, &s, n.deathTime)
		} else {
			f.streams[n.birth.G] = &s
		}
	}
}

func (f *Finder) endStream(id uint64, s *stream, t int64) {
	f.emitFromProtocol(&f.emitted, &s.openRequest, Request{Kind: s.kind, End: t, G: id, WokenAt: s.wokenAt})
}

// streamBatch is how many streams a worker takes at a time.
const streamBatch = 64

// runParallel has several workers do parts of a list, so many things at a time, each with what is its own.
func runParallel[S, T any](states *[]S, workers int, list []T, batch int, process func(states *S, part []T)) {
	workers = max(min(workers, (len(list)+batch-1)/batch), 1)
	for len(*states) < workers {
		*states = append(*states, *new(S))
	}
	if workers == 1 {
		process(&(*states)[0], list)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			state := (*states)[k] // a copy: neighbours in memory slow each other down
			for from := int(next.Add(int64(batch))) - batch; from < len(list); from = int(next.Add(int64(batch))) - batch {
				process(&state, list[from:min(from+batch, len(list))])
			}
			(*states)[k] = state
		})
	}
	wg.Wait()
}

// A newborn is a goroutine that serves a stream and was created in this generation.
type newStream struct {
	birth          timeline.Birth
	kind           Kind
	start, wokenAt int64
	deathTime      int64
	dead           bool
}

type stream struct {
	openRequest
	kind    Kind
	wokenAt int64 // start, if that is a wake from the network
}

// frameArrival returns when the frame that began a stream was read, and the same
// as ready if it is known to have come from the network just then. The stream's
// goroutine is made by the one that reads the connection (gRPC), or by the
// connection's own, to which the reader hands each frame (HTTP/2): their way
// from the wake to the birth is part of the request. A frame that had been read
// with others before is taken as it is handed on, so the request may be a
// little older than that.
func (f *Finder) frameArrival(birth timeline.Birth, spans []timeline.Span) (start, wokenAt int64, buf []timeline.Span) {
	wait, ok, spans := f.lastWait(birth.By, birth.Time, spans)
	if !ok {
		return birth.Time, 0, spans
	}
	if f.reasonOf(wait.Reason) != reasonNetwork {
		if wait.Waker == 0 && wait.How == timeline.HowStatus {
			return wait.End, 0, spans // the poller, most likely: the trace does not say
		}
		if wait.Waker == 0 {
			return birth.Time, 0, spans // a timer: what it did before is not known to be for the stream
		}
		var readerWait timeline.Span
		if readerWait, ok, spans = f.lastWait(wait.Waker, wait.End, spans); !ok {
			return wait.End, 0, spans
		}
		wait = readerWait
	}
	if f.reasonOf(wait.Reason) == reasonNetwork {
		wokenAt = wait.End
	}
	return wait.End, wokenAt, spans
}

// lookback is how far back a goroutine's last wait is looked for: further than
// a runnable goroutine is left waiting on any machine that works.
const lookback = 2e9

// lastWait returns a goroutine's last wait that ended before t.
func (f *Finder) lastWait(id uint64, t int64, spans []timeline.Span) (timeline.Span, bool, []timeline.Span) {
	wakeTime, ok := f.window.LastWake(id, t-lookback, t)
	if !ok {
		return timeline.Span{}, false, spans
	}
	// Where a part of the trace is lost, what was woken may not have waited.
	from, to := wakeTime-1, min(wakeTime+1, t)
	for back := int64(20e3); ; back *= 10 {
		spans = f.window.SpansCoarse(id, from, to, spans[:0])
		for i := len(spans) - 1; i >= 0; i-- {
			if s := spans[i]; s.State == timeline.Waiting && s.Woken && s.End <= t {
				return s, true, spans
			}
		}
		if from < wakeTime-1 && (len(spans) == 0 || spans[0].Start < t-lookback) || back > lookback {
			return timeline.Span{}, false, spans
		}
		from, to = t-back, t
	}
}

// A worker serves one gRPC stream after the other.
type grpcWorker struct {
	openRequest
	busy      bool
	idleSince int64 // when it began to wait for work
}

// followGRPCWorkers follows the stream workers of gRPC servers that have them
// (grpc.NumStreamWorkers). Work is handed to a worker only while it waits, so
// from one wait to the next there is exactly one stream.
func (f *Finder) followGRPCWorkers(g *timeline.Gen) {
	removeEnded(f.grpcWorkers, g, nil)
	for id, worker := range f.grpcWorkers {
		if worker.busy {
			continue
		}
		if t, ok := g.NextWake(id, worker.idleSince); ok {
			worker.busy, worker.openRequest = true, openRequest{start: t, pieceStart: t}
		}
	}
	g.EachMarked(func(id uint64, marks []timeline.Mark) {
		for _, mark := range marks {
			if mark.Flags&flagWorker == 0 || mark.Kind != tracefmt.EvGoBlock {
				continue
			}
			worker := f.grpcWorkers[id]
			if worker == nil {
				worker = &grpcWorker{}
				f.grpcWorkers[id] = worker
				if _, born := g.BirthOf(id); !born {
					// It has worked since before the trace, or since it was woken
					// from a wait of which nothing is known: on one stream.
					worker.busy, worker.cutAtStart = true, true
				}
			}
			if worker.busy {
				f.emitFromProtocol(&f.emitted, &worker.openRequest, Request{Kind: GRPC, End: mark.Time, G: id})
			}
			worker.busy, worker.idleSince = false, mark.Time
			if t, ok := g.NextWake(id, mark.Time); ok {
				worker.busy, worker.openRequest = true, openRequest{start: t, pieceStart: t}
			}
		}
	})
}
