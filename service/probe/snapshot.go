package probe

import (
	"time"

	"github.com/whylate/whylate/service/cgroup"
)

// Fields is the set of parts of a Snapshot that were measured.
type Fields uint

const (
	// HasFreezes: freezes and waits for a P. Without it only Lateness is measured.
	HasFreezes Fields = 1 << iota
	// HasThrottling: Throttled.
	HasThrottling
	// HasRunQueue: RunQueue and Unsplit.
	HasRunQueue
	// HasSteal: Steal.
	HasSteal
)

// A Snapshot has a probe's measurements since its start. It is a plain value without
// references to the probe.
type Snapshot struct {
	Has            Fields
	Started, Taken time.Time
	// Interval is the current interval between ticks.
	Interval time.Duration
	Ticks    uint64

	// Lateness is the lateness of each tick's timer, and WaitP the estimated part of it
	// in which the probe waited for a P.
	Lateness, WaitP Histogram
	// Freezes has the likely lengths of all freezes. FreezeTime is their sum, and
	// FreezeCPU the sum of Freeze.CPU.
	Freezes          Histogram
	FreezeTime       time.Duration
	FreezeCPU        time.Duration
	freezesByVerdict [verdictCount]Histogram // the same by verdict

	// Throttled is the growth of the kernel's counters since the start.
	Throttled cgroup.Throttling
	// RunQueue is the time that threads were runnable but not running, in seconds
	// without throttling. Unsplit is the same in the other seconds, less the throttled
	// time: since more threads than CPUs can wait because of one quota, its cause may be
	// the quota or other processes. Both are sums over threads, without the waits of a
	// thread between the last reading and its end.
	RunQueue, Unsplit time.Duration
	// Steal is the time that the hypervisor did not run this machine's CPUs, summed over
	// them.
	Steal time.Duration
}

// verdictCount is the number of verdicts.
const verdictCount = 4

// verdictIndex returns the index of a verdict in Snapshot.freezesByVerdict.
func verdictIndex(v cgroup.Verdict) int {
	switch v {
	case cgroup.VerdictOwn:
		return 0
	case cgroup.VerdictAncestor:
		return 1
	case cgroup.VerdictNone:
		return 2
	}
	return 3
}

// FreezesBy returns the likely lengths of the freezes with one verdict. The result points
// into s.
func (s *Snapshot) FreezesBy(v cgroup.Verdict) *Histogram {
	return &s.freezesByVerdict[verdictIndex(v)]
}

// Lost returns the CPU time lost to quotas since the start. If measured is false, it is an
// estimate by timer instead of the kernel's counters, which has 25 to 90 % of that time,
// depending on the load (docs/internals/measurements.md).
func (s *Snapshot) Lost() (cpu time.Duration, measured bool) {
	if s.Has&HasThrottling != 0 && s.Throttled.Verdict != cgroup.VerdictUnknown {
		return s.Throttled.Own + s.Throttled.Ancestor, true
	}
	return s.FreezeCPU, false
}
