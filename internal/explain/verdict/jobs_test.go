package verdict

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// groupOf returns a group of n requests with one cause.
func groupOf(id string, kind report.Kind, n int, eachNS int64, cause report.Cause) report.Group {
	cause.TotalNS, cause.Share, cause.Requests = eachNS*int64(n), 1, n
	latency := report.Latency{P50: &eachNS, P99: &eachNS, Max: &eachNS}
	return report.Group{ID: id, Name: "main." + id, Named: true, Kind: kind, Count: n, TotalNS: cause.TotalNS, LatencyNS: latency, Bands: []report.Band{{Band: report.BandAll, Count: n, ToNS: eachNS, Causes: []report.Cause{cause}}}}
}

func lineOf(fn string) *report.Site {
	return &report.Site{Func: "main." + fn, File: "/src/main.go", Line: 7}
}

// TestJobsComeAfterRoutes: a job with more time and a graver finding comes after a route, unless the route waits for its work, or the
// server has hardly any time, as one for health checks.
func TestJobsComeAfterRoutes(t *testing.T) {
	for _, c := range []struct {
		name    string
		routes  int
		routeNS int64
		line    string // where the route's time passes
		want    []string
	}{
		{"separate", 100, 2e6, "ask", []string{"route", "job"}},
		{"the route waits for the job's work", 100, 2e6, "work", []string{"job", "route"}},
		{"health checks", 100, 2e3, "ask", []string{"job"}},
		{"many short requests", 300, 2e3, "ask", []string{"route", "job"}},
	} {
		r := &report.Report{
			Judged: &report.Judged{},
			Groups: []report.Group{
				groupOf("job", report.KindLoop, 100, 9e6, report.Cause{Cause: report.CauseSleep, Site: lineOf("work")}),
				groupOf("route", report.KindHTTP1, c.routes, c.routeNS, report.Cause{Cause: report.CauseSleep, Site: lineOf(c.line)}),
			},
			Findings: []report.Finding{
				{ID: "1", Code: report.RulePoolTooSmall, Severity: report.SeverityHigh, Group: "job", Title: "messages queue", Cause: report.CauseSleep},
				{ID: "2", Code: report.RuleSleep, Severity: report.SeverityMedium, Group: "route", Title: "requests sleep", Cause: report.CauseSleep, Site: lineOf(c.line)},
			},
		}
		verdicts := Verdicts(r)
		var got []string
		for i := range verdicts {
			got = append(got, verdicts[i].Group)
		}
		check.True(t, slices.Equal(got, c.want), "%s: verdicts on %v, want %v", c.name, got, c.want)
		o := NewOutcome(r, verdicts)
		check.Equal(t, o.Findings[0] == "2", c.want[0] == "route", "%s: %+v", c.name, o)
		r.Findings = r.Findings[:1]
		if o := NewOutcome(r, verdicts); c.want[0] == "route" {
			check.Equal(t, o.Text, "the job main.job, p99 9.00ms: 100% because messages queue", "%s", c.name)
		}
	}
}

// TestCompareGroups: groups that are about equally slow, or wait at the same line, are compared; others have a verdict of their own.
func TestCompareGroups(t *testing.T) {
	asleep := func(line string) report.Cause { return report.Cause{Cause: report.CauseSleep, Site: lineOf(line)} }
	r := &report.Report{
		Groups: []report.Group{
			groupOf("first", report.KindHTTP1, 100, 9e6, asleep("nap")),
			groupOf("equal", report.KindHTTP1, 90, 5e6, report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: lineOf("ask")}),
			groupOf("same", report.KindHTTP1, 80, 2e6, asleep("nap")),
			groupOf("other", report.KindHTTP1, 80, 2e6, asleep("rest")),
			groupOf("rare", report.KindHTTP1, 1, 9e6, asleep("nap")),
		},
		Findings: []report.Finding{{ID: "1", Group: "same", Severity: report.SeverityLow}},
	}
	rows := CompareGroups(r, Verdicts(r))
	var got []string
	for _, row := range rows {
		got = append(got, row.Group+" "+row.Text+" "+row.Finding)
	}
	want := []string{"first 100% asleep at main.go:7 ", "equal 100% waiting for a peer on the network at main.go:7 ", "same 100% asleep at main.go:7 1"}
	check.True(t, slices.Equal(got, want), "%q, want %q", got, want)
	r.Groups = r.Groups[:1]
	check.Equal(t, len(CompareGroups(r, Verdicts(r))), 0, "rows of one group")
}

// TestLongRequestsFirst: where nothing is at fault, the sentence is not about short requests that show no handler, if those of a handler
// take far longer.
func TestLongRequestsFirst(t *testing.T) {
	for longNS, want := range map[int64]string{4e6: "show", 9e5: "any", 5e5: "any"} {
		r := &report.Report{Judged: &report.Judged{}, Groups: []report.Group{
			groupOf("any", report.KindHTTP1, 600, 2e5, report.Cause{Cause: report.CauseCPU, Site: lineOf("any")}),
			groupOf("show", report.KindHTTP1, 20, longNS, report.Cause{Cause: report.CauseSleep, Site: lineOf("show")}),
		}}
		r.Groups[0].Named = false
		check.Equal(t, Verdicts(r)[0].Group, want, "%d ns", longNS)
	}
}
