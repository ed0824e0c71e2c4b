package predict

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestHandle: messages are handled in the order of their arrival by the goroutine that is free first. The messages behind a long one
// wait for all of it if there is one goroutine, and not at all if there are two.
func TestHandle(t *testing.T) {
	messages := []request.QueuedMessage{{Arrival: 1000, Start: 1000, End: 1100}, {Arrival: 1010, Start: 1100, End: 1110}, {Arrival: 1020, Start: 1110, End: 1120}, {Arrival: 1200, Start: 1200, End: 1210}}
	identity := func(ns int64) float64 { return float64(ns) }
	for _, c := range []struct {
		consumers int
		load      float64
		handling  func(int64) float64
		want      []float64
	}{
		{1, 1, identity, []float64{100, 100, 100, 10}},
		{2, 1, identity, []float64{100, 10, 10, 10}},
		{9, 1, identity, []float64{100, 10, 10, 10}},
		{1, 2, identity, []float64{100, 105, 110, 30}}, // they arrive twice as fast
		{1, 1, func(ns int64) float64 { return float64(ns) / 10 }, []float64{10, 1, 1, 1}},
	} {
		if got := timesInSystem(messages, c.consumers, c.load, c.handling); !slices.Equal(got, c.want) {
			t.Errorf("%d goroutines at %g times the load: %v, want %v", c.consumers, c.load, got, c.want)
		}
	}
}

// TestPredictMessages: a prediction for messages is from their arrival, whatever changes.
func TestPredictMessages(t *testing.T) {
	list := make([]request.QueuedMessage, 200)
	for i := range list { // two arrive at a time
		arrival := int64(i/2) * 30e6
		start := arrival + int64(i%2)*10e6
		list[i] = request.QueuedMessage{Arrival: arrival, Start: start, End: start + 10e6}
	}
	p50, p90, p99 := int64(10e6), int64(20e6), int64(20e6)
	g := &group{p50: &p50, p90: &p90, p99: &p99, max: &p99, backlog: &request.Backlog{Goroutines: 1, Messages: list}}
	m := &Model{groups: map[string]*group{"": g}}
	got := m.predictMessages(g, nil)
	check.True(t, got != nil && got.FromArrival && got.P99NS.Est == p99 && got.P90NS != nil && *got.WasP90NS == p90, "without a change: %+v", got)
	g.backlog.Goroutines = 2
	if got = m.predictMessages(g, []Change{}); got.P99NS.Est >= *got.WasP99NS && got.P99NS != (report.Estimate{Est: p99, Low: p99, High: p99}) {
		t.Errorf("%+v", got)
	}
}
