package request

import (
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/workers"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A collector is what the sources share: they read the trace by it and emit requests to it. It also answers for each
// source what the sources of higher precedence claim.
type collector struct {
	stackReader
	window     *timeline.Window
	spanBuffer []timeline.Span
	workers    int // how many goroutines a source may use
	traceStart int64
	traceEnd   int64 // set by Finish

	emitted      []Request // in this generation, without the units of series
	series       seriesList
	requestCount int // emitted in earlier ones, without the pieces of runs

	annotations []annotation // by precedence
	protocols   []protocol
	// annotated are the goroutines on which a task, region or mark ended. Those represent the goroutine's work.
	annotated map[uint64]bool
	// annotatedSpans are the start and end of those that ended in this generation, by goroutine.
	annotatedSpans map[uint64][][2]int64
	// openAtEnd are the goroutines with requests of earlier stages that are open at the end of the trace.
	openAtEnd map[uint64]bool
}

// newCollector returns a collector over a window of generations.
func newCollector(syms *tracefmt.Symbols, window *timeline.Window, workers int) collector {
	return collector{
		stackReader: stackReader{syms: syms, namer: NewNamer(syms), canonicalStacks: make(map[string]tracefmt.StackID)},
		window:      window, workers: workers,
		annotated: make(map[uint64]bool), openAtEnd: make(map[uint64]bool), annotatedSpans: make(map[uint64][][2]int64),
	}
}

// openRequest is the state that all open requests share.
type openRequest struct {
	start      int64
	pieceStart int64             // start of the first piece that was not emitted yet
	pieceKey   uint64            // 0 until a piece was emitted
	pieceTask  tracefmt.StringID // name of the task that the pieces are of, if the request is a protocol's
	cutAtStart bool
}

// openAt returns the state of a request that began at t.
func openAt(t int64) openRequest { return openRequest{start: t, pieceStart: t} }

// complete returns r with the start of o, which has ended. If pieces of o were emitted already, r becomes the last piece.
func (o *openRequest) complete(r Request) Request {
	r.Start, r.CutAtStart, r.wholeStart = o.start, o.cutAtStart, o.start
	if o.pieceKey != 0 {
		r.Start, r.Piece, r.PieceKey = o.pieceStart, LastPiece, o.pieceKey
	}
	r.End = max(r.End, r.Start)
	return r
}

// emit emits the request r, which began as o.
func (c *collector) emit(o *openRequest, r Request) { c.emitted = append(c.emitted, o.complete(r)) }

// emitJob emits the request of a job.
func (c *collector) emitJob(r *Request) {
	if r.Piece == WholeRequest && !r.CutAtStart {
		c.series.add(seriesKey{kind: r.Kind, entryStack: r.EntryStack, rootFrame: r.RootFrame, starterFrame: r.StarterFrame}, r.Start, r.End, r.G)
	} else {
		c.emitted = append(c.emitted, *r)
	}
}

// emitServed appends the request r of a protocol, which began at begin, to out. If marks or tasks within r represent it, they are
// emitted in its place. A request that began before the trace keeps only kind, goroutine and end.
func (c *collector) emitServed(out *[]Request, begin *openRequest, r Request) {
	for _, a := range c.annotations {
		if a.emitInstead(out, begin, r) {
			return
		}
	}
	if begin.cutAtStart {
		r = Request{Kind: r.Kind, End: r.End, G: r.G, CutAtStart: true}
	} else {
		r = begin.complete(r)
	}
	*out = append(*out, r)
}

// openServed returns the request of a protocol that is open on a goroutine, nil if there is none.
func (c *collector) openServed(id uint64) *openRequest {
	for _, p := range c.protocols {
		if o := p.openOn(id); o != nil {
			return o
		}
	}
	return nil
}

// isServed reports whether a source of protocols follows this goroutine as one that serves clients.
func (c *collector) isServed(id uint64) bool {
	return slices.ContainsFunc(c.protocols, func(p protocol) bool { return p.serves(id) })
}

// isServing reports whether goroutine id serves a protocol's requests, as its source or its stack shows.
func (c *collector) isServing(id uint64, stack tracefmt.StackID) bool {
	return c.stackInfo(stack).role == roleServer || c.isServed(id)
}

// addAnnotation records that a task, region or mark on goroutine g ended, which lasted from start to end.
func (c *collector) addAnnotation(g uint64, start, end int64) {
	c.annotated[g] = true
	c.annotatedSpans[g] = append(c.annotatedSpans[g], [2]int64{start, end})
}

// isAnnotatedAt reports whether a goroutine was in a task, region or mark at t.
func (c *collector) isAnnotatedAt(g uint64, t int64) bool {
	return slices.ContainsFunc(c.annotations, func(a annotation) bool { return a.isOpenAt(g, t) }) ||
		slices.ContainsFunc(c.annotatedSpans[g], func(span [2]int64) bool { return span[0] <= t && t <= span[1] })
}

// spans returns a goroutine's states from one time to another. They are valid until the next call.
func (c *collector) spans(id uint64, from, to int64) []timeline.Span {
	c.spanBuffer = c.window.Spans(id, from, to, c.spanBuffer[:0])
	return c.spanBuffer
}

// pieceEnd returns where to end a piece that covers from to at most to. It is the start of the state in which the
// goroutine is at to, so that a long wait is in one piece with its end. If that state covers the whole piece, it is to.
func (c *collector) pieceEnd(id uint64, from, to int64) int64 {
	if spans := c.spans(id, to-1, to); len(spans) > 0 && spans[0].Start > from && spans[0].Start < to {
		return spans[0].Start
	}
	return to
}

// removeEnded deletes the entries of goroutines that ended in the generation, in order of their ids, and calls onEnd for each;
// onEnd may be nil. It also deletes entries of goroutines that the generation does not know, because a part of the trace was
// lost.
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

// removeUnknown deletes the entries of goroutines that the generation does not know. Unlike removeEnded, it keeps those
// that end in the generation.
func removeUnknown[V any](byGoroutine map[uint64]V, g *timeline.Gen) {
	maps.DeleteFunc(byGoroutine, func(id uint64, _ V) bool { return !g.Knows(id) })
}

// runParallel calls process for consecutive parts of a list, of batch elements each, on up to count goroutines. Each worker has
// its own state in states, which grows as needed.
func runParallel[S, T any](states *[]S, count int, list []T, batch int, process func(states *S, part []T)) {
	for count = max(count, 1); len(*states) < count; {
		*states = append(*states, *new(S))
	}
	workers.Share(count, len(list), batch, func(worker, from, to int) {
		state := (*states)[worker] // a copy avoids false sharing of cache lines
		process(&state, list[from:to])
		(*states)[worker] = state
	})
}
