package compare

import (
	"testing"

	"github.com/whylate/whylate/report"
)

// TestHidden tests how much of a request a cause can have that a band's capped list leaves out: no more than the least of those that
// it has, and than all that it sums up as others.
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
		if got := maxHiddenTime(&c.band); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestRunsInterval holds the interval of five runs to what Student's t says of them: 14 ± 2.776 · √2.
func TestRunsInterval(t *testing.T) {
	i := RunsInterval([]float64{10, 12, 14, 16, 18}, Sum)
	if i.Est != 14 || i.Low == nil || *i.Low < 9.9 || *i.Low > 10.25 || *i.High < 17.75 || *i.High > 18.1 {
		t.Errorf("%v, %v to %v", i.Est, *i.Low, *i.High)
	}
	// A number that is never negative has no interval below nothing.
	if i := RunsInterval([]float64{0, 0, 10}, Sum); *i.Low != 0 || *i.High < 10 {
		t.Errorf("%v to %v", *i.Low, *i.High)
	}
	if i := RunsInterval([]float64{-10, 0, 10}, Sum); *i.Low > -10 {
		t.Errorf("%v to %v", *i.Low, *i.High)
	}
}
