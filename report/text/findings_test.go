package text

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestGainAndCost: the gain says what the change is, in the finding's words if it has some. Without a prediction the cost is the
// share of the time or, without one, the first evidence: never the confidence alone.
func TestGainAndCost(t *testing.T) {
	predicted := func(text string) *report.Predicted {
		return &report.Predicted{Change: "slots@main.go:7=5", ChangeText: text, P50NS: report.Estimate{Est: 5e6, Low: 5e6, High: 5e6}, P99NS: report.Estimate{Est: 9e6, Low: 9e6, High: 9e6}}
	}
	for want, f := range map[string]report.Finding{
		"p99 9.00ms, p50 5.00ms (with 5 connections); cause only 60% certain":                        {Predicted: predicted("with 5 connections")},
		"p99 9.00ms, p50 5.00ms (with slots@main.go:7=5); cause only 60% certain":                    {Predicted: predicted("")},
		"25% of the requests' time; what a fix gains cannot be predicted; cause only 60% certain":    {Share: 0.25},
		"requests that never ended: 8; what a fix gains cannot be predicted; cause only 60% certain": {Evidence: []report.Evidence{{Text: "requests that never ended", Value: 8, Unit: "count"}}},
	} {
		f.Confidence = 0.6
		got := ""
		for _, s := range (&page{printer: printer{width: 100}, report: &report.Report{}}).predictedGain(&f, true) {
			got += strings.ReplaceAll(s.text, noBreak, " ")
		}
		check.True(t, got == want, "%q, want %q", got, want)
	}
}

// TestLatencyChange: a latency that a change does not affect stays as measured, with all its digits.
func TestLatencyChange(t *testing.T) {
	before := int64(8_900_000)
	for _, c := range []struct {
		before *int64
		e      report.Estimate
		want   string
	}{
		{&before, report.Estimate{Est: 8_890_000, Low: 8_890_000, High: 8_890_000}, "p99 stays 8.90ms"},
		{&before, report.Estimate{Est: 4_000_000, Low: 4_000_000, High: 4_000_000}, "p99 8.90ms → 4.00ms"},
		{&before, report.Estimate{Est: 8_890_000, Low: 5_000_000, High: 8_900_000}, "p99 8.90ms → 5ms to 8.9ms, perhaps no gain"},
		{&before, report.Estimate{Est: 8_700_000, Low: 8_500_000, High: 9_000_000}, "p99 stays 8.90ms"},
		{nil, report.Estimate{Est: 4_000_000, Low: 4_000_000, High: 4_000_000}, "p99 4.00ms"},
	} {
		got := ""
		for _, s := range latencyChange("p99", c.before, &c.e, estimate) {
			got += strings.ReplaceAll(s.text, noBreak, " ")
		}
		check.Equal(t, got, c.want, "%+v", c.e)
	}
}
