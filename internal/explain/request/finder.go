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

// keep is how many generations a request may stay open before it is handed
// out in parts, so that it does not pin the window.
const keep = 6

// A Finder follows goroutines from generation to generation and hands out the
// requests that ended. Not safe for concurrent use.
type Finder struct {
	syms *tracefmt.Symbols
	win  *timeline.Window
	opts Options

	// What names, texts and stacks say.
	namer   *Namer
	stacks  []stackInfo
	byBare  map[string]tracefmt.StackID // see bare
	reasons [len(reasonTexts)]tracefmt.StringID
	ids     *identities

	// The ways to find requests, and what each keeps, mostly by goroutine.
	marks    map[uint64]*marker
	markKeys map[tracefmt.StringID]markKey
	tasks    map[uint64]*task
	done     map[uint64][]doneTask // by the goroutine on which it began
	regions  map[uint64][]region
	conns    map[uint64]*conn
	streams  map[uint64]*stream
	workers  map[uint64]*worker
	messages messages
	jobs     jobs
	loops    loops
	work     work // of jobs and loops
	funcs    *funcs
	starting starts

	// The trace so far.
	first int64  // its start
	num   uint64 // the last generation's
	gens  int
	found int    // requests
	keys  uint64 // of those that were handed out in parts

	// Of one generation, and scratch.
	out     []Request
	outs    [][]Request // of connMarks' workers
	born    []timeline.Birth
	newborn []newborn
	span    []timeline.Span
	spans   [][]timeline.Span // of births' workers
}

// Options change what is looked for.
type Options struct {
	// Match, if not nil, says which functions are requests; nothing else is
	// looked for then.
	Match func(fn string) bool
	// NoMarks leaves marks of service/mark aside.
	NoMarks bool
	// Workers is how many goroutines may look at once.
	Workers int
}

// NewFinder returns a Finder over a window, to whose end each generation is
// appended before Add is called with it.
func NewFinder(syms *tracefmt.Symbols, win *timeline.Window, opts Options) *Finder {
	f := &Finder{
		syms: syms, win: win, opts: opts, namer: NewNamer(syms),
		conns:    make(map[uint64]*conn),
		streams:  make(map[uint64]*stream),
		workers:  make(map[uint64]*worker),
		tasks:    make(map[uint64]*task),
		regions:  make(map[uint64][]region),
		done:     make(map[uint64][]doneTask),
		marks:    make(map[uint64]*marker),
		markKeys: make(map[tracefmt.StringID]markKey),
		ids:      newIdentities(),
		byBare:   make(map[string]tracefmt.StackID),
		work:     newWork(),
		loops:    newLoops(opts.Workers),
		jobs:     newJobs(),
		messages: newMessages(),
	}
	if opts.Match != nil {
		f.funcs = newFuncs(opts.Match)
	}
	return f
}

// open is what all open requests have in common.
type open struct {
	start int64
	from  int64  // start of the part that is still to be handed out
	key   uint64 // not 0 once a part was
	cut   bool
}

// Add looks at the window's last generation and returns the requests that
// ended in it, and parts of those that have been open for long, in no order.
// The slice is valid until the next call.
func (f *Finder) Add(g *timeline.Gen) []Request {
	f.out = f.out[:0]
	if f.gens++; f.gens == 1 {
		f.first = g.Base
	}
	if g.Num != f.num+1 {
		clear(f.marks) // what was between is lost, ends of marks with it
	}
	f.num = g.Num
	f.findReasons()
	f.ids.generation(g, f.syms)
	if f.funcs != nil {
		f.funcs.add(f, g)
	} else {
		f.findHome()
		f.annotations(g)
		f.http1(g)
		f.births(g)
		f.grpcWorkers(g)
		f.messages.add(f, g)
		f.freeTasks()
		f.freeMarks(g)
		f.addWork(g)
		// Main's life is handed out in case that nothing else is found.
		if f.found += len(f.out) - f.jobs.mains; f.found == 0 {
			f.starting.add(f, g)
		}
	}
	f.parts(g)
	f.identify(f.out)
	return f.out
}

// identify gives requests what a tracer wrote about them.
func (f *Finder) identify(reqs []Request) {
	if f.ids.none() {
		return
	}
	for i := range reqs {
		if r := &reqs[i]; r.Identity == nil && r.Part != Middle && !r.Cut {
			r.Identity = f.ids.of(r)
		}
	}
}

// Compare orders requests by their end, and those of one end by what else
// tells them apart.
func Compare(a, b Request) int {
	return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

func (f *Finder) emit(o *open, r Request) { f.out = append(f.out, o.request(r)) }

// request fills in an open request that has ended.
func (o *open) request(r Request) Request {
	r.Start, r.Cut, r.began = o.start, o.cut, o.start
	if o.key != 0 { // what lies before was handed out
		r.Start, r.Part, r.Key = o.from, Last, o.key
	}
	r.End = max(r.End, r.Start)
	return r
}

// ended hands out a request that a protocol shows, unless marks or tasks in it stand for it.
func (f *Finder) ended(out *[]Request, o *open, r Request) {
	switch {
	case f.marked(out, r.G, o, r.End):
	case o.cut:
		if len(f.done) > 0 {
			delete(f.done, r.G)
		}
		*out = append(*out, Request{Kind: r.Kind, End: r.End, G: r.G, Cut: true})
	case !f.fills(r.G, o.start, r.End):
		*out = append(*out, o.request(r))
	}
}

// gone drops what is kept of goroutines that have ended, for which it calls ended, in order, and of those that were lost with a part of the trace.
func gone[V any](of map[uint64]V, g *timeline.Gen, ended func(id uint64, v V, at int64)) {
	for _, id := range slices.Sorted(maps.Keys(of)) {
		t, dead := g.Death(id)
		if !dead && g.Knows(id) {
			continue
		}
		v := of[id]
		delete(of, id)
		if dead && ended != nil {
			ended(id, v, t)
		}
	}
}

// Oldest returns the start of the oldest part that is still open: what lies
// before can be forgotten. It is max if nothing is open.
func (f *Finder) Oldest() int64 {
	const none = 1<<63 - 1
	t := int64(none)
	f.eachOpen(func(o *open, _ Request) { t = min(t, o.from) })
	return t
}

func (f *Finder) eachOpen(visit func(*open, Request)) {
	for id, c := range f.conns {
		if c.phase == connActive && !c.open.cut && (c.entered || !c.fresh) && c.finish == 0 && !f.inMark(id, &c.open) {
			visit(&c.open, Request{Kind: HTTP1, G: id})
		}
	}
	for id, s := range f.streams {
		if !f.inMark(id, &s.open) {
			visit(&s.open, Request{Kind: s.kind, G: id})
		}
	}
	for id, w := range f.workers {
		if w.busy && !w.open.cut && !f.inMark(id, &w.open) {
			visit(&w.open, Request{Kind: GRPC, G: id})
		}
	}
	for _, t := range f.tasks {
		if t.root && !f.inMark(t.g, &t.open) {
			visit(&t.open, Request{Kind: Task, G: t.g, Name: t.name})
		}
	}
	for id, rs := range f.regions {
		if len(rs) > 0 && rs[0].outer && !f.inMark(id, &rs[0].open) {
			visit(&rs[0].open, Request{Kind: Region, G: id, Name: rs[0].name})
		}
	}
	for id, m := range f.marks {
		if m.depth > 0 {
			visit(&m.mark.open, Request{Kind: Mark, G: id, Name: m.mark.name, Identity: &m.mark.id})
		}
	}
	f.messages.eachOpen(f, visit)
	f.jobs.eachOpen(visit)
	if f.funcs != nil {
		for id, c := range f.funcs.calls {
			visit(&c.open, c.request(id))
		}
	}
}

// parts hands out pieces of requests that have been open for long, so that
// the generations they lie in can be dropped.
func (f *Finder) parts(g *timeline.Gen) {
	if len(f.win.Gens) < keep {
		return
	}
	limit := f.win.Gens[len(f.win.Gens)-keep].Base
	f.eachOpen(func(o *open, r Request) {
		if o.from > limit {
			return
		}
		to := f.cut(r.G, o.from, g.Base)
		if to <= o.from {
			return
		}
		if o.key == 0 {
			f.keys++
			o.key = f.keys
		}
		r.Start, r.End, r.Part, r.Key = o.from, to, Middle, o.key
		o.from = to
		f.out = append(f.out, r)
	})
}

// cut returns where to end a part of a long request that began at from, by time to: where the goroutine's state at that time began, so that the end
// of a long wait is still to come; a wait that has lasted the whole part is cut where it is.
func (f *Finder) cut(id uint64, from, to int64) int64 {
	f.span = f.win.Spans(id, to-1, to, f.span[:0])
	if len(f.span) > 0 && f.span[0].Start > from && f.span[0].Start < to {
		return f.span[0].Start
	}
	return to
}

// Finish returns the requests that are still open at the trace's end.
func (f *Finder) Finish(end int64) []Request {
	f.out = f.out[:0]
	for _, id := range slices.Sorted(maps.Keys(f.conns)) {
		// One whose answer went out is over, though its goroutine came to nothing else.
		if c := f.conns[id]; c.phase == connActive && c.finish != 0 {
			f.connEnd(&f.out, id, c, c.finish)
		}
	}
	if f.funcs != nil {
		f.funcs.settle()
	}
	seen := make(map[uint64]bool)
	f.eachOpen(func(o *open, r Request) {
		seen[r.G] = true
		r.End, r.Open = end, true
		f.emit(o, r)
	})
	if f.funcs == nil {
		f.sinceBefore(end, seen)
	}
	if j := &f.jobs; j.mainG {
		f.out = append(f.out, Request{Kind: Main, Start: j.main.from, End: end, G: 1, Part: Last, Key: mainKey})
	}
	f.identify(f.out)
	slices.SortFunc(f.out, Compare)
	return f.out
}

// sinceBefore hands out the requests that had begun before the trace and have
// not ended in it: what hangs, and connections taken over. Nothing marks them
// but where their goroutines are.
func (f *Finder) sinceBefore(end int64, seen map[uint64]bool) {
	if len(f.win.Gens) == 0 {
		return
	}
	g := f.win.Gens[len(f.win.Gens)-1]
	g.Goroutines(func(id uint64) {
		if seen[id] || f.messages.readers[id] != nil {
			return
		}
		if _, dead := g.Death(id); dead {
			return
		}
		if _, born := g.BirthOf(id); born {
			return // until it runs, its stack is its creator's
		}
		f.span = f.win.Spans(id, end-1, end, f.span[:0])
		if len(f.span) == 0 {
			return
		}
		stack := f.span[len(f.span)-1].Stack
		kind := f.handling(stack)
		if kind == 0 || f.stackInfo(stack).message {
			return // a connection on which no message came
		}
		r := Request{Kind: kind, Start: f.first, End: end, G: id, Open: true, Cut: true}
		if c := f.conns[id]; c != nil {
			// The connection has done others in the trace: this one followed the
			// last of them without an idle wait, and has left no mark yet.
			r.Start, r.Cut = max(c.start, c.idle, c.finish, c.last), false
		}
		f.out = append(f.out, r)
	})
}

// handling returns the kind of request in whose handler a stack is, or 0.
func (f *Finder) handling(id tracefmt.StackID) Kind {
	frames := f.syms.Stack(id)
	if len(frames) == 0 {
		return 0
	}
	outer := f.namer.of(frames[len(frames)-1])
	if outer.is(connection|workerGRPC) && !slices.ContainsFunc(frames, func(fr tracefmt.FrameID) bool { return f.namer.of(fr).is(handlersRoot) }) {
		return 0
	}
	return outer.serves()
}

// births follows goroutines that serve one stream each.
func (f *Finder) births(g *timeline.Gen) {
	f.newborn = f.newborn[:0]
	f.born = g.Births(func(start tracefmt.StackID) bool { return f.stackInfo(start).stream != 0 }, f.born[:0])
	for _, b := range f.born {
		f.newborn = append(f.newborn, newborn{birth: b, kind: f.stackInfo(b.Start).stream})
	}
	// Most begin and end here. They are looked at at once, since they do not know of each other.
	share(&f.spans, f.opts.Workers, f.newborn, streamsAtOnce, func(spans *[]timeline.Span, list []newborn) {
		for i := range list {
			n := &list[i]
			n.start, n.ready, *spans = f.arrival(n.birth, *spans)
			n.death, n.dead = g.Death(n.birth.G)
		}
	})
	gone(f.streams, g, f.streamEnd)
	for i := range f.newborn {
		n := &f.newborn[i]
		s := stream{kind: n.kind, open: open{start: n.start, from: n.start}, ready: n.ready}
		if n.dead {
			f.streamEnd(n.birth.G, &s, n.death)
		} else {
			f.streams[n.birth.G] = &s
		}
	}
}

func (f *Finder) streamEnd(id uint64, s *stream, t int64) {
	f.ended(&f.out, &s.open, Request{Kind: s.kind, End: t, G: id, Ready: s.ready})
}

// streamsAtOnce is how many streams a worker takes at a time.
const streamsAtOnce = 64

// share has several workers do parts of a list, so many things at a time, each with what is its own.
func share[S, T any](own *[]S, workers int, list []T, atOnce int, do func(own *S, part []T)) {
	workers = max(min(workers, (len(list)+atOnce-1)/atOnce), 1)
	for len(*own) < workers {
		*own = append(*own, *new(S))
	}
	if workers == 1 {
		do(&(*own)[0], list)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			mine := (*own)[k] // a copy: neighbours in memory slow each other down
			for from := int(next.Add(int64(atOnce))) - atOnce; from < len(list); from = int(next.Add(int64(atOnce))) - atOnce {
				do(&mine, list[from:min(from+atOnce, len(list))])
			}
			(*own)[k] = mine
		})
	}
	wg.Wait()
}

// A newborn is a goroutine that serves a stream and was created in this generation.
type newborn struct {
	birth        timeline.Birth
	kind         Kind
	start, ready int64
	death        int64
	dead         bool
}

type stream struct {
	open
	kind  Kind
	ready int64 // start, if that is a wake from the network
}

// arrival returns when the frame that began a stream was read, and the same
// as ready if it is known to have come from the network just then. The stream's
// goroutine is made by the one that reads the connection (gRPC), or by the
// connection's own, to which the reader hands each frame (HTTP/2): their way
// from the wake to the birth is part of the request. A frame that had been read
// with others before is taken as it is handed on, so the request may be a
// little older than that.
func (f *Finder) arrival(b timeline.Birth, spans []timeline.Span) (start, ready int64, buf []timeline.Span) {
	w, ok, spans := f.lastWait(b.By, b.Time, spans)
	if !ok {
		return b.Time, 0, spans
	}
	if f.reason(w.Reason) != reasonNetwork {
		if w.Waker == 0 && w.How == timeline.HowStatus {
			return w.End, 0, spans // the poller, most likely: the trace does not say
		}
		if w.Waker == 0 {
			return b.Time, 0, spans // a timer: what it did before is not known to be for the stream
		}
		var r timeline.Span
		if r, ok, spans = f.lastWait(w.Waker, w.End, spans); !ok {
			return w.End, 0, spans
		}
		w = r
	}
	if f.reason(w.Reason) == reasonNetwork {
		ready = w.End
	}
	return w.End, ready, spans
}

// lookback is how far back a goroutine's last wait is looked for: further than
// a runnable goroutine is left waiting on any machine that works.
const lookback = 2e9

// lastWait returns a goroutine's last wait that ended before t.
func (f *Finder) lastWait(id uint64, t int64, spans []timeline.Span) (timeline.Span, bool, []timeline.Span) {
	at, ok := f.win.LastWake(id, t-lookback, t)
	if !ok {
		return timeline.Span{}, false, spans
	}
	// Where a part of the trace is lost, what was woken may not have waited.
	from, to := at-1, min(at+1, t)
	for back := int64(20e3); ; back *= 10 {
		spans = f.win.SpansCoarse(id, from, to, spans[:0])
		for i := len(spans) - 1; i >= 0; i-- {
			if s := spans[i]; s.State == timeline.Waiting && s.Woken && s.End <= t {
				return s, true, spans
			}
		}
		if from < at-1 && (len(spans) == 0 || spans[0].Start < t-lookback) || back > lookback {
			return timeline.Span{}, false, spans
		}
		from, to = t-back, t
	}
}

// A worker serves one gRPC stream after the other.
type worker struct {
	open
	busy bool
	idle int64 // when it began to wait for work
}

// grpcWorkers follows the stream workers of gRPC servers that have them
// (grpc.NumStreamWorkers). Work is handed to a worker only while it waits, so
// from one wait to the next there is exactly one stream.
func (f *Finder) grpcWorkers(g *timeline.Gen) {
	gone(f.workers, g, nil)
	for id, w := range f.workers {
		if w.busy {
			continue
		}
		if t, ok := g.NextWake(id, w.idle); ok {
			w.busy, w.open = true, open{start: t, from: t}
		}
	}
	g.EachMarked(func(id uint64, marks []timeline.Mark) {
		for _, m := range marks {
			if m.Flags&flagWorker == 0 || m.Kind != tracefmt.EvGoBlock {
				continue
			}
			w := f.workers[id]
			if w == nil {
				w = &worker{}
				f.workers[id] = w
				if _, born := g.BirthOf(id); !born {
					// It has worked since before the trace, or since it was woken
					// from a wait of which nothing is known: on one stream.
					w.busy, w.cut = true, true
				}
			}
			if w.busy {
				f.ended(&f.out, &w.open, Request{Kind: GRPC, End: m.Time, G: id})
			}
			w.busy, w.idle = false, m.Time
			if t, ok := g.NextWake(id, m.Time); ok {
				w.busy, w.open = true, open{start: t, from: t}
			}
		}
	})
}
