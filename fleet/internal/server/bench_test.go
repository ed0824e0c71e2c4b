package server

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkIngest uploads recordings of 100 kB from eight concurrent clients. Each is durable before its answer.
func BenchmarkIngest(b *testing.B) {
	s, _ := newTestServer(b)
	s.Bounds.RecordingsPerMinute, s.Bounds.MaxQueued = 1<<30, 1<<30
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	body := append([]byte(bareTrace), bytes.Repeat([]byte("0123456789"), 10_000)...)
	b.SetBytes(int64(len(body)))
	var mu sync.Mutex
	var took []time.Duration
	next := 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				mu.Lock()
				n := next
				next++
				mu.Unlock()
				if n >= b.N {
					return
				}
				r, err := http.NewRequest("POST", web.URL+"/v1/recordings", bytes.NewReader(append(body[:len(body):len(body)], fmt.Sprint(n)...)))
				if err != nil {
					b.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer right")
				begin := time.Now()
				res, err := web.Client().Do(r)
				if err != nil || res.StatusCode != http.StatusAccepted {
					b.Error(res, err)
					return
				}
				_ = res.Body.Close()
				mu.Lock()
				took = append(took, time.Since(begin))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	if len(took) > 0 {
		b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "recordings/s")
		b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99-ms")
	}
}
