package catalog

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	netrpc "net/rpc"
	"runtime"
	"strings"
	"sync"
	"time"
)

// messageServices serve other protocols than HTTP and gRPC: a goroutine for each message that a connection's reader has read. Their
// clients are processes of their own.
func messageServices() []*Service {
	return []*Service{
		{Name: "rpc-calls", Doc: "net/rpc: the library starts a goroutine for each call, which runs the service's method", Proto: "none",
			Truth: Truth{Kind: "goroutine", Group: "(*Pricing).Quote", Cause: "sleep", Injected: "9 ms sleep in each call", LeastNS: 9e6, InjectedNS: 9e6, Share: 0.97},
			Fix:   "9 ms -> 1 ms", FixAtMost: 0.5, start: startPricing},
		{Name: "healthy-rpc", Doc: "net/rpc, whose method answers soon", Proto: "none",
			Truth: Truth{Kind: "goroutine", Injected: "nothing"}, Fix: "nothing", start: startQuickPricing},
		{Name: "own-protocol", Doc: "lines over TCP: a goroutine for each, which the connection's reader starts", Proto: "none",
			Truth: Truth{Kind: "goroutine", Group: "(*session).answer", Cause: "sleep", Injected: "9 ms sleep for each line", LeastNS: 9e6, InjectedNS: 9e6, Share: 0.97},
			Fix:   "9 ms -> 1 ms", FixAtMost: 0.5, start: startLines},
		{Name: "n-plus-one", Doc: "ten queries of a database, one after the other, from one line", Proto: "http1", Load: slowOnlyLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*cart).total", Cause: "network", Injected: "1.5 ms in the database, ten times", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.95},
			Fix:   "one query instead of ten", FixAtMost: 0.4, start: startCart},
		{Name: "two-queries", Doc: "two different queries of a database, one after the other", Proto: "http1", Load: slowOnlyLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*cart).checkout", Cause: "network", Injected: "9 ms in the database, twice", LeastNS: 18e6, InjectedNS: 18e6, Share: 0.95},
			Fix:   "9 ms -> 1 ms", FixAtMost: 0.5, start: startCheckout},
	}
}

// A Pricing is a service of net/rpc.
type Pricing struct {
	e *Env
	d time.Duration
}

func startPricing(e *Env) (*Parts, error) {
	return serveRPC(e, e.pickDuration(9*time.Millisecond, time.Millisecond))
}

func startQuickPricing(e *Env) (*Parts, error) { return serveRPC(e, 0) }

func serveRPC(e *Env, d time.Duration) (*Parts, error) {
	s := netrpc.NewServer()
	if err := s.Register(&Pricing{e, d}); err != nil {
		return nil, fmt.Errorf("registering the service: %w", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go s.Accept(ln)
	return &Parts{HTTP: noHTTP()}, e.startClient("call", ln.Addr().String())
}

// Quote is called over the network.
func (p *Pricing) Quote(_ int, price *int) error {
	t := time.Now()
	if p.d == 0 {
		runtime.Gosched() // an event, by which a trace shows who ran
	} else {
		time.Sleep(p.d) // truth: site rpc-calls
	}
	*price = 7
	p.e.recordWhole("call", t)
	return nil
}

type session struct {
	e  *Env
	d  time.Duration
	c  net.Conn
	mu sync.Mutex
}

func startLines(e *Env) (*Parts, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := e.pickDuration(9*time.Millisecond, time.Millisecond)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go (&session{e: e, d: d, c: c}).read()
		}
	}()
	return &Parts{HTTP: noHTTP()}, e.startClient("lines", ln.Addr().String())
}

func (s *session) read() {
	for lines := bufio.NewScanner(s.c); lines.Scan(); {
		go s.answer(lines.Text())
	}
}

func (s *session) answer(line string) {
	t := time.Now()
	time.Sleep(s.d) // truth: site own-protocol
	blamed := time.Since(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.c, strings.ToUpper(line))
	s.e.recordUnit("line", time.Since(t), blamed)
}

type cart struct {
	conns chan *lineConn
	items int
}

func startCart(e *Env) (*Parts, error) {
	s, err := openCart(e, 1500*time.Microsecond)
	if err != nil {
		return nil, err
	}
	s.items = e.pickNumber(10, 1)
	return &Parts{HTTP: withFast(s.total)}, nil
}

func startCheckout(e *Env) (*Parts, error) {
	s, err := openCart(e, e.pickDuration(9*time.Millisecond, time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &Parts{HTTP: withFast(s.checkout)}, nil
}

func openCart(e *Env, d time.Duration) (*cart, error) {
	addr, err := e.startServer("lines", d.String())
	if err != nil {
		return nil, err
	}
	s := &cart{conns: make(chan *lineConn, 4)}
	for range cap(s.conns) {
		c, err := lineDriver{addr}.Open("")
		if err != nil {
			return nil, err
		}
		s.conns <- c.(*lineConn)
	}
	return s, nil
}

func (s *cart) total(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	c := <-s.conns
	for i := range s.items {
		s.ask(c, fmt.Sprint("price of item ", i))
	}
	s.conns <- c
	answer(w, time.Since(t))
}

func (s *cart) checkout(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	c := <-s.conns
	s.ask(c, "stock")
	s.ask(c, "credit")
	s.conns <- c
	answer(w, time.Since(t))
}

// ask waits for an answer as any client of a protocol does that has one question at a time under way.
func (s *cart) ask(c *lineConn, query string) {
	fmt.Fprintln(c.c, query)
	c.r.ReadString('\n') // truth: site n-plus-one, site two-queries
}
