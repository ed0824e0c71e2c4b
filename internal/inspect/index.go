// Package inspect answers questions about one trace that a report has no room
// for: every request, every goroutine's and P's timeline, who was in which
// function.
//
// An Index is filled while the trace is explained, in the same pass. It holds,
// in columns, about 50 bytes a request and 50 a goroutine, and where in the
// file each generation lies. A Trace joins it with the file: generations are
// decoded again when a question needs them, and kept as long as there is
// memory for them. What it answers is what explain found: the same requests,
// segments and ids.
package inspect

import (
	"slices"

	"github.com/whylate/whylate/internal/freeze"
	"github.com/whylate/whylate/internal/summary"
	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
)

// Limits bound the memory of an Index and of a Trace. A zero field has a usual
// value.
type Limits struct {
	// Requests is how many requests are kept, the slowest ones of all if there
	// are more; usually 4 million (200 MB).
	Requests int
	// Goroutines is how many goroutines are kept, the first ones; usually 4
	// million (160 MB).
	Goroutines int
	// Generations is the memory in bytes for decoded generations, usually 1 GiB.
	// What one question needs may go beyond it.
	Generations int64
}

func (l Limits) orUsual() Limits {
	if l.Requests <= 0 {
		l.Requests = 4 << 20
	}
	if l.Goroutines <= 0 {
		l.Goroutines = 4 << 20
	}
	if l.Generations <= 0 {
		l.Generations = 1 << 30
	}
	return l
}

// An Index is what one pass over a trace notes for later questions. Explain
// fills it; it is read through a Trace.
type Index struct {
	limits Limits
	view   summary.View
	master *tracefmt.Symbols // grows only while the trace is first read
	syms   tracefmt.Symbols  // for readers
	minor  int
	gens   []genInfo
	keep   map[int]*timeline.Gen
	kept   int64
	reqs   requestColumns
	gos    goroutineColumns
	runs   timeline.Runs // those that go on into the next generation
	carry  carries
	first  int // the first generation of explain's window, in gens
	procs  uint32

	freezes *freeze.Detector
	froze   func(freeze.Class) bool

	settled *summary.Tables
	buffers [][]visited // by table
}

// genInfo is where a generation lies and what decoding it again needs.
type genInfo struct {
	num       uint64
	offset    int64
	bytes     int64
	base, end int64
	events    int64
	resume    timeline.Resume
	afterGap  bool // what was before it is not known
	first     int  // the first generation of explain's window when this was its last
}

// NewIndex returns an empty Index.
func NewIndex(limits Limits) *Index {
	x := &Index{limits: limits.orUsual(), keep: make(map[int]*timeline.Gen)}
	x.carry.init()
	x.gos.at = make(map[uint64]int32)
	return x
}

// visited is a request as it was added up, in a table's own buffer.
type visited struct {
	summary.Visited
	parts []int64
}

// Watch makes the index see the requests that some tables add up.
func (x *Index) Watch(tables []*summary.Tables) {
	x.buffers = make([][]visited, len(tables))
	for i, t := range tables {
		t.SetVisit(i, func(v *summary.Visited) {
			x.buffers[i] = append(x.buffers[i], visited{*v, slices.Clone(v.Parts)})
		})
	}
}

// Decoded notes a generation as it comes. Gap says that one before it was
// skipped.
func (x *Index) Decoded(g *timeline.Gen, gap bool) {
	x.gens = append(x.gens, genInfo{
		num: g.Num, offset: g.Offset, bytes: g.Bytes, base: g.Base, end: g.End, events: g.Events,
		resume:   timeline.Resume{First: g.First, Stopped: slices.Clone(g.Resume().Stopped)},
		afterGap: gap,
	})
	if gap {
		x.first = len(x.gens) - 1
	}
	g.EachProc(func(p uint32) { x.procs = max(x.procs, p+1) })
}

// Lived notes the goroutines of the generation that was decoded last. It may
// run beside the walk of its requests.
func (x *Index) Lived(g *timeline.Gen) {
	x.gos.add(g, x.limits.Goroutines)
	if x.gens[len(x.gens)-1].afterGap {
		x.runs.Close(x.ran)
	}
	x.runs.Add(g, x.ran)
}

func (x *Index) ran(r timeline.Run) { x.gos.addRun(x.gos.ran, &r) }

// Walked takes the requests that were walked since the last call; the
// generation decoded last was the window's last. Nobody may add to the tables
// meanwhile.
func (x *Index) Walked() {
	last := len(x.gens) - 1
	x.gens[last].first = x.first
	x.flush(last)
}

// flush moves what the tables' buffers hold into the columns, in an order that
// does not depend on how the work was divided.
func (x *Index) flush(gen int) {
	var all []visited
	for i, b := range x.buffers {
		all = append(all, b...)
		x.buffers[i] = b[:0]
	}
	slices.SortFunc(all, compareVisited)
	for i := range all {
		x.reqs.add(&all[i], gen)
	}
	x.reqs.fit(x.limits.Requests)
}

// Dropped notes that explain's window no longer begins with g but with the
// generation after it, of which carry tells what was before. It reports
// whether the index keeps g for later questions; the caller must not reuse it then.
func (x *Index) Dropped(g *timeline.Gen, carry map[uint64]timeline.Span) bool {
	at := x.first
	x.first++
	x.carry.add(x.first, carry)
	return x.take(at, g)
}

// take keeps a decoded generation if there is room.
func (x *Index) take(at int, g *timeline.Gen) bool {
	size := g.Size()
	if x.kept+size > x.limits.Generations {
		return false
	}
	x.keep[at] = g
	x.kept += size
	return true
}

// Finish ends the pass. Rest are the generations still in the window, of which
// requests that were not over have been walked by now; tables are all of them
// merged and refined, syms the trace's symbols, minor the version of its format.
func (x *Index) Finish(win *timeline.Window, tables *summary.Tables, view summary.View, syms *tracefmt.Symbols, minor int) {
	if len(x.gens) > 0 {
		x.flush(len(x.gens) - 1)
	}
	for len(win.Gens) > 0 {
		x.Dropped(win.DropFirst(), win.Carry())
	}
	x.runs.Close(x.ran)
	x.freezes, x.froze = tables.Freezes, tables.Froze
	x.view, x.master, x.syms, x.minor = view, syms, syms.Snapshot(), minor
	x.reqs.finish(tables, view)
	x.settled = tables
	x.buffers = nil
}
