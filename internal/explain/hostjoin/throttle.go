package hostjoin

import (
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/cgroup"
)

// How a report's throttling verdict was reached where samples tell.
const howSamples = "host samples"

// ReplaceThrottle puts what the host samples say of throttling into the report: they
// count what a bare trace can only infer. What the trace alone said stays
// beside, in Host.Freezes, and its wall time in place. A report without
// samples, or whose samples cannot tell, stays as it is.
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
