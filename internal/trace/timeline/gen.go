package timeline

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Gen holds one generation's timelines in columns: the threads' records in
// slabs, and for each goroutine the places of its pieces in order. All times
// it gives are ns on the trace's own clock. It is read-only once decoded and
// may be read by many goroutines at once.
type Gen struct {
	Num    uint64
	Base   int64 // records' times count from here
	End    int64 // the last time seen
	Events int64
	Bytes  int64
	Offset int64 // where it begins in the unpacked trace
	// First says that this is the first generation of the trace: a status then
	// means "so since before the trace began".
	First bool

	// Snapshot ties the clocks together, where the format has it.
	Snapshot *tracefmt.ClockSnapshot
	// SnapshotTime is the snapshot's instant on the trace's clock, ns.
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

// reset prepares a generation that nobody uses any more for the next one.
// Each part keeps its memory; what is not in a part is set in decoding.
func (g *Gen) reset() {
	g.Num, g.Base, g.End, g.Events, g.Bytes, g.Offset, g.First = 0, 0, 0, 0, 0, 0, false
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

// Lists hold what is told beside the goroutines' lives, each in order of time
// but for Marks and ProcEvents.
type Lists struct {
	Samples    []Sample // CPU samples
	Heap       []HeapPoint
	User       []UserEvent
	STW        []STWRange
	GC         []GCEvent
	Procs      []ProcsChange
	Labels     []Label
	ProcEvents []ProcEvent // thread by thread, each in its own order
	Marks      []Mark      // by goroutine, then time: see MarksOf

	latestStopEnd []int64  // by STW: the latest end so far
	markBase      []uint32 // by dense goroutine: its first mark; one more at the end
	markedOrder   []uint32 // memory of EachMarked
}

func (l *Lists) reset() {
	*l = Lists{
		Samples: l.Samples[:0], Heap: l.Heap[:0], User: l.User[:0], STW: l.STW[:0], GC: l.GC[:0],
		Procs: l.Procs[:0], Labels: l.Labels[:0], ProcEvents: l.ProcEvents[:0], Marks: l.Marks[:0],
		latestStopEnd: l.latestStopEnd[:0], markBase: l.markBase[:0], markedOrder: l.markedOrder[:0],
	}
}

// pieces are the goroutines' lives: the threads' records, and where those of
// each goroutine are.
type pieces struct {
	ids         goids
	slabs       []*slab
	slabWorker  []uint32         // by slab: the worker that filled it
	tracked     [][]trackedStack // by worker: what its runs tell, run by run
	slotBase    []uint32         // by dense goroutine: its first slot; one more at the end
	slots       []slot
	startStacks []uint32 // by dense goroutine: start function's stack, local id
	stacks      tracefmt.LocalIDs
	strings     tracefmt.LocalIDs
	irregular   []uint32 // goroutines ordered by time instead of by number
	swept       atomic.Uint64
}

// reset keeps goids as they are: decoding resets them for as many as there may be.
func (p *pieces) reset() {
	p.slabs, p.slabWorker, p.slotBase, p.slots, p.startStacks = p.slabs[:0], p.slabWorker[:0], p.slotBase[:0], p.slots[:0], p.startStacks[:0]
	p.stacks.Reset()
	p.strings.Reset()
	p.tracked, p.irregular = p.tracked[:0], nil
	p.swept.Store(0)
}

// HeapPoint is a change of the heap's live size or goal.
type HeapPoint struct {
	Time  int64
	Bytes uint64
	Goal  bool
}

// UserEvent is an annotation made with runtime/trace.
type UserEvent struct {
	Time int64
	Kind UserKind
	G    uint64 // goroutine
	Task uint64
	// Parent is the parent task of a task's begin; 0 for none.
	Parent uint64
	Name   tracefmt.StringID // name of a task or region, key of a log
	Value  tracefmt.StringID // a log's message
	Stack  tracefmt.StackID

	g   uint32
	rec ref
	typ tracefmt.EventType
	arg [3]uint64
}

// UserKind says which annotation a UserEvent is.
type UserKind uint8

// The annotations of runtime/trace.
const (
	TaskBegin UserKind = iota + 1
	TaskEnd
	RegionBegin
	RegionEnd
	LogMessage
)

// STWRange is one stop of the world, from the wish to stop to the restart.
// An End of 0 means that it goes on past this generation.
type STWRange struct {
	Start, End int64
	Kind       tracefmt.StringID
	G          uint64
	Stack      tracefmt.StackID
}

// GCEvent is a border of a GC cycle's mark phase.
type GCEvent struct {
	Time  int64
	Begin bool // false: end
	// Active says that the cycle had begun before this generation.
	Active bool
	Stack  tracefmt.StackID
}

// ProcsChange is a value of GOMAXPROCS, given at the start of every
// generation and at changes.
type ProcsChange struct {
	Time  int64
	N     int
	Stack tracefmt.StackID
}

// Label is the name of a goroutine of the runtime: a GC worker and its mode.
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

// isIrregular reports whether a goroutine's pieces are not in the order of
// their numbers.
func (g *Gen) isIrregular(d uint32) bool {
	_, ok := slices.BinarySearch(g.irregular, d)
	return ok
}

// extraEvent is a rare event, kept as found until the generation is whole.
type extraEvent struct {
	t    int64
	g    uint32
	rec  ref
	typ  tracefmt.EventType
	x, y uint64
}

func (g *Gen) record(r ref) record {
	s := g.slabs[r>>slabBits]
	return record{s.words[r&slabMask], s}
}

// next returns the record behind r in its thread's stream.
func (g *Gen) next(r ref) (ref, record) {
	r++
	rec := g.record(r)
	if rec.word>>kindShift&kindMask == uint64(kindLink) {
		r = ref(rec.word >> tickShift)
		rec = g.record(r)
	}
	return r, rec
}

// Stack translates a record's stack.
func (g *Gen) stack(local uint32) tracefmt.StackID {
	return tracefmt.StackID(g.stacks.Get(uint64(local)))
}

func (g *Gen) str(local uint32) tracefmt.StringID {
	return tracefmt.StringID(g.strings.Get(uint64(local)))
}

// Goroutines calls f for every goroutine that the generation knows.
func (g *Gen) Goroutines(f func(id uint64)) {
	for _, id := range g.ids.ids[1:] {
		f(id)
	}
}

// slabPool gives slabs to generations and takes them back, and chunks of pieces to workers.
type slabPool struct {
	mu          sync.Mutex
	spareSlabs  []*slab
	spareChunks []*[pieceChunk]piece
	spareMarks  []Mark // memory of a generation's
}

// takeChunk returns room for more pieces.
func (p *slabPool) takeChunk() *[pieceChunk]piece {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.spareChunks)
	if n == 0 {
		return new([pieceChunk]piece)
	}
	c := p.spareChunks[n-1]
	p.spareChunks = p.spareChunks[:n-1]
	return c
}

// returnChunks takes back the room of all pieces of a list.
func (p *slabPool) returnChunks(l *pieceList) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spareChunks = append(p.spareChunks, l.chunks...)
	l.chunks, l.end = l.chunks[:0], 0
}

func (p *slabPool) takeSlab(g *Gen, workerID uint32) (*slab, uint32) {
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

func (p *slabPool) returnSlabs(g *Gen) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spareSlabs = append(p.spareSlabs, g.slabs...)
	g.slabs, g.slabWorker = g.slabs[:0], g.slabWorker[:0]
}

// Size estimates the memory that a decoded generation holds, in bytes.
func (g *Gen) Size() int64 {
	n := int64(len(g.slabs))*slabSize*8 + int64(cap(g.slots))*12 + int64(cap(g.slotBase)+cap(g.startStacks)+cap(g.markBase)+cap(g.markedOrder))*4
	n += int64(cap(g.ids.ids))*8 + int64(len(g.ids.pages)+len(g.ids.spare))*1100 + int64(cap(g.Marks))*16 + int64(cap(g.index))*16
	n += int64(cap(g.ProcEvents))*32 + int64(cap(g.unattributed))*24 + int64(cap(g.polls))*24 + int64(cap(g.Heap))*24 + int64(cap(g.User))*112
	n += int64(cap(g.Samples))*40 + int64(cap(g.stacks.Dense())+cap(g.strings.Dense()))*4 + int64(len(g.idle.starts))*24
	return n
}
