// Package inspect answers questions about one trace that a report has no room
// for: every request, every goroutine's and P's timeline, who was in which
// function.
//
// An Index is filled while the trace is explained, in the same pass. It holds,
// in columns, about 40 bytes a request and 32 a goroutine, and where in the
// file each generation lies. A Trace joins it with the file: generations are
// decoded again when a question needs them, and kept as long as there is
// memory for them. What it answers is what explain found: the same requests,
// segments and ids.
package inspect

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Limits bound the memory of an Index and of a Trace. A zero field has a usual
// value.
type Limits struct {
	// Requests is how many requests are kept, the slowest ones of all if there
	// are more; usually 4 million (160 MB).
	Requests int
	// Goroutines is how many goroutines are kept, the first ones; usually 4
	// million (130 MB).
	Goroutines int
	// Generations is the memory in bytes for decoded generations, usually 64 MiB: four of a busy server's.
	// What one question needs may go beyond it.
	Generations int64
}

// An Index is what one pass over a trace notes for later questions. Explain
// fills it; it is read through a Trace.
type Index struct {
	limits        Limits
	speller       *spell.Speller
	master        *tracefmt.Symbols // grows only while the trace is first read
	syms          tracefmt.Symbols  // for readers
	minor         int
	gens          []genInfo
	decoded       map[int]*timeline.Gen
	decodedBytes  int64
	requests      requestColumns
	goroutines    goroutineColumns
	runs          timeline.Runs // those that go on into the next generation
	carried       carriedSpans
	firstInWindow int // the first generation of explain's window, in gens
	procs         uint32

	walkOptions   path.Options   // as the requests were walked, freezes settled
	buffers       []*buffer      // by worker
	requestMemory []addedRequest // memory of Walked
	background    sync.WaitGroup
}

// genInfo is where a generation lies and what decoding it again needs.
type genInfo struct {
	num           uint64
	offset        int64
	bytes         int64
	base, end     int64
	events        int64
	resume        timeline.ResumeState
	afterGap      bool // what was before it is not known
	firstInWindow int  // the first generation of explain's window when this was its last
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

// Reset makes the Index as new: the trace is read again.
func (x *Index) Reset() {
	x.background.Wait()
	fresh := NewIndex(x.limits)
	x.gens, x.decoded, x.decodedBytes, x.requests, x.goroutines, x.runs, x.carried = nil, fresh.decoded, 0, fresh.requests, fresh.goroutines, fresh.runs, fresh.carried
	x.firstInWindow, x.procs, x.buffers, x.requestMemory = 0, 0, nil, nil
}

// A groupRef is a path.GroupID of one worker, distinguished from those of others.
type groupRef int32

const refShift = 20

// A buffer is one worker's part of an Index: the requests of one generation.
type buffer struct {
	number   groupRef
	stage    *path.Stage
	requests []addedRequest
	details  []byte // of their details
}

// NewAdder implements pass.Sum.
func (x *Index) NewAdder(stage *path.Stage) path.Adder {
	b := &buffer{number: groupRef(len(x.buffers)), stage: stage}
	x.buffers = append(x.buffers, b)
	return b
}

// Add implements pass.Adder.
func (b *buffer) Add(w *path.WalkResult) {
	if w.Observer || w.Form != path.Whole && w.Form != path.Joined {
		return
	}
	r := w.Req
	var causes cause.TimeByCode
	for _, s := range w.CauseTimes {
		causes.Add(b.stage.IDs.Cause(s.Cause).Code, s.NS)
	}
	before := len(b.details)
	b.details = appendDetail(b.details, r, r.End-w.PathStart, &causes)
	b.requests = append(b.requests, addedRequest{
		kind: r.Kind, group: b.number<<refShift | groupRef(w.Group), start: w.PathStart, end: r.End, g: r.G, detail: b.details[before:], pieceEnds: slices.Clone(w.PieceEnds),
	})
}

// AddGeneration implements pass.Listener. It notes a generation, and in the
// background its goroutines.
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
	})
}

func (x *Index) addRun(r timeline.Run) { x.goroutines.addRun(&r) }

// FinishGeneration implements pass.GenerationFinisher. It moves the requests that were added since
// the last call into the columns, in an order that does not depend on how the
// work was divided; the generation decoded last was the window's last.
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

// KeepDropped notes that explain's window no longer begins with g but with the
// generation after it, of which carry tells what was before. It reports
// whether the index keeps g for later questions; the caller must not reuse it then.
func (x *Index) KeepDropped(g *timeline.Gen, carry *timeline.Carry) bool {
	genIndex := x.firstInWindow
	x.firstInWindow++
	x.carried.add(x.firstInWindow, carry)
	return x.keepDecoded(genIndex, g)
}

// keepDecoded keeps a decoded generation, as long as there is room for all: the first few of many are not asked for more than others, and
// the rows of the others need the room.
func (x *Index) keepDecoded(genIndex int, g *timeline.Gen) bool {
	x.decodedBytes += g.Size()
	if x.decodedBytes > x.limits.Generations {
		clear(x.decoded)
		return false
	}
	x.decoded[genIndex] = g
	return true
}

// Finish ends the pass. ts translates each worker's groups to those of the
// report, whose ids are given; freezes are what the requests were walked with.
func (x *Index) Finish(p *pass.Pass, ts []path.Translation, ids map[path.GroupID]string, freezes *freeze.Detector, sp *spell.Speller) {
	for len(p.Window.Gens) > 0 {
		x.KeepDropped(p.Window.DropFirst(), p.Window.Carry())
	}
	x.runs.Close(x.addRun)
	x.master, x.syms, x.minor = p.Decoder.Symbols, p.Decoder.Symbols.Snapshot(), p.Reader.Minor()
	// Sites are looked up by many at once from now on, each with its own memory.
	speller := *sp
	speller.Syms, speller.Sites = &x.syms, nil
	x.speller = &speller
	x.walkOptions = path.Options{Freezes: freezes, Settlement: sp.Settlement, AnswersOf: p.Answers(), IsClientWait: p.Finder.ClientWaits()}
	x.requests.setGroups(x.buffers, ts, ids, sp.Settlement)
	x.buffers, x.requestMemory = nil, nil
}
