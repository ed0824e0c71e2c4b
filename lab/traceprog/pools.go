package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func poolsScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "pools", Run: pools, Doc: "pools made of channels, whose places are held and given back each in another way; beside them a hand-over to workers, which is none"},
	}
}

// A counter has routes that wait for slots, each in its own way.
type counter struct {
	splitSlots, childSlots, singleSlot chan struct{} // slots: two, two, one
	jobs                               chan chan int // for a sufficient number of workers
}

// parted holds a slot while two other goroutines do the work.
func (c *counter) parted(http.ResponseWriter, *http.Request) {
	c.splitSlots <- struct{}{}
	defer func() { <-c.splitSlots }()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(partedWork)
	}
	wg.Wait()
}

func partedWork() { time.Sleep(6 * time.Millisecond) }

// child starts a goroutine that acquires a slot itself and does the work.
func (c *counter) child(http.ResponseWriter, *http.Request) {
	done := make(chan struct{})
	go func() {
		c.childSlots <- struct{}{}
		defer func() { <-c.childSlots }()
		childWork()
		close(done)
	}()
	<-done
}

func childWork() { time.Sleep(7 * time.Millisecond) }

// give acquires a slot, which the goroutine that it starts releases.
func (c *counter) give(_ http.ResponseWriter, r *http.Request) {
	select {
	case c.singleSlot <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	done := make(chan struct{})
	go func() {
		defer func() { <-c.singleSlot }()
		givenWork()
		close(done)
	}()
	<-done
}

func givenWork() { time.Sleep(5 * time.Millisecond) }

// handed passes its work to one of many workers and waits for the answer.
func (c *counter) handed(http.ResponseWriter, *http.Request) {
	answer := make(chan int)
	c.jobs <- answer
	<-answer
}

func (c *counter) works() {
	for answer := range c.jobs {
		time.Sleep(3 * time.Millisecond)
		answer <- 1
	}
}

// pools records a server with routes that so many clients request concurrently that they wait for slots. Facts: requests of each
// route.
func pools(e *rig.Env) error {
	c := &counter{splitSlots: make(chan struct{}, 2), childSlots: make(chan struct{}, 2), singleSlot: make(chan struct{}, 1), jobs: make(chan chan int)}
	for range 8 {
		go c.works()
	}
	mux := http.NewServeMux()
	routes := []struct {
		path    string
		clients int
		handler http.HandlerFunc
	}{{"/parted", 4, c.parted}, {"/child", 5, c.child}, {"/give", 3, c.give}, {"/handed", 2, c.handed}}
	for _, r := range routes {
		mux.HandleFunc(r.path, r.handler)
	}
	srv := httptest.NewServer(mux)
	defer srv.Close()
	client := keepAliveClient(nil)
	defer client.CloseIdleConnections()
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(len(routes), func(i int) error {
			r := &routes[i]
			return rig.Crew(r.clients, func(int) error {
				return rig.Pace(ctx, 2*time.Millisecond, func() error {
					e.Count("requests "+r.path, 1)
					return get(client, srv.URL+r.path)
				})
			})
		})
	})
}
