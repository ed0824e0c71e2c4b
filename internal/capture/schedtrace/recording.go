// Package schedtrace writes an execution trace of Go from events of the scheduler that were seen from outside the process.
//
// Such events say which goroutine ran on which thread, the reason of its wait, and which goroutine made it ready. They do not say which P
// a thread had, and they have no events of the garbage collector and no marks of the program. The format needs Ps: each running
// goroutine gets one, so that the trace is valid, and readers must conclude nothing from them. A state that no event explains, such
// as the start of a goroutine that waited in the poller, is completed as the format's order rules need it.
package schedtrace

import (
	"time"

	"github.com/whylate/whylate/internal/capture/gobinary"
)

// A Kind is the kind of an Event.
type Kind uint8

// Kinds of events, with the numbers of the BPF program.
const (
	Block        Kind = 1 + iota // G waits for Reason
	Start                        // G begins to run on Thread
	Ready                        // Peer, if not 0, made G ready to run
	Create                       // Peer, if not 0, created G
	Destroy                      // G ends
	Stop                         // G remains ready, but runs no more
	Switch                       // G passes its thread to the coroutine Peer
	SyscallBegin                 // Thread leaves its CPU in a system call of G
	SyscallEnd                   // Thread has a CPU again
	Send                         // G has written to a socket
	Sample                       // a CPU runs G
)

// An Event is one event of a thread.
type Event struct {
	Time   int64 // nanoseconds of the monotonic clock
	G      uint64
	Peer   uint64
	Thread uint64
	Kind   Kind
	Reason string
	// Stack and NewStack are indexes of Recording.Stacks: the stack of the goroutine that acts, and the start of a created goroutine.
	Stack, NewStack int
}

// A Recording is everything that was seen of a process.
type Recording struct {
	Start, End int64     // of the monotonic clock
	Wall       time.Time // at Start
	Events     []Event   // in the order of time
	// Stacks are the stacks of events, innermost frame first. The first is empty.
	Stacks [][]gobinary.Frame
}
