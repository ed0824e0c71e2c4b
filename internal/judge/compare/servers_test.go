package compare

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// handlers returns a report of one server: requests of a handler that waits, and of those that show no handler. The client sees ten
// seconds of 100 requests a second in all.
func handlers(name string, waiting int, sleep float64, seed uint64) *report.Report {
	wait, work := noisy(sleep), noisy(300e3)
	named := load{"main.document", report.KindHTTP1, 10, max(waiting, 1), func(rng *rand.Rand, _ float64) []spent {
		return []spent{{"sleep", "main.document", 5, wait(rng)}, {"cpu", "main.document", 6, work(rng)}}
	}}.group(seed)
	unseen := load{"HTTP/1 handlers that the trace does not name", report.KindHTTP1, 10, 100 - waiting, func(rng *rand.Rand, _ float64) []spent {
		return []spent{{"cpu", "net/http", 6, work(rng)}}
	}}.group(seed + 1)
	unseen.Named = false
	for _, g := range []*report.Group{&named, &unseen} {
		for i := range g.Blocks {
			g.Histogram = append(g.Histogram, g.Blocks[i].Histogram...)
		}
	}
	groups := []report.Group{unseen, named}
	if waiting == 0 {
		groups = groups[:1]
	}
	return reportOf(name, groups...)
}

// TestServers: a change removes the waits of a handler, so its requests no longer show it. All requests of the server are faster, and
// the group of the others, to which slower requests moved, is not compared. It detects "HTTP/1 handlers that the trace does not name became slower".
func TestServers(t *testing.T) {
	old, new := handlers("a", 30, 50e6, 1), handlers("b", 3, 600e3, 7)
	d := Reports(old, new)
	must.True(t, len(d.Servers) == 1 && d.Servers[0].Name == "all HTTP/1 requests" && d.Servers[0].OldCount == 1000 && d.Servers[0].NewCount == 1000,
		"%+v", d.Servers)
	s := &d.Servers[0]
	check.True(t, s.Changed && s.Mean.Evidence && s.P90.Evidence && *s.Mean.High <= 0 && s.Causes[0].Cause == "sleep" && s.Causes[0].Evidence, "%+v", s)
	check.True(t, len(s.Members) == 2 && s.Members[0].Moved && s.Members[1].Moved, "members %+v", s.Members)
	for _, g := range d.Groups {
		check.True(t, g.Moved && !g.Changed && g.Mean.Low == nil && !g.Mean.Evidence && g.Mean.Delta != nil, "%s: %+v", g.Name, g)
	}
	check.False(t, d.IsEmpty(), "the diff is empty")
	// Nothing waits any more.
	if d := Reports(old, handlers("c", 0, 0, 5)); len(d.Servers) != 1 || !d.Servers[0].Mean.Evidence || len(d.Vanished) != 1 {
		t.Errorf("%+v", d.Servers)
	}
	// The same division, and a slower handler: its group is compared.
	d = Reports(old, handlers("d", 30, 90e6, 9))
	for _, g := range d.Groups {
		check.True(t, !g.Moved && g.Changed == (g.Name == "main.document"), "%s: moved %v, changed %v", g.Name, g.Moved, g.Changed)
	}
	if c := d.Servers[0].Confidence; math.Abs(c-0.995) > 1e-9 {
		t.Errorf("the confidence of the server is %v", c)
	}
	if one := Reports(reportOf("a", shop(0).group(1)), reportOf("b", shop(0).group(2))); len(one.Servers) != 0 {
		t.Errorf("one group is all requests: %+v", one.Servers)
	}
}

// TestMerge: all requests of a server have the counts, times and causes of its groups.
func TestMerge(t *testing.T) {
	r := handlers("a", 30, 50e6, 1)
	all := AllRequests(r)
	if len(all) != 1 {
		t.Fatal(all)
	}
	g, blocks, rows := &all[0], int64(0), int64(0)
	for _, b := range g.Blocks {
		blocks += b.TotalNS
	}
	for _, c := range g.All().Causes {
		rows += c.TotalNS
	}
	if want := r.Groups[0].TotalNS + r.Groups[1].TotalNS; g.TotalNS != want || blocks != want || rows != want || g.Count != 1000 || g.All().Count != 1000 || len(g.Blocks) != 40 {
		t.Errorf("%d ns, blocks %d, rows %d, want %d; %d requests, %d blocks", g.TotalNS, blocks, rows, want, g.Count, len(g.Blocks))
	}
	// 30 % of 1000 requests take about 50 ms, the others a third of a ms.
	if p50, p90 := *g.LatencyNS.P50, *g.LatencyNS.P90; p50 > 1e6 || p90 < 30e6 || *g.LatencyNS.Max != *r.Groups[1].LatencyNS.Max {
		t.Errorf("p50 %d, p90 %d", p50, p90)
	}
	r.Groups[0].Role = report.RoleMonitoring
	check.Equal(t, len(AllRequests(r)), 0, "probes are requests of the server")
}

// TestFindingChanges: a finding is the same at the same place, also in another group and on another line.
func TestFindingChanges(t *testing.T) {
	finding := func(code report.RuleCode, severity report.Severity, fn, group string) report.Finding {
		return report.Finding{ID: string(code) + fn + group, Code: code, Severity: severity, Title: fn, Group: group, Site: &report.Site{Func: fn}}
	}
	old, new := reportOf("a", report.Group{ID: "g1", Name: "main.document"}), reportOf("b")
	old.Findings = []report.Finding{finding("WL2001", "low", "slow", "g1"), finding("WL2002", "high", "lock", "g1"), finding("WL2003", "medium", "pool", "g1"), finding("WL5003", "info", "names", "")}
	new.Findings = []report.Finding{finding("WL2003", "medium", "pool", "g2"), finding("WL2005", "medium", "peer", "g2"), {Code: "WL1001", Severity: "high", Ignored: "known"}}
	d := Reports(old, new)
	check.True(t, len(d.NewFindings) == 1 && d.NewFindings[0].Title == "peer" && d.NewFindings[0].Group == "g2", "new: %+v", d.NewFindings)
	if len(d.GoneFindings) != 2 || d.GoneFindings[0].Title != "lock" || d.GoneFindings[1].Title != "slow" || d.GoneFindings[0].Group != "main.document" {
		t.Errorf("gone: %+v", d.GoneFindings)
	}
}
