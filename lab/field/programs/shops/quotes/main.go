// Quotes shows prices, and recomputes them eleven times a second, by
// goroutines behind a semaphore.
//
// Faults: slots (the semaphore has eight places, on a container's CPU quota
// that one goroutine could use up; the healthy twin has one).
package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"shop.example/shops/internal/run"
)

type market struct {
	mu     sync.Mutex
	quotes map[int]uint64
}

// work takes about half a millisecond of a CPU.
func work(n int) uint64 {
	h := fnv.New64()
	for i := range 1 << 17 {
		h.Write([]byte{byte(n), byte(i), byte(i >> 8)})
	}
	return h.Sum64()
}

// update recomputes all quotes.
func (m *market) update(slots *semaphore.Weighted) {
	var wg sync.WaitGroup
	for n := range 80 {
		run.Check(slots.Acquire(context.Background(), 1))
		wg.Go(func() {
			defer slots.Release(1)
			q := work(n)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.quotes[n] = q
		})
	}
	wg.Wait()
}

func (m *market) quote(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	q := m.quotes[7]
	m.mu.Unlock()
	fmt.Fprintln(w, q)
}

func main() {
	run.Parse("slots")
	places := int64(1)
	if run.Fault("slots") {
		places = 8
	}
	slots := semaphore.NewWeighted(places)
	m := &market{quotes: map[int]uint64{}}
	go func() {
		for range time.Tick(90 * time.Millisecond) {
			m.update(slots)
		}
	}()
	run.ServePath("/quote", http.HandlerFunc(m.quote))
}
