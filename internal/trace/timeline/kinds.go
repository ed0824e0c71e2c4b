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
	begins  trait = 1 << iota // begins a run of a goroutine on the thread
	changes                   // changes the state of the goroutine that runs
	leaves                    // and takes it off the thread
	dies                      // and ends it
	births                    // creates another goroutine, which is not on the thread
	repeats                   // says what state a goroutine is in, the one on the thread or another one
)

// A payload is what a record of a kind has beside its time.
type payload uint8

const (
	aStack payload = iota
	aPeer
	peerAndStack
	reasonAndStack
	statusAndStack
)

// kinds says what an event is for goroutines. An event type of the format that is not here is nothing for them, but may have a stack.
var kinds = [kindMask + 1]struct {
	traits  trait
	payload payload
	move    move
}{
	tracefmt.EvGoStatus:            {repeats, statusAndStack, aStatus},
	tracefmt.EvGoStatusStack:       {repeats, statusAndStack, aStatus},
	tracefmt.EvGoCreate:            {births, peerAndStack, ready},
	tracefmt.EvGoCreateBlocked:     {births, peerAndStack, noMove},
	tracefmt.EvGoCreateSyscall:     {begins, aPeer, toCall},
	tracefmt.EvGoUnblock:           {0, aStack, ready},
	tracefmt.EvGoStart:             {begins, aPeer, start},
	kindSwitched:                   {begins, aPeer, toRunning},
	tracefmt.EvGoBlock:             {changes | leaves, reasonAndStack, halt},
	tracefmt.EvGoStop:              {changes | leaves, reasonAndStack, yield},
	tracefmt.EvGoSwitch:            {changes | leaves, aPeer, halt},
	tracefmt.EvGoSwitchDestroy:     {changes | leaves | dies, aPeer, halt},
	tracefmt.EvGoDestroy:           {changes | leaves | dies, aPeer, halt},
	tracefmt.EvGoDestroySyscall:    {changes | leaves | dies, aPeer, fromCall},
	tracefmt.EvGoSyscallBegin:      {changes, aStack, enter},
	tracefmt.EvGoSyscallEnd:        {changes, aPeer, leave},
	tracefmt.EvGoSyscallEndBlocked: {changes | leaves, aPeer, leaveReady},
	tracefmt.EvGCMarkAssistActive:  {0, aPeer, noMove},
	kindLink:                       {0, aStack, aLink},
	kindEnd:                        {0, aStack, anEnd},
}

// is reports whether an event has a trait, or one of several.
func (r record) is(t trait) bool { return kinds[r.kind()&kindMask].traits&t != 0 }

// opensRun reports whether a piece that begins with r goes on as a run of its
// goroutine on the thread.
func opensRun(r record) bool { return r.is(begins) || r.is(repeats) && r.binds() }

// endsWalk reports whether a walk along a run is over at r in any case: at the
// stream's end, or where the thread has another goroutine. In a sound trace
// the run has ended before; in a damaged one the walks of many runs over one
// stream must not add up to the square of its length.
func endsWalk(r record) bool { return r.kind() == kindEnd || opensRun(r) }

// run yields the events of the run that the record at at begins, up to the one that ends it.
func (g *Gen) run(at ref) iter.Seq[record] {
	return func(yield func(record) bool) {
		for at, r := g.next(at); !endsWalk(r) && yield(r) && !r.is(leaves); at, r = g.next(at) {
		}
	}
}

// endOfRun returns the event that ends the run which a piece begins with.
func (g *Gen) endOfRun(at ref) (end record, ok bool) {
	if !opensRun(g.record(at)) {
		return record{}, false
	}
	for end = range g.run(at) {
	}
	return end, end.is(leaves)
}
