package report

// A Kernel summarises the kernel's events of a recording: what the threads of the process did while goroutines showed as
// running. Its times add up over threads.
type Kernel struct {
	// FromNS and ToNS bound the events within the trace. Coverage is the share of goroutines' running time for which they
	// show the state of the thread.
	FromNS   int64   `json:"from_ns"`
	ToNS     int64   `json:"to_ns"`
	Coverage float64 `json:"coverage"`
	Lost     int64   `json:"lost,omitempty"` // events
	// RunningNS is the time in which goroutines showed as running. The following divide it.
	RunningNS   int64 `json:"running_ns"`
	CPUNS       int64 `json:"cpu_ns"`
	CPUWaitNS   int64 `json:"cpu_wait_ns"`
	ThrottledNS int64 `json:"throttled_ns"`
	DiskNS      int64 `json:"disk_ns"`
	AsleepNS    int64 `json:"asleep_ns"`
	StoppedNS   int64 `json:"stopped_ns,omitempty"`
	// Processes had the CPUs during CPUWaitNS, the largest share first.
	Processes []ProcessShare `json:"processes"`
	// SoftirqNS is the time that interrupts took from the threads while they had a CPU.
	SoftirqNS int64 `json:"softirq_ns,omitempty"`
	// Arrivals counts the requests that begin when their first byte arrived.
	Arrivals int64 `json:"arrivals"`
	// Retransmitted lists the connections with segments that were sent again.
	Retransmitted []KernelRetransmissions `json:"retransmitted"`
}

// KernelRetransmissions are the segments of a connection that were sent again, with the first times of them.
type KernelRetransmissions struct {
	Local  string  `json:"local"`
	Remote string  `json:"remote"`
	Count  int     `json:"count"`
	WhenNS []int64 `json:"when_ns"`
}

// OwnThreads is the name of the process's own threads where others had a CPU.
const OwnThreads = "its own threads"

// KernelThread begins the name of a thread of the kernel where others had a CPU. What it works for follows in parentheses.
const KernelThread = "kernel thread "

// IsComplete reports whether the events show nearly all of the process's running time.
func (k *Kernel) IsComplete() bool { return k != nil && k.Coverage >= completeKernelShare }

const completeKernelShare = 0.98
