package finding

import (
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/report"
)

// isWake reports whether a cause is the time from a wake-up until an idle P's thread ran the goroutine.
func isWake(c *report.Cause) bool { return c.Cause == report.CauseSchedWake }

// checkSlowWakeup is WL1003, slow-wakeup: requests are ready and a P is idle, but its thread takes long to start. It is silent if
// other processes (WL1009) or too many Ps (WL1005) explain that.
func checkSlowWakeup(in *Input, g *report.Group) []Verdict {
	if _, hasOtherLoad := measureOtherLoad(in); hasOtherLoad || hasTooManyPs(in) {
		return nil // WL1009, or WL1005, explains it
	}
	share, gain := gainWithout(g, isWake)
	site := topSite(g, isWake)
	if share == 0 || site == nil {
		return nil
	}
	v := Verdict{Gain: gain, Changes: []predict.Change{predict.Remove(report.CauseSchedWake, "")}, Finding: report.Finding{
		Title: textOf("title slow-wakeup"), Fix: textOf("fix slow-wakeup"), Cause: report.CauseSchedWake, Site: site, Group: g.ID, Share: share, Confidence: 0.7,
	}}
	if g.Kind == report.KindRun {
		v.Fix = textOf("fix slow-wakeup-in-run")
	}
	v.addSlowEvidence(evidenceOf("evidence wakeup-latency", gain.Slow.NS, "ns"))
	v.addEvidence(
		evidenceOf("evidence wakeup-idle-p", in.Report.Runtime.Sched.PsIdle, "share"),
		evidenceOf("evidence wakeup-ps", in.Report.Input.GOMAXPROCS, "count"))
	if in.Report.Host == nil && !in.Report.Kernel.IsComplete() {
		v.MaxSeverity = report.SeverityLow // other processes may have had the CPUs
	}
	if in.severity(&v) == "" {
		return nil
	}
	v.Fact = share < 0.10 || gain.TotalNS < 500e3*int64(g.Count)
	return []Verdict{v}
}
