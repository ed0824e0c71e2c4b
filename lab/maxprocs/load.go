//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/internal/experiment/load"
)

// client sends requests to one service.
type client struct {
	http *http.Client
	base string
	seed atomic.Uint64
}

func newClient(addr string) *client {
	return &client{base: "http://" + addr, http: &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

func (c *client) getPage() error {
	r, err := c.http.Get(c.base + "/page?seed=" + strconv.FormatUint(c.seed.Add(1), 10))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /page: %s", r.Status)
	}
	return nil
}

// openLoop sends requests at Poisson arrivals of the given rate for d. Latencies count from the due time, so that they include
// the delay of a service that falls behind.
func (c *client) openLoop(rate float64, d time.Duration, seed uint64) (latencies []time.Duration, failed int) {
	return c.run(load.Options{Phases: []load.Phase{{StartRate: rate, EndRate: rate, Duration: d}}, Seed: seed}, math.MaxInt64)
}

// closedLoop keeps n connections busy for d and returns the latencies of the requests that were answered in that time.
func (c *client) closedLoop(n int, d time.Duration) (took []time.Duration, failed int) {
	return c.run(load.Options{Phases: []load.Phase{{Duration: d}}, ClosedClients: n}, int64(d))
}

// run returns the latencies of requests that were answered before end, in ns from the start.
func (c *client) run(o load.Options, end int64) (latencies []time.Duration, failed int) {
	o.Targets = []load.Target{{Name: "page"}}
	o.Send = func(context.Context, int) load.Answer { return load.Answer{Err: c.getPage()} }
	var mu sync.Mutex
	o.Observe = func(s load.Sample) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case s.Err != nil:
			failed++
		case s.End < end:
			latencies = append(latencies, time.Duration(s.End-s.Due))
		}
	}
	if _, err := load.Run(context.Background(), o); err != nil {
		failed++
	}
	return latencies, failed
}

// quantile returns a quantile of sorted latencies, 0 if there are too few.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if float64(len(sorted))*(1-q) < 1 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func sortedCopy(l []time.Duration) []time.Duration {
	l = slices.Clone(l)
	slices.Sort(l)
	return l
}
