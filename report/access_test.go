package report_test

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
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
		check.Equal(t, g.Tail().Band, c.want, "of %d requests, %d and %d in the last bands", c.all, c.p90, c.p99)
	}
	var empty report.Group
	if b := empty.Tail(); b == nil || b.Band != report.BandAll || b.Count != 0 {
		t.Errorf("without bands: %+v", b)
	}
}

func TestSites(t *testing.T) {
	a, b := &report.Site{Func: "f", File: "a.go", Line: 2}, &report.Site{Func: "e", File: "a.go", Line: 10}
	equal := *a
	check.True(t, a.Equal(&equal) && !a.Equal(b) && !a.Equal(nil) && !(*report.Site)(nil).Equal(a) && (*report.Site)(nil).Equal(nil),
		"Equal")
	check.True(t, a.Compare(b) < 0 && b.Compare(a) > 0 && a.Compare(&equal) == 0 && a.Compare(nil) > 0 && (*report.Site)(nil).Compare(a) < 0,
		"Compare")
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
		check.Equal(t, row.In(c.family), c.want, "%q in %q", c.cause, c.family)
	}
}

// TestTailOutliers: a few requests that are far slower than the others represent a group's slow requests if they have much of its
// time and no band by percentiles holds them.
func TestTailOutliers(t *testing.T) {
	band := func(name report.BandName, from, to int64, count int, ns int64) report.Band {
		return report.Band{Band: name, FromNS: from, ToNS: to, Count: count, Causes: []report.Cause{{Cause: report.CauseSleep, TotalNS: ns}}}
	}
	for _, c := range []struct {
		all, ns int64 // time of all, and of the outliers
		to      int64 // where p90-99 ends
		want    report.BandName
	}{
		{200, 100, 5, report.BandOutliers}, // half of the time
		{200, 99, 150, report.Band9099},    // less, and the percentile's band holds them
		{200, 20, 5, report.BandOutliers},  // a tenth, of which no percentile knows
		{200, 19, 5, report.Band9099},
	} {
		g := report.Group{Bands: []report.Band{band(report.BandAll, 0, 150, 100, c.all), band(report.Band9099, 1, c.to, 10, 50), band(report.Band99, 5, 150, 2, 1), band(report.BandOutliers, 100, 150, 2, c.ns)}}
		check.Equal(t, g.Tail().Band, c.want, "with %d of %d ns, and p90-99 up to %d", c.ns, c.all, c.to)
	}
}

// TestForemost: facts and ignored findings are never foremost, and the busy machine is only if there is no other finding.
func TestForemost(t *testing.T) {
	fact, low, ignored := report.Finding{Code: report.RuleFewRequests, Severity: report.SeverityInfo}, report.Finding{Code: report.RuleSleep, Severity: report.SeverityLow}, report.Finding{Code: report.RuleLockConvoy, Severity: report.SeverityHigh, Ignored: "known"}
	busy := report.Finding{Code: report.RuleBusyMachine, Severity: report.SeverityHigh}
	for _, c := range []struct {
		findings []report.Finding
		want     report.RuleCode
	}{
		{nil, ""}, {[]report.Finding{fact, ignored}, ""}, {[]report.Finding{fact, ignored, busy, low}, low.Code}, {[]report.Finding{busy, fact}, busy.Code},
	} {
		r, got := &report.Report{Findings: c.findings}, report.RuleCode("")
		if f := r.Foremost(); f != nil {
			got = f.Code
		}
		check.Equal(t, got, c.want, "%v", c.findings)
	}
}
