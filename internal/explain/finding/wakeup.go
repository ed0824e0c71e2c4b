package finding

import (
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/report"
)

func wakeupRule() Rule {
	return Rule{
		Code: report.RuleSlowWakeup, Name: "slow-wakeup",
		Summary: "goroutines that are ready to run wait although a P is idle",
		Doc: Doc{
			Means: "A goroutine became runnable and a P was idle, and still it took time until the goroutine ran: a thread had to be woken for the P, and the " +
				"kernel took its time. Each hand-over between goroutines can cost this, so chains of channels pay it several times.",
			Measured: "Intervals of the critical path in which a goroutine was runnable while at least one P was idle (cause sched-wake), added up over all sites. " +
				"It is a fault only where all requests have it, on average 500 us each and 10 % of their time: on any machine a thread sometimes wakes late.",
			Before: "in <- job; job = <-out // two hand-overs, each wakes a thread",
			After:  "job = handle(job)      // on the request's own goroutine",
			Wrong: "A few tens of microseconds for each hand-over are the machine's usual cost, especially in virtual machines with idle CPUs. Milliseconds mean " +
				"that the kernel had no CPU to give: because of other processes (WL1009), a quota (WL4), or more Ps than CPUs (WL1005).",
		},
		Run: wakeups,
	}
}

func isWake(c *report.Cause) bool { return c.Cause == report.CauseSchedWake }

func wakeups(in *Input) []Verdict {
	var out []Verdict
	if _, others := busyMachine(in); others || tooMany(in) {
		return nil // WL1009, or WL1005, explains it
	}
	for i := range in.Report.Groups {
		g := &in.Report.Groups[i]
		share, won := Weigh(g, isWake)
		if site := topSite(g, isWake); share > 0 && site != nil {
			v := Verdict{Won: won, Changes: []predict.Change{predict.Half(report.CauseSchedWake, "")}, Finding: report.Finding{
				Title: "goroutines wait to be woken although Ps are idle", Cause: report.CauseSchedWake, Site: site, Group: g.ID, Share: share, Confidence: 0.7,
				Evidence: []report.Evidence{
					{Text: "mean wake-up latency per slow request, over all hand-overs", Value: float64(won.SlowNS), Unit: "ns"},
					{Text: "share of time in which at least one P was idle", Value: in.Report.Runtime.Sched.PsIdle, Unit: "share"},
					{Text: "Ps", Value: float64(in.Report.Input.GOMAXPROCS), Unit: "count"},
				},
				Fix: "use fewer hand-overs between goroutines in a request; check that the machine's CPUs are free when threads wake up (limits, other processes)",
			}}
			if in.severity(&v) == "" {
				continue
			}
			v.Fact = share < 0.10 || won.TotalNS < 500e3*int64(g.Count)
			out = append(out, v)
		}
	}
	return out
}
