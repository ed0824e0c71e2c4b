package catalog

import (
	"context"
	"net/http"
	"runtime/trace"
	"time"
)

func backgroundServices() []*Service {
	return []*Service{
		{Name: "jobs", Doc: "no HTTP: a goroutine for each job", Proto: "none",
			Truth: Truth{Kind: "goroutine", Group: "(*jobs).process", Cause: "sleep", Injected: "12 ms sleep in each job", LeastNS: 12e6, InjectedNS: 12e6, Share: 0.97},
			Fix:   "12 ms -> 1 ms", FixAtMost: 0.5, start: startJobs},
		{Name: "queue-worker", Doc: "no HTTP: three workers take messages from a queue", Proto: "none",
			Truth: Truth{Kind: "loop", Group: "(*queue).work", Cause: "sleep", Injected: "8 ms sleep for each message", LeastNS: 8e6, InjectedNS: 8e6, Share: 0.95},
			Fix:   "8 ms -> 1 ms", FixAtMost: 0.5, start: startQueue},
		{Name: "tasks", Doc: "no HTTP: user tasks with regions; part of each runs on another goroutine", Proto: "none",
			Truth: Truth{Kind: "task", Group: "import", Cause: "sleep", Via: []string{"chan"}, Injected: "12 ms sleep on another goroutine", LeastNS: 12e6, InjectedNS: 12e6, Share: 0.96},
			Fix:   "12 ms -> 1 ms", FixAtMost: 0.6, start: startImports},
	}
}

// noHTTP answers the load generator's question whether the service is up.
func noHTTP() http.Handler { return http.NotFoundHandler() }

type jobs struct {
	e *Env
	d time.Duration
}

func startJobs(e *Env) (*Parts, error) {
	s := &jobs{e, e.pickDuration(12*time.Millisecond, time.Millisecond)}
	go s.dispatch()
	return &Parts{HTTP: noHTTP()}, nil
}

func (s *jobs) dispatch() {
	for range time.Tick(8 * time.Millisecond) {
		go s.process()
	}
}

func (s *jobs) process() {
	t := time.Now()
	spin(100 * time.Microsecond)
	b := time.Now()
	time.Sleep(s.d) // truth: site jobs
	blamed := time.Since(b)
	s.e.recordUnit("job", time.Since(t), blamed)
}

type queue struct {
	e    *Env
	msgs chan int
	d    time.Duration
}

func startQueue(e *Env) (*Parts, error) {
	s := &queue{e, make(chan int, 128), e.pickDuration(8*time.Millisecond, time.Millisecond)}
	for range 3 {
		go s.work()
	}
	go s.produce()
	return &Parts{HTTP: noHTTP()}, nil
}

func (s *queue) produce() {
	n := 0
	for range time.Tick(5 * time.Millisecond) {
		s.msgs <- n
		n++
	}
}

func (s *queue) work() {
	for range s.msgs {
		t := time.Now()
		spin(200 * time.Microsecond)
		b := time.Now()
		time.Sleep(s.d) // truth: site queue-worker
		blamed := time.Since(b)
		s.e.recordUnit("message", time.Since(t), blamed)
	}
}

type imports struct {
	e *Env
	d time.Duration
}

func startImports(e *Env) (*Parts, error) {
	s := &imports{e, e.pickDuration(12*time.Millisecond, time.Millisecond)}
	for range 2 {
		go s.loop()
	}
	return &Parts{HTTP: noHTTP()}, nil
}

func (s *imports) loop() {
	for {
		s.one()
		time.Sleep(3 * time.Millisecond)
	}
}

func (s *imports) one() {
	t := time.Now()
	ctx, task := trace.NewTask(context.Background(), "import")
	done := make(chan time.Duration)
	go s.fetch(ctx, done)
	blamed := <-done
	trace.WithRegion(ctx, "store", s.store)
	task.End()
	s.e.recordUnit("import", time.Since(t), blamed)
}

func (s *imports) fetch(ctx context.Context, done chan<- time.Duration) {
	defer trace.StartRegion(ctx, "fetch").End()
	t := time.Now()
	time.Sleep(s.d) // truth: site tasks
	done <- time.Since(t)
}

func (s *imports) store() { spin(500 * time.Microsecond) }
