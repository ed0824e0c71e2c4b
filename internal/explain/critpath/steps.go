package critpath

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Kind is the kind of time that a step is.
type Kind uint8

// A Step is a part of a critical path: an interval in one state of one goroutine.
type Step struct {
	Start, End int64
	G          uint64
	Kind       Kind
	Beginning  timeline.Origin // how the span began that the step is a part of
	// Stack is the stack of the event that timeline.Span.Stack describes.
	Stack tracefmt.StackID
	// ResumeStack is, for a CPU step, the stack of the event before it on the same goroutine, where the goroutine
	// resumed; 0 if unknown.
	ResumeStack tracefmt.StackID
	// FollowedWait is the index in Walker.FollowedWaits of the wait that led to this step, or -1.
	FollowedWait int32
	// Inbound reports that a network wait is for the client of a request.
	Inbound bool
	// Preempted reports that Stack is where a CPU step was preempted. Otherwise Stack is only where the next event
	// came from.
	Preempted bool
	// WokenByPoller reports that a Runnable step began with a wake by the network poller after a poll gap: the data
	// may have arrived at any time in that gap.
	WokenByPoller bool
	// TimerStart is the start of the timer's function, for a Sleep that a timer of the standard library ended (a
	// context's deadline); 0 otherwise.
	TimerStart tracefmt.StackID
	// Remote is the request of another process, for a Remote step and for a Network step on the way to it or back.
	Remote *RemoteAnswer
}

// OpensConnection reports whether the stacks of a step show that it is part of opening a connection (dial, handshake, name
// resolution). Running time before the first event of the opening does not count.
func (s *Step) OpensConnection(syms *tracefmt.Symbols) bool {
	return syms.OpensConnection(s.Stack) && (s.Kind != CPU || syms.OpensConnection(s.ResumeStack))
}

// A FollowedWait is a wait from which the walk continued in the goroutine that ended it.
type FollowedWait struct {
	Kind       WaitKind
	Stack      tracefmt.StackID
	WakerStack tracefmt.StackID // of the event that ended the wait
	Parent     int32            // the index of the outer wait, nearer to the request, or -1
	// G waited from Start to End, even if the walk needs only a part of that time. Waker ended the wait.
	G, Waker   uint64
	Start, End int64
}

// WaitKind is the kind of a followed wait: for what the goroutine waited.
type WaitKind uint8

// Kinds of waits.
const (
	WaitOther WaitKind = iota
	WaitLock
	WaitGroup
	WaitCond
	WaitOnce
	WaitChan
	WaitSend
	WaitSelect
	WaitCoroutine
	WaitPoll // a network wait that a deadline or a Close ended
	WaitPeer // a network wait for an answer of this process: see Answer
)

var waitKindNames = [...]string{"wait", "lock", "waitgroup", "cond", "once", "chan", "chan send", "select", "coroutine", "network", "peer"}

func (kind WaitKind) String() string { return waitKindNames[kind] }

// Kinds of steps. The kinds of waits are for waits that the walk could not or need not follow.
const (
	Unknown     Kind = iota // no event: before the trace, or lost
	CPU                     // running
	Runnable                // ready, without a P
	Syscall                 // in the kernel or in C code
	Sleep                   // a timer
	Network                 // waits for the poller
	PollGap                 // the end of a network wait, when no P polled the network
	Lock                    // a semaphore wait without a visible waker
	Chan                    // a channel wait without a visible waker
	Assist                  // GC mark assist, running or waiting
	GCWait                  // waits for a phase of garbage collection
	StopWorld               // stops the world, or waits to stop it
	FlowControl             // waits until the peer allows more bytes of a request's body
	Remote                  // waits for a request of another process: see RemoteAnswer
)
