package catalog

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"time"

	"google.golang.org/grpc"

	"github.com/whylate/whylate/lab/truth/wire"
)

func schedulingServices() []*Service {
	return []*Service{
		{Name: "hub-late", Doc: "one goroutine hands requests on to a server, another reads its answers, and computing goroutines take all Ps", Proto: "http1", Load: slowOnlyLoad(6), Procs: 2,
			Truth: Truth{Kind: "http1", Group: "(*timestamps).ask", Cause: "sched", OrCauses: []string{"sched-poll"}, Via: []string{"chan"},
				OrSites:  []Site{{Func: packagePath + ".(*timestamps).receive"}, {Func: packagePath + ".(*timestamps).roundTrip"}},
				Injected: "three times the wait for a P behind loops of 10 ms a turn: the goroutine that sends, the one that reads, and the first again", Unmeasured: true, ShareMin: 0.4,
				Doubt: "the handler's own goroutine waits for a P as well, in the end"},
			Fix: "no loops", FixAtMost: 0.3, start: startTimestamps},
		{Name: "long-runs", Doc: "each 150 ms every P computes for 40 ms without a pause", Proto: "http1", Load: slowOnlyLoad(2), Procs: 2,
			Truth: Truth{Kind: "http1", Group: "(*reindexed).ask", Cause: "sched", OrCauses: []string{"sched-poll", "cpu"}, OrSites: []Site{{Func: "net/http.(*conn).serve"}},
				Injected: "40 ms of computing on all Ps each 150 ms, met by the slowest requests", Unmeasured: true, ShareMin: 0.1,
				Doubt: "only requests that meet it are slow: look at the bands above p90"},
			Fix: "no computing", start: startReindexed},
		{Name: "few-ps", Doc: "one P where there are two CPUs and more, and four clients whose requests compute", Proto: "http1", Load: slowOnlyLoad(4), Procs: 1, Place: &Place{OfCPUs: 2},
			Truth: Truth{Kind: "http1", Group: "(*report).halves", Cause: "sched", OrCauses: []string{"sched-poll", "cpu"}, Site: Site{Func: packagePath + ".(*report).halves"}, OrSites: computingSites(),
				Injected: "GOMAXPROCS is 1; each request computes for two times 2 ms with a yield between", InjectedNS: 4e6, ShareMin: 0.4, Unmeasured: true,
				Doubt: "part of the wait is before the poll, where the trace cannot see it"},
			Fix: "GOMAXPROCS as the runtime sets it", FixAtMost: 0.85, start: startYielding},
		{Name: "many-ps", Doc: "eight Ps on one CPU, and six clients whose requests compute", Proto: "http1", Load: slowOnlyLoad(6), Procs: 8, Place: &Place{OfCPUs: 2, CPUs: 1},
			Truth: Truth{Kind: "http1", Group: "(*report).halves", Cause: "cpu", OrCauses: []string{"sched", "sched-wake", "sched-poll"}, Site: Site{Func: packagePath + ".(*report).halves"}, OrSites: computingSites(),
				Injected: "GOMAXPROCS is 8, affinity leaves one CPU; each request computes for two times 2 ms with a yield between", InjectedNS: 4e6, ShareMin: 0.4, Unmeasured: true,
				Doubt: "a thread that waits for its CPU looks like one that computes"},
			Fix: "all CPUs, GOMAXPROCS as the runtime sets it", FixAtMost: 0.85, start: startYielding},
		{Name: "throttled", Doc: "four Ps on a CPU quota of a half, and four clients whose requests compute", Proto: "http1", Load: slowOnlyLoad(4), Procs: 4, Place: &Place{QuotaCPUs: 0.5},
			Truth: Truth{Kind: "http1", Group: "(*report).halves", Cause: "throttle", OrCauses: []string{"cpu"}, Site: Site{Func: packagePath + ".(*report).halves"}, OrSites: computingSites(),
				Injected: "a CPU quota of 50 ms each 100 ms; each request computes for two times 2 ms with a yield between", InjectedNS: 4e6, ShareMin: 0.3, Unmeasured: true,
				Doubt: "what a short request computes may be more than it stands still"},
			Fix: "no quota, GOMAXPROCS as the runtime sets it", FixAtMost: 0.85, FixInTail: true, start: startYielding},
		{Name: "load-inside", Doc: "the clients run in the server's own process", Proto: "none",
			Truth: Truth{Kind: "http1", Group: "(*visited).ask", Cause: "sleep", Injected: "8 ms sleep in the handler", LeastNS: 8e6, InjectedNS: 8e6, Share: 0.97},
			Fix:   "8 ms -> 1 ms", FixAtMost: 0.5, start: startVisited},
		{Name: "healthy-computing", Doc: "nothing is wrong: handlers compute 2 ms each, at a load well below what the machine can do", Proto: "http1", Load: openLoad(60),
			Truth: healthy("http1"), Fix: "nothing", start: startComputing},
		{Name: "healthy-idle", Doc: "nothing is wrong: hardly anybody asks", Proto: "http1", Load: Load{Conns: 1, Rest: 100 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true}}},
			Truth: healthy("http1"), Fix: "nothing", start: startFine},
		{Name: "healthy-grpc", Doc: "nothing is wrong: gRPC calls that compute a little", Proto: "grpc", Load: Load{Conns: 3, Rest: 4 * time.Millisecond, Paths: []Path{{Path: "Slow", Weight: 1, Slow: true}, {Path: "Fast", Weight: 1}}},
			Truth: healthy("grpc"), Fix: "nothing", start: startQuickRPC},
		{Name: "healthy-h2", Doc: "nothing is wrong: HTTP/2 handlers that compute a little", Proto: "h2", Load: Load{Conns: 4, Rest: 4 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true}, {Path: "/fast", Weight: 1}}},
			Truth: healthy("http2"), Fix: "nothing", start: startFine},
		{Name: "healthy-crowd", Doc: "nothing is wrong: 2000 goroutines tick once a second, each at its own time", Proto: "http1",
			Load:  Load{Conns: 3, Rest: 4 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true}, {Path: "/fast", Weight: 1}}},
			Truth: healthy("http1"), Fix: "nothing", start: startCrowd},
	}
}

// computingSites are where requests that compute in two halves are seen to run, and to wait for their turn.
func computingSites() []Site {
	return []Site{{Func: "net/http.(*conn).serve"}, {Func: packagePath + ".spin"}}
}

// healthy is the truth about a service with nothing wrong.
func healthy(kind string) Truth {
	return Truth{Kind: kind, Injected: "nothing", Doubt: "its requests never wait, so their handlers may show on no stack"}
}

// timestamps asks a server for all who wait, as the client of a timestamp service does.
type timestamps struct {
	in      chan *job
	replies chan error
	conn    net.Conn
}

func startTimestamps(e *Env) (*Parts, error) {
	addr, err := e.startServer("lines", "100us")
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &timestamps{make(chan *job, 64), make(chan error), conn}
	go s.dispatch()
	go s.receive()
	if !e.Fixed {
		for range 2 * runtime.GOMAXPROCS(0) {
			go Hog()
		}
	}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *timestamps) ask(w http.ResponseWriter, _ *http.Request) {
	j := &job{submitted: time.Now(), done: make(chan struct{})}
	s.in <- j
	<-j.done
	answer(w, time.Since(j.submitted))
}

func (s *timestamps) dispatch() {
	for j := range s.in { // truth: site hub-late
		batch := []*job{j}
		for gathering := true; gathering; {
			select {
			case j := <-s.in:
				batch = append(batch, j)
			default:
				gathering = false
			}
		}
		if s.roundTrip() != nil {
			return
		}
		for _, j := range batch {
			close(j.done)
		}
	}
}

func (s *timestamps) roundTrip() error {
	if _, err := io.WriteString(s.conn, "batch\n"); err != nil {
		return err
	}
	return <-s.replies
}

func (s *timestamps) receive() {
	for r := bufio.NewReader(s.conn); ; {
		_, err := r.ReadString('\n')
		s.replies <- err
		if err != nil {
			return
		}
	}
}

type reindexed struct{}

func startReindexed(e *Env) (*Parts, error) {
	if !e.Fixed {
		for range runtime.GOMAXPROCS(0) {
			go reindex()
		}
	}
	s := new(reindexed)
	return &Parts{HTTP: withFast(s.ask)}, nil
}

// reindex computes at the same time on every P.
func reindex() {
	const interval = 150 * time.Millisecond
	for {
		time.Sleep(time.Until(time.Now().Truncate(interval).Add(interval)))
		spin(40 * time.Millisecond)
	}
}

// ask is as that of ticker-herd: each hand-over is a chance to meet the loops.
func (s *reindexed) ask(w http.ResponseWriter, _ *http.Request) {
	var blamed time.Duration
	for range 10 {
		t := time.Now()
		runtime.Gosched() // truth: site long-runs
		if d := time.Since(t); d > 200*time.Microsecond {
			blamed += d
		}
	}
	answer(w, blamed)
}

type visited struct {
	e *Env
	d time.Duration
}

func startVisited(e *Env) (*Parts, error) {
	s := &visited{e, e.pickDuration(8*time.Millisecond, time.Millisecond)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go http.Serve(ln, http.HandlerFunc(s.ask))
	for range 3 {
		go s.visit("http://" + ln.Addr().String())
	}
	return &Parts{HTTP: noHTTP()}, nil
}

func (s *visited) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	time.Sleep(s.d) // truth: site load-inside
	blame(w, time.Since(t))
	io.WriteString(w, "done\n")
}

func (s *visited) visit(url string) {
	for {
		t := time.Now()
		res, err := http.Get(url)
		if err != nil {
			return
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if blamed, err := time.ParseDuration(res.Header.Get(wire.Blamed) + "ns"); err == nil {
			s.e.recordUnit("visit", time.Since(t), blamed)
		}
		time.Sleep(time.Millisecond)
	}
}

func startComputing(*Env) (*Parts, error) {
	return &Parts{HTTP: withFast(func(w http.ResponseWriter, _ *http.Request) {
		spin(2 * time.Millisecond)
		answer(w, 0)
	})}, nil
}

type quickRPC struct{}

func startQuickRPC(*Env) (*Parts, error) { return &Parts{GRPC: quickRPC{}}, nil }

func (quickRPC) Slow(_ context.Context, in *wire.Text) (*wire.Text, error) {
	spin(300 * time.Microsecond)
	return in, nil
}

func (quickRPC) Fast(_ context.Context, in *wire.Text) (*wire.Text, error) { return in, nil }

func (quickRPC) Stream(*wire.Text, grpc.ServerStream) error { return nil }

func startCrowd(e *Env) (*Parts, error) {
	for range 2000 {
		go tickAlone()
	}
	return startFine(e)
}

func tickAlone() {
	time.Sleep(rand.N(time.Second))
	for range time.Tick(time.Second) {
		spin(5 * time.Microsecond)
	}
}
