package finding

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestReuseAdvice: database/sql keeps 2 idle connections unless set, which is too few only where more are in use at once.
func TestReuseAdvice(t *testing.T) {
	for underWayNS, want := range map[int64]string{400e6: "check SetConnMaxLifetime", 4e9: "raise SetMaxIdleConns"} {
		in := &Input{Report: &report.Report{Input: report.Input{DurationNS: 1e9}, Groups: []report.Group{{TotalNS: underWayNS / 4}, {TotalNS: underWayNS * 3 / 4}}}}
		advice := in.reuseAdviceOf(stdPool("database/sql.(*DB).conn"))
		check.True(t, strings.HasPrefix(advice, want), "%d ns of requests in one second: %s", underWayNS, advice)
	}
}

// TestMergeReuses: two lines open connections of one pool, which one option keeps open: that is one finding. Other advice, or a change that
// each line needs for itself, is not.
func TestMergeReuses(t *testing.T) {
	verdictAt := func(fn, fix string, change predict.Change) Verdict {
		return Verdict{Gain: Gain{All: Loss{Share: 0.2, NS: 5e6}}, Changes: []predict.Change{change}, Finding: report.Finding{Title: "requests open connections", Fix: fix, Site: siteOf(fn), Group: "g", Share: 0.2}}
	}
	got := mergeReuses(&Input{}, []Verdict{
		verdictAt("main.visits", "check it", predict.Reuse("main.visits")), verdictAt("main.member", "check it", predict.Reuse("main.member")),
		verdictAt("main.other", "raise it", predict.Reuse("main.other")), verdictAt("main.calls", "check it", predict.Calls("main.calls", 1)),
	})
	check.Equal(t, len(got), 3, "verdicts")
	check.True(t, strings.HasSuffix(got[0].Title, ", and at main.member (x.go:7)") && got[0].Gain.All == Loss{Share: 0.4, NS: 10e6} && got[0].Share == 0.4 && len(got[0].Changes) == 2, "%+v", got[0])
}
