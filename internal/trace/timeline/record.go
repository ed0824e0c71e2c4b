package timeline

import (
	"iter"
	"math"
	"math/bits"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A record is one event of a thread's stream in 8 bytes:
//
//	time (32 bits: since the generation's base, in the units of its clock) | kind (6) | wide (1) | payload (25)
//
// The payload is another goroutine's dense number, or a stack (the generation's own id), or both, depending on the
// kind: see layout. If a field does not fit, the fields are in a list of the slab, and the payload is the index in
// this list. That is rare: Go's clock on Linux counts units of 64 ns, so 32 bits are 274 s, and a generation lasts
// about one second.
//
// The status of a goroutine that is not on the thread contains the status instead of the goroutine. Each
// generation repeats the states of all goroutines, even of a million waiting ones, and readers reach such a record
// only from the pieces of its goroutine, so they know it.
type record struct {
	word uint64
	slab *slab // the slab that contains the word
}

const (
	timeBits = 44
	maxTime  = 1<<timeBits - 1

	kindShift   = 26
	kindMask    = 1<<6 - 1
	wideBit     = 1 << payloadBits
	payloadMask = wideBit - 1
	tickShift   = 32
	// A time of maxTick units or more is in the slab's list.
	maxTick = 1<<32 - 1

	payloadBits     = 25
	reasonStackBits = 19 // bits of the stack next to the reason of a wait; the runtime has about 40 reasons
	statusStackBits = 21 // bits of the stack next to a status
)

// A layout describes how the words of a generation are encoded.
type layout struct {
	unit uint8 // times are in units of 1<<unit ns
	// stackBits is, for each kind, the number of the payload's lower bits that are a stack. The bits above are
	// another goroutine or the reason of a wait.
	stackBits [kindMask + 1]uint8
}

// newLayout returns the layout of records for a generation with this clock and number of stacks. Wakes get just enough bits for the
// stack, so that as many goroutine numbers as possible fit next to it.
func newLayout(sc tracefmt.Scale, stacks int) (l layout) {
	l.unit = sc.Unit()
	stackIDBits := min(uint8(bits.Len(uint(stacks))), payloadBits-5)
	stackBits := [...]uint8{stackPayload: payloadBits, peerPayload: 0, peerStackPayload: stackIDBits, reasonStackPayload: reasonStackBits, statusStackPayload: statusStackBits}
	for k := range l.stackBits {
		l.stackBits[k] = stackBits[kinds[k].payload]
	}
	return l
}

// A wideRecord holds the fields of a record that did not fit into its word.
type wideRecord struct {
	t                int64
	peer, stack, aux uint32
}

// kind returns the kind of the event.
func (r record) kind() kind { return kind(r.word >> kindShift & kindMask) }

// wideIndex returns the index in the slab's list of a record that did not fit; false for one that did.
func (r record) wideIndex() (index uint32, isWide bool) {
	return uint32(r.word) & payloadMask, r.word&wideBit != 0
}

// time returns the time since the generation's base, in ns.
func (r record) time() int64 {
	if t := r.word >> tickShift; t != maxTick {
		return int64(t << (r.slab.layout.unit & 63))
	}
	return r.slab.wideTime(r.word)
}

// wideTime returns a time that is in the slab's list.
func (s *slab) wideTime(word uint64) int64 { return s.wide[word&payloadMask].t }

// peer returns the other goroutine of an event. For a status it is valid only if the status binds.
func (r record) peer() uint32 {
	if index, ok := r.wideIndex(); ok {
		return r.slab.wide[index].peer
	}
	return uint32(r.word) & payloadMask >> (r.slab.layout.stackBits[r.kind()&kindMask] & 31)
}

// stack returns the stack of an event, as the generation's id; 0 for none.
func (r record) stack() uint32 {
	if index, ok := r.wideIndex(); ok {
		return r.slab.wide[index].stack
	}
	return uint32(r.word) & (1<<(r.slab.layout.stackBits[r.kind()&kindMask]&31) - 1)
}

// aux returns the bits auxStatus, auxBinds and auxNoP of an event; 0 if it has none.
func (r record) aux() uint32 {
	if index, ok := r.wideIndex(); ok {
		return r.slab.wide[index].aux
	}
	return 0
}

// binds reports whether a status is about the goroutine on this thread. The peer of such a record is this
// goroutine.
func (r record) binds() bool { return r.aux()&auxBinds != 0 }

// status returns the goroutine's status in a status event, in the encoding of the trace.
func (r record) status() uint32 {
	if index, ok := r.wideIndex(); ok {
		return r.slab.wide[index].aux & auxStatus
	}
	return uint32(r.word) & payloadMask >> statusStackBits
}

// link returns where the stream continues after a kindLink.
func (r record) link() ref { return ref(r.word >> tickShift) }

// encodeRecord returns the 8-byte word of an event at t with a peer and a stack (dense ids). word has the time and the kind. If
// tooLate is not 0, or another field does not fit, all fields go to the slab's list of wide records.
func (w *worker) encodeRecord(word, tooLate uint64, t int64, peer, stack uint64) uint64 {
	k := record{word: word}.kind()
	bits := w.layout.stackBits[k&kindMask] & 31
	if peer>>(payloadBits-bits)|stack>>bits|tooLate == 0 {
		return word | peer<<bits | stack
	}
	return w.putWide(k, t, 0, uint32(peer), uint32(stack))
}

// putWide stores the fields of an event in the slab's list of wide records, and returns the event's word, which refers to them.
func (w *worker) putWide(k kind, t int64, aux, peer, stack uint32) uint64 {
	s := w.slab
	ticks := uint64(t) >> s.layout.unit
	if ticks > maxTick || int64(ticks<<s.layout.unit) != t {
		ticks = maxTick
	}
	s.wide = appendDoubling(s.wide, wideRecord{t, peer, stack, aux})
	return ticks<<tickShift | uint64(k)<<kindShift | wideBit | uint64(len(s.wide)-1)
}

// The aux bits of statuses and wakes.
const (
	auxStatus = 7      // mask of the goroutine's status
	auxBinds  = 1 << 3 // the status is about the goroutine on this thread
	auxNoP    = 1 << 4 // the waking thread held no P (sysmon)
)

// Records are in slabs of a fixed size, so that their memory can be reused by generations of any size. A reference
// combines the slab and the offset in one number; 0 refers to no record.
const (
	slabBits = 15
	slabSize = 1 << slabBits // 256 KiB
	slabMask = slabSize - 1
)

// A slab is a block of memory for records.
type slab struct {
	wide   []wideRecord // first, so that the garbage collector need not scan the rest
	layout layout
	words  [slabSize]uint64
}

// A ref refers to a record of a generation.
type ref uint32

// A piece is one part of a goroutine's life, as a worker found it in a thread's stream: a run, or one event about the goroutine
// in another goroutine's run.
type piece struct {
	g, seq    uint32 // of a creation seq is createdBit and the local id of the start function's stack, until placePieces sets it to 0
	rec       ref
	ownerBits uint32 // see slot
}

const (
	createdBit = 1 << 31
	seqMask    = createdBit - 1
)

// pieceChunk is the number of pieces in one allocation. The numbers of pieces differ between workers and from
// generation to generation; one growing slice for each worker would hold twice as much memory.
const pieceChunk = 1 << 13

// pieceBatch is the number of pieces whose slots are loaded at the same time.
const pieceBatch = 16

// A pieceList is a list of pieces in chunks.
type pieceList struct {
	chunks []*[pieceChunk]piece
	first  int // index of the first piece
	end    int // index after the last piece
}

// addedSince returns the pieces that were added after the state before.
func (l *pieceList) addedSince(before *pieceList) pieceList {
	return pieceList{l.chunks, before.end, l.end}
}

// batches yields the pieces of the list in order, up to pieceBatch at a time.
func (l *pieceList) batches() iter.Seq[[]piece] {
	return func(yield func([]piece) bool) {
		for i := l.first; i < l.end; {
			first := i % pieceChunk
			batch := l.chunks[i/pieceChunk][first:min(first+pieceBatch, first+l.end-i, pieceChunk)]
			if i += len(batch); !yield(batch) {
				return
			}
		}
	}
}

// The owner bits of a run. networkWaitBit: the run ended in a wait for the network. otherWaitBit: it ended in another wait (not
// set if the reason "network" has several ids in the generation). trackedBit: the run has events with a tracked stack, and the
// other bits are the index of the first one in its worker's list. Neither dense goroutine numbers nor these indexes reach these
// bits: each needs at least four bytes of a generation, and a generation has fewer than 2 GiB.
const (
	networkWaitBit = 1 << 31
	trackedBit     = 1 << 30
	otherWaitBit   = 1 << 29
	runBits        = networkWaitBit | trackedBit | otherWaitBit
)

// noWaker are the owner bits of a wake for which the trace names no waking goroutine: the network poller or a timer woke the goroutine.
// The lowest bit is set if it names a stack.
const noWaker = networkWaitBit | otherWaitBit

// A slot is a piece in the index: the reference to its record, its owner, and its time since the generation's base in units of
// 64 ns, as of Go's clock on Linux. With the time in the slot, searches need not read the records.
type slot struct {
	rec        ref
	ownerBits  uint32 // of a wake or birth the goroutine that caused it, or noWaker; of a run see endedInNetwork and firstTracked
	coarseTime uint32
}

// creatorOrWaker returns the dense number of the goroutine that caused a birth or a wake; 0 for none.
func (s *slot) creatorOrWaker() uint32 {
	if s.hasNoWaker() {
		return 0
	}
	return s.ownerBits
}

// hasNoWaker reports whether a piece is a wake by the network poller or a timer.
func (s *slot) hasNoWaker() bool { return s.ownerBits&noWaker == noWaker }

// endedInNetwork reports whether a run ended in a wait for the network.
func (s *slot) endedInNetwork() bool { return s.ownerBits&noWaker == networkWaitBit }

// endedInOtherWait reports whether it is known of a run that it ended in a wait for something else.
func (s *slot) endedInOtherWait() bool { return s.ownerBits&noWaker == otherWaitBit }

// endedInWait reports whether it is known of a run that it ended in a wait.
func (s *slot) endedInWait() bool { return s.endedInNetwork() || s.endedInOtherWait() }

// firstTracked returns the index of the run's first tracked stack, false if it has none.
func (s *slot) firstTracked() (index int, ok bool) {
	return int(s.ownerBits &^ runBits), s.ownerBits&trackedBit != 0
}

// slotTime returns a piece's time since the generation's base. The units of slots are those of the clock, unless this is finer.
func (g *Gen) slotTime(s *slot) int64 {
	if s.coarseTime < math.MaxUint32 && g.slabs[s.rec>>slabBits].layout.unit >= slotUnit {
		return int64(s.coarseTime) << slotUnit
	}
	return g.record(s.rec).time()
}

// slotUnit is the unit of a slot's time: 1<<slotUnit ns.
const slotUnit = 6

// coarseTimeOf converts a time to a slot's units; a time that does not fit becomes the largest value.
func coarseTimeOf(t int64) uint32 { return uint32(min(uint64(t)>>slotUnit, 1<<32-1)) }
