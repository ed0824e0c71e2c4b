package finding

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestMergeCallers: of three groups the first calls the second, the second the third, and the third the second again. The third
// sleeps. The test fails if each caller has a finding, if the finding is at a caller instead of the third group, if indirect
// callers are left out, and if the circle never ends.
func TestMergeCallers(t *testing.T) {
	group := func(name, asks string, via ...report.Via) report.Group {
		g := report.Group{ID: name, Name: name, Named: true, Kind: report.KindGRPC, Role: report.RoleRequests, Count: 100, TotalNS: 100 * 20e6}
		g.Bands = []report.Band{{Band: report.BandAll, Count: 100, ToNS: 21e6, Causes: []report.Cause{
			{Cause: report.CauseSleep, Site: &report.Site{Func: "main.nap", File: "main.go", Line: 7}, Via: via, TotalNS: 100 * 19e6, Share: 0.95, Requests: 100, Call: "time.Sleep"},
			{Cause: report.CauseNetwork, Kind: "outbound", Site: &report.Site{Func: "main.ask", File: "main.go", Line: 9}, Via: []report.Via{}, TotalNS: 100 * 1e6, Share: 0.05, Requests: 100},
		}}}
		if asks != "" {
			g.Peer = &report.Peer{Group: asks, Name: asks, Joined: true, Waits: 100, Held: 100, Confidence: 0.9, WaitNS: 20e6, ServedNS: 19e6}
		}
		return g
	}
	ask := report.Via{Wait: report.WaitPeer, Site: &report.Site{Func: "main.ask", File: "main.go", Line: 9}}
	in := &Input{Report: &report.Report{Groups: []report.Group{group("first", "second", ask, ask), group("second", "third", ask), group("third", "second")}}}
	all := []Verdict{}
	for _, r := range rulesByCode(report.RuleSleep, report.RuleSlowPeer) {
		for _, v := range r.Run(in) {
			v.Code = r.Code
			all = append(all, v)
		}
	}
	var sleeps []Verdict
	for _, v := range mergeCallers(in, all) {
		if v.Code == report.RuleSleep {
			sleeps = append(sleeps, v)
		}
	}
	must.True(t, len(sleeps) == 1 && sleeps[0].Group == "third" && len(sleeps[0].AskedBy) == 2, "findings: %+v", sleeps)
	for i, want := range []string{"first", "second"} {
		if a := sleeps[0].AskedBy[i]; a.Group != want || a.EachNS != 19e6 || a.Share != 0.95 {
			t.Errorf("caller %+v, want %s", a, want)
		}
	}
}

// TestMergeCallersOfEachOther: if two groups call each other and have the same finding, one of the two findings stays. A
// finding at another site stays as well. The test fails if both are dropped because each group leaves the fault to the other.
func TestMergeCallersOfEachOther(t *testing.T) {
	peer := func(id string) *report.Peer { return &report.Peer{Group: id, Name: id, Joined: true, Waits: 1} }
	in := &Input{Report: &report.Report{Groups: []report.Group{{ID: "a", Name: "a", Peer: peer("b")}, {ID: "b", Name: "b", Peer: peer("a")}}}}
	verdictAt := func(group string, line int) Verdict {
		return Verdict{Finding: report.Finding{Code: report.RuleComputes, Group: group, Site: &report.Site{Func: "x.f", Line: line}}}
	}
	out := mergeCallers(in, []Verdict{verdictAt("a", 1), verdictAt("b", 1), verdictAt("a", 2)})
	check.True(t, len(out) == 2 && out[0].Site.Line != out[1].Site.Line, "%d findings stay: %+v", len(out), out)
}

// TestRouteMatcher: a route belongs to a verdict if it has the same candidate. Without a candidate, cause and site decide.
func TestRouteMatcher(t *testing.T) {
	nap, pause := report.Cause{Cause: "sleep", Call: "time.Sleep", Site: site("nap@7"), TotalNS: ms(900)}, report.Cause{Cause: "sleep", Call: "time.Sleep", Site: site("pause@9"), TotalNS: ms(100)}
	lock := via("lock get@2 sync.(*Mutex).Lock")
	for _, c := range []struct {
		code  report.RuleCode
		group string
		want  [3]bool // a nap, a nap behind a lock, a pause
	}{
		{report.RuleSleep, "g", [3]bool{true, false, false}},
		{report.RuleSlowPeer, "g", [3]bool{true, true, false}},
		{report.RuleSleep, "other", [3]bool{true, true, false}},
	} {
		in := &Input{Report: oneGroup(nap, pause)}
		matches := in.routeMatcher(&Verdict{Finding: report.Finding{Code: c.code, Group: c.group, Cause: "sleep", Site: site("nap@7")}})
		check.Equal(t, [3]bool{matches(&nap, nil), matches(&nap, lock), matches(&pause, nil)}, c.want, "%s in group %s", c.code, c.group)
	}
}
