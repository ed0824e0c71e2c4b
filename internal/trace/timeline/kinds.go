package timeline

import (
	"iter"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A kind is an event type of the trace format, or one of the three kinds below that only this package writes. A
// record stores it in six bits.
type kind uint8

const (
	// kindSwitched begins the run of a coroutine that another goroutine switched to; its peer is that other
	// goroutine.
	kindSwitched kind = 60 + iota
	// kindLink refers to the slab in which the stream continues.
	kindLink
	// kindEnd ends a thread's stream.
	kindEnd
)

// A trait is a property that several kinds of events share.
type trait uint8

const (
	beginsRun    trait = 1 << iota // the event begins a run of a goroutine on the thread
	changesState                   // it changes the state of the running goroutine
	leavesThread                   // it unbinds the running goroutine from the thread
	endsLife                       // it ends the life of the running goroutine
	createsOther                   // it creates another goroutine, which does not run on this thread
	repeatsState                   // it repeats the state of a goroutine, on this thread or elsewhere
	endsStream                     // it ends the thread's stream
)

// A payload names the fields that a record has in addition to its time and kind.
type payload uint8

const (
	stackPayload payload = iota
	peerPayload
	peerStackPayload
	reasonStackPayload
	statusStackPayload
)

// kinds describes each kind of event as far as it concerns goroutines. Event types of the format that are missing
// here do not concern goroutines, but may have a stack.
var kinds = [kindMask + 1]struct {
	traits  trait
	payload payload
	move    move
}{
	tracefmt.EvGoStatus:            {repeatsState, statusStackPayload, moveStatus},
	tracefmt.EvGoStatusStack:       {repeatsState, statusStackPayload, moveStatus},
	tracefmt.EvGoCreate:            {createsOther, stackPayload, moveReady},
	tracefmt.EvGoCreateBlocked:     {createsOther, stackPayload, noMove},
	tracefmt.EvGoCreateSyscall:     {beginsRun, peerPayload, moveToCall},
	tracefmt.EvGoUnblock:           {0, peerStackPayload, moveReady},
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
	kindEnd:                        {endsStream, stackPayload, moveEnd},
}

// hasTrait reports whether an event has trait t, or at least one of several combined traits.
func (r record) hasTrait(t trait) bool { return kinds[r.kind()&kindMask].traits&t != 0 }

// opensRun reports whether a piece that begins with r is a run of its goroutine on the thread. The compiler inlines it and endsWalk.
func opensRun(r record) bool {
	traits := kinds[r.kind()&kindMask].traits
	return traits&beginsRun != 0 || traits&repeatsState != 0 && r.binds()
}

// endsWalk reports whether a walk along a run must end before r: at the end of the stream, or where another
// goroutine begins to run on the thread. In a sound trace the run ends earlier. In a damaged trace, this bound
// keeps the walks over all runs of a stream from taking time that grows with the square of its length.
func endsWalk(r record) bool {
	traits := kinds[r.kind()&kindMask].traits
	return traits&(beginsRun|endsStream) != 0 || traits&repeatsState != 0 && r.binds()
}

// runEvents yields the events of the run that begins at rec, up to and including the event that unbinds the goroutine from the
// thread.
func (g *Gen) runEvents(rec ref) iter.Seq[record] {
	return func(yield func(record) bool) {
		for rec, r := g.next(rec); !endsWalk(r) && yield(r) && !r.hasTrait(leavesThread); rec, r = g.next(rec) {
		}
	}
}

// endOfRun returns the event that ends the run which begins at rec. ok is false if no run begins there, or its end is not in
// the generation.
func (g *Gen) endOfRun(rec ref) (end record, ok bool) {
	if !opensRun(g.record(rec)) {
		return record{}, false
	}
	for end = range g.runEvents(rec) {
	}
	return end, end.hasTrait(leavesThread)
}
