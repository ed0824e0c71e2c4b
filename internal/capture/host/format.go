package host

import "github.com/whylate/whylate/internal/capture/bundle"

// Schema is the value of Line.Schema in the first line.
const Schema = "whylate.host/v1"

// Kinds of line. Readers skip kinds they do not know.
const (
	KindStart   = "start"   // the first line: the process and host facts
	KindSample  = "sample"  // counters of CPU time, throttling, run queue
	KindSecond  = "second"  // counters that are read once a second because of their cost: levels, memory, steal
	KindSockets = "sockets" // the process's TCP sockets
	KindTrace   = "trace"   // the time of the request for the trace
	KindMark    = "mark"    // an event, described by Text
	KindEnd     = "end"     // the last line: the cost of sampling and its warnings
)

// A Line is one line of host.jsonl. Kind determines which fields are set.
type Line struct {
	Kind string `json:"kind"`
	Sample

	// Start.
	Schema     string       `json:"schema,omitempty"`
	PID        int          `json:"pid,omitempty"`
	IntervalNS int64        `json:"interval_ns,omitempty"`
	Facts      *bundle.Host `json:"facts,omitempty"`
	// HasStates means that the samples have HaltReason; older recordings lack it.
	HasStates bool `json:"states,omitempty"`

	// Fields of KindSockets. SocketCount counts the sockets of the process. Sockets lists those that
	// have retransmitted segments or received segments out of order since SinceNS, the time of the
	// previous poll. ListsAll means that Sockets lists the unchanged ones, too.
	SocketCount int      `json:"count,omitempty"`
	SinceNS     int64    `json:"since_ns,omitempty"`
	ListsAll    bool     `json:"all,omitempty"`
	Sockets     []Socket `json:"sockets,omitempty"`
	// SelfSockets counts the sockets whose other end belongs to the process, too. UnsureConnections
	// counts connections for which that is possible but unknown: they were opened and closed between
	// two polls, and one end was at an address that the process listens on, one of ListenAddrs.
	SelfSockets       *int     `json:"own,omitempty"`
	UnsureConnections int      `json:"unsure,omitempty"`
	ListenAddrs       []string `json:"listens,omitempty"`

	// Mark and end.
	Text        string           `json:"text,omitempty"`
	CostNS      int64            `json:"cost_ns,omitempty"` // CPU time of sampling
	LateSamples int              `json:"late,omitempty"`    // samples taken more than an interval late
	Warnings    []bundle.Warning `json:"warnings,omitempty"`
}

// A Sample has the counters that were read at one time. A counter that could not be read is nil, which
// differs from 0.
type Sample struct {
	// MonoNS is CLOCK_MONOTONIC, WallNS the time since 1970, both by the recorder's clocks.
	MonoNS int64 `json:"mono_ns"`
	WallNS int64 `json:"wall_ns"`

	// GroupIndex numbers the cgroups that the process has been in, from 0. Counters of two cgroups must
	// not be compared.
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
	// UnattributedRetransmits counts those of Retransmitted that no poll of the process's sockets
	// followed at once.
	UnattributedRetransmits int64  `json:"retransmitted_unseen,omitempty"`
	MinorFaults             *int64 `json:"minor_faults,omitempty"`
	MajorFaults             *int64 `json:"major_faults,omitempty"`
	// HaltReason is why the kernel runs no thread of the process; "" if it may run them.
	HaltReason HaltReason `json:"held,omitempty"`
	// ThreadWaits lists the threads that waited a millisecond or longer for a CPU since the previous
	// sample.
	ThreadWaits []ThreadWait `json:"waited,omitempty"`

	// Only lines of KindSecond have the fields below.
	Levels            []Level `json:"levels,omitempty"`
	MemoryBytes       *int64  `json:"memory_bytes,omitempty"`
	InactiveFileBytes *int64  `json:"inactive_file_bytes,omitempty"`
	OOMKills          *int64  `json:"oom_kills,omitempty"`
	StealNS           *int64  `json:"steal_ns,omitempty"`
	MachineCPUNS      *int64  `json:"machine_ns,omitempty"`  // CPU time of all processes of the machine
	PressureNS        *int64  `json:"pressure_ns,omitempty"` // time during which any process waited for a CPU (PSI)
}

// A ThreadWait is a thread's number, how long the thread was runnable without running, and how long it
// ran, in ns.
type ThreadWait [3]int64

// A HaltReason is why the kernel runs no thread of a process.
type HaltReason string

const (
	HaltedBySignal   HaltReason = "stopped" // SIGSTOP or job control
	HaltedByDebugger HaltReason = "traced"  // a debugger stopped the process
	HaltedByFreezer  HaltReason = "frozen"  // the freezer of its cgroup, which pauses containers
)

// A Level has the quota counters of one cgroup: the process's own at depth 0, its parent at depth 1.
type Level struct {
	Depth            int    `json:"depth"`
	GroupPath        string `json:"group"`
	Periods          int64  `json:"periods"`
	ThrottledPeriods int64  `json:"throttled_periods"`
	ThrottledNS      int64  `json:"throttled_ns"`
}

// A Socket is one end of a TCP connection, as the kernel reports it.
type Socket struct {
	Local  string `json:"local"`
	Remote string `json:"remote"`
	State  string `json:"state,omitempty"`
	// Peer marks the other end, on this host, of a connection of the process.
	Peer bool `json:"peer,omitempty"`
	// Retransmitted counts the segments retransmitted since the connection was opened
	// (tcpi_total_retrans). OutOfOrder counts the segments that arrived out of order
	// (tcpi_rcv_ooopack): the usual effect of a lost segment at the receiver.
	Retransmitted int64 `json:"retransmitted"`
	// Spurious counts retransmitted segments that the other end had already received, as it reports
	// (tcpi_dsack_dups): its acknowledgement was late, or the segment was a tail loss probe. No segment
	// was lost.
	Spurious    int64 `json:"needless,omitempty"`
	OutOfOrder  int64 `json:"out_of_order,omitempty"`
	RTTNS       int64 `json:"rtt_ns,omitempty"`
	MinRTTNS    int64 `json:"min_rtt_ns,omitempty"`
	UnackedSegs int64 `json:"unacked,omitempty"`
}
