// Service serves prices of instruments that it recomputes at intervals, as in the story pool: an update takes a goroutine an
// instrument, behind a semaphore.
//
//	GET /price?id=N
//
// The incident's semaphore has a place for each P at the start. With -follow it is service/pool's, which follows the
// container's limit, and service/tune sets the Ps. GET /freezes is the record of service/probe since the start. With -benchmark N it
// does not serve: N goroutines go through such a semaphore and append to a list under a mutex, as in the published benchmark, and
// it prints what that took.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	_ "net/http/pprof"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/whylate/whylate/service/pool"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve on")
	every := flag.Duration("every", 8*time.Second, "time between two updates")
	instruments := flag.Int("instruments", 300, "how many there are")
	work := flag.Int("work", 1000, "steps of one computation, each of some 0.3 us")
	follow := flag.Bool("follow", false, "let Ps and places follow the container's limit")
	benchmark := flag.Int("benchmark", 0, "go through the semaphore so often and end")
	flag.Parse()
	if *benchmark > 0 {
		through(*benchmark)
		return
	}
	if err := run(*listen, *every, *instruments, *work, *follow); err != nil {
		log.Fatal(err)
	}
}

func run(listen string, every time.Duration, instruments, work int, follow bool) error {
	if every <= 0 || instruments < 1 || work < 1 {
		return errors.New("-every, -instruments and -work must be above 0")
	}
	m := &market{prices: make([]float64, instruments), work: work}
	if follow {
		defer tune.Start(tune.Options{Procs: tune.ModeApply, Memory: tune.ModeObserve, GC: tune.ModeObserve, Logger: slog.Default()}).Stop()
		// One place is left for requests where there is more than one.
		places, err := pool.Follow(pool.Options{Size: func(l pool.Limit) int64 { return max(1, int64(l.CPUs)-1) }})
		if err != nil {
			return err
		}
		defer places.Close()
		m.acquire = func() { _ = places.Acquire(context.Background(), 1) } // fails only for a context that ends
		m.release = func() { places.Release(1) }
	} else {
		places := make(chan struct{}, runtime.GOMAXPROCS(0))
		m.acquire, m.release = func() { places <- struct{}{} }, func() { <-places }
	}
	go func() {
		for range time.Tick(every) {
			m.update()
		}
	}()
	var f freezes
	defer probe.Start(probe.Options{OnFreeze: f.add}).Stop()
	http.HandleFunc("GET /freezes", f.serve)
	http.HandleFunc("GET /price", m.price)
	http.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	return http.Serve(l, nil)
}

type market struct {
	acquire, release func()
	work             int

	mu     sync.RWMutex
	prices []float64
}

// update recomputes all prices.
func (m *market) update() {
	var all sync.WaitGroup
	for i := range m.prices {
		all.Go(func() {
			m.acquire()
			defer m.release()
			p := m.compute(i)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.prices[i] = p
		})
	}
	all.Wait()
}

// compute prices an option by a sum over steps.
func (m *market) compute(i int) float64 {
	p := float64(i)
	for n := range 20 * m.work {
		p += math.Exp(-float64(n%100)/50) / float64(1+n)
	}
	return p
}

func (m *market) price(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.FormValue("id"))
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err != nil || id < 0 || id >= len(m.prices) {
		http.Error(w, "no such instrument", http.StatusNotFound)
		return
	}
	fmt.Fprintln(w, m.prices[id])
}

// freezes keeps what the probe saw for as long as the service runs.
type freezes struct {
	mu  sync.Mutex
	all []freeze
}

type freeze struct {
	Start   time.Time     `json:"start"`
	End     time.Time     `json:"end"`
	Likely  time.Duration `json:"likely_ns"`
	Verdict string        `json:"verdict"`
}

func (f *freezes) add(x probe.Freeze) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, freeze{x.Start, x.End, x.Likely, string(x.Verdict)})
}

func (f *freezes) serve(w http.ResponseWriter, _ *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(f.all)
}

// through sends n goroutines through a semaphore with a place for each P.
func through(n int) {
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	var mu sync.Mutex
	var list []int
	var all sync.WaitGroup
	begin := time.Now()
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			mu.Lock()
			defer mu.Unlock()
			list = append(list, i)
		})
	}
	all.Wait()
	fmt.Println(int64(time.Since(begin)))
}
