package compare

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestHidden checks the largest time per request of a row that a capped list leaves out: at most the smallest time in the
// list, and at most the time of its row "other".
func TestHidden(t *testing.T) {
	row := func(c report.CauseName, ns int64) report.Cause { return report.Cause{Cause: c, TotalNS: ns} }
	for name, c := range map[string]struct {
		band report.Band
		want float64
	}{
		"all are there":      {report.Band{Count: 4, Causes: []report.Cause{row(report.CauseCPU, 400), row(report.CauseSleep, 100)}}, 0},
		"no list":            {report.Band{Count: 4}, 0},
		"no request":         {report.Band{Causes: []report.Cause{row(report.CauseOther, 400)}}, 0},
		"less than the rest": {report.Band{Count: 4, Causes: []report.Cause{row(report.CauseCPU, 400), row(report.CauseSleep, 100), row(report.CauseOther, 1000)}}, 25},
		"all of the rest":    {report.Band{Count: 4, Causes: []report.Cause{row(report.CauseCPU, 400), row(report.CauseOther, 60), row(report.CauseSleep, 100)}}, 15},
	} {
		check.Equal(t, maxHiddenTime(&c.band), c.want, "%s", name)
	}
}

// TestRunsInterval compares the interval of five runs with that of Student's t: 14 ± 2.776 · √2.
func TestRunsInterval(t *testing.T) {
	i := RunsInterval([]float64{10, 12, 14, 16, 18}, Sum)
	if i.Est != 14 || i.Low == nil || *i.Low < 9.9 || *i.Low > 10.25 || *i.High < 17.75 || *i.High > 18.1 {
		t.Errorf("%v, %v to %v", i.Est, *i.Low, *i.High)
	}
	// The interval of a number that is never negative has no negative bound.
	if i := RunsInterval([]float64{0, 0, 10}, Sum); *i.Low != 0 || *i.High < 10 {
		t.Errorf("%v to %v", *i.Low, *i.High)
	}
	if i := RunsInterval([]float64{-10, 0, 10}, Sum); *i.Low > -10 {
		t.Errorf("%v to %v", *i.Low, *i.High)
	}
}
