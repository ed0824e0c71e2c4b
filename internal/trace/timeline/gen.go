package timeline

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Gen holds the timelines of one generation in columns: the records (8 bytes an event) of all threads in slabs, and for each
// goroutine the slots, which refer to the records of its pieces in order. All times that its methods return are ns on the
// trace's clock. After decoding it is read-only, and many goroutines may read it concurrently.
type Gen struct {
	Num    uint64
	Base   int64 // start of the generation; the times of records are relative to it
	End    int64 // time of the last event
	Events int64
	Bytes  int64
	Offset int64 // position of its first byte in the unpacked trace
	// First reports that this is the first generation of the trace: its statuses describe states that began
	// before the trace.
	First bool
	// PsUnknown reports that the trace says so, by a change to no Ps at all: it was not written by the runtime, and its Ps only keep the
	// format. The Gen then has no time at which a P was idle or polled.
	PsUnknown bool
	// mayHaveTracked reports that a stack of this generation or an earlier one is tracked.
	mayHaveTracked bool

	// Snapshot relates the trace's clock to other clocks; nil if the format has none.
	Snapshot *tracefmt.ClockSnapshot
	// SnapshotTime is the time of the snapshot on the trace's clock, in ns.
	SnapshotTime int64

	Lists
	pieces
	threads
	rangeTable
	unattributedWakes
	sampleIndex
	idleTime
	longIndex
	childIndex
	moveTable
}

// reset prepares a Gen that is no longer used for another generation. Each embedded part keeps its memory; decoding sets the
// fields that belong to no part.
func (g *Gen) reset() {
	g.Num, g.Base, g.End, g.Events, g.Bytes, g.Offset, g.First = 0, 0, 0, 0, 0, 0, false
	g.PsUnknown, g.mayHaveTracked = false, false
	g.Snapshot, g.SnapshotTime = nil, 0
	g.Lists.reset()
	g.pieces.reset()
	g.threads.reset()
	g.rangeTable.reset()
	g.unattributedWakes.reset()
	g.sampleIndex.reset()
	g.idleTime.reset()
	g.longIndex.reset()
	g.childIndex.reset()
	g.moveTable.reset()
}

// Lists hold the events that do not change the state of a goroutine. All are ordered by time except Marks and
// ProcEvents.
type Lists struct {
	Samples    []Sample // CPU samples
	Heap       []HeapPoint
	User       []UserEvent
	STW        []STWRange
	GC         []GCEvent
	Procs      []ProcsChange
	Labels     []Label
	ProcEvents []ProcEvent // thread by thread, in each thread's order
	Marks      []Mark      // ordered by goroutine, then time: see EachMarked

	latestStopEnd []int64  // for each element of STW, the latest end up to it
	markBase      []uint32 // index of each dense goroutine's first mark, and the total at the end
	markedOrder   []uint32 // reused by EachMarked
}

// reset empties the lists and keeps their memory.
func (l *Lists) reset() {
	*l = Lists{
		Samples: l.Samples[:0], Heap: l.Heap[:0], User: l.User[:0], STW: l.STW[:0], GC: l.GC[:0],
		Procs: l.Procs[:0], Labels: l.Labels[:0], ProcEvents: l.ProcEvents[:0], Marks: l.Marks[:0],
		latestStopEnd: l.latestStopEnd[:0], markBase: l.markBase[:0], markedOrder: l.markedOrder[:0],
	}
}

// pieces hold the lives of the goroutines: the records of all threads, and the slots that refer to them. Goroutines are
// numbered densely in a generation (Number), and slices are indexed by this number.
type pieces struct {
	ids         goids
	slabs       []*slab
	slabWorker  []uint32         // for each slab, the worker that filled it
	tracked     [][]trackedStack // for each worker, the tracked stacks of its runs, run by run
	slotBase    []uint32         // by goroutine Number: index of its first slot; then the total
	slots       []slot
	startStacks []uint32 // by goroutine Number: local id of its start function's stack
	stacks      tracefmt.LocalIDs
	strings     tracefmt.LocalIDs
	irregular   []uint32 // goroutines whose pieces are ordered by time, not by number
	swept       atomic.Uint64
}

// reset empties the pieces, except ids: decoding resets these for the number of goroutines that the generation may have.
func (p *pieces) reset() {
	p.slabs, p.slabWorker, p.slotBase, p.slots, p.startStacks = p.slabs[:0], p.slabWorker[:0], p.slotBase[:0], p.slots[:0], p.startStacks[:0]
	p.stacks.Reset()
	p.strings.Reset()
	p.tracked, p.irregular = p.tracked[:0], nil
	p.swept.Store(0)
}

// A HeapPoint is a change of the live heap's size or of the heap goal.
type HeapPoint struct {
	Time  int64
	Bytes uint64
	Goal  bool
}

// A UserEvent is an annotation that the program wrote with runtime/trace.
type UserEvent struct {
	Time int64
	Kind UserKind
	G    uint64 // goroutine
	Task uint64
	// Parent is the parent task of a TaskBegin; 0 for none.
	Parent uint64
	Name   tracefmt.StringID // name of a task or region, or category of a log message
	Value  tracefmt.StringID // text of a log message
	Stack  tracefmt.StackID

	g   uint32
	rec ref
	typ tracefmt.EventType
	arg [3]uint64
}

// UserKind distinguishes the annotations of runtime/trace.
type UserKind uint8

// The annotations of runtime/trace.
const (
	TaskBegin UserKind = iota + 1
	TaskEnd
	RegionBegin
	RegionEnd
	LogMessage
)

// An STWRange is one stop of the world, from the request to stop until the restart. An End of 0 means that it
// continues after this generation, a Start of 0 that it began before.
type STWRange struct {
	Start, End int64
	Kind       tracefmt.StringID
	G          uint64
	Stack      tracefmt.StackID
}

// A GCEvent is the begin or the end of the mark phase of a GC cycle.
type GCEvent struct {
	Time  int64
	Begin bool // false for the end
	// Active reports that the mark phase had begun before this generation.
	Active bool
	Stack  tracefmt.StackID
}

// A ProcsChange is a value of GOMAXPROCS. The trace repeats it at the start of each generation.
type ProcsChange struct {
	Time  int64
	N     int
	Stack tracefmt.StackID
}

// A Label is the name that the runtime gives one of its goroutines, such as "GC (idle)".
type Label struct {
	Time int64
	G    uint64
	Name tracefmt.StringID
}

// Sample is a CPU profile sample.
type Sample struct {
	Time  int64
	G     uint64 // 0 for none
	P     uint64
	M     uint64
	Stack tracefmt.StackID
}

// isIrregular reports whether a goroutine's pieces are not ordered by their numbers: see placeByTime.
func (g *Gen) isIrregular(d uint32) bool {
	_, ok := slices.BinarySearch(g.irregular, d)
	return ok
}

// An extraEvent is a rare event. It is stored unchanged until all threads are decoded.
type extraEvent struct {
	t    int64
	g    uint32
	rec  ref
	typ  tracefmt.EventType
	x, y uint64
}

// record returns the record that r refers to.
func (g *Gen) record(r ref) record {
	s := g.slabs[r>>slabBits]
	return record{s.words[r&slabMask], s}
}

// next returns the record after reference r in the same thread's stream, and a reference to it; it follows a link to the stream's
// next slab. A stream ends with a record of kindEnd, after which next must not be called.
func (g *Gen) next(r ref) (ref, record) {
	r++
	rec := g.record(r)
	if rec.word>>kindShift&kindMask == uint64(kindLink) {
		r = ref(rec.word >> tickShift)
		rec = g.record(r)
	}
	return r, rec
}

// stack translates a stack's id in this generation to its id in the symbols.
func (g *Gen) stack(local uint32) tracefmt.StackID {
	return tracefmt.StackID(g.stacks.Get(uint64(local)))
}

// str translates a string's id in this generation to its id in the symbols.
func (g *Gen) str(local uint32) tracefmt.StringID {
	return tracefmt.StringID(g.strings.Get(uint64(local)))
}

// GoroutineCount returns how many goroutines occur in the generation. It is the highest Number.
func (g *Gen) GoroutineCount() int { return len(g.ids.ids) - 1 }

// Goroutines calls f for each goroutine that occurs in the generation.
func (g *Gen) Goroutines(f func(id uint64)) {
	for _, id := range g.ids.ids[1:] {
		f(id)
	}
}

// A slabPool holds unused memory for generations: slabs, and the memory of marks.
type slabPool struct {
	mu         sync.Mutex
	spareSlabs []*slab
	spareMarks []Mark // of one generation
}

// takeSlab adds a slab, memory for records, to a generation for a worker, and returns it with its index in the generation.
func (p *slabPool) takeSlab(g *Gen, workerID uint32) (free *slab, index uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s *slab
	if n := len(p.spareSlabs); n > 0 {
		s, p.spareSlabs = p.spareSlabs[n-1], p.spareSlabs[:n-1]
	} else {
		s = new(slab)
	}
	s.wide = s.wide[:0]
	g.slabs, g.slabWorker = append(g.slabs, s), append(g.slabWorker, workerID)
	return s, uint32(len(g.slabs) - 1)
}

// returnSlabs takes back all slabs of a generation.
func (p *slabPool) returnSlabs(g *Gen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spareSlabs = append(p.spareSlabs, g.slabs...)
	g.slabs, g.slabWorker = g.slabs[:0], g.slabWorker[:0]
}

// drop releases the memory of the pool. Generations may return more concurrently, such as marks (DropMarks).
func (p *slabPool) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spareSlabs, p.spareMarks = nil, nil
}

// Size estimates the memory that a decoded generation holds, in bytes.
func (g *Gen) Size() int64 {
	n := int64(len(g.slabs))*slabSize*8 + int64(cap(g.slots))*12 + int64(cap(g.slotBase)+cap(g.startStacks)+cap(g.markBase)+cap(g.markedOrder))*4
	n += int64(cap(g.ids.ids))*8 + int64(len(g.ids.pages)+len(g.ids.spare))*1100 + int64(cap(g.Marks))*16 + int64(cap(g.index))*16
	n += int64(cap(g.ProcEvents))*32 + int64(cap(g.unattributed))*16 + int64(cap(g.polls))*16 + int64(cap(g.Heap))*24 + int64(cap(g.User))*112
	n += int64(cap(g.Samples))*40 + int64(cap(g.stacks.Dense())+cap(g.strings.Dense()))*4 + int64(len(g.idle.starts))*24
	return n
}
