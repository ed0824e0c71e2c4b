package demo

import (
	"context"
	"errors"
	"time"

	"github.com/whylate/whylate/internal/experiment/load"
)

// A Route is one kind of request, and how often it is sent.
type Route struct {
	Path string
	Rate int // requests a second
}

// Routes are what Load sends.
func Routes() []Route { return []Route{{"/report", 12}, {"/order", 14}, {"/price", 8}} }

// Result is what the client saw of a route. Latency counts from the time at which a request should have been sent.
type Result struct {
	Count, Errors int
	P50, P99      time.Duration
	Err           error // the most frequent one of all routes
}

// Load sends requests in an open loop until ctx ends, and returns what was seen of each route, by path.
func Load(ctx context.Context, url string) map[string]Result {
	o := load.Options{Seed: 1, Timeout: 10 * time.Second}
	rate := 0
	for _, r := range Routes() {
		o.Targets = append(o.Targets, load.Target{URL: url + r.Path, Weight: r.Rate})
		rate += r.Rate
	}
	o.Phases = []load.Phase{{From: float64(rate), To: float64(rate), Duration: load.MaxDuration}}
	out := map[string]Result{}
	res, err := load.Run(ctx, o)
	for i, r := range Routes() {
		if res == nil {
			out[r.Path] = Result{Errors: 1, Err: err}
			continue
		}
		t := res.Targets[i]
		seen := Result{Count: int(t.Requests - t.Errors), Errors: int(t.Errors), P50: time.Duration(t.Intended.P50), P99: time.Duration(t.Intended.P99)}
		if len(res.Reasons) > 0 {
			seen.Err = errors.New(res.Reasons[0].Text)
		}
		out[r.Path] = seen
	}
	return out
}
