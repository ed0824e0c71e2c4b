package verdict

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestBandWords checks that no phrase claims another share of the requests than the band has.
func TestBandWords(t *testing.T) {
	for _, c := range []struct {
		band              report.BandName
		count, groupCount int
		want              string
	}{
		{report.BandAll, 18, 18, "Requests of"},
		{report.Band99, 10, 1000, "The slowest 1% of"},
		{report.Band99, 40, 1000, "The slowest 1% of"}, // includes one histogram bucket more
		{report.Band99, 12, 18, "The slowest requests of"},
		{report.Band99, 1, 18, "The slowest request of"},
		{report.Band9099, 12, 100, "From p90 to p99, requests of"},
		{report.BandAll, 1, 1, "One request of"},
	} {
		g := &report.Group{Count: c.groupCount}
		if got, _ := bandWords(g, &report.Band{Band: c.band, Count: c.count, FromNS: 1e6, ToNS: 2e6}); got != c.want {
			t.Errorf("%d of %d requests in band %s are called %q, want %q", c.count, c.groupCount, c.band, got, c.want)
		}
	}
}

// TestRangeOfSomeRequests: if other requests of the handler are not seen in it, percentiles are said to be those of some.
func TestRangeOfSomeRequests(t *testing.T) {
	p50, longest := int64(10.2e6), int64(21.2e6)
	r := &report.Report{Groups: []report.Group{
		{ID: "a", Named: true, Kind: report.KindHTTP1, Count: 10, LatencyNS: report.Latency{P50: &p50, Max: &longest}, Bands: []report.Band{{Band: report.BandAll, ToNS: longest, Count: 10}}},
		{ID: "b", Kind: report.KindHTTP1, Count: 599},
	}}
	want := "(p50 10.2ms, max 21.2ms, of 10 of 609 requests)"
	if got := groupVerdict(r, &r.Groups[0], report.BandAll, nil, true, false).Range; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDescribeSites checks that inferred lines after the first are named only if their share is large, that a line
// with several callers is named once, and that no line is called from one that only waits for it.
func TestDescribeSites(t *testing.T) {
	siteOf := func(fn, from string, share float64, inferred bool) report.VerdictSite {
		s := &report.Site{Func: "x." + fn, File: "x/" + fn + ".go", Line: 7}
		if from != "" {
			s.CalledFrom = &report.Caller{Func: "main." + from, File: "m/" + from + ".go", Line: 3, Calls: "x." + fn}
		}
		return report.VerdictSite{Site: s, Share: share, TotalNS: int64(share * 1e9), Inferred: inferred}
	}
	awaited := func(s report.VerdictSite) report.VerdictSite { // another goroutine of the library reads there what the line waits for
		s.Site.CalledFrom.Calls, s.Site.Module = "", "example.org/x"
		return s
	}
	internal := func(s report.VerdictSite) report.VerdictSite {
		s.Site.Func = "example.org/x/internal/read.All"
		return s
	}
	for _, c := range []struct {
		cause report.CauseName
		sites []report.VerdictSite
		want  string
	}{
		{"cpu", []report.VerdictSite{siteOf("a", "", 0.13, true), siteOf("b", "", 0.09, true), siteOf("c", "", 0.08, true)}, "computing in many short runs: 13% in x.a a.go:7"},
		{"cpu", []report.VerdictSite{siteOf("a", "", 0.4, true), siteOf("b", "", 0.3, true), siteOf("c", "", 0.05, true)}, "computing: 40% in x.a a.go:7, 30% in x.b b.go:7"},
		{"cpu", []report.VerdictSite{siteOf("a", "", 0.13, false), siteOf("b", "", 0.09, false), siteOf("c", "", 0.08, true)}, "computing: 13% in x.a a.go:7, 9% in x.b b.go:7"},
		{"network", []report.VerdictSite{siteOf("a", "f", 0.3, false), siteOf("a", "g", 0.2, false)}, "waiting for the network: 30% in x.a a.go:7 called from main.f f.go:3, 20% there called from main.g g.go:3"},
		{"network", []report.VerdictSite{awaited(siteOf("read", "f", 0.3, false)), awaited(siteOf("read", "g", 0.2, false))}, "waiting for the network: 30% in main.f f.go:3, 20% in main.g g.go:3"},
		{"network", []report.VerdictSite{awaited(siteOf("read", "f", 0.3, false)), awaited(siteOf("shake", "f", 0.2, false))}, "waiting for the network: 30% in main.f f.go:3, 20% there, in x.shake shake.go:7"},
		{"network", []report.VerdictSite{awaited(siteOf("read", "f", 0.5, false))}, "waiting for the network in main.f f.go:3, read in x.read read.go:7"},
		{"network", []report.VerdictSite{internal(awaited(siteOf("read", "f", 0.5, false)))}, "waiting for the network in main.f f.go:3"},
	} {
		v := report.VerdictCause{Cause: c.cause, Sites: c.sites}
		for i := range c.sites {
			v.TotalNS += c.sites[i].TotalNS
		}
		v.Words = Words(&v)
		if got := Join(Describe(&v, siteColumns)); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestSpentText: the times of several requests are means.
func TestSpentText(t *testing.T) {
	for _, c := range []struct {
		requests int
		kind     report.Kind
		want     string
	}{{2, report.KindHTTP1, "spent on average"}, {1, report.KindHTTP1, "spent"}, {1, report.KindRun, "spent"}} {
		check.Equal(t, SpentText(&report.Verdict{Requests: c.requests}, &report.Group{Kind: c.kind}), c.want, "%d of kind %s", c.requests, c.kind)
	}
}
