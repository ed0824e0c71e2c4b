// Package demo has a small service that is slow for three known reasons, a load for it, and a judge
// that checks whether a report found these reasons. It needs only the machine's loopback network.
//
// The service and its load are two processes, because only a client outside the process measures true
// latencies.
package demo

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/mark"
)

// Sizes of the faults. They are large compared to the delays of a busy machine.
const (
	Backoff   = 80 * time.Millisecond // of the sleep
	SlowWrite = 25 * time.Millisecond // of the journal, in the store
	hogTime   = 10 * time.Millisecond // of each hog
	hogCount  = 6                     // for each batch, more than MaxProcs
)

// MaxProcs is the GOMAXPROCS for the service, so that the hogs outnumber its Ps on any machine.
const MaxProcs = 2

// service is the program with the faults.
type service struct {
	journal *journal
	prices  chan price
}

// SlowThreshold is the latency from which on the service records a request, if it has a directory for
// recordings.
const SlowThreshold = 60 * time.Millisecond

// Serve runs the service on a free port until ctx ends. It uses the store at the given address and
// calls ready with its URL once it is reachable. If recordings is not empty, it marks its requests and
// saves recordings of slow ones in that directory.
func Serve(ctx context.Context, store, recordings string, ready func(url string)) error {
	first, err := net.Dial("tcp", store)
	if err != nil {
		return fmt.Errorf("reaching the store: %w", err)
	}
	defer first.Close()
	second, err := net.Dial("tcp", store)
	if err != nil {
		return fmt.Errorf("reaching the store: %w", err)
	}
	defer second.Close()
	s := &service{journal: &journal{conn: first}, prices: make(chan price, 64)}
	go s.batch(second)

	mux := http.NewServeMux()
	mux.HandleFunc("/report", s.report)
	mux.HandleFunc("/order", s.order)
	mux.HandleFunc("/price", s.price)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("opening a port for the demo's service: %w", err)
	}
	srv := &http.Server{Handler: mux}
	if recordings != "" {
		// Without a bound on the cost, because a demo's machine may be busy. All requests to /report are slow, so a recording
		// follows five tails after the first one: 3.5 s have enough requests for an explanation.
		rec, err := flight.Start(flight.Options{Dir: recordings, Slow: SlowThreshold, Budget: -1, Tail: 700 * time.Millisecond})
		if err != nil {
			return err
		}
		defer rec.Stop()
		srv.Handler = mark.Handler(mux)
		mux.Handle("/debug/flight", rec)
	}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	ready("http://" + l.Addr().String())
	if err := srv.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}

// Fault 1: the handler waits for a goroutine that sleeps before it tries again.

// report serves a request of fault 1: another goroutine, which sleeps first, makes the answer.
func (s *service) report(w http.ResponseWriter, _ *http.Request) {
	result := make(chan string, 1)
	go s.fetch(result)
	io.WriteString(w, <-result)
}

func (s *service) fetch(result chan<- string) {
	s.backoff()
	result <- "report\n"
}

func (s *service) backoff() { time.Sleep(Backoff) }

// Fault 2: a lock is held across a slow write, so one slow write makes many requests slow.

// order serves a request of fault 2: it appends to the journal, and answers 502 if that fails.
func (s *service) order(w http.ResponseWriter, _ *http.Request) {
	if err := s.journal.append('j'); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	io.WriteString(w, "ordered\n")
}

type journal struct {
	mu   sync.Mutex
	conn net.Conn
}

// append writes a record and waits until the store has it. It holds the lock all the time.
func (j *journal) append(record byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.conn.Write([]byte{record}); err != nil {
		return fmt.Errorf("writing to the store: %w", err)
	}
	if _, err := j.conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("waiting for the store: %w", err)
	}
	return nil
}

// Fault 3: all requests pass through one goroutine, and background work uses the CPUs that this goroutine needs.

type price chan error

// price serves a request of fault 3: the goroutine that receives from prices answers it. An error of that goroutine becomes
// status 502.
func (s *service) price(w http.ResponseWriter, _ *http.Request) {
	p := make(price, 1)
	s.prices <- p
	if err := <-p; err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	io.WriteString(w, "42\n")
}

// batch serves requests until s.prices is closed, all that wait at a time with one round trip to the store.
func (s *service) batch(conn net.Conn) {
	for p := range s.prices {
		waiting := []price{p}
		for len(s.prices) > 0 {
			waiting = append(waiting, <-s.prices)
		}
		for range hogCount {
			go useCPU()
		}
		err := s.queryStore(conn)
		for _, p := range waiting {
			p <- err
		}
	}
}

// queryStore sends a query and reads the store's answer, which comes at once; but then the goroutine waits long for a CPU, which batch has filled
// with other work.
func (s *service) queryStore(conn net.Conn) error {
	if _, err := conn.Write([]byte{'p'}); err != nil {
		return fmt.Errorf("asking the store: %w", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("asking the store: %w", err)
	}
	return nil
}

// useCPU keeps a CPU busy for hogTime.
func useCPU() {
	sum := uint64(1)
	for begin := time.Now(); time.Since(begin) < hogTime; {
		for range 10_000 {
			sum = sum*6364136223846793005 + 1442695040888963407
		}
	}
	if sum == 0 {
		panic("unreachable: an odd number plus an odd increment never ends the sequence here")
	}
}

// Store is the database behind the service. It runs in the load's process, is slow with 'j' and fast
// with any other byte, and ends when its listener is closed.
func Store(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			var op [1]byte
			for {
				if _, err := io.ReadFull(conn, op[:]); err != nil {
					return
				}
				if op[0] == 'j' {
					time.Sleep(SlowWrite)
				}
				if _, err := conn.Write(op[:]); err != nil {
					return
				}
			}
		}()
	}
}
