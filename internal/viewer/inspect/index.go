// Package inspect answers queries about one trace for which a report has no space: each request, the timeline of
// each goroutine and P, and which goroutines and requests were in a function.
//
// An [Index] is filled in the pass in which the trace is explained. It holds about 40 bytes for each request and
// 32 for each goroutine, in columns, and the position of each generation in the file. A [Trace] combines the index
// with the file: it decodes a generation again when a query needs it, and caches generations up to a memory limit.
// Its answers agree with the report: the same requests, segments and ids.
package inspect

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Limits bound the memory of an Index and of a Trace. A field of 0 has the default value.
type Limits struct {
	// Requests is the number of requests to keep, the slowest ones if there are more; by default 4 million
	// (160 MB).
	Requests int
	// Goroutines is the number of goroutines to keep, the first ones if there are more; by default 4 million
	// (130 MB).
	Goroutines int
	// Generations is the memory for decoded generations in bytes, by default 64 MiB, which is four generations
	// of a busy server. A single query may need more.
	Generations int64
}

// An Index is the data that one pass over a trace stores for later queries. Explain fills it; a Trace reads it.
type Index struct {
	limits        Limits
	speller       *spell.Speller
	master        *tracefmt.Symbols // grows only during the first reading
	syms          tracefmt.Symbols  // snapshot for queries
	minor         int
	gens          []genInfo
	decoded       map[int]*timeline.Gen
	decodedBytes  int64
	requests      requestColumns
	waits         waitTable
	goroutines    goroutineColumns
	runs          timeline.Runs // runs that continue in the next generation
	carried       carriedSpans
	annotations   annotations
	firstInWindow int // index in gens of the first generation in explain's window
	procs         uint32

	walkOptions   path.Options   // the options of explain's walks, with the final freezes
	buffers       []*buffer      // one for each worker
	requestMemory []addedRequest // reused by FinishGeneration
	background    sync.WaitGroup
}

// A genInfo is the position of a generation in the file and the state needed to decode it again.
type genInfo struct {
	num           uint64
	offset        int64
	bytes         int64
	base, end     int64
	events        int64
	resume        timeline.ResumeState
	afterGap      bool // the generation before is missing
	firstInWindow int  // index of the first generation in explain's window when this one was the last
}

// NewIndex returns an empty Index.
func NewIndex(limits Limits) *Index {
	x := &Index{decoded: make(map[int]*timeline.Gen), limits: Limits{
		cmp.Or(limits.Requests, 4<<20), cmp.Or(limits.Goroutines, 4<<20), cmp.Or(limits.Generations, 64<<20),
	}}
	x.carried.init()
	x.goroutines.init()
	x.requests.init()
	return x
}

// Reset empties the Index, because the trace is read again. It waits for work in the background.
func (x *Index) Reset() {
	x.background.Wait()
	fresh := NewIndex(x.limits)
	x.waits = waitTable{}
	x.gens, x.decoded, x.decodedBytes, x.requests, x.goroutines, x.runs, x.carried = nil, fresh.decoded, 0, fresh.requests, fresh.goroutines, fresh.runs, fresh.carried
	x.annotations = annotations{}
	x.firstInWindow, x.procs, x.buffers, x.requestMemory = 0, 0, nil, nil
}

// A groupRef is the path.GroupID of a group, combined with the number of its worker.
type groupRef int32

const refShift = 20

// A buffer holds the requests of one worker in one generation.
type buffer struct {
	number   groupRef
	stage    *path.Stage
	requests []addedRequest
	details  []byte // memory of the requests' details
	waits    *waitNumbers
	times    []keyTime // of one request
}

// NewAdder implements pass.Sum.
func (x *Index) NewAdder(stage *path.Stage) path.Adder {
	b := &buffer{number: groupRef(len(x.buffers)), stage: stage, waits: &waitNumbers{shared: &x.waits}}
	x.buffers = append(x.buffers, b)
	return b
}

// Add implements path.Adder. It keeps a walked request with the times of its causes, except parts of requests and requests that monitor the process.
func (b *buffer) Add(w *path.WalkResult) {
	if w.Observer || w.Form != path.Whole && w.Form != path.Joined {
		return
	}
	r := w.Req
	b.times = b.times[:0]
	for _, s := range w.CauseTimes {
		key := b.stage.IDs.Cause(s.Cause)
		b.times = addTime(b.times, timeKey(key.Code)+codeLimit*timeKey(b.waits.ofChain(b.stage.IDs, key.Chain)), s.NS)
	}
	before := len(b.details)
	b.details = appendDetail(b.details, r, r.End-w.PathStart, b.times)
	b.requests = append(b.requests, addedRequest{
		kind: r.Kind, group: b.number<<refShift | groupRef(w.Group), start: w.PathStart, end: r.End, g: r.G, detail: b.details[before:], pieceEnds: slices.Clone(w.PieceEnds),
	})
}

// AddGeneration implements pass.Listener. It stores a generation's position, and in the background its goroutines.
func (x *Index) AddGeneration(g *timeline.Gen, _ *tracefmt.Symbols, gap bool) {
	x.gens = append(x.gens, genInfo{
		num: g.Num, offset: g.Offset, bytes: g.Bytes, base: g.Base, end: g.End, events: g.Events,
		resume:   timeline.ResumeState{First: g.First, StoppingWorld: slices.Clone(g.ResumeState().StoppingWorld)},
		afterGap: gap,
	})
	if gap {
		x.firstInWindow = len(x.gens) - 1
	}
	for _, e := range g.ProcEvents {
		x.procs = max(x.procs, e.P+1)
	}
	x.background.Go(func() {
		x.goroutines.addGeneration(g, x.limits.Goroutines)
		if gap {
			x.runs.Close(x.addRun)
		}
		x.runs.Add(g, x.addRun)
		x.annotations.addGeneration(g)
	})
}

// addRun adds a run to the running time of its goroutine.
func (x *Index) addRun(r timeline.Run) { x.goroutines.addRun(&r) }

// FinishGeneration implements pass.Waiter. It moves the requests that were added since the last call into the
// columns, in an order that does not depend on the division of the work. The generation decoded last was the last
// one of the window.
func (x *Index) FinishGeneration() {
	x.background.Wait()
	last := len(x.gens) - 1
	x.gens[last].firstInWindow = x.firstInWindow
	all := x.requestMemory[:0]
	for _, b := range x.buffers {
		all = append(all, b.requests...)
	}
	slices.SortFunc(all, compareAdded)
	for i := range all {
		x.requests.add(&all[i], last)
	}
	for _, b := range x.buffers {
		clear(b.requests)
		b.requests, b.details = b.requests[:0], b.details[:0]
	}
	clear(all)
	x.requestMemory = all
	x.requests.dropShortest(x.limits.Requests)
}

// KeepDropped must be called when explain's window drops generation g. carry has the states when the next generation began. It reports whether the
// index keeps g for later queries; then the caller must not reuse g.
func (x *Index) KeepDropped(g *timeline.Gen, carry *timeline.Carry) bool {
	genIndex := x.firstInWindow
	x.firstInWindow++
	x.carried.add(x.firstInWindow, carry)
	return x.keepDecoded(genIndex, g)
}

// keepDecoded keeps a decoded generation, and reports true, as long as the limit allows to keep all. Beyond the limit it drops all of them: queries
// do not need the first few generations more often than others, and the rows of the others need the memory.
func (x *Index) keepDecoded(genIndex int, g *timeline.Gen) bool {
	x.decodedBytes += g.Size()
	if x.decodedBytes > x.limits.Generations {
		clear(x.decoded)
		return false
	}
	x.decoded[genIndex] = g
	return true
}

// Finish ends the pass: from now on the index does not change. ts translates the groups of each worker to those of the report, ids are the report's
// ids of these, and freezes are those with which the requests were walked.
func (x *Index) Finish(p *pass.Pass, ts []path.Translation, ids map[path.GroupID]string, freezes *freeze.Detector, sp *spell.Speller) {
	for len(p.Window.Gens) > 0 {
		x.KeepDropped(p.Window.DropFirst(), p.Window.Carry())
	}
	x.runs.Close(x.addRun)
	if n := len(x.gens); n > 0 {
		x.annotations.finish(x.gens[n-1].end)
	}
	x.master, x.syms, x.minor = p.Decoder.Symbols, p.Decoder.Symbols.Snapshot(), p.Reader.Minor()
	// From now on, many goroutines look up sites concurrently, each with another cache.
	speller := *sp
	speller.Syms, speller.Sites = &x.syms, nil
	x.speller = &speller
	x.walkOptions = path.Options{Freezes: freezes, Threads: p.Threads(), Settlement: sp.Settlement, AnswersOf: p.Answers(), IsClientWait: p.Finder.ClientWaits()}
	x.requests.setGroups(x.buffers, ts, ids, sp.Settlement)
	for _, id := range x.requests.ids {
		x.requests.queues = append(x.requests.queues, x.waits.queues(id, sp))
	}
	x.buffers, x.requestMemory = nil, nil
}
