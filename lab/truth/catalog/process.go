package catalog

import (
	"bytes"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

func processServices() []*Service {
	return []*Service{
		{Name: "cond-child", Doc: "the handler waits on a Cond until a child process has converted its file", Proto: "http1",
			Load: Load{Conns: 2, Rest: 5 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true}, {Path: "/fast", Weight: 1}}},
			Truth: Truth{Kind: "http1", Group: "(*converter).convert", Cause: "syscall", Via: []string{"cond"},
				Injected: "a child process that sleeps 25 ms", LeastNS: 25e6, InjectedNS: 25e6, Share: 0.98},
			Fix: "25 ms -> 1 ms", FixAtMost: 0.8, start: startConverter},
		{Name: "cond-broadcast", Doc: "as cond-child, but new work is announced on the same Cond: waiting requests are woken for nothing", Proto: "http1",
			Load: Load{Conns: 2, Rest: 5 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true}, {Path: "/fast", Weight: 1}}},
			Truth: Truth{Kind: "http1", Group: "(*converter).convert", Cause: "syscall", Via: []string{"cond"},
				Injected: "a child process that sleeps 25 ms", LeastNS: 25e6, InjectedNS: 25e6, Share: 0.98,
				Doubt: "a wait that was ended for nothing goes on: its waker is not its cause"},
			Fix: "25 ms -> 1 ms", FixAtMost: 0.8, start: startBroadcast},
		{Name: "exec-child", Doc: "the handler runs a child process itself", Proto: "http1",
			Load: Load{Conns: 2, Rest: 5 * time.Millisecond, Paths: []Path{{Path: "/inline", Weight: 1, Slow: true}, {Path: "/fast", Weight: 1}}},
			Truth: Truth{Kind: "http1", Group: "(*converter).inline", Cause: "syscall",
				Injected: "a child process that sleeps 25 ms", LeastNS: 25e6, InjectedNS: 25e6, Share: 0.98},
			Fix: "25 ms -> 1 ms", FixAtMost: 0.8, start: startConverter},
	}
}

// converter receives work by a channel; requests wait for the results on the Cond. With broadcast,
// new work is announced on the Cond as well, so that each announcement wakes waiting requests for
// nothing.
type converter struct {
	mu        sync.Mutex
	cond      *sync.Cond
	todo      []*conversion
	ready     chan struct{}
	broadcast bool
	self      string
	d         time.Duration
}

type conversion struct{ done bool }

func startConverter(e *Env) (*Parts, error) { return newConverter(e, false) }

func startBroadcast(e *Env) (*Parts, error) { return newConverter(e, true) }

func newConverter(e *Env, broadcast bool) (*Parts, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	s := &converter{ready: make(chan struct{}, 64), broadcast: broadcast, self: self, d: e.pickDuration(25*time.Millisecond, time.Millisecond)}
	s.cond = sync.NewCond(&s.mu)
	for range 2 {
		go s.work()
	}
	mux := withFast(s.convert)
	mux.HandleFunc("/inline", s.inline)
	return &Parts{HTTP: mux}, nil
}

func (s *converter) convert(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	c := new(conversion)
	s.mu.Lock()
	s.todo = append(s.todo, c)
	if s.broadcast {
		s.cond.Broadcast()
	} else {
		s.ready <- struct{}{}
	}
	for !c.done {
		s.cond.Wait()
	}
	s.mu.Unlock()
	answer(w, time.Since(t))
}

// inline converts on the request's own goroutine.
func (s *converter) inline(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	exec.Command(s.self, PeerVerb, "sleep", s.d.String()).Run() // truth: site exec-child
	answer(w, time.Since(t))
}

func (s *converter) work() {
	for {
		if !s.broadcast {
			<-s.ready
		}
		s.mu.Lock()
		for len(s.todo) == 0 {
			s.cond.Wait()
		}
		c := s.todo[0]
		s.todo = s.todo[1:]
		s.mu.Unlock()
		s.run()
		s.mu.Lock()
		c.done = true
		s.cond.Broadcast()
		s.mu.Unlock()
	}
}

func (s *converter) run() {
	exec.Command(s.self, PeerVerb, "sleep", s.d.String()).Run() // truth: site cond-child, site cond-broadcast
}

type logged struct {
	log  *log.Logger
	line string
}

func startLogged(e *Env) (*Parts, error) {
	cmd, in, _, err := e.startProcess("drain", e.pickDuration(4*time.Millisecond, 0).String())
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	e.peers, e.stdin = append(e.peers, cmd), append(e.stdin, in)
	e.mu.Unlock()
	s := &logged{log.New(in, "", log.LstdFlags), string(bytes.Repeat([]byte("x"), 8<<10))}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *logged) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.note()
	answer(w, time.Since(t))
}

func (s *logged) note() {
	s.log.Println(s.line) // truth: site slow-pipe
}
