package text_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// TestClocks: a segment on the way to another service says how well the clocks of both are known, and so does a line about all services.
func TestClocks(t *testing.T) {
	clock := func(slack int64) *report.ServiceClock {
		return &report.ServiceClock{OffsetNS: 30e6, LowNS: 30e6 - slack, HighNS: 30e6 + slack, DriftPPM: 100}
	}
	r := read(t, "tso")
	r.Services = []report.Service{{Name: "audit"}, {Name: "near", Clock: clock(0)}, {Name: "stock", Clock: clock(46_000)}, {Name: "far", Input: report.Input{DurationNS: 10e9}, Clock: clock(200_000)}}
	q := &r.Groups[0].Slowest[0]
	q.Segments = []report.Segment{
		{StartNS: q.StartNS, DurationNS: q.LatencyNS / 2, Cause: report.CauseCPU},
		{StartNS: q.StartNS + q.LatencyNS/2, DurationNS: q.LatencyNS / 2, Cause: report.CauseNetwork, Kind: "outbound", WayTo: "stock", ClockErrorNS: 46_000},
	}
	out := render(t, r, text.Options{Width: 110, Full: true})
	for _, want := range []string{"on the way to stock ±46.0µs", "compared with audit's: stock ±46.0µs; far ±200µs, drifting by 100 ppm"} {
		check.True(t, strings.Contains(out, want), "%q is not in\n%s", want, out)
	}
	check.False(t, strings.Contains(out, "near ±"), "a service on the same host has an error")
}
