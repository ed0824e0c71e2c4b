package rows

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestWin: the win exceeds neither the interpolated prediction nor the time of the cause.
func TestWin(t *testing.T) {
	ns := func(v int64) *int64 { return &v }
	predicted := func(was50, is50, was99, is99 int64) *report.Predicted {
		return &report.Predicted{WasP50NS: ns(was50), P50NS: report.Estimate{Est: is50}, WasP99NS: ns(was99), P99NS: report.Estimate{Est: is99}}
	}
	for _, c := range []struct {
		situation string
		p         *report.Predicted
		// The cause's share of 1,000 requests with 10 ms each.
		share float64
		want  int64
	}{
		{"no prediction", nil, 0.5, 0},
		{"all requests win 4 ms", predicted(10e6, 6e6, 10e6, 6e6), 0.5, 4e9},
		{"one in ten wins 40 ms: the cause has 40 % of the time", predicted(5e6, 5e6, 50e6, 10e6), 0.4, 4e9},
		{"the middle wins 2 ms, and the slow ones 10 ms", predicted(5e6, 3e6, 20e6, 10e6), 0.9, 1000 * (0.5*2e6 + 0.49*(2e6+10e6)/2 + 0.01*10e6)},
		{"the slow ones win 1 ms, and the middle 4 ms", predicted(9e6, 5e6, 20e6, 19e6), 0.9, 1000 * (0.5*4e6 + 0.49*(4e6+1e6)/2 + 0.01*1e6)},
		{"nothing is won", predicted(10e6, 10e6, 10e6, 10e6), 0.9, 0},
		{"a prediction of loss", predicted(10e6, 12e6, 10e6, 12e6), 0.9, 0},
	} {
		check.Equal(t, PredictedWin(&report.Finding{Predicted: c.p, Share: c.share}, &report.Group{Count: 1000, TotalNS: 10e9}), c.want,
			"%s", c.situation)
	}
}
