package catalog

import (
	"net/http"
	"runtime"
	"time"
)

func shapeServices() []*Service {
	return []*Service{
		{Name: "routes", Doc: "several routes under two layers of middleware; one of them sleeps", Proto: "http1",
			Load:  Load{Conns: 4, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "/orders/7", Weight: 1, Slow: true}, {Path: "/users/7", Weight: 1}, {Path: "/items", Weight: 1}}},
			Truth: Truth{Kind: "http1", Group: "(*shop).order", Cause: "sleep", Injected: "15 ms sleep in one of three routes", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.97},
			Fix:   "15 ms -> 2 ms", FixAtMost: 0.5, start: startShop},
		{Name: "two-listeners", Doc: "the same mux on two listeners; requests to the second one wait for a gate", Proto: "http1",
			Load:  Load{Conns: 4, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true, Listener: "internal"}, {Path: "/fast", Weight: 1}, {Path: "/fast", Weight: 1, Listener: "internal"}}},
			Truth: Truth{Kind: "http1", Group: "(*gated).ask", Cause: "sleep", Injected: "20 ms sleep on the internal listener", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.97},
			Fix:   "20 ms -> 2 ms", FixAtMost: 0.5, start: startGated},
		{Name: "timeout-handler", Doc: "http.TimeoutHandler: the handler that sleeps runs on another goroutine", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*inner).ask", Cause: "sleep", Via: []string{"select"}, Injected: "15 ms sleep under TimeoutHandler", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.96,
				Doubt: "the handler's function is not on the connection's goroutine"},
			Fix: "15 ms -> 2 ms", FixAtMost: 0.5, start: startInner},
		{Name: "middleware", Doc: "the sleep is in the middleware, before any route is chosen", Proto: "http1",
			Load: Load{Conns: 3, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "/orders/7", Weight: 1, Slow: true}, {Path: "/items", Weight: 1, Slow: true}}},
			Truth: Truth{Kind: "http1", Group: "auth.ServeHTTP", OrGroups: []string{"recovered.func1", "startAuth.recovered.func1"}, Cause: "sleep", Injected: "10 ms sleep in the middleware of all routes", LeastNS: 10e6, InjectedNS: 10e6, Share: 0.96,
				Doubt: "handlers behind the middleware never wait, so only the middleware's frame is seen"},
			Fix: "10 ms -> 1 ms", FixAtMost: 0.5, start: startAuth},
		{Name: "h2-sleep", Doc: "HTTP/2: handlers that sleep, many streams on one connection", Proto: "h2", Load: mixedLoad(6),
			Truth: Truth{Kind: "http2", Group: "(*napping).ask", Cause: "sleep", Injected: "15 ms sleep", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.97},
			Fix:   "15 ms -> 2 ms", FixAtMost: 0.5, start: startNapping},
		{Name: "open-loop", Doc: "a handler that sleeps, under an open loop with bursts", Proto: "http1", Load: openLoad(80),
			Truth: Truth{Kind: "http1", Group: "(*napping).ask", Cause: "sleep", Injected: "15 ms sleep", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.97},
			Fix:   "15 ms -> 2 ms", FixAtMost: 0.5, start: startNapping},
		{Name: "cpu-handler", Doc: "the handler computes, in a function of its own", Proto: "http1", Load: mixedLoad(1),
			Truth: Truth{Kind: "http1", Group: "(*report).compute", Cause: "cpu", Injected: "12 ms of computing", LeastNS: 12e6, InjectedNS: 12e6, Share: 0.97,
				Doubt: "a request that is not preempted shows no frame of its handler"},
			Fix: "12 ms -> 1 ms", FixAtMost: 0.5, start: startReport},
		{Name: "one-proc", Doc: "one P and four clients whose requests compute: each waits for the others' turns", Proto: "http1", Load: slowOnlyLoad(4), Procs: 1,
			Truth: Truth{Kind: "http1", Group: "(*report).halves", Cause: "sched", OrCauses: []string{"sched-poll", "cpu"}, OrSites: []Site{{Func: "net/http.(*conn).serve"}, {Func: packagePath + ".spin"}, {Func: packagePath + ".(*report).halves"}},
				Injected: "two times 2 ms of computing with a yield between, 4 clients for one P", InjectedNS: 4e6, ShareMin: 0.4, Unmeasured: true,
				Doubt: "part of the wait is before the poll, where the trace cannot see it"},
			Fix: "2 ms -> 200 us", FixAtMost: 0.6, start: startHalves},
		{Name: "healthy", Doc: "nothing is wrong: handlers compute some hundred microseconds", Proto: "http1",
			Load:  Load{Conns: 3, Rest: 4 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true}, {Path: "/fast", Weight: 1}}},
			Truth: Truth{Kind: "http1", Injected: "nothing", Doubt: "its requests never wait, so their handlers show on no stack"},
			Fix:   "nothing", start: startFine},
	}
}

type shop struct{ d time.Duration }

// recovered and auth are the two layers.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				panic(v)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

type auth struct {
	next http.Handler
	d    time.Duration
}

func (a auth) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.d > 0 {
		t := time.Now()
		time.Sleep(a.d) // truth: site middleware
		blame(w, time.Since(t))
	}
	a.next.ServeHTTP(w, r)
}

func startShop(e *Env) (*Parts, error) {
	s := &shop{e.pickDuration(15*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: recovered(auth{s.routes(), 0})}, nil
}

func startAuth(e *Env) (*Parts, error) {
	s := new(shop)
	return &Parts{HTTP: recovered(auth{s.plainRoutes(), e.pickDuration(10*time.Millisecond, time.Millisecond)})}, nil
}

func (s *shop) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", s.order)
	mux.HandleFunc("GET /users/{id}", s.user)
	mux.HandleFunc("GET /items", s.items)
	return mux
}

func (s *shop) plainRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", s.user)
	mux.HandleFunc("GET /items", s.items)
	return mux
}

func (s *shop) order(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	time.Sleep(s.d) // truth: site routes
	answer(w, time.Since(t))
}

func (s *shop) user(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("user\n")) }

func (s *shop) items(w http.ResponseWriter, _ *http.Request) {
	spin(100 * time.Microsecond)
	w.Write([]byte("items\n"))
}

type gated struct{ d time.Duration }

func startGated(e *Env) (*Parts, error) {
	s := &gated{e.pickDuration(20*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(fast), Extra: map[string]http.Handler{"internal": withFast(s.ask)}}, nil
}

func (s *gated) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	time.Sleep(s.d) // truth: site two-listeners
	answer(w, time.Since(t))
}

type inner struct{ d time.Duration }

func startInner(e *Env) (*Parts, error) {
	s := &inner{e.pickDuration(15*time.Millisecond, 2*time.Millisecond)}
	mux := http.NewServeMux()
	mux.Handle("/slow", http.TimeoutHandler(http.HandlerFunc(s.ask), 10*time.Second, "late"))
	mux.HandleFunc("/fast", fast)
	return &Parts{HTTP: mux}, nil
}

func (s *inner) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	time.Sleep(s.d) // truth: site timeout-handler
	answer(w, time.Since(t))
}

type napping struct{ d time.Duration }

func startNapping(e *Env) (*Parts, error) {
	s := &napping{e.pickDuration(15*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *napping) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	time.Sleep(s.d) // truth: site h2-sleep, site open-loop
	answer(w, time.Since(t))
}

type fine struct{}

func startFine(*Env) (*Parts, error) {
	s := new(fine)
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *fine) ask(w http.ResponseWriter, _ *http.Request) {
	spin(300 * time.Microsecond)
	answer(w, 0)
}

type report struct{ d time.Duration }

func startReport(e *Env) (*Parts, error) {
	s := &report{e.pickDuration(12*time.Millisecond, time.Millisecond)}
	return &Parts{HTTP: withFast(s.compute)}, nil
}

func (s *report) compute(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	spin(s.d) // truth: site cpu-handler
	answer(w, time.Since(t))
}

func startHalves(e *Env) (*Parts, error) {
	s := &report{e.pickDuration(2*time.Millisecond, 200*time.Microsecond)}
	return &Parts{HTTP: withFast(s.halves)}, nil
}

// startYielding is for faults that lie in where the service runs.
func startYielding(*Env) (*Parts, error) {
	return &Parts{HTTP: withFast((&report{2 * time.Millisecond}).halves)}, nil
}

func (s *report) halves(w http.ResponseWriter, _ *http.Request) {
	spin(s.d)
	runtime.Gosched() // truth: site one-proc
	spin(s.d)
	answer(w, 0)
}
