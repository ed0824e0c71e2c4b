package text

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestEstimate: a prediction has at most two significant digits. It detects "801µs (800µs to 802µs)".
func TestEstimate(t *testing.T) {
	for _, c := range []struct {
		e    report.Estimate
		want string
	}{
		{report.Estimate{Est: 801e3, Low: 800e3, High: 802e3}, "about 800µs"},
		{report.Estimate{Est: 11.4e6, Low: 11.2e6, High: 12.5e6}, "11ms (11ms to 13ms)"},
		{report.Estimate{Est: 471e3, Low: 470e3, High: 486e3}, "470µs (470µs to 490µs)"},
		{report.Estimate{Est: 22_123_456, Low: 22_123_456, High: 22_123_456}, "22.1ms"}, // not touched by the change
	} {
		check.Equal(t, estimate(c.e), c.want, "%+v", c.e)
	}
}

// TestExpected: the first screen has a number only where one is known.
func TestExpected(t *testing.T) {
	for _, c := range []struct {
		e    report.Estimate
		want string
	}{
		{report.Estimate{Est: 11.4e6, Low: 8.2e6, High: 12.5e6}, "11ms"},
		{report.Estimate{Est: 11.4e6, Low: 8.2e6, High: 25e6}, "8.2ms to 25ms"},
		{report.Estimate{Est: 471e3, Low: 0, High: 986e3}, "below 990µs"},
		{report.Estimate{Est: 22_123_456, Low: 22_123_456, High: 22_123_456}, "22.1ms"}, // not touched by the change
	} {
		check.Equal(t, expected(c.e), c.want, "%+v", c.e)
	}
}
