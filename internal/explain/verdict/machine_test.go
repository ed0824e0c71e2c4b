package verdict

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestSharedMachine: if other processes and a fault of the service made the same requests late, the one that took more of their time
// comes first, in the first sentence and in the comparison of groups, and the other one is named as well. The time in a queue, which
// contains waits for CPUs, is not all the fault's.
func TestSharedMachine(t *testing.T) {
	line := &report.Site{Func: "main.load", File: "m/main.go", Line: 5}
	wait := []report.Via{{Wait: report.WaitChan, Site: line}}
	queue := &report.Queue{For: "a slot", Waits: wait}
	p99 := int64(9e6)
	busy := func(share float64) report.Finding {
		return report.Finding{ID: "m", Code: report.RuleBusyMachine, Severity: report.SeverityHigh, Group: "g", Cause: report.CauseSched, Title: "busy", Decided: &report.Decided{Share: share}}
	}
	computes := report.Finding{ID: "c", Code: report.RuleComputes, Severity: report.SeverityLow, Group: "g", Cause: report.CauseCPU, Site: line, Title: "computes", Share: 0.5}
	pool := report.Finding{ID: "q", Code: report.RulePoolTooSmall, Severity: report.SeverityMedium, Group: "g", Cause: report.CauseCPU, Site: line, Queue: queue, Title: "queue", Decided: &report.Decided{Share: 0.2}}
	loops := report.Finding{ID: "l", Code: report.RuleLongRuns, Severity: report.SeverityMedium, Group: "g", Cause: report.CauseSched, Site: line, Title: "loops", Share: 0.54}
	elsewhere := busy(0.9)
	elsewhere.Group = "h"
	for name, c := range map[string]struct {
		cause              report.VerdictCause
		machine            report.Finding
		fault              report.Finding
		findings           string // the first to act on first, then the other one
		result, firstCause string
	}{
		"mostly computing":          {report.VerdictCause{Cause: report.CauseCPU, Words: "computing", Share: 0.55}, busy(0.28), computes, "c m m", "change this", "55% because computes"},
		"mostly other processes":    {report.VerdictCause{Cause: report.CauseCPU, Words: "computing", Share: 0.23}, busy(0.76), computes, "m c c", "the machine is busy", "76% without a CPU"},
		"a queue behind them":       {report.VerdictCause{Cause: report.CauseCPU, Words: "queueing", Share: 0.6, Queue: queue}, busy(0.55), pool, "m q q", "the machine is busy", "55% without a CPU"},
		"a run queue behind them":   {report.VerdictCause{Cause: report.CauseSched, Words: "queueing", Share: 0.9}, busy(0.55), loops, "m l l", "the machine is busy", "55% without a CPU"},
		"a queue, and a few others": {report.VerdictCause{Cause: report.CauseCPU, Words: "queueing", Share: 0.6, Queue: queue}, busy(0.15), pool, "q m m", "change this", "60% because queue"},
		"requests of another group": {report.VerdictCause{Cause: report.CauseCPU, Words: "computing", Share: 0.23}, elsewhere, pool, "q m m", "change this", "g, p99 9.00ms: queue"},
	} {
		c.cause.EachNS, c.cause.Sites = 4e6, []report.VerdictSite{{Site: line, Share: c.cause.Share, Via: wait}}
		group := report.Group{ID: "g", Name: "g", Named: true, Count: 50, TotalNS: 1e9, LatencyNS: report.Latency{P99: &p99}}
		other := group
		other.ID, other.Name = "h", "h"
		r := &report.Report{Judged: &report.Judged{}, Findings: []report.Finding{c.machine, c.fault}, Groups: []report.Group{group, other}}
		verdicts := []report.Verdict{{Group: "g", Causes: []report.VerdictCause{c.cause}}, {Group: "h", Causes: []report.VerdictCause{c.cause}}}
		o := NewOutcome(r, verdicts)
		must.True(t, o != nil, "%s: no outcome", name)
		check.Equal(t, strings.Join(append(o.Findings, o.Also), " "), c.findings, "%s", name)
		check.True(t, o.Result == c.result && strings.Contains(o.Text, c.firstCause), "%s: %s: %s", name, o.Result, o.Text)
		if rows := CompareGroups(r, verdicts); len(rows) != 2 || rows[0].Finding != o.Findings[0] && name != "requests of another group" {
			t.Errorf("%s: the comparison has other changes: %+v", name, rows)
		}
	}
}
