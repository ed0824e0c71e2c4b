package verdict

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/report"
)

// TestRemark: the sentence says if the first finding is not about the largest cause.
func TestRemark(t *testing.T) {
	at := func(line int) *report.Site { return &report.Site{Func: "main.f", File: "/src/main.go", Line: line} }
	verdict := func() *report.Verdict {
		return &report.Verdict{Group: "g", Causes: []report.VerdictCause{
			{Cause: report.CauseNetwork, Share: 0.77, Sites: []report.VerdictSite{{Site: at(1), Share: 0.5}, {Site: at(2), Share: 0.27}}},
			{Cause: report.CauseSleep, Share: 0.18, Sites: []report.VerdictSite{{Site: at(3), Share: 0.18}}},
		}}
	}
	for _, c := range []struct {
		finding report.Finding
		want    string
	}{
		{report.Finding{Cause: report.CauseNetwork, Site: at(1), Group: "g"}, ""},
		{report.Finding{Cause: report.CauseNetwork, Site: at(2), Group: "g"}, "about 27%"},
		{report.Finding{Cause: report.CauseSleep, Site: at(3), Group: "g"}, "about 18%"},
		{report.Finding{Cause: report.CauseSleep, Site: at(3), Group: "another"}, ""},
		{report.Finding{Cause: report.CauseSleep, Site: at(9), Group: "g"}, "not in these latencies"},
		{report.Finding{Cause: report.FamilyGC, Site: at(9), Group: "g", Decided: &report.Decided{Share: 0.3}}, "about 30%"},
		{report.Finding{Cause: report.FamilyGC, Site: at(9), Group: "g", Decided: &report.Decided{Share: 0.8}}, ""},
	} {
		if got := remarkOn(verdict(), &c.finding); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.finding, got, c.want)
		}
	}
	waits := &report.Verdict{Group: "g", Causes: []report.VerdictCause{{Cause: report.CauseSched, Share: 0.84, RanMeanwhile: []report.Share{{Site: &report.Site{Func: "runtime.gcBgMarkWorker"}, Share: 0.97}}}}}
	if got := remarkOn(waits, &report.Finding{Cause: report.FamilyGC, Group: "g"}); got != "" {
		t.Errorf("waits behind the collector's workers are the collector's: %q", got)
	}
}
