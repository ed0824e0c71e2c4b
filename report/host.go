package report

// Host is what the kernel's counters show about the process during the recording, if it has host samples. Times are of the trace,
// counters are differences over [FromNS, ToNS).
type Host struct {
	PID int `json:"pid"`
	// FromNS and ToNS are the part of the trace that samples cover, Coverage its share of the trace.
	FromNS     int64   `json:"from_ns"`
	ToNS       int64   `json:"to_ns"`
	Coverage   float64 `json:"coverage"`
	Samples    int     `json:"samples"`
	IntervalNS int64   `json:"interval_ns"`
	// Clock says how samples' times were converted to the trace's clock: monotonic, wall, or asked (approximate: counted from the
	// request for the trace).
	Clock  string     `json:"clock"`
	Facts  HostFacts  `json:"facts"`
	Lost   Lost       `json:"lost"`
	Quota  HostQuota  `json:"quota"`
	Memory HostMemory `json:"memory"`
	// Network says whether the network lost segments.
	Network  HostNetwork `json:"network"`
	Series   HostSeries  `json:"series"`
	Freezes  *Throttle   `json:"freezes,omitempty"` // what the trace alone said of throttling, where samples have replaced it
	CostNS   int64       `json:"cost_ns,omitempty"` // CPU time that sampling took, on the recording side
	States   bool        `json:"states,omitempty"`  // whether something held all of the process was sampled, too: see Stops
	Warnings []Warning   `json:"warnings"`
}

// HostFacts are the machine and the limits of the process.
type HostFacts struct {
	Kernel      string  `json:"kernel,omitempty"`
	CPUs        int     `json:"cpus,omitempty"`
	Parallelism int     `json:"parallelism,omitempty"` // CPUs that the process may run on
	QuotaCPUs   float64 `json:"quota_cpus,omitempty"`  // the tightest visible quota; absent without one
	PeriodNS    int64   `json:"period_ns,omitempty"`
	QuotaFrom   string  `json:"quota_from,omitempty"`  // the file that says so
	QuotaDepth  int     `json:"quota_depth,omitempty"` // 0: the process's own group, 1: its parent, ...
	QuotaHidden bool    `json:"quota_hidden,omitempty"`
	MemoryBytes int64   `json:"memory_bytes,omitempty"` // the tightest memory limit
	MemoryFrom  string  `json:"memory_from,omitempty"`
	GOMAXPROCS  string  `json:"gomaxprocs,omitempty"` // the process's environment
	Go          string  `json:"go,omitempty"`         // the version its program was built with
}

// Lost is the time for which threads wanted to run and did not, in thread time: two threads that do not run for 50 ms count as
// 100 ms. A value that could not be measured is null.
type Lost struct {
	// BusyNS is how long goroutines ran by the trace, CPUNS how long the process's threads really ran.
	BusyNS *int64 `json:"busy_ns"`
	CPUNS  *int64 `json:"cpu_ns"`
	// QuotaNS is the time for which a CPU quota held the process back, its own or an ancestor's, summed over CPUs.
	QuotaNS *int64 `json:"quota_ns"`
	// RunQueueNS is the time threads waited for a CPU while no quota held them back.
	RunQueueNS *int64 `json:"run_queue_ns"`
	// UnsplitNS is the time threads waited in throttled intervals beyond QuotaNS: several threads behind one quota, or other
	// processes that had the CPUs.
	UnsplitNS *int64 `json:"unsplit_ns"`
	// UnexplainedNS is BusyNS less CPUNS and the three above, never below zero: the hypervisor, page faults that read
	// from a disk. System calls use CPU time without being busy, so it is a lower bound.
	UnexplainedNS *int64 `json:"unexplained_ns"`
	RunDelayNS    *int64 `json:"run_delay_ns"` // all waiting for a CPU, whatever for
	StealNS       *int64 `json:"steal_ns"`     // what the hypervisor took from the whole machine
	// OffCPUNS is for how long goroutines showed as running while their threads had no CPU, in the intervals in which no
	// quota held the process back: running time that CPU time does not cover. It is set if a quota did so at other times, or if
	// threads, looked at one by one, show more than all of them together.
	OffCPUNS *int64 `json:"off_cpu_ns,omitempty"`
	// LongDelayNS is the part of RunDelayNS of threads that waited for a millisecond and more between two samples. It leaves out the
	// time that a wake-up takes even on a machine with idle CPUs.
	LongDelayNS *int64 `json:"long_delay_ns,omitempty"`
	// MachineNS is the CPU time that all processes of the machine had, including this one, and PressureNS the time in which
	// any of them waited for a CPU that another one used.
	MachineNS  *int64 `json:"machine_ns,omitempty"`
	PressureNS *int64 `json:"pressure_ns,omitempty"`
}

// WithoutCPU returns the share of the time in which goroutines showed as running, but their threads had no CPU because others used it. It is a lower
// bound: running time that the process's CPU time cannot cover, outside of what quotas took, and no more than threads waited. Waiting threads alone
// prove nothing about running goroutines: most of them wait because they were just woken, even on a machine with idle CPUs. With the kernel's events
// it is exact. measured is false if there is no measurement.
func (l *Lost) WithoutCPU() (share float64, measured bool) {
	if l.BusyNS == nil || l.CPUNS == nil || l.RunDelayNS == nil || *l.BusyNS <= 0 {
		return 0, false
	}
	if l.OffCPUNS != nil {
		return min(1, float64(*l.OffCPUNS)/float64(*l.BusyNS)), true
	}
	waited, lost := *l.RunDelayNS, *l.BusyNS-*l.CPUNS
	if l.RunQueueNS != nil {
		waited = *l.RunQueueNS
	}
	for _, quota := range []*int64{l.QuotaNS, l.UnsplitNS} {
		if quota != nil {
			lost -= *quota
		}
	}
	return float64(max(0, min(lost, waited))) / float64(*l.BusyNS), true
}

// HostQuota is what CPU quotas did, by the kernel's counters.
type HostQuota struct {
	Verdict ThrottleVerdict `json:"verdict"`
	Text    string          `json:"how"`
	OwnNS   int64           `json:"own_ns"`
	// AncestorNS is the part of groups above: of this group if the kernel counts it (cpu.stat.local), else all that
	// visible ancestors lost.
	AncestorNS       int64  `json:"ancestor_ns"`
	Periods          int64  `json:"periods"`
	ThrottledPeriods int64  `json:"throttled_periods"`
	Group            string `json:"group,omitempty"` // whose quota it was, if seen
}

// HostMemory is what memory was in use. Absent values were not read.
type HostMemory struct {
	RSSMaxBytes   int64 `json:"rss_max_bytes,omitempty"`
	GroupMaxBytes int64 `json:"group_max_bytes,omitempty"` // charged to the process's group, page cache included
}

// HostNetwork says whether the network lost segments, and which connections lost them.
type HostNetwork struct {
	Verdict NetworkVerdict `json:"verdict"`
	Text    string         `json:"text"`
	// Retransmitted counts segments that the process's sockets sent again, PeerRetransmitted those of the other ends on
	// the same host, OutOfOrder those that arrived out of order; AllRetransmitted those of the whole network namespace.
	Retransmitted     int64  `json:"retransmitted"`
	PeerRetransmitted int64  `json:"peer_retransmitted"`
	OutOfOrder        int64  `json:"out_of_order"`
	AllRetransmitted  *int64 `json:"all_retransmitted"`
	// Needless counts segments sent again that had arrived, by the other end's word. They are not in Retransmitted.
	Needless    int64 `json:"needless,omitempty"`
	Connections int   `json:"connections"`
	// Peers are the addresses to which the process itself opened TCP connections, of those that were open when all were listed; null if
	// the recording does not show who opened them.
	Peers []string `json:"peers,omitempty"`
	// Sockets are those that lost most; then some others, by round-trip time.
	Sockets []HostSocket `json:"sockets"`
	// Requests are intervals in which slow requests waited for the network while segments were sent again.
	Requests []HostWait `json:"requests"`
	Evidence []Evidence `json:"evidence"`
}

// HostSocket is a TCP connection of the process, or, if Peer is set, the other end of one on the same host.
type HostSocket struct {
	Local         string  `json:"local"`
	Remote        string  `json:"remote"`
	State         string  `json:"state,omitempty"`
	Peer          bool    `json:"peer,omitempty"`
	Retransmitted int64   `json:"retransmitted"`
	OutOfOrder    int64   `json:"out_of_order,omitempty"`
	RTTNS         int64   `json:"rtt_ns,omitempty"`
	MinRTTNS      int64   `json:"min_rtt_ns,omitempty"`
	WhenNS        []int64 `json:"when_ns,omitempty"` // when segments were sent again, as first seen
}

// HostWait is an interval in which a slow request waited for the network while segments were sent again.
type HostWait struct {
	Group         string   `json:"group"`
	Request       string   `json:"request"`
	StartNS       int64    `json:"start_ns"`
	DurationNS    int64    `json:"duration_ns"`
	Site          *Site    `json:"site"`
	Retransmitted int64    `json:"retransmitted"`
	Sockets       []string `json:"sockets"` // "local -> remote"
	// AgainNS is how long after the wait's beginning the last of them was seen to have been sent again: what passed until then
	// passed because something was lost.
	AgainNS int64 `json:"again_ns,omitempty"`
}

// HostSeries are values over time: [time in ns, value since the point before]. RSSBytes holds [time, bytes].
type HostSeries struct {
	ThrottledNS   [][2]int64 `json:"throttled_ns"`
	RunDelayNS    [][2]int64 `json:"run_delay_ns"`
	CPUNS         [][2]int64 `json:"cpu_ns"`
	RSSBytes      [][2]int64 `json:"rss_bytes"`
	Retransmitted [][2]int64 `json:"retransmitted"`
}
