package finding

import (
	"fmt"
	"testing"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestSortVerdicts checks that of one severity the verdict with the largest loss of slow requests comes first, as in
// the first sentence.
func TestSortVerdicts(t *testing.T) {
	often := Gain{TotalNS: 900, Slow: Loss{NS: 20}}
	for _, c := range []struct {
		severity report.Severity
		first    report.RuleCode
	}{{report.SeverityHigh, report.RuleStoppedWorld}, {report.SeverityMedium, report.RuleStoppedWorld}, {report.SeverityLow, report.RuleStoppedWorld}} {
		all := []Verdict{
			{Gain: often, Finding: report.Finding{Code: report.RuleSlowPeer, Severity: c.severity}},
			{Gain: Gain{TotalNS: 400, Slow: Loss{NS: 50}}, Finding: report.Finding{Code: report.RuleStoppedWorld, Severity: c.severity}},
		}
		if (&Input{Report: &report.Report{}}).sortVerdicts(all); all[0].Code != c.first {
			t.Errorf("%s: %s comes first", c.severity, all[0].Code)
		}
	}
}

// TestForcedGCOnBusyMachine checks that a collection that code forces keeps the severity of the time that a busy
// machine does not explain. A collection that the heap's growth starts becomes low.
func TestForcedGCOnBusyMachine(t *testing.T) {
	for cause, want := range map[report.CauseName]report.Severity{report.CauseGCWait: report.SeverityHigh, report.CauseGCAssist: report.SeverityLow} {
		in := newInput(process.Stats{}, groupWith(report.Cause{Cause: cause, Site: siteOf("main.free"), Call: "runtime.GC", TotalNS: 40e6}, report.Cause{Cause: report.CauseSched, Site: siteOf("main.free"), TotalNS: 5e6}))
		code := report.RuleForcedGC
		if cause == report.CauseGCAssist {
			code = report.RuleMarkAssist
		}
		all := []Verdict{
			{Gain: Gain{All: Loss{Share: 0.9, NS: 40e6}, TotalNS: 40e8}, Finding: report.Finding{Code: code, Cause: cause, Severity: report.SeverityHigh}},
			{Gain: Gain{All: Loss{Share: 0.2, NS: 8e6}, TotalNS: 30e8}, Finding: report.Finding{Code: report.RuleBusyMachine, Cause: report.CauseSched, Severity: report.SeverityMedium}},
		}
		busy, cpu, delay := int64(10e9), int64(3e9), int64(8e9)
		in.Report.Host = &report.Host{ToNS: 10e9, Facts: report.HostFacts{CPUs: 2, Parallelism: 2}, Lost: report.Lost{BusyNS: &busy, CPUNS: &cpu, RunDelayNS: &delay, LongDelayNS: &delay}}
		in.Process.Procs = 2
		got := subtractExplained(in, all)
		check.True(t, len(got) == 2 && got[0].Severity == want, "%s: %+v", cause, got)
	}
}

// TestQuotaFirst: a quota that throttled half of the periods comes before computing of the same severity. Its severity is at most that of the
// quota, with the reason.
func TestQuotaFirst(t *testing.T) {
	for severity, statements := range map[report.Severity]int{report.SeverityHigh: 1, report.SeverityMedium: 1, report.SeverityLow: 0} {
		in := newInput(process.Stats{})
		in.Report.Host = &report.Host{}
		in.Report.Host.Quota.Periods, in.Report.Host.Quota.ThrottledPeriods = 2, 1
		got := subtractExplained(in, []Verdict{
			{Gain: Gain{TotalNS: 100, Slow: Loss{NS: 50}}, Finding: report.Finding{Code: report.RuleComputes, Cause: report.CauseCPU, Severity: severity}},
			{Gain: Gain{TotalNS: 10, Slow: Loss{NS: 5}}, Finding: report.Finding{Code: report.RuleThrottled, Severity: report.SeverityMedium}},
		})
		want := report.SeverityMedium
		if severity == report.SeverityLow {
			want = severity
		}
		check.True(t, len(got) == 2 && got[0].Severity == want && len(got[0].Evidence) == statements, "%s: %+v", severity, got)
		check.Equal(t, got[1].Gain.TotalNS > 100 && got[1].Gain.Slow.NS == 50, severity != report.SeverityLow, "%s: %+v", severity, got[1].Gain)
	}
}

// TestStoppedFirst: a process that did not run comes before what its requests waited for while it ran.
func TestStoppedFirst(t *testing.T) {
	verdict := func(code report.RuleCode, severity report.Severity, ns int64) Verdict {
		return Verdict{Finding: report.Finding{Code: code, Severity: severity}, Gain: Gain{TotalNS: ns, Slow: Loss{NS: ns}}}
	}
	all := []Verdict{
		verdict(report.RuleSleep, report.SeverityHigh, 9), verdict(report.RuleSlowPeer, report.SeverityMedium, 8),
		verdict(report.RuleStopped, report.SeverityMedium, 1),
	}
	if (&Input{Report: &report.Report{}}).sortVerdicts(all); all[0].Code != report.RuleStopped || all[1].Code != report.RuleSleep {
		t.Errorf("%s comes before %s", all[0].Code, all[1].Code)
	}
	all[0].Severity = report.SeverityLow
	(&Input{Report: &report.Report{}}).sortVerdicts(all)
	check.Equal(t, all[2].Code, report.RuleStopped, "a finding of low severity comes first")
}

// TestFaultOfFewRequests: a fault of two groups has the name of the larger one.
func TestFaultOfFewRequests(t *testing.T) {
	rep := &report.Report{Groups: []report.Group{{ID: "few", Count: 1}, {ID: "many", Count: 100}}}
	for name, line := range map[string]int{"many": 5, "few": 6} {
		all := []Verdict{
			{Finding: report.Finding{Code: report.RulePsTaken, Severity: report.SeverityHigh, Group: "few", Site: site("shade@5")}, Gain: Gain{TotalNS: 9, Slow: Loss{NS: 9}}},
			{Finding: report.Finding{Code: report.RulePsTaken, Severity: report.SeverityHigh, Group: "many", Site: site(fmt.Sprint("shade@", line))}, Gain: Gain{TotalNS: 800, Slow: Loss{NS: 8}}},
		}
		(&Input{Report: rep}).sortVerdicts(all)
		check.Equal(t, all[0].Group, name, "first with line %d", line)
	}
}

// TestSharesExplained: a quota and other processes each explain a share of the time, together at most all of it.
func TestSharesExplained(t *testing.T) {
	for _, c := range []struct {
		throttled int64 // of 8 periods
		want      int64 // of 8e8 ns; other processes explain 0.375
	}{{0, 5e8}, {3, 5e8}, {4, 1e8}, {6, -1}} {
		in := newInput(process.Stats{Procs: 2, BusyNS: 4e9})
		in.Report.Host = hostSpan(hostWith(2, 4e9, 2e9, 1e9), 2e9)
		in.Report.Host.Lost.MachineNS = ptr(int64(4e9))
		in.Report.Host.Quota = report.HostQuota{Periods: 8, ThrottledPeriods: c.throttled}
		loss, got := Loss{Share: 0.9, NS: 80e6}, int64(-1)
		for _, v := range subtractExplained(in, []Verdict{
			{Finding: report.Finding{Code: report.RuleThrottled, Severity: report.SeverityHigh}}, {Finding: report.Finding{Code: report.RuleBusyMachine, Severity: report.SeverityHigh}},
			{Finding: report.Finding{Code: report.RulePsTaken, Severity: report.SeverityHigh, Cause: report.CauseSched}, Gain: Gain{All: loss, Slow: loss, TotalNS: 8e8}},
		}) {
			if v.Code == report.RulePsTaken {
				got = v.Gain.TotalNS
			}
		}
		check.Equal(t, got, c.want, "%d of 8 periods throttled", c.throttled)
	}
}
