package timeline

import (
	"iter"
	"math/bits"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A record is one event of a thread's stream in 8 bytes:
//
//	time (32 bits: since the generation's base, in the units of its clock) | kind (6) | wide (1) | payload (25)
//
// The payload is another goroutine's number, or a stack (the generation's own id), or both, as the kind has it: see layout. What
// does not fit stands in a list beside the slab, of which the payload is then the place. That is seldom so: a clock of Go on Linux
// counts 64 ns, so 32 bits are 274 s, and a generation lasts about one.
//
// A status of a goroutine that is not on the thread has the status in place of the goroutine: each generation repeats what all
// goroutines are doing, a million that wait too, and whoever comes to such a record comes from its goroutine's pieces.
type record struct {
	word uint64
	slab *slab // that it lies in
}

const (
	timeBits = 44
	maxTime  = 1<<timeBits - 1

	kindShift   = 26
	kindMask    = 1<<6 - 1
	wideBit     = 1 << payloadBits
	payloadMask = wideBit - 1
	tickShift   = 32
	// A time of so many units or more stands in the list.
	maxTick = 1<<32 - 1

	payloadBits     = 25
	reasonStackBits = 19 // bits of the stack beside why a goroutine waits: the runtime has about 40 reasons
	statusStackBits = 21 // bits of the stack beside a status
)

// A layout says how the records of a generation are to be read.
type layout struct {
	unit uint8 // times are in units of 1<<unit ns
	// stackBits says by kind how many of the payload's lower bits are a stack. Above them is another goroutine, or the reason of a wait.
	stackBits [kindMask + 1]uint8
}

// newLayout returns the layout for a generation's clock and number of stacks: those of creations get as many bits as they need, so
// that as many goroutines as possible fit beside them.
func newLayout(sc tracefmt.Scale, stacks int) (l layout) {
	l.unit = sc.Unit()
	createBits := min(uint8(bits.Len(uint(stacks))), payloadBits-5)
	stackBits := [...]uint8{stackPayload: payloadBits, peerPayload: 0, peerStackPayload: createBits, reasonStackPayload: reasonStackBits, statusStackPayload: statusStackBits}
	for k := range l.stackBits {
		l.stackBits[k] = stackBits[kinds[k].payload]
	}
	return l
}

// A wideRecord is what did not fit into a record.
type wideRecord struct {
	t                int64
	peer, stack, aux uint32
}

func (r record) kind() kind { return kind(r.word >> kindShift & kindMask) }

// wideIndex returns the place in the slab's list of a record that did not fit.
func (r record) wideIndex() (uint32, bool) { return uint32(r.word) & payloadMask, r.word&wideBit != 0 }

// time is since the generation's base, in ns.
func (r record) time() int64 {
	if t := r.word >> tickShift; t != maxTick {
		return int64(t << (r.slab.layout.unit & 63))
	}
	return r.slab.wideTime(r.word)
}

func (s *slab) wideTime(word uint64) int64 { return s.wide[word&payloadMask].t }

// peer is the other goroutine of an event. Of a status it may be asked only if that binds.
func (r record) peer() uint32 {
	if index, ok := r.wideIndex(); ok {
		return r.slab.wide[index].peer
	}
	return uint32(r.word) & payloadMask >> (r.slab.layout.stackBits[r.kind()&kindMask] & 31)
}

func (r record) stack() uint32 {
	if index, ok := r.wideIndex(); ok {
		return r.slab.wide[index].stack
	}
	return uint32(r.word) & (1<<(r.slab.layout.stackBits[r.kind()&kindMask]&31) - 1)
}

func (r record) aux() uint32 {
	if index, ok := r.wideIndex(); ok {
		return r.slab.wide[index].aux
	}
	return 0
}

// binds reports whether a status is of the goroutine on this thread. Such a record names its goroutine: see peer.
func (r record) binds() bool { return r.aux()&auxBinds != 0 }

// status returns the goroutine's status that a status tells, as the trace has it.
func (r record) status() uint32 {
	if index, ok := r.wideIndex(); ok {
		return r.slab.wide[index].aux & auxStatus
	}
	return uint32(r.word) & payloadMask >> statusStackBits
}

// link returns where a stream goes on.
func (r record) link() ref { return ref(r.word >> tickShift) }

// encodeRecord makes an event's record, as the layout has it. Its time and kind are in word already, unless far is not 0: then the time
// does not fit.
func (w *worker) encodeRecord(word, tooLate uint64, t int64, peer, stack uint64) uint64 {
	k := record{word: word}.kind()
	bits := w.layout.stackBits[k&kindMask] & 31
	if peer>>(payloadBits-bits)|stack>>bits|tooLate == 0 {
		return word | peer<<bits | stack
	}
	return w.putWide(k, t, 0, uint32(peer), uint32(stack))
}

// putWide keeps in the slab's list what does not fit into a record, and returns the record.
func (w *worker) putWide(k kind, t int64, aux, peer, stack uint32) uint64 {
	s := w.slab
	ticks := uint64(t) >> s.layout.unit
	if ticks > maxTick || int64(ticks<<s.layout.unit) != t {
		ticks = maxTick
	}
	s.wide = append(s.wide, wideRecord{t, peer, stack, aux})
	return ticks<<tickShift | uint64(k)<<kindShift | wideBit | uint64(len(s.wide)-1)
}

// aux of status records and of wakes.
const (
	auxStatus = 7      // mask: the goroutine's status
	auxBinds  = 1 << 3 // the status is of the goroutine on this thread
	auxNoP    = 1 << 4 // the thread held no P (a wake from sysmon)
)

// Records are kept in slabs of a fixed size, so that memory is reused from
// generation to generation whatever their sizes; a reference is slab and
// offset in one number. 0 is no record.
const (
	slabBits = 15
	slabSize = 1 << slabBits // 256 KiB
	slabMask = slabSize - 1
)

type slab struct {
	wide   []wideRecord // first, so that the collector need not look beyond
	layout layout
	words  [slabSize]uint64
}

// ref names a record of a generation.
type ref uint32

// A piece is a part of a goroutine's life, as found in a thread's stream.
type piece struct {
	g, seq     uint32
	rec        ref
	ownerBits  uint32 // see slot
	coarseTime uint32 // see slot
}

// pieceChunk is how many pieces lie together. Workers do not find as many as each other, nor as many again in the next generation:
// in a slice for each of them twice as much memory is held as in chunks that go round.
const pieceChunk = 1 << 13

// A pieceList are pieces that a worker found.
type pieceList struct {
	chunks []*[pieceChunk]piece
	first  int // the first of the list
	end    int // up to the last one
}

// addedSince returns what is in the list behind another one, with which it begins.
func (l *pieceList) addedSince(before *pieceList) pieceList {
	return pieceList{l.chunks, before.end, l.end}
}

// all yields the pieces.
func (l *pieceList) all() iter.Seq[*piece] {
	return func(yield func(*piece) bool) {
		for i := l.first; i < l.end; i = (i/pieceChunk + 1) * pieceChunk {
			first := i &^ (pieceChunk - 1)
			chunk := l.chunks[i/pieceChunk][i-first : min(l.end-first, pieceChunk)]
			for k := range chunk {
				if !yield(&chunk[k]) {
					return
				}
			}
		}
	}
}

// networkWaitBit, in a piece's owner, says that the run which the piece begins ended in a wait for the network; telling that the run has
// events with a telling stack: the rest is the place of the first in the list of the worker that decoded it. Dense numbers of
// goroutines reach neither, nor do these places: each takes four bytes of a generation at least, and a generation has less than 4 GiB.
const (
	networkWaitBit = 1 << 31
	trackedBit     = 1 << 30
)

// A slot is a piece at its place: record, owner, and its time since the
// generation's base in units of 64 ns, which saves searches in time from
// touching the records.
type slot struct {
	rec        ref
	ownerBits  uint32 // of a wake or birth the goroutine in whose run it stands; of a run see endedInNetwork and tells
	coarseTime uint32
}

func (s *slot) creatorOrWaker() uint32 { return s.ownerBits }

func (s *slot) endedInNetwork() bool { return s.ownerBits&networkWaitBit != 0 }

// firstTracked returns where the run's telling stacks begin.
func (s *slot) firstTracked() (int, bool) {
	return int(s.ownerBits &^ (networkWaitBit | trackedBit)), s.ownerBits&trackedBit != 0
}

// coarseTimeOf shortens a time for a slot; what does not fit is the last one.
func coarseTimeOf(t int64) uint32 { return uint32(min(uint64(t)>>6, 1<<32-1)) }
