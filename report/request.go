package report

// A Request is one request in full.
type Request struct {
	ID        string `json:"id"`
	StartNS   int64  `json:"start_ns"`
	LatencyNS int64  `json:"latency_ns"`
	Goroutine uint64 `json:"goroutine"`
	// Status is a marked request's status. The ids are a tracing system's, in hexadecimal: the request's own trace and span,
	// and the caller's span. A Datadog id is decimal.
	Status        string    `json:"status,omitempty"`
	TraceID       string    `json:"trace_id,omitempty"`
	SpanID        string    `json:"span_id,omitempty"`
	ParentSpanID  string    `json:"parent_span_id,omitempty"`
	DatadogSpanID string    `json:"datadog_span_id,omitempty"`
	Segments      []Segment `json:"segments"`
	Wakes         []Wake    `json:"wakes,omitempty"`
	Lanes         []Lane    `json:"lanes,omitempty"`
	// CPUs are those that the lanes' threads had or waited for, from the kernel's events.
	CPUs []CPULane `json:"cpus,omitempty"`
	// Pools are those in whose queues the request waited, as far as the waits of all requests show who held their slots.
	Pools []Pool `json:"pools,omitempty"`
}

// A Pool shows who held its slots from a request's first wait for one to the end of its last wait.
type Pool struct {
	For    string   `json:"for"` // as Queue.For
	Site   *Site    `json:"site"`
	FromNS int64    `json:"from_ns"`
	ToNS   int64    `json:"to_ns"`
	Slots  [][]Hold `json:"slots"` // by slot, in order of time
}

// A Hold is an interval in which a goroutine held a slot. Site is where it had waited for the slot, or released it.
type Hold struct {
	StartNS    int64  `json:"start_ns"`
	DurationNS int64  `json:"duration_ns"`
	Goroutine  uint64 `json:"goroutine"`
	Site       *Site  `json:"site"`
	Background bool   `json:"background,omitempty"` // it served no request
}

// A Segment is an interval of a request's critical path with one cause.
type Segment struct {
	StartNS    int64     `json:"start_ns"`
	DurationNS int64     `json:"duration_ns"`
	Goroutine  uint64    `json:"goroutine"`
	Cause      CauseName `json:"cause"`
	Site       *Site     `json:"site"`
	Via        []Via     `json:"via"`
	Kind       string    `json:"kind,omitempty"`
	AheadWork  *Work     `json:"behind,omitempty"`  // see Cause.AheadWork
	Service    string    `json:"service,omitempty"` // see Cause.Service
	// ServiceGoroutine is the goroutine of Service that spent the time, if it is known. Goroutine waited for Service.
	ServiceGoroutine uint64 `json:"service_goroutine,omitempty"`
	// Peer says what the process at the other end of the connection did: see PeerState.
	Peer  string `json:"peer,omitempty"`
	WayTo string `json:"way_to,omitempty"` // the service to or from which the call was on its way
	// ClockErrorNS is by how much the time on the way there may be longer, and that back shorter, or the reverse: the clocks of both
	// services are known so well.
	ClockErrorNS int64 `json:"clock_error_ns,omitempty"`
	// Joined is set if this segment replaces several short ones, because there were too many. Cause is then CauseOther unless
	// all have one cause, and Goroutine is the one with most of the time.
	Joined *Joined `json:"joined,omitempty"`
}

// Joined says which segments one replaces.
type Joined struct {
	Count  int                 `json:"count"`
	Causes map[CauseName]int64 `json:"causes"` // ns by cause; they add up to the segment's duration
}

// A Wake is an edge of a slow request's path: From made To runnable.
type Wake struct {
	TimeNS int64  `json:"time_ns"`
	From   uint64 `json:"from"` // 0: a timer, the poller, or unknown
	To     uint64 `json:"to"`
	Site   *Site  `json:"site"` // where From was
}

// A Lane is a goroutine on a request's critical path.
type Lane struct {
	Goroutine uint64     `json:"goroutine"`
	Name      string     `json:"name"` // its start function
	Spans     []LaneSpan `json:"spans"`
	// Threads are the states of the threads that ran the goroutine, and ArrivalsNS when bytes reached a socket that it then
	// read. Both need the kernel's events.
	Threads    []ThreadSpan `json:"threads,omitempty"`
	ArrivalsNS []int64      `json:"arrivals_ns,omitempty"`
	// Peers are, while the goroutine waited for the network, the states of the process at the other end: see PeerState.
	Peers []PeerSpan `json:"peers,omitempty"`
}

// A PeerSpan is an interval in which a peer for which a lane's goroutine waited has one state. Text says what the peer did.
type PeerSpan struct {
	StartNS    int64         `json:"start_ns"`
	DurationNS int64         `json:"duration_ns"`
	State      PeerStateName `json:"state"`
	Process    string        `json:"process"`
	Text       string        `json:"text"`
}

// A LaneSpan is an interval in which a lane's goroutine has one state.
type LaneSpan struct {
	StartNS    int64  `json:"start_ns"`
	DurationNS int64  `json:"duration_ns"`
	State      string `json:"state"`
	Reason     string `json:"reason,omitempty"`
	Site       *Site  `json:"site"`
}

// A ThreadSpan is an interval in which the thread that ran a lane's goroutine has one state.
type ThreadSpan struct {
	StartNS    int64       `json:"start_ns"`
	DurationNS int64       `json:"duration_ns"`
	State      ThreadState `json:"state"`
	// Detail is the process that had the CPU for which the thread waited, or the call or kind of page fault in which it slept.
	Detail string `json:"detail,omitempty"`
}

// A ThreadState is what the kernel did with a thread.
type ThreadState string

// States of threads.
const (
	ThreadOnCPU     ThreadState = "on-cpu"
	ThreadCPUWait   ThreadState = "cpu-wait"
	ThreadThrottled ThreadState = "throttled"
	ThreadDisk      ThreadState = "disk"
	ThreadAsleep    ThreadState = "asleep"
	ThreadStopped   ThreadState = "stopped"
)

// A CPULane is a CPU, and the processes that had it.
type CPULane struct {
	CPU   int       `json:"cpu"`
	Spans []CPUSpan `json:"spans"`
}

// A CPUSpan is an interval in which a process had a CPU. The process's own threads are OwnThreads. Other processes are known
// only while one of its threads waits for that CPU.
type CPUSpan struct {
	StartNS    int64  `json:"start_ns"`
	DurationNS int64  `json:"duration_ns"`
	Process    string `json:"process"`
}
