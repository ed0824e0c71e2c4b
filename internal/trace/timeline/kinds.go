package timeline

import (
	"iter"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A kind is an event type of the format, or one of ours. It has six bits in a record.
type kind uint8

const (
	// kindSwitched starts the run of a coroutine that was switched to; peer is
	// the goroutine that switched.
	kindSwitched kind = 60 + iota
	// kindLink says where the stream goes on.
	kindLink
	// kindEnd ends a thread's stream.
	kindEnd
)

// A trait is what events of several kinds have in common.
type trait uint8

const (
	beginsRun    trait = 1 << iota // begins a run of a goroutine on the thread
	changesState                   // changes the state of the goroutine that runs
	leavesThread                   // and takes it off the thread
	endsLife                       // and ends it
	createsOther                   // creates another goroutine, which is not on the thread
	repeatsState                   // says what state a goroutine is in, the one on the thread or another one
)

// A payload is what a record of a kind has beside its time.
type payload uint8

const (
	stackPayload payload = iota
	peerPayload
	peerStackPayload
	reasonStackPayload
	statusStackPayload
)

// kinds says what an event is for goroutines. An event type of the format that is not here is nothing for them, but may have a stack.
var kinds = [kindMask + 1]struct {
	traits  trait
	payload payload
	move    move
}{
	tracefmt.EvGoStatus:            {repeatsState, statusStackPayload, moveStatus},
	tracefmt.EvGoStatusStack:       {repeatsState, statusStackPayload, moveStatus},
	tracefmt.EvGoCreate:            {createsOther, peerStackPayload, moveReady},
	tracefmt.EvGoCreateBlocked:     {createsOther, peerStackPayload, noMove},
	tracefmt.EvGoCreateSyscall:     {beginsRun, peerPayload, moveToCall},
	tracefmt.EvGoUnblock:           {0, stackPayload, moveReady},
	tracefmt.EvGoStart:             {beginsRun, peerPayload, moveStart},
	kindSwitched:                   {beginsRun, peerPayload, moveToRunning},
	tracefmt.EvGoBlock:             {changesState | leavesThread, reasonStackPayload, moveHalt},
	tracefmt.EvGoStop:              {changesState | leavesThread, reasonStackPayload, moveYield},
	tracefmt.EvGoSwitch:            {changesState | leavesThread, peerPayload, moveHalt},
	tracefmt.EvGoSwitchDestroy:     {changesState | leavesThread | endsLife, peerPayload, moveHalt},
	tracefmt.EvGoDestroy:           {changesState | leavesThread | endsLife, peerPayload, moveHalt},
	tracefmt.EvGoDestroySyscall:    {changesState | leavesThread | endsLife, peerPayload, moveFromCall},
	tracefmt.EvGoSyscallBegin:      {changesState, stackPayload, moveEnterCall},
	tracefmt.EvGoSyscallEnd:        {changesState, peerPayload, moveLeaveCall},
	tracefmt.EvGoSyscallEndBlocked: {changesState | leavesThread, peerPayload, moveLeaveCallReady},
	tracefmt.EvGCMarkAssistActive:  {0, peerPayload, noMove},
	kindLink:                       {0, stackPayload, moveLink},
	kindEnd:                        {0, stackPayload, moveEnd},
}

// hasTrait reports whether an event has a trait, or one of several.
func (r record) hasTrait(t trait) bool { return kinds[r.kind()&kindMask].traits&t != 0 }

// opensRun reports whether a piece that begins with r goes on as a run of its
// goroutine on the thread.
func opensRun(r record) bool { return r.hasTrait(beginsRun) || r.hasTrait(repeatsState) && r.binds() }

// endsWalk reports whether a walk along a run is over at r in any case: at the
// stream's end, or where the thread has another goroutine. In a sound trace
// the run has ended before; in a damaged one the walks of many runs over one
// stream must not add up to the square of its length.
func endsWalk(r record) bool { return r.kind() == kindEnd || opensRun(r) }

// runEvents yields the events of the run that the record at at begins, up to the one that ends it.
func (g *Gen) runEvents(rec ref) iter.Seq[record] {
	return func(yield func(record) bool) {
		for rec, r := g.next(rec); !endsWalk(r) && yield(r) && !r.hasTrait(leavesThread); rec, r = g.next(rec) {
		}
	}
}

// endOfRun returns the event that ends the run which a piece begins with.
func (g *Gen) endOfRun(rec ref) (end record, ok bool) {
	if !opensRun(g.record(rec)) {
		return record{}, false
	}
	for end = range g.runEvents(rec) {
	}
	return end, end.hasTrait(leavesThread)
}
