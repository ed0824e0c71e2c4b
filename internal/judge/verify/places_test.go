package verify

import (
	"fmt"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestSamePlace: findings have the same place by their function and, if both have one, by the caller in the service's code.
func TestSamePlace(t *testing.T) {
	site := func(fn, from string) *report.Finding {
		f := &report.Finding{Site: &report.Site{Func: fn, File: "x.go", Line: 1}}
		if from != "" {
			f.Site.CalledFrom = &report.Caller{Func: from, File: "y.go", Line: 2}
		}
		return f
	}
	withoutSite := &report.Finding{}
	for _, c := range []struct {
		a, b *report.Finding
		want bool
	}{
		{withoutSite, withoutSite, true}, {withoutSite, site("f", ""), false}, {site("f", ""), withoutSite, false}, {site("f", ""), site("f", ""), true}, {site("f", ""), site("g", ""), false},
		{site("f", "a"), site("f", ""), true}, {site("f", ""), site("f", "a"), true}, {site("f", "a"), site("g", ""), false}, {site("f", "a"), site("g", "a"), true}, {site("f", "a"), site("f", "b"), false}, {site("f", "a"), withoutSite, false}, {withoutSite, site("f", "a"), false},
	} {
		if got := c.a.SamePlace(c.b); got != c.want {
			t.Errorf("%+v and %+v: %v", c.a.Site, c.b.Site, got)
		}
	}
	for want, f := range map[string]*report.Finding{"": withoutSite, "f": site("f", ""), "a": site("f", "a")} {
		check.Equal(t, siteOf(f), want, "the site of %+v", f.Site)
	}
}

// TestStillFound: a finding is still found with half of its share, at its place, in its group by id or by name.
func TestStillFound(t *testing.T) {
	finding := func(change func(*report.Finding)) *report.Finding {
		f := &report.Finding{Code: "WL1", Group: "g1", Share: 0.5, Site: &report.Site{Func: "f"}}
		change(f)
		return f
	}
	original := finding(func(*report.Finding) {})
	for name, c := range map[string]struct {
		change func(*report.Finding)
		want   bool
	}{
		"the same":         {func(*report.Finding) {}, true},
		"half":             {func(f *report.Finding) { f.Share = 0.25 }, true},
		"less than half":   {func(f *report.Finding) { f.Share = 0.249 }, false},
		"another code":     {func(f *report.Finding) { f.Code = "WL2" }, false},
		"another place":    {func(f *report.Finding) { f.Site = &report.Site{Func: "g"} }, false},
		"by the name":      {func(f *report.Finding) { f.Group = "g7" }, true},
		"of another group": {func(f *report.Finding) { f.Group = "g8" }, false},
	} {
		after := &report.Report{Groups: []report.Group{{ID: "g8", Name: "other"}, {ID: "g7", Name: "GET /"}}, Findings: []report.Finding{{Code: "WL9"}, *finding(c.change)}}
		check.Equal(t, isStillFound(original, "GET /", after), c.want, "%s", name)
	}
	check.False(t, isStillFound(original, "GET /", &report.Report{}), "it stands in a report without findings")
}

// TestVerdictText: each judgement has a sentence, in which words replace signs.
func TestVerdictText(t *testing.T) {
	got := int64(-5)
	slower := int64(3)
	for _, c := range []struct {
		j    Judgement
		got  *int64
		was  int64
		want string
	}{
		{PromiseKept, &got, 9, "p99: promised 7ns less, measured 5ns less"}, {AbovePromise, &got, 9, "p99: promised 7ns less, measured 5ns less; a larger change than promised"}, {BelowPromise, &got, 9, "p99: promised 7ns less, measured 5ns less; a smaller change than promised, and not by chance"},
		{MaybeChance, &slower, 9, "p99: promised 7ns less, measured 3ns more; that may be chance: record for longer"}, {ChangeMissing, &got, 9, "p99: promised 7ns less; the finding is still there, so this recording does not have the change"},
		{Unknown, nil, 9, "p99: promised 7ns less; one of the recordings has too few requests to judge it"}, {Unknown, nil, 0, "too few requests to measure what was promised"},
	} {
		v := Verdict{Judgement: c.j, Got: c.got, WasNS: c.was, Metric: "p99"}
		v.Promised.Est = -7
		check.Equal(t, v.Text(func(ns int64) string { return fmt.Sprint(ns, "ns") }), c.want, "%s", c.j)
	}
}

// TestMedianInstead: if the recordings do not show a change of the tail, the median is used, if it was predicted, too.
func TestMedianInstead(t *testing.T) {
	tailed := func(name string, base time.Duration, findings ...report.Finding) *report.Report {
		r := recording(name, base, 2000, findings...)
		g := &r.Groups[0]
		for i := 0; i < len(g.Blocks); i += 5 {
			b := &g.Blocks[i]
			b.Histogram = append(b.Histogram, [2]int64{400e6, 15})
			b.Count, b.TotalNS, g.Count = b.Count+15, b.TotalNS+15*400e6, g.Count+15
		}
		g.LatencyNS.P99 = ms(400)
		return r
	}
	reports, tail := finding(30), finding(30)
	tail.Predicted.WasP50NS = nil
	for metric, f := range map[string]report.Finding{"p50": reports, "p99": tail} {
		v := Reports(tailed("a", 50*time.Millisecond, f), tailed("b", 30*time.Millisecond)).Verdicts[0]
		check.True(t, v.Metric == metric && (v.Judgement == PromiseKept) == (metric == "p50"), "by %s, want %s: %+v", v.Metric, metric, v)
	}
}
