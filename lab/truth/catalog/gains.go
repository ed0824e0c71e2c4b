package catalog

import (
	"net/http"
	"sync"
	"time"
)

// gainServices are services for which the gain of a change differs from the time that it
// removes.
func gainServices() []*Service {
	return []*Service{
		{Name: "near-siblings", Doc: "the handler waits for three goroutines, of which the slowest two are not far apart", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*gathering).gather", Cause: "sleep", Via: []string{"waitgroup"},
				Injected: "20 ms sleep on one of three goroutines, 8 ms on the next", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.98},
			Fix: "sleep 20 ms -> 1 ms: the next takes 8 ms", FixAtMost: 0.6, start: startGathering},
		{Name: "open-queue", Doc: "a mutex held over a sleep, under an open loop: a shorter hold makes the queue shorter by more", Proto: "http1",
			Load: Load{Conns: 8, Rate: 60, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true}}},
			Truth: Truth{Kind: "http1", Group: "(*counter).count", Cause: "sleep",
				Injected: "6 ms sleep under a mutex, 60 requests a second at random times", LeastNS: 6e6, InjectedNS: 6e6, Share: 0.97},
			Fix: "6 ms -> 3 ms", FixAtMost: 0.7, start: startCounter},
	}
}

type gathering struct{ d time.Duration }

func startGathering(e *Env) (*Parts, error) {
	s := &gathering{e.pickDuration(20*time.Millisecond, time.Millisecond)}
	return &Parts{HTTP: withFast(s.gather)}, nil
}

func (s *gathering) gather(w http.ResponseWriter, _ *http.Request) {
	var wg sync.WaitGroup
	var blamed time.Duration
	wg.Go(func() { time.Sleep(3 * time.Millisecond) })
	wg.Go(func() { blamed = s.slowest() })
	wg.Go(func() { time.Sleep(8 * time.Millisecond) })
	wg.Wait()
	answer(w, blamed)
}

func (s *gathering) slowest() time.Duration {
	t := time.Now()
	time.Sleep(s.d) // truth: site near-siblings
	return time.Since(t)
}

type counter struct {
	mu sync.Mutex
	d  time.Duration
}

func startCounter(e *Env) (*Parts, error) {
	s := &counter{d: e.pickDuration(6*time.Millisecond, 3*time.Millisecond)}
	return &Parts{HTTP: withFast(s.count)}, nil
}

func (s *counter) count(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.mu.Lock()
	s.serve()
	s.mu.Unlock()
	answer(w, time.Since(t))
}

func (s *counter) serve() {
	time.Sleep(s.d) // truth: site open-queue
}
