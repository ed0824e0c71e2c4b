package request

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// maxOpenGenerations is how many generations a request may stay open before it is emitted in pieces, so that old
// generations can be dropped.
const maxOpenGenerations = 6

// A Finder follows goroutines from generation to generation and emits the requests that ended. It is not safe for
// concurrent use.
type Finder struct {
	syms   *tracefmt.Symbols
	window *timeline.Window
	opts   Options

	// Lookups by name, text and stack.
	namer           *Namer
	stackInfos      []stackInfo
	canonicalStacks map[string]tracefmt.StackID // by the key that canonicalStack builds
	reasonIDs       [len(reasonTexts)]tracefmt.StringID
	identities      *identityFinder

	// State of each source, mostly by goroutine.
	markers     map[uint64]*marker
	markKeys    map[tracefmt.StringID]markKey
	tasks       map[uint64]*task
	endedTasks  map[uint64][]endedTask // by the goroutine on which the task began
	openRegions map[uint64][]region
	connections map[uint64]*http1Conn
	streams     map[uint64]*stream
	grpcWorkers map[uint64]*grpcWorker
	messages    messageFinder
	jobs        jobFinder
	loops       loopFinder
	work        workIndex // what jobs and loops have in common
	calls       *callFinder
	starts      startCounter

	// Progress.
	traceStart     int64
	lastGeneration uint64 // its number
	generations    int
	requestCount   int // emitted so far
	lastPieceKey   uint64

	// Buffers of one generation.
	emitted       []Request
	workerOutputs [][]Request // of followConns
	births        []timeline.Birth
	newStreams    []newStream
	spanBuffer    []timeline.Span
	workerSpans   [][]timeline.Span // of followStreams
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

// NewFinder returns a Finder over a window. The caller appends each generation to the window and then calls Add with
// it.
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

// openRequest is the state that all open requests share.
type openRequest struct {
	start      int64
	pieceStart int64  // start of the first piece that was not emitted yet
	pieceKey   uint64 // 0 until a piece was emitted
	cutAtStart bool
}

// Add processes the window's last generation. It returns the requests that ended in it and pieces of requests that have
// been open for long, in no order. The slice is valid until the next call.
func (f *Finder) Add(g *timeline.Gen) []Request {
	f.emitted = f.emitted[:0]
	if f.generations++; f.generations == 1 {
		f.traceStart = g.Base
	}
	if g.Num != f.lastGeneration+1 {
		clear(f.markers) // generations are missing, and ends of marks with them
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
		f.findWork(g)
		// Pieces of the main goroutine's life do not count: they are emitted in case nothing else is found.
		if f.requestCount += len(f.emitted) - f.jobs.mainPieces; f.requestCount == 0 {
			f.starts.add(f, g)
		}
	}
	f.emitLongPieces(g)
	f.attachIdentities(f.emitted)
	return f.emitted
}

// attachIdentities sets the identities that tracers wrote for requests.
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

// Compare orders requests by end, then by start, goroutine, kind and name.
func Compare(a, b Request) int {
	return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G),
		cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func (f *Finder) emit(o *openRequest, r Request) { f.emitted = append(f.emitted, o.complete(r)) }

// complete returns r with the bounds of o, which has ended. If pieces of o were emitted, r is the last piece.
func (o *openRequest) complete(r Request) Request {
	r.Start, r.CutAtStart, r.wholeStart = o.start, o.cutAtStart, o.start
	if o.pieceKey != 0 {
		r.Start, r.Piece, r.PieceKey = o.pieceStart, LastPiece, o.pieceKey
	}
	r.End = max(r.End, r.Start)
	return r
}

// emitFromProtocol emits a request that a protocol delimits. If marks or tasks within it represent it, they are emitted
// instead.
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

// removeEnded deletes the entries of goroutines that ended, in order of their ids, and calls onEnd for each. It also
// deletes entries of goroutines that the generation does not know, because a part of the trace was lost.
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

// OldestOpen returns the earliest pieceStart of the open requests, or the largest int64 if none is open. Generations
// that end before it can be dropped.
func (f *Finder) OldestOpen() int64 {
	const noneOpen = 1<<63 - 1
	t := int64(noneOpen)
	f.visitOpen(func(o *openRequest, _ Request) { t = min(t, o.pieceStart) })
	return t
}

func (f *Finder) visitOpen(visit func(*openRequest, Request)) {
	for id, c := range f.connections {
		if c.phase == connActive && !c.openRequest.cutAtStart && (c.isHandlerEntered || !c.awaitsFirstByte) &&
			c.finishStart == 0 && !f.isMarked(id, &c.openRequest) {
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

// emitLongPieces emits pieces of requests that have been open for more than maxOpenGenerations, so that the generations
// of the pieces can be dropped.
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

// pieceEnd returns where to end a piece that covers from to at most to. It is the start of the state in which the
// goroutine is at to, so that a long wait is in one piece with its end. If that state covers the whole piece, it is to.
func (f *Finder) pieceEnd(id uint64, from, to int64) int64 {
	f.spanBuffer = f.window.Spans(id, to-1, to, f.spanBuffer[:0])
	if len(f.spanBuffer) > 0 && f.spanBuffer[0].Start > from && f.spanBuffer[0].Start < to {
		return f.spanBuffer[0].Start
	}
	return to
}

// Finish returns the requests that are open at the end of the trace.
func (f *Finder) Finish(end int64) []Request {
	f.emitted = f.emitted[:0]
	for _, id := range slices.Sorted(maps.Keys(f.connections)) {
		// The response was sent, so the request is over even if the goroutine did not get to its next wait.
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
		f.emitted = append(f.emitted, Request{
			Kind: Main, Start: j.mainLife.pieceStart, End: end, G: 1, Piece: LastPiece, PieceKey: mainKey,
		})
	}
	f.attachIdentities(f.emitted)
	slices.SortFunc(f.emitted, Compare)
	return f.emitted
}

// emitOpenThroughout emits the requests that began before the trace and did not end in it: requests that hang, and
// hijacked connections. Only the stacks of their goroutines show them.
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
			return // the stack belongs to the creator until the goroutine runs
		}
		f.spanBuffer = f.window.Spans(id, end-1, end, f.spanBuffer[:0])
		if len(f.spanBuffer) == 0 {
			return
		}
		stack := f.spanBuffer[len(f.spanBuffer)-1].Stack
		kind := f.handlerKind(stack)
		if kind == 0 || f.stackInfo(stack).isMessageWait {
			return // a connection that waits for its first message
		}
		r := Request{Kind: kind, Start: f.traceStart, End: end, G: id, Open: true, CutAtStart: true}
		if c := f.connections[id]; c != nil {
			// Earlier requests of the connection are in the trace. This one followed the last of them without an idle
			// wait and has no event yet.
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
	isRoot := func(fr tracefmt.FrameID) bool { return f.namer.frameFunction(fr).Has(knowledge.HandlerRoot) }
	if (outer.Has(knowledge.HTTP1Connection) || outer.Has(knowledge.GRPCWorker)) && !slices.ContainsFunc(frames, isRoot) {
		return 0
	}
	return outer.servedKind()
}

// followStreams follows goroutines that serve one stream each, and emits the streams that end in the generation.
func (f *Finder) followStreams(g *timeline.Gen) {
	f.newStreams = f.newStreams[:0]
	f.births = g.Births(func(start tracefmt.StackID) bool { return f.stackInfo(start).streamKind != 0 }, f.births[:0])
	for _, b := range f.births {
		f.newStreams = append(f.newStreams, newStream{birth: b, kind: f.stackInfo(b.Start).streamKind})
	}
	// Most streams begin and end in one generation. They are independent, so workers process them in parallel.
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

// streamBatch is how many streams a worker takes at once.
const streamBatch = 64

// runParallel lets workers process a list in batches. Each worker has its own state.
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
			state := (*states)[k] // a copy avoids false sharing of cache lines
			for from := int(next.Add(int64(batch))) - batch; from < len(list); from = int(next.Add(int64(batch))) - batch {
				process(&state, list[from:min(from+batch, len(list))])
			}
			(*states)[k] = state
		})
	}
	wg.Wait()
}

// A newStream is a goroutine that serves a stream and was created in this generation.
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
	wokenAt int64 // equals start if the network woke the reader, else 0
}

// frameArrival returns when the frame that began a stream was read. wokenAt is the same time if the network woke the
// reader for it, else 0. With gRPC, the goroutine that reads the connection creates the stream's goroutine. With
// HTTP/2, the reader passes each frame to the connection's goroutine, which creates it. The time from the reader's wake
// to the creation is part of the request. If one read returned several frames, the later ones count from when the
// reader passed them on, so their requests may have begun a little earlier.
func (f *Finder) frameArrival(birth timeline.Birth, spans []timeline.Span) (start, wokenAt int64, buf []timeline.Span) {
	wait, ok, spans := f.lastWait(birth.Creator, birth.Time, spans)
	if !ok {
		return birth.Time, 0, spans
	}
	if f.reasonOf(wait.Reason) != reasonNetwork {
		if wait.Waker == 0 && wait.Origin == timeline.OriginStatus {
			return wait.End, 0, spans // probably the network poller: a status event does not say
		}
		if wait.Waker == 0 {
			return birth.Time, 0, spans // a timer woke the creator: its earlier work may belong to other streams
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

// lookback bounds the search for a goroutine's last wait. No goroutine stays runnable for longer on a working machine.
const lookback = 2e9

// lastWait returns the last wait of a goroutine that ended before t.
func (f *Finder) lastWait(id uint64, t int64, spans []timeline.Span) (timeline.Span, bool, []timeline.Span) {
	wakeTime, ok := f.window.LastWake(id, t-lookback, t)
	if !ok {
		return timeline.Span{}, false, spans
	}
	// If a part of the trace is missing, the goroutine may not have waited before this wake.
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

// A grpcWorker serves one gRPC stream after the other.
type grpcWorker struct {
	openRequest
	busy      bool
	idleSince int64 // when its wait for work began
}

// followGRPCWorkers follows the stream workers of gRPC servers that use grpc.NumStreamWorkers. A worker gets work only
// while it waits, so there is exactly one stream from one wait to the next.
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
					// Its stream began before the trace, or with a wake from a wait that the trace does not show.
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
