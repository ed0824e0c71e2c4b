package demo

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A Route is one kind of request, and how often it is sent.
type Route struct {
	Path string
	Rate float64 // requests a second
}

// Routes are what Load sends.
func Routes() []Route { return []Route{{"/report", 12}, {"/order", 14}, {"/price", 8}} }

// Result is what the client saw of a route.
type Result struct {
	Count, Errors int
	P50, P99      time.Duration
	Err           error // the first one
}

// Load sends requests in an open loop until ctx ends: a slow answer delays no other request, and latency counts from the
// time at which a request should have been sent. It returns when all answers are there, by path.
func Load(ctx context.Context, url string) map[string]Result {
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	out := map[string]Result{}
	var all sync.WaitGroup
	var mu sync.Mutex
	for i, route := range Routes() {
		// The same arrivals on every run, as far as the machine allows.
		random := rand.New(rand.NewPCG(uint64(i), 1))
		all.Go(func() {
			r := loadRoute(ctx, client, url+route.Path, route.Rate, random)
			mu.Lock()
			defer mu.Unlock()
			out[route.Path] = r
		})
	}
	all.Wait()
	return out
}

func loadRoute(ctx context.Context, client *http.Client, url string, rate float64, random *rand.Rand) Result {
	var (
		mu        sync.Mutex
		latencies []time.Duration
		result    Result
		flying    sync.WaitGroup
	)
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		// Exponential gaps: arrivals that know nothing of each other, as users' are.
		next = next.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		timer.Reset(time.Until(next))
		select {
		case <-ctx.Done():
			flying.Wait()
			slices.Sort(latencies)
			if n := len(latencies); n > 0 {
				result.P50, result.P99 = latencies[(n-1)/2], latencies[(n-1)*99/100]
			}
			result.Count = len(latencies)
			return result
		case <-timer.C:
		}
		intended := next
		flying.Go(func() {
			err := get(client, url)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if result.Errors++; result.Err == nil {
					result.Err = err
				}
				return
			}
			latencies = append(latencies, time.Since(intended))
		})
	}
}

func get(client *http.Client, url string) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}
