package hostjoin

import (
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/cgroup"
)

// Limits are the CPU limits during a trace, according to the samples alone.
type Limits struct {
	Facts    report.HostFacts
	Verdict  cgroup.Verdict // unknown if no limit was seen but the coverage is too small
	Coverage float64
}

// LimitsOf returns the CPU limits in the window of a trace, from host samples alone. ok is false if no samples are in it.
func LimitsOf(samples *host.Samples, w Window) (limits Limits, ok bool) {
	v, _, ok := viewOf(samples, w)
	if !ok || v.to <= v.from {
		return limits, false
	}
	var h report.Host
	copyFacts(samples, &h.Facts)
	v.addQuota(&h)
	limits = Limits{h.Facts, cgroup.Verdict(h.Quota.Verdict), v.coverage(w)}
	if limits.Verdict == cgroup.VerdictNone && limits.Coverage < threshold.NearlyAllShare {
		limits.Verdict = cgroup.VerdictUnknown
	}
	return limits, true
}
