// Package threadstate shows from the kernel's events what the threads of goroutines did: whether a thread had a CPU,
// waited for one while another thread ran, was held back by a quota, or slept.
//
// Input are the kernel's events of a recording and the generations of its trace. A trace has the number of the thread
// that a goroutine is bound to while it runs or is in a system call, so a query for a goroutine and an interval returns
// the states of that thread. All times are on the trace's clock, in ns.
//
// A [Tracker] keeps a sliding window of both, like the window of a pass.
package threadstate

import "github.com/whylate/whylate/internal/trace/tracefmt"

// A Kind is the state of a thread.
type Kind uint8

// States. A thread whose state is Unknown has no interval.
const (
	Unknown   Kind = iota
	OnCPU          // it had a CPU
	Waiting        // it waited for a CPU
	Throttled      // it waited for the refill of a CPU quota
	Disk           // it slept until a block device answered, or in another uninterruptible sleep
	Asleep         // it slept in the kernel
	Stopped        // a signal, a debugger or the freezer of its control group held it

	KindCount // their number
)

// An Interval is a part of a thread's time in one state.
type Interval struct {
	Start, End int64
	Kind       Kind
	// Name is, for Waiting, the process that had the CPU (0: none), and for Disk and Asleep the system call or kind of page
	// fault in which the thread slept; 0 if unknown.
	Name tracefmt.StringID
	// IsFault reports that a sleeping thread is in no system call: it accesses memory that is not present (a page fault).
	IsFault bool
}

// An Arrival is the time at which bytes reached a socket that a request then read.
type Arrival struct {
	Time   int64
	Socket uint64
	// WokenAt is when the request's goroutine was woken for these bytes.
	WokenAt int64
	poller  int32 // the thread that the bytes woke, 0 if they woke none
}
