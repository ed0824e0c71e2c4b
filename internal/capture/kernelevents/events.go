// Package kernelevents reads and writes the kernel's events of a recording, the file kernel.bin: when threads got and
// lost a CPU and why, who ran in their place, when bytes reached sockets, and when CPU quotas were refilled.
// docs/bundle.md describes the format.
//
// All times are nanoseconds of CLOCK_MONOTONIC, the clock of execution traces. All thread numbers are those of the
// host; [Tables] has the service's own numbers.
//
// The file consists of blocks of at most [BlockEvents] events in order of time, each a set of columns, and of one
// block of tables at the end. A reader decodes one block at a time, and its memory does not depend on what the file
// claims.
package kernelevents

// Schema names the format. The file begins with it and a line feed.
const Schema = "whylate.kernel/v1"

// Limits of a reader and of a writer.
const (
	// BlockEvents is the largest number of events in a block.
	BlockEvents = 1 << 16
	// MaxUnpacked bounds the unpacked bytes of all blocks: half an hour at 20,000 events a second.
	MaxUnpacked = 256 << 20
	// maxBlock bounds the unpacked bytes of a block of events: each of the columns takes ten bytes at most.
	maxBlock = 4 << 20
	// maxTables bounds the unpacked bytes of the tables, maxRows their rows, maxFrames the frames of a stack: a machine
	// with 100,000 threads needs 12 MiB.
	maxTables = 16 << 20
	maxRows   = 1 << 17
	maxFrames = 128
)

// A Kind is the kind of an event.
type Kind uint8

// Kinds of events. The comments give the use of an event's fields.
const (
	// Switch: a CPU changed from Thread to the thread A (0: idle). B is the State of Thread. C is the number of its
	// kernel stack, counted from 1, and 0 if none was recorded. D is the time that interrupts took since Thread got the
	// CPU, in nanoseconds.
	//
	// A Switch from a thread to itself is none: it shows that another process's thread has that CPU when a thread of the
	// service begins to wait, on another CPU, behind one of the service's own.
	Switch Kind = iota + 1
	// Wakeup: Thread can run and is in the run queue of CPU B. A is the thread that woke it, 0 for an interrupt, -1 for a timer. C is the
	// thread on CPU B then, -1 if unknown. D has the bits WakeupNew and WakeupBySoftirq, and from bit 2 on the
	// nanoseconds between the demand to wake it and now: an interrupt to an idle CPU is between them.
	Wakeup
	// Migrate: Thread, which waits for a CPU, moved from the run queue of CPU A to that of CPU B. C is the thread on
	// CPU B then, -1 if unknown.
	Migrate
	// Refill: the timer of the quota of the control group A expired.
	Refill
	// Throttle and Unthrottle: the control group A lost and got back the right to run on CPU B.
	Throttle
	Unthrottle
	// Arrival: bytes reached the socket A. B is the number of bytes that wait in it, 0 if unknown. C is the position in
	// the stream after them, modulo 2^32, 0 if unknown.
	Arrival
	// Read and Send: Thread read from or wrote to the socket A. B is the number of bytes, or the negative error. The
	// position in the stream after them, modulo 2^32, is D of a Read and C of a Send, 0 if unknown.
	Read
	Send
	// Retransmit: the kernel sent a segment of the socket A again, from the position B on.
	Retransmit
	// Softirq: an interrupt of vector A took B nanoseconds of Thread's time on its CPU.
	Softirq
	// Lost: A events since the time B were lost.
	Lost
	// Throttled: Thread, which gets a CPU now, was without one for A nanoseconds because the quota of a control group was
	// used up: these were the first of its time in a run queue.
	Throttled

	kindCount
)

var kindNames = [...]string{"", "switch", "wakeup", "migrate", "refill", "throttle", "unthrottle", "arrival", "read", "send", "retransmit", "softirq", "lost", "throttled"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Bits of a Wakeup's D.
const (
	WakeupNew       = 1 // the thread is new
	WakeupBySoftirq = 2 // an interrupt for bytes or a timer woke it
)

// WakeupDelay returns the time between the demand to wake a thread and its place in a run queue.
func (e *Event) WakeupDelay() int64 { return e.D >> 2 }

// A State says why a thread lost its CPU.
type State int64

// The low four bits of a State.
const (
	Runnable State = iota // it could have run on: it was preempted, or throttled
	Sleeping              // an interruptible sleep
	DiskWait              // an uninterruptible sleep
	Stopped               // by a signal or a debugger
	Dead
	OtherState

	stateMask = 15
)

// Bits of a State.
const (
	InIOWait      State = 16 // the wait is for a block device
	QuotaUsedUp   State = 32 // the quota of a control group is used up
	FrozenByGroup State = 64 // by the freezer of a control group

	callShift = 16
)

// Class returns the state without its bits.
func (s State) Class() State { return s & stateMask }

// Call returns the number of the system call in which the thread slept; ok is false if it was in none, or that is
// unknown.
func (s State) Call() (number int32, ok bool) {
	n := int32(s >> callShift & 0xffff)
	return n - 1, n > 0
}

// InCall returns the state with a system call.
func (s State) InCall(number int32) State { return s | State(number+1)<<callShift }

// An Event is one event of the kernel. Kind describes the use of A to D.
type Event struct {
	Time       int64
	CPU        int32
	Thread     int32
	Kind       Kind
	A, B, C, D int64
}

// Tables explain the numbers in events.
type Tables struct {
	// Start and End bound the time in which no event is missing, except for those that Lost counts.
	Start, End int64
	// PID is the service's process number on the host, NSPID the one in its own namespace.
	PID, NSPID int32
	CPUs       int
	// ClockOffsetNS is to be added to the events' times to get those of the service's own CLOCK_MONOTONIC.
	ClockOffsetNS int64
	// IsThrottleExact means that Throttled events have the time that quotas took. Without it only the end of a freeze is
	// known, by the Refill before.
	IsThrottleExact bool
	// Calls has the names of system calls by number.
	Calls   map[int32]string
	Threads []Thread
	Stacks  []Stack
	Cgroups []Cgroup
	Sockets []Socket
}

// A Thread is a thread that events name.
type Thread struct {
	// TID is its number on the host, NSTID the one in the service's own namespace, 0 if it is not the service's.
	TID   int32 `json:"tid"`
	NSTID int32 `json:"nstid,omitempty"`
	PID   int32 `json:"pid,omitempty"`
	// Comm is the thread's name, Process that of its process.
	Comm    string `json:"comm,omitempty"`
	Process string `json:"process,omitempty"`
	Cgroup  uint64 `json:"cgroup,omitempty"`
	// Own marks the threads of the service, IsPeer those of processes at the other end of its connections: see Socket.
	Own    bool `json:"own,omitempty"`
	IsPeer bool `json:"peer,omitempty"`
}

// A Stack has names of kernel functions, the innermost first.
type Stack struct {
	Frames []string `json:"frames"`
}

// A Cgroup is a control group. QuotaNS is 0 if it has no quota.
type Cgroup struct {
	ID        uint64 `json:"id"`
	Path      string `json:"path,omitempty"`
	Container string `json:"container,omitempty"`
	QuotaNS   int64  `json:"quota_ns,omitempty"`
	PeriodNS  int64  `json:"period_ns,omitempty"`
}

// A Socket is a socket that events name. Its addresses are of the form host:port. Peer is, for a socket of another process of
// the host, the service's socket at the other end of the connection. The service opened that connection, and switches and wakes of
// all threads of the process are recorded from its first read or write on.
type Socket struct {
	ID       uint64 `json:"id"`
	Protocol string `json:"protocol,omitempty"`
	Local    string `json:"local,omitempty"`
	Remote   string `json:"remote,omitempty"`
	Peer     uint64 `json:"peer,omitempty"`
}
