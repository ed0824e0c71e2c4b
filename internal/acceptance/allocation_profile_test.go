package acceptance_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestAllocationProfile: with an allocation profile, the finding about the garbage collector names the code that allocates
// instead of the code that assists. A profile that cannot be read gives a warning and leaves the finding as it is without one.
func TestAllocationProfile(t *testing.T) {
	trace := testprog.Service(t, "gc-assist").Trace
	fn := &profile.Function{ID: 1, Name: "example.org/x.(*L).Debug", Filename: "/build/log.go"}
	loc := &profile.Location{ID: 1, Line: []profile.Line{{Function: fn, Line: 7}}}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "alloc_space", Unit: "bytes"}}, Function: []*profile.Function{fn}, Location: []*profile.Location{loc},
		Sample: []*profile.Sample{{Location: []*profile.Location{loc}, Value: []int64{1 << 30}}},
	}
	var packed bytes.Buffer
	must.Do(t, p.Write(&packed))
	collectorFinding := func(rep *report.Report) *report.Finding {
		for i := range rep.Findings {
			if f := &rep.Findings[i]; f.Code == "WL3004" || f.Code == "WL3001" {
				return f
			}
		}
		t.Fatalf("no finding about the collector among %d", len(rep.Findings))
		return nil
	}
	noProfile := collectorFinding(explainBytes(t, trace, whylate.Options{}))
	check.True(t, noProfile.Site != nil && strings.HasSuffix(noProfile.Site.Func, "catalog.list"),
		"without a profile the site is %+v", noProfile.Site)
	withProfile := collectorFinding(explainBytes(t, trace, whylate.Options{Allocs: &packed, PathMap: []whylate.PathRewrite{{Old: "/build", New: "/src"}}}))
	if want := (report.Site{Func: "example.org/x.(*L).Debug", File: "/src/log.go", Line: 7}); withProfile.Site == nil || *withProfile.Site != want {
		t.Errorf("with a profile the site is %+v, want %+v", withProfile.Site, want)
	}
	check.True(t, withProfile.Confidence > noProfile.Confidence,
		"the confidence with a profile is %g, without %g", withProfile.Confidence, noProfile.Confidence)
	brokenProfile := explainBytes(t, trace, whylate.Options{Allocs: strings.NewReader("no profile")})
	check.True(t, collectorFinding(brokenProfile).Site != nil && *collectorFinding(brokenProfile).Site == *noProfile.Site,
		"with a broken profile the site is %+v", collectorFinding(brokenProfile).Site)
	warned := false
	for _, w := range brokenProfile.Input.Warnings {
		warned = warned || w.Code == "allocs-profile"
	}
	check.True(t, warned, "a broken profile gives no warning: %+v", brokenProfile.Input.Warnings)
}
