package finding

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestHungWithoutEndedRequests: no request of a route ended, and all have waited for one lock since the first of them came, in
// the middle of the trace. They hang. They may not hang if they wait for a WaitGroup, if others are elsewhere, or if they did
// something else before.
func TestHungWithoutEndedRequests(t *testing.T) {
	ruleHung := rulesByCode(report.RuleHung)[0]
	for _, c := range []struct {
		name   string
		change func(g *report.Group, w *report.OpenWait)
		want   report.Severity
	}{
		{"a lock", func(*report.Group, *report.OpenWait) {}, report.SeverityHigh},
		{"a WaitGroup", func(_ *report.Group, w *report.OpenWait) { w.Call = "sync.(*WaitGroup).Wait" }, ""},
		{"others are elsewhere", func(g *report.Group, _ *report.OpenWait) { g.Open.Count++ }, ""},
		{"one request ended", func(g *report.Group, _ *report.OpenWait) { g.Count = 1 }, ""},
		{"they reached it late", func(_ *report.Group, w *report.OpenWait) { w.OldestNS *= 2 }, ""},
		{"they waited for less than a second", func(_ *report.Group, w *report.OpenWait) { w.StuckNS, w.OldestNS = []int64{9e8}, 9e8 }, ""},
	} {
		g := groupWith()
		g.Role, g.Count = report.RoleRequests, 0
		g.Open = report.Open{Count: 6, Waits: []report.OpenWait{{Cause: report.CauseLock, Site: siteOf("main.open"), Call: "sync.(*RWMutex).RLock", Count: 6, OldestNS: 15e8, StuckNS: []int64{15e8, 12e8}, AgesNS: []int64{15e8, 12e8}}}}
		c.change(&g, &g.Open.Waits[0])
		in := newInput(process.Stats{}, g)
		in.Report.Input.DurationNS = 30e8
		got := report.Severity("")
		for _, v := range ruleHung.Run(in) {
			got = v.FixedSeverity
		}
		check.Equal(t, got, c.want, "%s: severity", c.name)
	}
}

// TestHungOrLate: requests that have waited for 900 ms may hang where those that ended took 5 ms, but not where one of these took
// a second: they may pause before a retry as it did.
func TestHungOrLate(t *testing.T) {
	for slowestNS, want := range map[int64]int{6e6: 1, 1e9: 0} {
		g := groupWith()
		p99 := int64(5e6)
		g.Role, g.Count, g.LatencyNS.P99, g.LatencyNS.Max = report.RoleRequests, 400, &p99, &slowestNS
		g.Open = report.Open{Count: 3, Waits: []report.OpenWait{{Cause: report.CauseChan, Site: siteOf("main.fetch"), Call: "runtime.selectgo", Count: 3, OldestNS: 9e8, StuckNS: []int64{9e8}, AgesNS: []int64{9e8}}}}
		in := newInput(process.Stats{}, g)
		in.Report.Input.DurationNS = 4e9
		if got := rulesByCode(report.RuleHung)[0].Run(in); len(got) != want {
			t.Errorf("slowest request %d ns: %d findings, want %d", slowestNS, len(got), want)
		}
	}
}
