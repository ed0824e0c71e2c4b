package load

import (
	"slices"
	"testing"
	"time"
)

// TestGateBorders holds each gate to a run on either side of its border: all else of these runs is well.
func TestGateBorders(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Result)
		code   string
		valid  bool
	}{
		{"well", func(*Result) {}, "", true},
		{"almost the rate", func(r *Result) { r.AchievedPerS = 992 }, "", true},
		{"not the rate", func(r *Result) { r.AchievedPerS = 985 }, "rate", false},
		// Errors have a gate of their own: the good answers came at the rate that was asked for.
		{"the rate but for errors", func(r *Result) { r.Errors, r.answered, r.AchievedPerS = 50, 9950, 993 }, "errors", true},
		{"many errors at the rate", func(r *Result) { r.Errors, r.answered, r.AchievedPerS = 500, 9500, 948 }, "errors", false},
		{"late at p50", func(r *Result) { r.Lateness.P50 = 2e5 }, "lateness", true},
		{"late at p99 alone", func(r *Result) { r.Lateness.P99 = 4e6 }, "lateness", true},
		{"too late at p99 alone", func(r *Result) { r.Lateness.P99 = 12e6 }, "lateness", false},
		{"hardly late", func(r *Result) { r.Lateness.P99 = 1e6 }, "", true},
	} {
		r := &Result{Valid: true, Loop: "open", Requests: 10000, answered: 10000, AskedPerS: 1000, AchievedPerS: 1000,
			Intended: Percentiles{P50: 1e6, P99: 2e7}, Halves: [2]Percentiles{{P50: 1e6}, {P50: 1e6}}}
		c.change(r)
		r.gates(10 * time.Second)
		codes := []string{}
		for _, w := range r.Warnings {
			codes = append(codes, w.Code)
		}
		want := []string{}
		if c.code != "" {
			want = append(want, c.code)
		}
		if !slices.Equal(codes, want) || r.Valid != c.valid {
			t.Errorf("%s: warnings %v, valid %v; want %v, %v", c.name, codes, r.Valid, want, c.valid)
		}
	}
}
