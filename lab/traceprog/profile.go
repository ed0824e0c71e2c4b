package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func profileScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "http1-profile", Doc: "HTTP/1.1 with a CPU profile beside: handlers compute in functions that no event names, between cheap calls that events do name", Run: http1Profile},
	}
}

// A countedConn counts bytes, as many services' listeners do. Its methods are what events show: each is the service's own
// innermost frame of a read or a write, and computes next to nothing.
type countedConn struct {
	net.Conn
	e *rig.Env
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.e.Count("bytes", int64(len(p)))
	return c.Conn.Write(p)
}

func (c *countedConn) Read(p []byte) (int, error) { return c.Conn.Read(p) }

type countedListener struct {
	net.Listener
	e *rig.Env
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{c, l.e}, nil
}

// search computes: about two thirds in scan, one third in decode, both leaf functions. Between them it sends to an auditor,
// which wakes a goroutine and so is an event.
type search struct {
	e      *rig.Env
	rows   []uint64
	audits chan int
}

func newSearch(e *rig.Env) *search {
	s := &search{e: e, rows: make([]uint64, 4096), audits: make(chan int, 64)}
	for i := range s.rows {
		s.rows[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	go func() {
		for range s.audits {
		}
	}()
	return s
}

//go:noinline
func (s *search) scan(rounds int) (n int) {
	for r := range rounds {
		for _, v := range s.rows {
			if (v^uint64(r)*0xff51afd7ed558ccd)>>57 == 5 {
				n++
			}
		}
	}
	return n
}

//go:noinline
func (s *search) decode(rounds int) (x uint64) {
	for range rounds {
		for _, v := range s.rows {
			x = (x ^ v) * 0xff51afd7ed558ccd
			x ^= x >> 33
		}
	}
	return x
}

//go:noinline
func (s *search) audit(n int) { s.audits <- n }

// clock adds the time since start to a count: the program's own measure of where its time went.
func (s *search) clock(name string, start time.Time) time.Time {
	end := time.Now()
	s.e.Count(name, int64(end.Sub(start)))
	return end
}

func (s *search) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	start := time.Now()
	n := s.scan(600)
	start = s.clock("ns scan", start)
	s.audit(n)
	start = s.clock("ns audit", start)
	x := s.decode(96)
	s.clock("ns decode", start)
	fmt.Fprintf(w, "%d %x\n", n, x)
}

func http1Profile(e *rig.Env) error {
	s := newSearch(e)
	defer close(s.audits)
	srv := httptest.NewUnstartedServer(s)
	srv.Listener = &countedListener{srv.Listener, e}
	srv.Start()
	defer srv.Close()
	c := keepAliveClient(nil)
	defer c.CloseIdleConnections()
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		return fmt.Errorf("starting the CPU profile: %w", err)
	}
	defer pprof.StopCPUProfile()
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(2, func(int) error {
			return rig.Pace(ctx, time.Millisecond, func() error {
				if err := get(c, srv.URL+"/search"); err != nil {
					return err
				}
				e.Count("requests", 1)
				return nil
			})
		})
	})
}
