package sweep

import (
	"time"

	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/report"
)

// A Run is the result of one run of an arm.
type Run struct {
	Settings map[string]string `json:"settings"`
	Number   int               `json:"number"` // within the arm, from 0
	Start    time.Time         `json:"start"`
	// Error is the reason for missing figures: the service died, hung, or was never ready. --resume
	// repeats such a run.
	Error string       `json:"error,omitempty"`
	Load  *load.Result `json:"load,omitempty"`

	// Resource usage of all processes and instances of the service during the measurement.
	CPUNS           int64 `json:"cpu_ns"`
	MemoryPeak      int64 `json:"memory_peak_bytes"` // resident, without the page cache
	MemoryMean      int64 `json:"memory_mean_bytes"`
	Threads         int64 `json:"threads"` // the maximum of the samples
	ContextSwitches int64 `json:"context_switches"`
	// The kernel's counters of the cgroup; nil without a cgroup.
	Periods          *int64 `json:"periods"`
	ThrottledPeriods *int64 `json:"throttled_periods"`
	ThrottledNS      *int64 `json:"throttled_ns"` // summed over CPUs
	OOMKills         int64  `json:"oom_kills,omitempty"`
	// From the lines of GODEBUG=gctrace=1; nil if the service printed none.
	GCs     *int64 `json:"gcs"`
	GCCPUNS *int64 `json:"gc_cpu_ns"` // without the share of idle Ps

	// Causes are the causes of the slowest tenth's latency, the largest first; nil without a trace.
	Causes []Cause `json:"causes"`
	// PredictedLimit is what saturates first by that trace, if the load is a share of the service's capacity.
	PredictedLimit *report.Limit `json:"predicted_limit,omitempty"`
	Warnings       []string      `json:"warnings,omitempty"`
}

// cpuPerRequest returns the service's CPU time for each answered request, in ns; nil without any.
func (r *Run) cpuPerRequest() *float64 {
	if n := r.Load.Requests - r.Load.Errors; n > 0 {
		return figureValue(float64(r.CPUNS) / float64(n))
	}
	return nil
}

// throttledShare returns the share of the quota's periods in which the service was throttled; nil if it is not known.
func (r *Run) throttledShare() *float64 {
	if r.Periods == nil || r.ThrottledPeriods == nil {
		return nil
	}
	return figureValue(float64(*r.ThrottledPeriods) / float64(max(1, *r.Periods)))
}
