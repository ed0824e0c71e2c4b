package hostjoin

import (
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/cgroup"
)

// howSamples is the source of a throttling verdict that follows from samples.
const howSamples = "host samples"

// ReplaceThrottle replaces the report's throttling verdict by that of the host samples, which count what a trace alone
// can only infer. The trace's own verdict remains in Host.Freezes, and its wall time is kept. The report does not
// change without samples, or if they are not sufficient.
func ReplaceThrottle(rep *report.Report) {
	h := rep.Host
	if h == nil {
		return
	}
	lostNS := h.Quota.OwnNS + h.Quota.AncestorNS
	switch cgroup.Verdict(h.Quota.Verdict) {
	case cgroup.VerdictOwn, cgroup.VerdictAncestor:
		if h.Lost.QuotaNS != nil {
			lostNS = *h.Lost.QuotaNS
		}
	case cgroup.VerdictNone:
		if h.Coverage < scale.NearlyAll {
			return
		}
		lostNS = 0
	default:
		return
	}
	t := &rep.Runtime.Throttle
	if t.Verdict != "" && t.How != "" && t.How != howSamples {
		fromTrace := *t
		h.Freezes = &fromTrace
	}
	t.Verdict, t.How, t.LostCPUNS = h.Quota.Verdict, howSamples, lostNS
	t.Confidence = min(1, h.Coverage)
	if h.Facts.PeriodNS > 0 && h.Quota.Verdict != report.ThrottleNone {
		t.PeriodNS = h.Facts.PeriodNS
	}
}
