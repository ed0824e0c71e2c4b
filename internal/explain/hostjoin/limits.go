package hostjoin

import (
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/cgroup"
)

// Limits are the CPU limits in the time of a trace, by samples alone.
type Limits struct {
	Facts    report.HostFacts
	Verdict  cgroup.Verdict // unknown if they do not cover enough to say that there was none
	Coverage float64
}

// LimitsOf returns the limits of the window; ok is false if the samples are not
// of its time.
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
