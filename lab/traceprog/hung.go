package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func hungScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "hung", Run: hung, Doc: "requests that hang: a route of which none answers, some of another, beside a stream that is quiet"},
	}
}

// A depot has routes that hang.
type depot struct {
	mu      sync.Mutex    // never released
	stock   chan int      // without a sender
	quiet   chan struct{} // of the stream: without events
	release chan struct{}
}

func (d *depot) transfer(w http.ResponseWriter, _ *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintln(w, "transferred")
}

func (d *depot) item(w http.ResponseWriter, r *http.Request) {
	time.Sleep(time.Millisecond)
	if r.URL.Query().Has("rare") {
		<-d.stock
	}
	fmt.Fprintln(w, "an item")
}

func (d *depot) watch(w http.ResponseWriter, r *http.Request) {
	w.(http.Flusher).Flush()
	for {
		select {
		case <-d.quiet:
			fmt.Fprintln(w, "changed")
		case <-r.Context().Done():
			return
		case <-d.release:
			return
		}
	}
}

// hung records a server in which three requests wait for a lock since before the trace, and two more arrive during it; two of
// many requests of another route wait for a channel, one of them since before the trace; and two clients watch a stream without
// events. Facts: "items", the answered requests of that route.
func hung(e *rig.Env) error {
	d := &depot{stock: make(chan int), quiet: make(chan struct{}), release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("/transfer", d.transfer)
	mux.HandleFunc("/item", d.item)
	mux.HandleFunc("/watch", d.watch)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	c := keepAliveClient(nil)
	defer c.CloseIdleConnections()
	var hanging sync.WaitGroup
	ask := func(path string) {
		hanging.Go(func() {
			if res, err := c.Get(srv.URL + path); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
	d.mu.Lock()
	for range 3 {
		ask("/transfer")
	}
	ask("/item?rare")
	ask("/watch")
	ask("/watch")
	time.Sleep(50 * time.Millisecond)
	err := e.Record(func(ctx context.Context) error {
		return errors.Join(rig.Crew(3, func(i int) error {
			if i == 0 {
				time.Sleep(10 * time.Millisecond)
				ask("/item?rare")
				ask("/transfer")
				ask("/transfer")
				return nil
			}
			return rig.Pace(ctx, 12*time.Millisecond, func() error {
				e.Count("items", 1)
				return get(c, srv.URL+"/item")
			})
		}))
	})
	d.mu.Unlock()
	close(d.stock)
	close(d.release)
	hanging.Wait()
	return err
}
