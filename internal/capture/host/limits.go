package host

import (
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/cgroup"
)

// Limits are what the samples alone tell of CPU limits in the time of a trace.
type Limits struct {
	Facts    report.HostFacts
	Verdict  cgroup.Verdict // unknown if they do not cover enough to say that there was none
	Coverage float64
}

// Limits returns the limits of the window; ok is false if the samples are not
// of its time.
func (s *Samples) Limits(w Window) (l Limits, ok bool) {
	offset, _, ok := s.join(w)
	if !ok {
		return l, false
	}
	v := view{s: s, offset: offset, start: w.Start}
	v.from, v.to = max(w.Start, s.points[0].mono+offset), min(w.End, s.points[len(s.points)-1].mono+offset)
	if v.to <= v.from {
		return l, false
	}
	var h report.Host
	s.describe(&h.Facts)
	v.quota(&h)
	l = Limits{h.Facts, cgroup.Verdict(h.Quota.Verdict), float64(v.to-v.from) / float64(w.End-w.Start)}
	if l.Verdict == cgroup.VerdictNone && l.Coverage < enough {
		l.Verdict = cgroup.VerdictUnknown
	}
	return l, true
}
