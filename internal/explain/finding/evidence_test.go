package finding

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/report"
)

// TestReplaceSlowEvidence: a finding that all requests decide, and that slow ones have no part in, does not give 0 s as its evidence.
func TestReplaceSlowEvidence(t *testing.T) {
	v := Verdict{Won: Won{All: Lost{Share: 0.4, NS: 2e6}}, Finding: report.Finding{Decided: &report.Decided{By: report.DecidedByAll}, Evidence: []report.Evidence{
		{Text: "mean per slow request, on the request's own goroutine", Unit: "ns"}, {Text: "of 12 slow requests, those that met it", Unit: "count"}, {Text: "mean length of one sleep", Value: 1e6, Unit: "ns"}}}}
	replaceSlowEvidence(&v)
	if len(v.Evidence) != 2 || v.Evidence[0].Value != 2e6 || v.Evidence[1].Value != 1e6 {
		t.Errorf("%+v", v.Evidence)
	}
}

// TestGrowthAdvice: what to raise follows from what bounds the heap.
func TestGrowthAdvice(t *testing.T) {
	for _, c := range []struct {
		gc   process.GC
		want string
	}{
		{process.GC{Measured: 9, LiveBytes: 100 << 20, GoalBytes: 200 << 20}, "raise GOGC"},
		{process.GC{Measured: 9, LiveBytes: 100 << 20, GoalBytes: 130 << 20}, "raise GOMEMLIMIT"},
		{process.GC{Measured: 9, Full: 1, LiveBytes: 100 << 20, GoalBytes: 200 << 20}, "raise GOMEMLIMIT"},
		{process.GC{}, "raise GOGC"},
	} {
		if got := growthAdvice(&process.Stats{GC: c.gc}); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.gc, got, c.want)
		}
	}
}
