package sweep

import (
	"time"

	"github.com/whylate/whylate/internal/experiment/load"
)

// A Run is what one run of an arm showed.
type Run struct {
	Settings map[string]string `json:"settings"`
	Number   int               `json:"number"` // of the arm's runs, from 0
	Start    time.Time         `json:"start"`
	// Error is why there are no figures: the service died, hung or was never ready. Such a run is made again by --resume.
	Error string       `json:"error,omitempty"`
	Load  *load.Result `json:"load,omitempty"`

	// What the service used while it was measured, all its processes and instances together.
	CPUNS           int64 `json:"cpu_ns"`
	MemoryPeak      int64 `json:"memory_peak_bytes"` // resident, without the page cache
	MemoryMean      int64 `json:"memory_mean_bytes"`
	Threads         int64 `json:"threads"` // the most seen
	ContextSwitches int64 `json:"context_switches"`
	// By the kernel's own count; nil without a quota's group.
	Periods          *int64 `json:"periods"`
	ThrottledPeriods *int64 `json:"throttled_periods"`
	ThrottledNS      *int64 `json:"throttled_ns"` // summed over CPUs
	OOMKills         int64  `json:"oom_kills,omitempty"`
	// By the lines of GODEBUG=gctrace=1; nil if the service printed none at all.
	GCs     *int64 `json:"gcs"`
	GCCPUNS *int64 `json:"gc_cpu_ns"` // without the idle Ps' part

	// Causes of the slowest tenth's latency by the trace, the largest first; nil if there is no trace.
	Causes   []Cause  `json:"causes"`
	Warnings []string `json:"warnings,omitempty"`
}

// A Cause is what a part of latency was spent on.
type Cause struct {
	Cause string `json:"cause"`
	// Share of the latency of the slowest tenth of the requests, and of that of all.
	Share         float64 `json:"share"`
	ShareAll      float64 `json:"share_all"`
	slowNS, allNS int64
}

func (r *Run) cpuPerRequest() *float64 {
	if n := r.Load.Requests - r.Load.Errors; n > 0 {
		return figureValue(float64(r.CPUNS) / float64(n))
	}
	return nil
}

func (r *Run) throttledShare() *float64 {
	if r.Periods == nil || r.ThrottledPeriods == nil {
		return nil
	}
	return figureValue(float64(*r.ThrottledPeriods) / float64(max(1, *r.Periods)))
}
