package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// A record is one event of a thread's stream in 16 bytes:
//
//	a: time (44 bits, ns since the generation's base) | kind (8) | aux (12)
//	b: peer (32) | stack (32, the generation's own id)
//
// It is written as two words because the compiler turns a struct literal of
// small fields into narrow stores that a following wide load has to wait for
// (store forwarding took a third of the decoding time in the prototype).
type record struct{ a, b uint64 }

const (
	timeBits = 44
	timeMax  = 1<<timeBits - 1
	auxBits  = 12
	auxMax   = 1<<auxBits - 1
)

func (r record) time() int64   { return int64(r.a >> 20) }
func (r record) kind() kind    { return kind(r.a >> 12) }
func (r record) aux() uint32   { return uint32(r.a & auxMax) }
func (r record) peer() uint32  { return uint32(r.b >> 32) }
func (r record) stack() uint32 { return uint32(r.b) }

// A kind is an event type of the format, or one of ours.
type kind uint8

const (
	// kindSwitched starts the run of a coroutine that was switched to; peer is
	// the goroutine that switched.
	kindSwitched kind = 200 + iota
	// kindLink goes on at record peer.
	kindLink
	// kindEnd ends a thread's stream.
	kindEnd
)

// aux of status records and of wakes.
const (
	auxStatus   = 7      // mask: the goroutine's status
	auxBinds    = 1 << 3 // the status is of the goroutine on this thread
	auxNoP      = 1 << 4 // the thread held no P (a wake from sysmon)
	auxUserHigh = auxMax // for user events: the worker that decoded it
)

// Records are kept in slabs of a fixed size, so that memory is reused from
// generation to generation whatever their sizes; a reference is slab and
// offset in one number. 0 is no record.
const (
	slabBits = 18
	slabSize = 1 << slabBits // 4 MiB
	slabMask = slabSize - 1
)

type slab [slabSize]record

// ref names a record of a generation.
type ref uint32

// A piece is a part of a goroutine's life, as found in a thread's stream.
type piece struct {
	g, seq uint32
	rec    ref
	owner  uint32 // see slot
	when   uint32 // see slot
}

// netBlock, in a piece's owner, says that the run which the piece begins ended in a wait for the network; telling that the run has
// events with a telling stack: the rest is the place of the first in the list of the worker that decoded it. Dense numbers of
// goroutines reach neither, nor do these places: each takes four bytes of a generation at least, and a generation has less than 4 GiB.
const (
	netBlock = 1 << 31
	telling  = 1 << 30
)

// A slot is a piece at its place: record, owner, and its time since the
// generation's base in units of 64 ns, which saves searches in time from
// touching the records.
type slot struct {
	rec  ref
	own  uint32 // of a wake or birth the goroutine in whose run it stands; of a run see endedInNetwork and tells
	when uint32
}

func (s *slot) owner() uint32 { return s.own }

func (s *slot) endedInNetwork() bool { return s.own&netBlock != 0 }

// tells returns where the run's telling stacks begin.
func (s *slot) tells() (int, bool) { return int(s.own &^ (netBlock | telling)), s.own&telling != 0 }

// whenOf shortens a time for a slot; what does not fit is the last one.
func whenOf(t int64) uint32 { return uint32(min(uint64(t)>>6, 1<<32-1)) }

// opensRun reports whether a piece that begins with r goes on as a run of its
// goroutine on the thread.
func opensRun(r record) bool {
	switch r.kind() {
	case kind(tracefmt.EvGoStart), kindSwitched, kind(tracefmt.EvGoCreateSyscall):
		return true
	case kind(tracefmt.EvGoStatus), kind(tracefmt.EvGoStatusStack):
		return r.aux()&auxBinds != 0
	}
	return false
}

// endsWalk reports whether a walk along a run is over at r in any case: at the
// stream's end, or where the thread has another goroutine. In a sound trace
// the run has ended before; in a damaged one the walks of many runs over one
// stream must not add up to the square of its length.
func endsWalk(r record) bool { return r.kind() == kindEnd || opensRun(r) }
