package text_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// next proposes the group of the first finding, or the one that lost the most time to its slowest requests, and never one that lost
// almost none; else what the first finding advises, so that its value can be tried. It detects a group that is proposed only because it is second.
func TestNextProposesWhatHelps(t *testing.T) {
	p := func(ns int64) *int64 { return &ns }
	group := func(id string, count int, p99 int64) report.Group {
		return report.Group{ID: id, Name: "main." + id, Named: true, Kind: report.KindHTTP1, Count: count, TotalNS: int64(count) * p99,
			LatencyNS: report.Latency{P99: p(p99)}, Bands: []report.Band{{Band: report.BandAll, Count: count}}}
	}
	finding := func(id string, severity report.Severity, change string) report.Finding {
		return report.Finding{Code: "WL2001", Severity: severity, Group: id, Title: "it waits", Changes: []report.Change{{Text: change}}}
	}
	groups := []report.Group{group("most", 1000, 5e6), group("quick", 1000, 1e5), group("slow", 500, 40e6)}
	for _, c := range []struct {
		name     string
		findings []report.Finding
		groups   []report.Group
		want     string
	}{
		{"the worst of the others", nil, groups, "--group 'slow$'"},
		{"the group of the first finding", []report.Finding{finding("quick", report.SeverityHigh, "x")}, groups, "--group 'quick$'"},
		{"little is lost in the other", []report.Finding{finding("most", report.SeverityHigh, "slots@main.wait:7=5")}, groups[:2], "--what-if 'slots@main.wait:7=5'"},
		{"the finding's group is shown in full", []report.Finding{finding("most", report.SeverityMedium, "slots@main.wait:7=5")}, groups, "--what-if 'slots@main.wait:7=5'"},
		{"a lesser finding proposes nothing", []report.Finding{finding("most", report.SeverityLow, "sleep@main.wait:7=50%")}, groups[:2], "--band"},
	} {
		out := render(t, &report.Report{Groups: c.groups, Findings: c.findings}, text.Options{Width: 100, Full: true, Command: "whylate explain x.trace"})
		_, next, _ := strings.Cut(out, "next ")
		check.True(t, strings.Contains(next, c.want), "%s: %q, want %s", c.name, strings.TrimSpace(next), c.want)
	}
}

// The pattern that next proposes matches only one group, although several closures are called func1.
func TestNextNamesOneGroup(t *testing.T) {
	p := func(ns int64) *int64 { return &ns }
	group := func(name string, ns int64) report.Group {
		return report.Group{ID: name, Name: name, Named: true, Kind: report.KindHTTP1, Count: 100, TotalNS: 100 * ns, LatencyNS: report.Latency{P99: p(ns)}, Bands: []report.Band{{Band: report.BandAll, Count: 100}}}
	}
	groups := []report.Group{group("a.com/x.(*S).loop", 5e6), group("a.com/x.(*S).serve.func1", 40e6), group("a.com/y.Register.func1", 1e6)}
	out := render(t, &report.Report{Groups: groups}, text.Options{Width: 120, Full: true, Command: "whylate explain x.trace"})
	_, next, _ := strings.Cut(out, "next ")
	if want := `--group 'serve\.func1$'`; !strings.Contains(next, want) {
		t.Errorf("%q, want %s", strings.TrimSpace(next), want)
	}
}

// If many requests have no known handler, a prediction says for how many of all requests it is: its percentiles do not include the
// others.
func TestGainNamesRequestCount(t *testing.T) {
	p := func(ns int64) *int64 { return &ns }
	group := func(name string, named bool, count int) report.Group {
		return report.Group{ID: name, Name: name, Named: named, Kind: report.KindHTTP1, Count: count, TotalNS: 1e9, LatencyNS: report.Latency{P50: p(3e7), P99: p(5e7)}, Bands: []report.Band{{Band: report.BandAll, Count: count}}}
	}
	f := report.Finding{Code: "WL2001", Severity: report.SeverityHigh, Group: "main.add", Title: "it waits", Predicted: &report.Predicted{Change: "sleep@main.add:7=50%"}}
	for _, c := range []struct {
		groups []report.Group
		says   bool
	}{
		{[]report.Group{group("main.add", true, 447), group("HTTP/1 handlers that the trace does not name", false, 113)}, true},
		{[]report.Group{group("main.add", true, 447)}, false},
	} {
		out := render(t, &report.Report{Groups: c.groups, Findings: []report.Finding{f}}, text.Options{Width: 120})
		check.Equal(t, strings.Contains(out, "for 447 of the 560 requests)"), c.says, "%d groups: %s", len(c.groups), out)
	}
}

// A trace's header is the same in Go 1.23 and 1.24, so the program's version in the recording takes precedence.
func TestGoVersion(t *testing.T) {
	for _, c := range []struct{ header, built, want string }{
		{"1.23", "", "Go 1.23 or 1.24"},
		{"1.23", "go1.24.6", "Go 1.24.6"},
		{"1.26", "", "Go 1.26"},
		{"", "", ""},
	} {
		r := &report.Report{Input: report.Input{Go: c.header}}
		if c.built != "" {
			r.Host = &report.Host{Facts: report.HostFacts{Go: c.built}}
		}
		line, _, _ := strings.Cut(render(t, r, text.Options{Width: 100}), "\n")
		if c.want != "" && !strings.Contains(line, c.want+" ·") || c.want == "" && strings.Contains(line, "Go") {
			t.Errorf("header %q, program %q: %q, want %q", c.header, c.built, line, c.want)
		}
	}
}
