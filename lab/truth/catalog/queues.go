package catalog

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

func queueServices() []*Service {
	return []*Service{
		{Name: "pipeline", Doc: "three stages joined by channels; the middle one sleeps", Proto: "http1", Load: mixedLoad(4),
			Truth: Truth{Kind: "http1", Group: "(*pipeline).submit", Cause: "sleep", Via: []string{"chan", "chan"},
				Injected: "12 ms sleep in the second of three stages, and the queue before it", LeastNS: 12e6, InjectedNS: 12e6, Share: 0.98},
			Fix: "12 ms -> 1 ms", FixAtMost: 0.5, start: startPipeline},
		{Name: "semaphore", Doc: "a channel semaphore of one slot where eight would do; a slot is held over a sleep", Proto: "http1", Load: slowOnlyLoad(4),
			Truth: Truth{Kind: "http1", Group: "(*semaphore).use", Cause: "sleep", Via: []string{"chan"},
				Injected: "10 ms sleep in the slot, 4 clients for one slot", LeastNS: 10e6, InjectedNS: 10e6, Share: 0.98},
			Fix: "1 slot -> 8 slots", FixAtMost: 0.5, start: startSemaphore},
		{Name: "single-worker", Doc: "one worker goroutine computes for everybody", Proto: "http1", Load: slowOnlyLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*worker).ask", Cause: "cpu", Via: []string{"chan"},
				Injected: "5 ms of computing on the one worker, 3 clients", LeastNS: 5e6, InjectedNS: 5e6, Share: 0.96},
			Fix: "5 ms -> 1 ms", FixAtMost: 0.6, start: startWorker},
		{Name: "worker-pool", Doc: "two workers behind a buffered channel, six clients", Proto: "http1", Load: slowOnlyLoad(6),
			Truth: Truth{Kind: "http1", Group: "(*workers).ask", Cause: "sleep", Via: []string{"chan"},
				Injected: "10 ms sleep on a worker, 6 clients for 2 workers", LeastNS: 10e6, InjectedNS: 10e6, Share: 0.98},
			Fix: "2 workers -> 8", FixAtMost: 0.6, start: startWorkers},
		{Name: "hub", Doc: "one goroutine batches requests and asks a remote server for all of them", Proto: "http1", Load: slowOnlyLoad(6),
			Truth: Truth{Kind: "http1", Group: "(*hub).ask", Cause: "network", Via: []string{"chan"},
				Injected: "8 ms until the remote server answers a batch", LeastNS: 8e6, InjectedNS: 8e6, Share: 0.97},
			Fix: "8 ms -> 1 ms", FixAtMost: 0.6, start: startHub},
		{Name: "back-pressure", Doc: "handlers put records into a full buffered channel, whose reader is slow; nobody waits for an answer", Proto: "http1", Load: slowOnlyLoad(4),
			Truth: Truth{Kind: "http1", Group: "(*auditLog).record", Cause: "sleep", Via: []string{"chan"},
				Injected: "the reader sleeps 5 ms for each record", InjectedNS: 5e6, Share: 0.97},
			Fix: "5 ms -> nothing", FixAtMost: 0.5, start: startAuditLog},
		{Name: "actor-select", Doc: "one goroutine owns the state and serves reads and slow writes by select", Proto: "http1",
			Load: Load{Conns: 4, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 3, Slow: true}, {Path: "/write", Weight: 1}}},
			Truth: Truth{Kind: "http1", Group: "(*actor).read", Cause: "sleep", Via: []string{"chan"},
				Injected: "15 ms sleep of the owner for each write, met by reads", InjectedNS: 15e6, Share: 0.98},
			Fix: "15 ms -> 1 ms", FixAtMost: 0.5, FixInTail: true, start: startActor},
	}
}

// job is a piece of work that a request waits for.
type job struct {
	submitted time.Time
	blamed    time.Duration
	done      chan struct{}
}

type pipeline struct {
	parse, enrich, encode chan *job
	d                     time.Duration
}

func startPipeline(e *Env) (*Parts, error) {
	s := &pipeline{make(chan *job), make(chan *job), make(chan *job), e.pickDuration(12*time.Millisecond, time.Millisecond)}
	go s.parses()
	go s.enriches()
	go s.encodes()
	return &Parts{HTTP: withFast(s.submit)}, nil
}

func (s *pipeline) submit(w http.ResponseWriter, _ *http.Request) {
	j := &job{submitted: time.Now(), done: make(chan struct{})}
	s.parse <- j
	<-j.done
	answer(w, j.blamed)
}

func (s *pipeline) parses() {
	for j := range s.parse {
		s.enrich <- j
	}
}

func (s *pipeline) enriches() {
	for j := range s.enrich {
		time.Sleep(s.d) // truth: site pipeline
		j.blamed = time.Since(j.submitted)
		s.encode <- j
	}
}

func (s *pipeline) encodes() {
	for j := range s.encode {
		spin(50 * time.Microsecond)
		close(j.done)
	}
}

type semaphore struct {
	slots chan struct{}
	d     time.Duration
}

func startSemaphore(e *Env) (*Parts, error) {
	s := &semaphore{make(chan struct{}, e.pickNumber(1, 8)), 10 * time.Millisecond}
	return &Parts{HTTP: withFast(s.use)}, nil
}

func (s *semaphore) use(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.slots <- struct{}{}
	time.Sleep(s.d) // truth: site semaphore
	<-s.slots
	answer(w, time.Since(t))
}

type worker struct {
	jobs chan *job
	d    time.Duration
}

func startWorker(e *Env) (*Parts, error) {
	s := &worker{make(chan *job), e.pickDuration(5*time.Millisecond, time.Millisecond)}
	go s.work()
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *worker) ask(w http.ResponseWriter, _ *http.Request) {
	j := &job{submitted: time.Now(), done: make(chan struct{})}
	s.jobs <- j
	<-j.done
	answer(w, time.Since(j.submitted))
}

func (s *worker) work() {
	for j := range s.jobs {
		spin(s.d) // truth: site single-worker
		close(j.done)
	}
}

type workers struct {
	jobs chan *job
	d    time.Duration
}

func startWorkers(e *Env) (*Parts, error) {
	s := &workers{make(chan *job, 64), 10 * time.Millisecond}
	for range e.pickNumber(2, 8) {
		go s.work()
	}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *workers) ask(w http.ResponseWriter, _ *http.Request) {
	j := &job{submitted: time.Now(), done: make(chan struct{})}
	s.jobs <- j
	<-j.done
	answer(w, time.Since(j.submitted))
}

func (s *workers) work() {
	for j := range s.jobs {
		time.Sleep(s.d) // truth: site worker-pool
		close(j.done)
	}
}

type hub struct {
	in   chan *job
	conn net.Conn
	r    *bufio.Reader
}

func startHub(e *Env) (*Parts, error) {
	addr, err := e.startServer("lines", e.pickDuration(8*time.Millisecond, time.Millisecond).String())
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &hub{make(chan *job, 64), conn, bufio.NewReader(conn)}
	go s.run()
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *hub) ask(w http.ResponseWriter, _ *http.Request) {
	j := &job{submitted: time.Now(), done: make(chan struct{})}
	s.in <- j
	<-j.done
	answer(w, time.Since(j.submitted))
}

// run collects the queued jobs, makes one round trip, and answers all.
func (s *hub) run() {
	for {
		batch := []*job{<-s.in}
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

func (s *hub) roundTrip() error {
	if _, err := s.conn.Write([]byte("batch\n")); err != nil {
		return err
	}
	_, err := s.r.ReadString('\n') // truth: site hub
	return err
}

type actor struct {
	reads, writes chan *job
	d             time.Duration
}

func startActor(e *Env) (*Parts, error) {
	s := &actor{make(chan *job), make(chan *job), e.pickDuration(15*time.Millisecond, time.Millisecond)}
	go s.own()
	mux := withFast(s.read)
	mux.HandleFunc("/write", s.write)
	return &Parts{HTTP: mux}, nil
}

func (s *actor) own() {
	for {
		select {
		case j := <-s.reads:
			close(j.done)
		case j := <-s.writes:
			s.store()
			close(j.done)
		}
	}
}

func (s *actor) store() {
	time.Sleep(s.d) // truth: site actor-select
}

func (s *actor) read(w http.ResponseWriter, _ *http.Request) {
	j := &job{submitted: time.Now(), done: make(chan struct{})}
	s.reads <- j
	<-j.done
	answer(w, time.Since(j.submitted))
}

func (s *actor) write(w http.ResponseWriter, _ *http.Request) {
	j := &job{submitted: time.Now(), done: make(chan struct{})}
	s.writes <- j
	<-j.done
	answer(w, time.Since(j.submitted))
}

type auditLog struct {
	records chan int
	d       time.Duration
}

func startAuditLog(e *Env) (*Parts, error) {
	s := &auditLog{make(chan int, 8), e.pickDuration(5*time.Millisecond, 0)}
	go s.write()
	return &Parts{HTTP: withFast(s.record)}, nil
}

func (s *auditLog) record(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.records <- 1
	answer(w, time.Since(t))
}

func (s *auditLog) write() {
	for range s.records {
		time.Sleep(s.d) // truth: site back-pressure
	}
}
