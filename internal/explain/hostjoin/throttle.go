package hostjoin

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/cgroup"
)

// howSamples names host samples as the source of a throttling verdict.
const howSamples = "host samples"

// ReplaceThrottle replaces the report's throttling verdict by that of the host samples, which count what a trace alone can only
// infer. The trace's own verdict moves to Host.Freezes; its wall time stays. Without samples, or if they cover too little, the
// report stays as it is.
func ReplaceThrottle(rep *report.Report) {
	host := rep.Host
	if host == nil {
		return
	}
	lostNS := host.Quota.OwnNS + host.Quota.AncestorNS
	switch cgroup.Verdict(host.Quota.Verdict) {
	case cgroup.VerdictOwn, cgroup.VerdictAncestor:
		if host.Lost.QuotaNS != nil {
			lostNS = *host.Lost.QuotaNS
		}
	case cgroup.VerdictNone:
		if host.Coverage < threshold.NearlyAllShare {
			return
		}
		lostNS = 0
	default:
		return
	}
	t := &rep.Runtime.Throttle
	if t.Verdict != "" && t.Text != "" && t.Text != howSamples {
		fromTrace := *t
		host.Freezes = &fromTrace
	}
	t.Verdict, t.Text, t.LostCPUNS = host.Quota.Verdict, howSamples, lostNS
	t.Confidence = min(1, host.Coverage)
	if host.Facts.PeriodNS > 0 && host.Quota.Verdict != report.ThrottleNone {
		t.PeriodNS = host.Facts.PeriodNS
	}
}
