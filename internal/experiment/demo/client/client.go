// Package client sends the demo's requests. Package demo does not, so that programs without the load generator can have it.
package client

import (
	"context"
	"errors"
	"time"

	"github.com/whylate/whylate/internal/experiment/demo"
	"github.com/whylate/whylate/internal/experiment/load"
)

// Load sends requests in an open loop until ctx ends, and returns what was seen of each route, by path.
func Load(ctx context.Context, url string) map[string]demo.Result {
	o := load.Options{Seed: 1, Timeout: 10 * time.Second}
	rate := 0
	for _, r := range demo.Routes() {
		o.Targets = append(o.Targets, load.Target{URL: url + r.Path, Weight: r.Rate})
		rate += r.Rate
	}
	o.Phases = []load.Phase{{StartRate: float64(rate), EndRate: float64(rate), Duration: load.MaxDuration}}
	out := map[string]demo.Result{}
	res, err := load.Run(ctx, o)
	for i, r := range demo.Routes() {
		if res == nil {
			out[r.Path] = demo.Result{Errors: 1, Err: err}
			continue
		}
		t := res.Targets[i]
		seen := demo.Result{Count: int(t.Requests - t.Errors), Errors: int(t.Errors), P50: time.Duration(t.Intended.P50), P99: time.Duration(t.Intended.P99)}
		if len(res.Reasons) > 0 {
			seen.Err = errors.New(res.Reasons[0].Text)
		}
		out[r.Path] = seen
	}
	return out
}
