package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
	"github.com/whylate/whylate/service/mark"
)

func snapshotScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "snapshot", Run: snapshot, Doc: "what a flight recorder held when a request took over 100 ms: a report slept for 120 ms with a lock that requests take"},
	}
}

// An accountBook is read by requests, and by a report for a long time.
type accountBook struct {
	mu    sync.Mutex
	total int64
	slept time.Duration // in a report, with the lock held
}

func (b *accountBook) balance(w http.ResponseWriter, _ *http.Request) {
	b.mu.Lock()
	b.total++
	n := b.total
	b.mu.Unlock()
	fmt.Fprintln(w, n)
}

// report runs in a goroutine that serves no request.
func (b *accountBook) report() {
	b.mu.Lock()
	defer b.mu.Unlock()
	began := time.Now()
	time.Sleep(120 * time.Millisecond)
	b.slept = time.Since(began)
}

// snapshot serves requests of three clients for a second; the report delays the last ones. Facts: "requests", the "slow" ones
// among them, the "slowest", and the time "slept" that the report held the lock, all by the server's clock.
func snapshot(e *rig.Env) error {
	book := new(accountBook)
	late := make(chan struct{})
	var closeLate sync.Once
	var requests, slow, slowest atomic.Int64
	watch := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			next.ServeHTTP(w, r)
			latency := time.Since(began)
			requests.Add(1)
			for old := slowest.Load(); int64(latency) > old && !slowest.CompareAndSwap(old, int64(latency)); old = slowest.Load() {
			}
			if latency > 100*time.Millisecond {
				slow.Add(1)
				closeLate.Do(func() { close(late) })
			}
		})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /balance", book.balance)
	srv := httptest.NewServer(mark.Handler(watch(mux)))
	defer srv.Close()
	c := keepAliveClient(nil)
	defer c.CloseIdleConnections()
	return flown(e, func(ctx context.Context) error {
		stop, cancel := context.WithCancel(context.Background())
		defer cancel()
		err := errors.Join(rig.Crew(4, func(i int) error {
			if i == 0 {
				<-ctx.Done()
				book.report()
				<-late
				time.Sleep(20 * time.Millisecond) // the recorder's tail
				cancel()
				return nil
			}
			return rig.Pace(stop, 5*time.Millisecond, func() error { return get(c, srv.URL+"/balance") })
		}))
		e.Count("requests", requests.Load())
		e.Count("slow", slow.Load())
		e.Count("slowest", slowest.Load())
		e.Count("slept", int64(book.slept))
		return err
	})
}
