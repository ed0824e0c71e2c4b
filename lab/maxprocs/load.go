//go:build linux

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
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

func (c *client) page() error {
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

// open sends requests at Poisson arrivals of the given rate for d. Latencies
// are from the moment a request was due, so that a service that falls behind
// cannot hide it.
func (c *client) open(rate float64, d time.Duration, seed uint64) (latencies []time.Duration, failed int) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	var mu sync.Mutex
	var wg sync.WaitGroup
	begun := time.Now()
	for due := begun; ; {
		due = due.Add(time.Duration(rnd.ExpFloat64() / rate * float64(time.Second)))
		if due.Sub(begun) > d {
			break
		}
		time.Sleep(time.Until(due))
		wg.Add(1)
		go func() {
			defer wg.Done()
			err := c.page()
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed++
				return
			}
			latencies = append(latencies, took)
		}()
	}
	wg.Wait()
	return latencies, failed
}

// closed keeps n connections busy for d and returns the requests answered in
// that time.
func (c *client) closed(n int, d time.Duration) (done int64, failed int64) {
	var ok, bad atomic.Int64
	end := time.Now().Add(d)
	var wg sync.WaitGroup
	for range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for time.Now().Before(end) {
				if err := c.page(); err != nil {
					bad.Add(1)
					continue
				}
				if time.Now().Before(end) {
					ok.Add(1)
				}
			}
		}()
	}
	wg.Wait()
	return ok.Load(), bad.Load()
}

// closedTimes is closed, and returns how long each request took.
func (c *client) closedTimes(n int, d time.Duration) (took []time.Duration) {
	end := time.Now().Add(d)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for begun := time.Now(); begun.Before(end); begun = time.Now() {
				if c.page() == nil && time.Now().Before(end) {
					mu.Lock()
					took = append(took, time.Since(begun))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return took
}

// quantile of sorted latencies; 0 without enough of them to tell.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if float64(len(sorted))*(1-q) < 1 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func sorted(l []time.Duration) []time.Duration {
	l = slices.Clone(l)
	slices.Sort(l)
	return l
}
