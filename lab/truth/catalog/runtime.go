package catalog

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

func runtimeServices() []*Service {
	connServe := Site{Func: "net/http.(*conn).serve"} // where it became runnable may be the wait for the request
	return []*Service{
		{Name: "stw-stacks", Doc: "a watchdog prints the stacks of 4000 goroutines again and again: the world stands still", Proto: "http1", Load: slowOnlyLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*watched).compute", Cause: "stw",
				Injected: "a dump of all stacks, with 5 ms between two", Unmeasured: true, ShareMin: 0.4,
				Doubt: "a request that arrives while the world stands still is seen only afterwards; how long a dump takes is the machine's affair"},
			Fix: "no dumps", FixAtMost: 0.7, start: startWatched},
		{Name: "stw-memstats", Doc: "a metrics loop calls ReadMemStats without rest, four goroutines of it", Proto: "http1", Load: slowOnlyLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*metered).compute", Cause: "stw", OrCauses: []string{"sched", "cpu"},
				OrSites:  []Site{{Func: packagePath + ".work"}, {Func: packagePath + ".steps"}, {Func: packagePath + ".(*metered).compute"}},
				Injected: "ReadMemStats in four loops", Unmeasured: true, ShareMin: 0.2,
				Doubt: "each stop is short, so the rest of a request is the time to get going again, and its own computing"},
			Fix: "no ReadMemStats", start: startMetered},
		{Name: "gc-assist", Doc: "a large live heap of pointers, GOGC at 10, and handlers that allocate: they must help to mark", Proto: "http1", Load: slowOnlyLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*cache).fill", Cause: "gc-assist", OrCauses: []string{"gc-wait", "sched", "cpu"},
				Injected: "marking 400,000 objects over and over", Unmeasured: true, ShareMin: 0.2,
				Doubt: "assists, waits for the collector, Ps taken by its workers and the allocation itself share the time by the machine's speed"},
			Fix: "GOGC 10 -> 400", FixAtMost: 0.9, FixInTail: true, start: startCache},
		{Name: "gc-forced", Doc: "the handler forces a collection of a large heap and waits for it", Proto: "http1", Load: mixedLoad(1),
			Truth: Truth{Kind: "http1", Group: "(*cache).collect", Cause: "gc-wait", OrCauses: []string{"gc-assist", "stw", "sched"},
				Injected: "runtime.GC over 400,000 objects", ShareMin: 0.5, Unmeasured: true,
				Doubt: "the handler's goroutine sweeps, and starts and ends the cycle, itself"},
			Fix: "no forced collection", FixAtMost: 0.5, start: startCollect},
		{Name: "cpu-hogs", Doc: "twice as many computing goroutines as Ps, without any rest", Proto: "http1", Load: slowOnlyLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*hogs).ask", Cause: "sched", OrCauses: []string{"sched-poll"}, OrSites: []Site{connServe},
				Injected: "all Ps busy with loops of 10 ms a turn", Unmeasured: true, ShareMin: 0.6,
				Doubt: "only the wait after the poll is seen for sure: the client's latency is higher, by the poll gap"},
			Fix: "no hogs", FixAtMost: 0.3, start: startHogs},
		{Name: "gosched-loops", Doc: "forty goroutines that compute 200 us and yield, for ever", Proto: "http1", Load: slowOnlyLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*yielders).ask", Cause: "sched", OrCauses: []string{"sched-poll"}, OrSites: []Site{connServe},
				Injected: "a run queue of forty goroutines with 200 us each", Unmeasured: true, ShareMin: 0.5,
				Doubt: "as cpu-hogs"},
			Fix: "no loops", FixAtMost: 0.5, start: startYielders},
		{Name: "ticker-herd", Doc: "2000 goroutines wake at the same tick, each 100 ms, and compute 20 us each", Proto: "http1", Load: slowOnlyLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*herd).ask", Cause: "sched", OrCauses: []string{"sched-poll", "cpu"}, OrSites: []Site{connServe},
				Injected: "20 ms of queued computing each 100 ms, met by the slowest requests", Unmeasured: true, ShareMin: 0.1,
				Doubt: "only requests that meet the herd are slow: look at the bands above p90"},
			Fix: "no herd", start: startHerd},
		{Name: "cpu-std", Doc: "the handler compresses JSON: all computing is in the standard library", Proto: "http1", Load: mixedLoad(1),
			Truth: Truth{Kind: "http1", Group: "(*packed).send", Cause: "cpu", Injected: "compressing 256 KiB of JSON", ShareMin: 0.6, Unmeasured: true,
				Doubt: "it allocates, so part of it is the collector's; a request that is not preempted shows no frame of its handler"},
			Fix: "32 KiB instead of 256 KiB", FixAtMost: 0.5, start: startPacked},
	}
}

// steps computes about ten milliseconds in small steps and returns how long it
// was held up between them: a step that takes several times its length did not
// compute all the time.
func steps() (heldUp time.Duration) {
	const step = 100 * time.Microsecond
	for range 50 {
		t := time.Now()
		work()
		if d := time.Since(t); d > 3*step {
			heldUp += d - step
		}
	}
	return heldUp
}

// work is a fixed amount of computing, roughly 100 us.
//
//go:noinline
func work() {
	var x uint64 = 88172645463325252
	for range 60_000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	runtime.KeepAlive(x)
}

type watched struct{}

func startWatched(e *Env) (*Parts, error) {
	if !e.Fixed {
		for range 4000 {
			go sleeper(0)
		}
		go watch()
	}
	s := new(watched)
	return &Parts{HTTP: withFast(s.compute)}, nil
}

// sleeper makes a stack of some depth and waits at its end.
func sleeper(depth int) {
	if depth == 20 {
		select {}
	}
	sleeper(depth + 1)
}

func watch() {
	buf := make([]byte, 16<<20)
	for {
		runtime.Stack(buf, true) // truth: site stw-stacks
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *watched) compute(w http.ResponseWriter, _ *http.Request) { answer(w, steps()) }

type metered struct{}

func startMetered(e *Env) (*Parts, error) {
	if !e.Fixed {
		for range 4 {
			go meter()
		}
	}
	s := new(metered)
	return &Parts{HTTP: withFast(s.compute)}, nil
}

func meter() {
	var m runtime.MemStats
	for {
		runtime.ReadMemStats(&m) // truth: site stw-memstats
	}
}

func (s *metered) compute(w http.ResponseWriter, _ *http.Request) { answer(w, steps()) }

type object struct {
	next *object
	_    [7]uint64
}

type cache struct {
	mu   sync.Mutex
	live []*object
}

func startCache(e *Env) (*Parts, error) {
	debug.SetGCPercent(e.pickNumber(10, 400))
	s := new(cache)
	for range 200 {
		s.live = append(s.live, list(2000))
	}
	return &Parts{HTTP: withFast(s.fill)}, nil
}

//go:noinline
func list(n int) *object {
	var head *object
	for range n {
		head = &object{next: head} // truth: site gc-assist
	}
	return head
}

// fill replaces a part of the cache. It reports no blame, because no clock of the service measures the time that the collector
// took.
func (s *cache) fill(w http.ResponseWriter, _ *http.Request) {
	for range 4 {
		l := list(2000)
		s.mu.Lock()
		s.live = append(s.live[1:], l)
		s.mu.Unlock()
	}
	answer(w, 0)
}

func startCollect(e *Env) (*Parts, error) {
	s := new(cache)
	for range e.pickNumber(200, 0) {
		s.live = append(s.live, list(2000))
	}
	return &Parts{HTTP: withFast(s.collect)}, nil
}

func (s *cache) collect(w http.ResponseWriter, _ *http.Request) {
	if len(s.live) > 0 {
		runtime.GC() // truth: site gc-forced
	}
	answer(w, 0)
}

type hogs struct{}

func startHogs(e *Env) (*Parts, error) {
	if !e.Fixed {
		for range 2 * runtime.GOMAXPROCS(0) {
			go Hog()
		}
	}
	s := new(hogs)
	return &Parts{HTTP: withFast(s.ask)}, nil
}

// Hog computes without any rest.
func Hog() {
	for {
		spin(time.Hour)
	}
}

// ask yields twice on its way, as a handler does that hands work over.
func (s *hogs) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	runtime.Gosched() // truth: site cpu-hogs
	runtime.Gosched()
	answer(w, time.Since(t))
}

type yielders struct{}

func startYielders(e *Env) (*Parts, error) {
	if !e.Fixed {
		for range 40 {
			go yielder()
		}
	}
	s := new(yielders)
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func yielder() {
	for {
		spin(200 * time.Microsecond)
		runtime.Gosched()
	}
}

func (s *yielders) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	for range 2 {
		runtime.Gosched() // truth: site gosched-loops
	}
	answer(w, time.Since(t))
}

type herd struct{}

func startHerd(e *Env) (*Parts, error) {
	if !e.Fixed {
		for range 2000 {
			go tickTogether()
		}
	}
	s := new(herd)
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func tickTogether() {
	const interval = 100 * time.Millisecond
	for {
		time.Sleep(time.Until(time.Now().Truncate(interval).Add(interval)))
		spin(20 * time.Microsecond)
	}
}

// ask yields ten times: each yield
// is a chance to meet the herd.
func (s *herd) ask(w http.ResponseWriter, _ *http.Request) {
	var blamed time.Duration
	for range 10 {
		t := time.Now()
		runtime.Gosched() // truth: site ticker-herd
		if d := time.Since(t); d > 200*time.Microsecond {
			blamed += d
		}
	}
	answer(w, blamed)
}

type packed struct{ rows []map[string]any }

func startPacked(e *Env) (*Parts, error) {
	s := new(packed)
	for i := range e.pickNumber(256<<10, 32<<10) / 64 {
		s.rows = append(s.rows, map[string]any{"id": i, "name": "somebody", "amount": float64(i) * 1.25, "open": i%3 == 0})
	}
	return &Parts{HTTP: withFast(s.send)}, nil
}

func (s *packed) send(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	z := gzip.NewWriter(io.Discard)
	err := json.NewEncoder(z).Encode(s.rows) // truth: site cpu-std
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, time.Since(t))
}
