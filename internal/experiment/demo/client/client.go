// Package client sends the demo's requests. It is separate from package demo, so that programs without
// the load generator can use that.
package client

import (
	"context"
	"errors"
	"time"

	"github.com/whylate/whylate/internal/experiment/demo"
	"github.com/whylate/whylate/internal/experiment/load"
)

// Load sends requests in an open loop until ctx ends, and returns the result of each route by path.
func Load(ctx context.Context, url string) map[string]demo.Result {
	o := load.Options{Seed: 1, Timeout: 10 * time.Second}
	rate := 0
	for _, r := range demo.Routes() {
		o.Targets = append(o.Targets, load.Target{URL: url + r.Path, Weight: r.Rate})
		rate += r.Rate
	}
	o.Phases = []load.Phase{{StartRate: float64(rate), EndRate: float64(rate), Duration: load.MaxDuration}}
	out := map[string]demo.Result{}
	loadResult, err := load.Run(ctx, o)
	for i, r := range demo.Routes() {
		if loadResult == nil {
			out[r.Path] = demo.Result{Errors: 1, Err: err}
			continue
		}
		t := loadResult.Targets[i]
		result := demo.Result{Count: int(t.Requests - t.Errors), Errors: int(t.Errors), P50: time.Duration(t.Intended.P50)}
		if len(loadResult.Reasons) > 0 {
			result.Err = errors.New(loadResult.Reasons[0].Text)
		}
		out[r.Path] = result
	}
	return out
}
