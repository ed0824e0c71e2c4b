package hostjoin

import (
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/cgroup"
)

// Limits are the CPU limits during a trace, according to the samples alone.
type Limits struct {
	Facts    report.HostFacts
	Verdict  cgroup.Verdict // unknown if no limit was seen but the coverage is too small
	Coverage float64
}

// LimitsOf returns the limits in the window; ok is false if no samples are in it.
func LimitsOf(s *host.Samples, w Window) (l Limits, ok bool) {
	v, _, ok := viewOf(s, w)
	if !ok || v.to <= v.from {
		return l, false
	}
	var h report.Host
	copyFacts(s, &h.Facts)
	v.addQuota(&h)
	l = Limits{h.Facts, cgroup.Verdict(h.Quota.Verdict), v.coverage(w)}
	if l.Verdict == cgroup.VerdictNone && l.Coverage < scale.NearlyAll {
		l.Verdict = cgroup.VerdictUnknown
	}
	return l, true
}
