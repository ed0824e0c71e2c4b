package host

import "github.com/whylate/whylate/internal/capture/bundle"

// Schema is the value of Line.Schema in the first line.
const Schema = "whylate.host/v1"

// Kinds of line. Readers skip kinds they do not know.
const (
	KindStart   = "start"   // the first line: whose samples, and host facts
	KindSample  = "sample"  // counters of CPU time, throttling, run queue
	KindSecond  = "second"  // what costs more to read: levels, memory, steal
	KindSockets = "sockets" // the process's TCP sockets
	KindTrace   = "trace"   // the trace was asked for
	KindMark    = "mark"    // something happened
	KindEnd     = "end"     // the last line: how it ended, and what it cost
)

// A Line is one line of host.jsonl: which fields are there depends on Kind.
type Line struct {
	Kind string `json:"kind"`
	Sample

	// Start.
	Schema     string       `json:"schema,omitempty"`
	PID        int          `json:"pid,omitempty"`
	IntervalNS int64        `json:"interval_ns,omitempty"`
	Facts      *bundle.Host `json:"facts,omitempty"`
	// HasStates says that samples have the process's state where that is none in which it may run.
	HasStates bool `json:"states,omitempty"`

	// Sockets. Count is how many the process has, of which Sockets lists those
	// that have sent again or got out of order since SinceNS, when they were
	// looked at before; All says that it lists the others, too.
	SocketCount int      `json:"count,omitempty"`
	SinceNS     int64    `json:"since_ns,omitempty"`
	ListsAll    bool     `json:"all,omitempty"`
	Sockets     []Socket `json:"sockets,omitempty"`
	// SelfSockets counts those of Count whose other end is the process's as well, Unsure connections of which that may have been so:
	// they were opened and closed between two looks, and had one end at an address that the process listens on, which
	// Listens gives.
	SelfSockets       *int     `json:"own,omitempty"`
	UnsureConnections int      `json:"unsure,omitempty"`
	ListenAddrs       []string `json:"listens,omitempty"`

	// Mark and end.
	Text        string           `json:"text,omitempty"`
	CostNS      int64            `json:"cost_ns,omitempty"` // CPU time of sampling
	LateSamples int              `json:"late,omitempty"`    // samples that came more than an interval late
	Warnings    []bundle.Warning `json:"warnings,omitempty"`
}

// A Sample is what was read at one time. A counter that could not be read is nil, which is not the same as 0.
type Sample struct {
	// MonoNS is CLOCK_MONOTONIC, WallNS is time since 1970, both of the
	// recording side.
	MonoNS int64 `json:"mono_ns"`
	WallNS int64 `json:"wall_ns"`

	// GroupIndex counts the groups the process was in: counters of two groups must not be compared.
	GroupIndex               int    `json:"group,omitempty"`
	Periods                  *int64 `json:"periods,omitempty"`
	ThrottledPeriods         *int64 `json:"throttled_periods,omitempty"`
	ThrottledNS              *int64 `json:"throttled_ns,omitempty"`
	LocalThrottledNS         *int64 `json:"local_ns,omitempty"`
	AncestorThrottledPeriods *int64 `json:"ancestor_throttled_periods,omitempty"`
	AncestorThrottledNS      *int64 `json:"ancestor_throttled_ns,omitempty"`
	AncestorsComplete        bool   `json:"ancestors_complete,omitempty"`
	UsageNS                  *int64 `json:"usage_ns,omitempty"`
	UserNS                   *int64 `json:"user_ns,omitempty"`
	SystemNS                 *int64 `json:"system_ns,omitempty"`
	RunNS                    *int64 `json:"run_ns,omitempty"`
	RunDelayNS               *int64 `json:"run_delay_ns,omitempty"`
	Threads                  int    `json:"threads,omitempty"`
	RSSBytes                 *int64 `json:"rss_bytes,omitempty"`
	Retransmitted            *int64 `json:"retransmitted,omitempty"`
	// UnattributedRetransmits counts those of Retransmitted after which the process's sockets could not be looked at at once.
	UnattributedRetransmits int64  `json:"retransmitted_unseen,omitempty"`
	MinorFaults             *int64 `json:"minor_faults,omitempty"`
	MajorFaults             *int64 `json:"major_faults,omitempty"`
	// HaltReason says why no thread of the process may run: a State, or "".
	HaltReason HaltReason `json:"held,omitempty"`
	// ThreadWaits are the threads that waited for a CPU for a millisecond and more since the sample before.
	ThreadWaits []ThreadWait `json:"waited,omitempty"`

	// Lines of KindSecond alone have the rest.
	Levels            []Level `json:"levels,omitempty"`
	MemoryBytes       *int64  `json:"memory_bytes,omitempty"`
	InactiveFileBytes *int64  `json:"inactive_file_bytes,omitempty"`
	OOMKills          *int64  `json:"oom_kills,omitempty"`
	StealNS           *int64  `json:"steal_ns,omitempty"`
	MachineCPUNS      *int64  `json:"machine_ns,omitempty"`  // CPU time that all processes of the machine had
	PressureNS        *int64  `json:"pressure_ns,omitempty"` // time in which any of them waited for a CPU (PSI)
}

// ThreadWait is a thread's number, how long it was runnable without running, and how long it ran.
type ThreadWait [3]int64

// HaltReason is why no thread of a process may run.
type HaltReason string

// Reasons for that.
const (
	HaltedBySignal   HaltReason = "stopped" // by a signal: SIGSTOP, or job control
	HaltedByDebugger HaltReason = "traced"  // by a debugger
	HaltedByFreezer  HaltReason = "frozen"  // by the freezer of its cgroup, as containers are paused
)

// A Level is the quota's account of one group, the process's own at depth 0.
type Level struct {
	Depth            int    `json:"depth"`
	GroupPath        string `json:"group"`
	Periods          int64  `json:"periods"`
	ThrottledPeriods int64  `json:"throttled_periods"`
	ThrottledNS      int64  `json:"throttled_ns"`
}

// A Socket is one TCP connection, as the kernel sees it.
type Socket struct {
	Local  string `json:"local"`
	Remote string `json:"remote"`
	State  string `json:"state,omitempty"`
	// Peer says that it is the other end, on this host, of a connection of the
	// process.
	Peer bool `json:"peer,omitempty"`
	// Retransmitted counts segments sent again since the connection was made
	// (tcpi_total_retrans), OutOfOrder those that arrived out of order
	// (tcpi_rcv_ooopack), which is what loss of the other side's segments
	// mostly looks like from here.
	Retransmitted int64 `json:"retransmitted"`
	// Spurious counts those that had arrived already, by the other end's word (tcpi_dsack_dups): its acknowledgement was
	// late, or a tail loss probe was sent to be safe. Nothing was lost.
	Spurious    int64 `json:"needless,omitempty"`
	OutOfOrder  int64 `json:"out_of_order,omitempty"`
	RTTNS       int64 `json:"rtt_ns,omitempty"`
	MinRTTNS    int64 `json:"min_rtt_ns,omitempty"`
	UnackedSegs int64 `json:"unacked,omitempty"`
}
