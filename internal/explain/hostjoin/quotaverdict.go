package hostjoin

import (
	"time"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/cgroup"
)

// cgroupStat converts a sample's quota counters to a cgroup.Stat, in which Has says which of them the sample contains.
func cgroupStat(sample *host.Sample) *cgroup.Stat {
	stat := &cgroup.Stat{}
	if sample.Periods != nil && sample.ThrottledNS != nil {
		stat.Has |= cgroup.HasBandwidth
		stat.Periods, stat.ThrottledPeriods, stat.Throttled = *sample.Periods, orZero(sample.ThrottledPeriods), time.Duration(*sample.ThrottledNS)
	}
	if sample.LocalThrottledNS != nil {
		stat.Has |= cgroup.HasLocal
		stat.Local = time.Duration(*sample.LocalThrottledNS)
	}
	if sample.AncestorsComplete {
		stat.Has |= cgroup.HasAncestors
	}
	stat.AncestorThrottled, stat.AncestorThrottledPeriods = time.Duration(orZero(sample.AncestorThrottledNS)), orZero(sample.AncestorThrottledPeriods)
	return stat
}

// orZero returns a counter, or 0 if it was not read.
func orZero(counter *int64) int64 {
	if counter == nil {
		return 0
	}
	return *counter
}

// addQuota sets h.Quota: whether the own quota or an ancestor's throttled the process, by the control group's counters at both
// ends of the view.
func (v *view) addQuota(h *report.Host) {
	from, to := v.enclosingSamples()
	if from.GroupIndex != to.GroupIndex {
		h.Quota = report.HostQuota{Verdict: report.ThrottleUnknown, Text: "the process was moved to another group during the recording"}
		return
	}
	c := cgroup.Compare(cgroupStat(from), cgroupStat(to))
	h.Quota = report.HostQuota{
		Verdict: report.ThrottleVerdict(c.Verdict), Text: c.Evidence, OwnNS: max(0, int64(c.Own)), AncestorNS: max(0, int64(c.Ancestor)),
		Periods: max(0, c.Periods), ThrottledPeriods: max(0, c.ThrottledPeriods),
	}
	h.Quota.Group = v.throttledGroup(c.Verdict)
}

// throttledGroup returns the path of the control group whose quota throttled the process most, among the sampled levels of the
// hierarchy; "" if none did.
func (v *view) throttledGroup(verdict cgroup.Verdict) string {
	if len(v.s.Seconds) < 2 || verdict != cgroup.VerdictOwn && verdict != cgroup.VerdictAncestor {
		return ""
	}
	from, to := &v.s.Seconds[0], &v.s.Seconds[len(v.s.Seconds)-1]
	if from.GroupIndex != to.GroupIndex {
		return ""
	}
	name, maxNS := "", int64(0)
	for _, b := range to.Levels {
		if (b.Depth == 0) != (verdict == cgroup.VerdictOwn) {
			continue
		}
		for _, a := range from.Levels {
			if a.Depth == b.Depth && a.GroupPath == b.GroupPath && b.ThrottledNS-a.ThrottledNS > maxNS {
				name, maxNS = b.GroupPath, b.ThrottledNS-a.ThrottledNS
			}
		}
	}
	return name
}
