// Flight keeps the last seconds of its execution trace (runtime/trace's flight
// recorder), and a snapshot of the first request that took more than 100 ms,
// which it shows in the place of net/http/pprof's trace.
//
// Faults: report (a report holds the lock that requests need for 120 ms, every
// two seconds).
package main

import (
	"bytes"
	"fmt"
	"log"
	"net/http"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"

	"shop.example/shops/internal/run"
)

type shop struct {
	mu     sync.Mutex
	orders map[int]int

	recorder *trace.FlightRecorder
	snapshot atomic.Pointer[[]byte]
}

// order notes an order.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.orders[len(s.orders)%1000]++
	s.mu.Unlock()
	fmt.Fprintln(w, "ok")
}

// report sums up, for the office, which takes 120 ms.
func (s *shop) report() {
	if run.Fault("report") {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	office()
}

// office sends the report.
func office() { time.Sleep(120 * time.Millisecond) }

// watch takes the snapshot.
func (s *shop) watch(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		h(w, r)
		run.Took(start, nil)
		if time.Since(start) > 100*time.Millisecond && s.snapshot.Load() == nil {
			s.take()
		}
	}
}

func (s *shop) take() {
	var b bytes.Buffer
	if _, err := s.recorder.WriteTo(&b); err == nil {
		snapshot := b.Bytes()
		s.snapshot.CompareAndSwap(nil, &snapshot)
	}
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !run.Fault("report") {
		s.take()
	}
	for s.snapshot.Load() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Write(*s.snapshot.Load())
}

func main() {
	run.Parse("report")
	s := &shop{orders: map[int]int{}, recorder: trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: 2 * time.Second, MaxBytes: 4 << 20})}
	run.Check(s.recorder.Start())
	go func() {
		for range time.Tick(2500 * time.Millisecond) {
			s.report()
		}
	}()
	profiles := http.NewServeMux()
	profiles.Handle("/debug/pprof/trace", s)
	run.Serve(profiles)
	http.HandleFunc("/order", s.watch(s.order))
	log.Fatal(http.ListenAndServe(*run.Listen, nil))
}
