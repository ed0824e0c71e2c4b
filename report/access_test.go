package report_test

import (
	"testing"

	"github.com/whylate/whylate/report"
)

func TestTail(t *testing.T) {
	for _, c := range []struct {
		all, p90, p99 int
		want          report.BandName
	}{
		{5, 1, 1, report.BandAll},
		{95, 9, 9, report.BandAll},
		{120, 10, 2, report.Band9099},
		{1000, 90, 9, report.Band9099},
		{1000, 90, 10, report.Band99},
		{1000, 0, 10, report.Band99},
	} {
		g := report.Group{Bands: []report.Band{{Band: report.BandAll, Count: c.all}, {Band: report.Band5090, Count: c.all / 2}, {Band: report.Band9099, Count: c.p90}, {Band: report.Band99, Count: c.p99}}}
		if got := g.Tail(); got.Band != c.want {
			t.Errorf("of %d requests, %d and %d in the last bands: %s, want %s", c.all, c.p90, c.p99, got.Band, c.want)
		}
	}
	var none report.Group
	if b := none.Tail(); b == nil || b.Band != report.BandAll || b.Count != 0 {
		t.Errorf("without bands: %+v", b)
	}
}

func TestLate(t *testing.T) {
	p := func(ns int64) *int64 { return &ns }
	for _, c := range []struct {
		name     string
		open     int
		oldest   int64
		p99, max *int64
		want     bool
	}{
		{"none is open", 0, 0, p(10), p(20), false},
		{"younger than p99", 1, 10, p(10), p(20), false},
		{"older than p99", 1, 11, p(10), p(20), true},
		{"no p99, younger than the slowest", 3, 20, nil, p(20), false},
		{"no p99, older than the slowest", 3, 21, nil, p(20), true},
		{"no request ended", 1, 1, nil, nil, true},
	} {
		g := report.Group{Open: report.Open{Count: c.open, OldestNS: c.oldest}, LatencyNS: report.Latency{P99: c.p99, Max: c.max}}
		if got := g.Late(); got != c.want {
			t.Errorf("%s: late %t", c.name, got)
		}
	}
}

func TestSites(t *testing.T) {
	a, b := &report.Site{Func: "f", File: "a.go", Line: 2}, &report.Site{Func: "e", File: "a.go", Line: 10}
	same := *a
	if !a.Equal(&same) || a.Equal(b) || a.Equal(nil) || (*report.Site)(nil).Equal(a) || !(*report.Site)(nil).Equal(nil) {
		t.Error("Equal")
	}
	if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(&same) != 0 || a.Compare(nil) <= 0 || (*report.Site)(nil).Compare(a) >= 0 {
		t.Error("Compare")
	}
}

func TestFamilies(t *testing.T) {
	for _, c := range []struct {
		cause, family report.CauseName
		want          bool
	}{
		{report.CauseSTW, report.FamilyGC, true},
		{report.CauseGCAssist, report.FamilyGC, true},
		{report.CauseSchedPoll, report.FamilySched, true},
		{report.CauseSched, report.FamilySched, true},
		{report.CauseSched, report.FamilyGC, false},
		{report.CauseCPU, report.CauseCPU, true},
		{report.CauseCPU, "", false},
		{"", "nonsense", false},
	} {
		row := report.Cause{Cause: c.cause}
		if got := row.In(c.family); got != c.want {
			t.Errorf("%q in %q: %t", c.cause, c.family, got)
		}
	}
}
