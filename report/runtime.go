package report

// Runtime is how the Go runtime and the kernel behaved.
type Runtime struct {
	GC       GC       `json:"gc"`
	Sched    Sched    `json:"sched"`
	Throttle Throttle `json:"throttle"`
	STW      []STW    `json:"stw"`
	// Stops are intervals in which no thread of the process was allowed to run; nil if none are known.
	Stops  *Stops  `json:"stops,omitempty"`
	Series *Series `json:"series,omitempty"`
}

// Stops are intervals in which something outside kept the whole process from running.
type Stops struct {
	// State is what the kernel reported: stopped (by a signal), traced (by a debugger) or frozen (by its cgroup's freezer). "" means
	// that only the trace suggests it: arrivals stopped, and the missing ones then came at once.
	State   string `json:"by,omitempty"`
	Text    string `json:"how"`
	TotalNS int64  `json:"total_ns"`
	// Of Requests, During were running at a stop, and After arrived during one: in the trace these begin after the stop, so their
	// latency does not show it.
	During     int     `json:"during"`
	After      int     `json:"after"`
	Requests   int     `json:"requests"`
	Confidence float64 `json:"confidence"`
	// Intervals holds [start, length] of at most 500.
	Count     int        `json:"count"`
	Intervals [][2]int64 `json:"intervals"`
}

// Series is how the runtime behaved over time. In long traces, only the largest of several points or intervals close
// together is kept.
type Series struct {
	HeapBytes  [][2]int64 `json:"heap_bytes"` // [time in ns, bytes]
	GoalBytes  [][2]int64 `json:"goal_bytes"`
	GOMAXPROCS [][2]int64 `json:"gomaxprocs"` // [time in ns, its value from then on]
	GC         [][2]int64 `json:"gc"`         // [start, length] of mark phases
	STW        [][2]int64 `json:"stw"`        // [start, length] of stops of the world
	// PsIdle holds [time, parts per million]: the share of the StepNS from then on in which at least one P was idle.
	PsIdle [][2]int64 `json:"ps_idle"`
	// Running, Runnable and Syscall hold [time, thousandths]: the mean number of goroutines running, runnable, or in a system
	// call in the StepNS from then on.
	Running  [][2]int64 `json:"running,omitempty"`
	Runnable [][2]int64 `json:"runnable,omitempty"`
	Syscall  [][2]int64 `json:"syscall,omitempty"`
	// Freezes holds [start, length] of the intervals in which the kernel throttled the process.
	Freezes [][2]int64 `json:"freezes,omitempty"`
	StepNS  int64      `json:"step_ns"`
}

// GC is how garbage collection behaved.
type GC struct {
	Cycles       int   `json:"cycles"`
	MarkNS       int64 `json:"mark_ns"` // wall time of mark phases
	HeapMaxBytes int64 `json:"heap_max_bytes"`
	GoalMaxBytes int64 `json:"goal_max_bytes"`
}

// STW sums up the stops of the world of one kind.
type STW struct {
	Kind    string `json:"kind"`
	Count   int    `json:"count"`
	TotalNS int64  `json:"total_ns"`
	MaxNS   int64  `json:"max_ns"`
}

// Sched is how the scheduler behaved.
type Sched struct {
	Goroutines int     `json:"goroutines"` // seen in the trace
	PsIdle     float64 `json:"ps_idle"`    // share of time in which at least one P was idle
	// WithoutCPU is the share of goroutines' running time in which CPU samples show that their threads had no CPU. It is set if
	// it is more than half, and no host samples measure it better.
	WithoutCPU float64 `json:"without_cpu,omitempty"`
}

// WithoutCPU returns the share of goroutines' running time in which their threads had no CPU for any reason but a known quota:
// from host samples, else from CPU samples. It is 0 if unknown, and if the kernel's events
// show that time.
func (r *Report) WithoutCPU() float64 {
	if r.Kernel.IsComplete() {
		return 0 // that time has other causes
	}
	if r.Host == nil {
		return r.Runtime.Sched.WithoutCPU
	}
	share, _ := r.Host.Lost.WithoutCPU()
	return share
}

// Throttle says whether the kernel throttled the process.
type Throttle struct {
	Verdict    ThrottleVerdict `json:"verdict"`
	Text       string          `json:"how"`
	PeriodNS   int64           `json:"period_ns"`
	LostWallNS int64           `json:"lost_wall_ns"` // in freezes
	LostCPUNS  int64           `json:"lost_cpu_ns"`  // freezes times the CPUs that they stopped, as the kernel counts throttled time
	Confidence float64         `json:"confidence"`
	// Freezes counts those that the trace shows. R (Rayleigh's, 0..1) is how closely the ends of the N silences examined follow
	// the period. CPUs is the largest number of CPUs that a freeze stopped.
	Freezes int     `json:"freezes,omitempty"`
	R       float64 `json:"r,omitempty"`
	N       int     `json:"n,omitempty"`
	CPUs    int     `json:"cpus,omitempty"`
	// Suspect counts intervals that may have been freezes. With any, a quota cannot be excluded.
	Suspect int `json:"suspect,omitempty"`
}
