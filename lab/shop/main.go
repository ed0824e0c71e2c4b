// Command shop records a small shop of services that call each other over HTTP/1, in the same seconds:
//
//	gateway -> stock -> ledger, whose one lock is held for 3 ms or, with -fault gc, which allocates much
//	gateway -> price
//	audit   -> stock: another client of the same server
//	loner, which nobody of them calls, and which calls nobody
//
//	go run ./lab/shop -o DIR     # gateway.trace and so on, truth.json
//
// truth.json has each call twice: as the client measured it and as the server did, with the goroutine and the time by
// CLOCK_MONOTONIC, which all processes of a machine share.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Span is what one goroutine did for a call.
type Span struct {
	ID    string `json:"id"`
	G     uint64 `json:"g"`
	Begin int64  `json:"begin"`
	End   int64  `json:"end"`
}

// A Log is the calls that a service made, and those that it served.
type Log struct {
	Made   []Span `json:"made"`
	Served []Span `json:"served"`
}

func main() {
	role := flag.String("role", "", "run this service")
	peers := flag.String("peers", "", "URLs of the services that it calls")
	fault := flag.String("fault", "lock", "lock or gc")
	out := flag.String("o", ".", "write to this directory")
	d := flag.Duration("d", 500*time.Millisecond, "length of the recordings")
	rate := flag.Float64("rate", 120, "requests per second")
	flag.Parse()
	run := func() error { return record(*out, *fault, *d, *rate) }
	if *role != "" {
		run = func() error { return serve(*role, strings.Fields(*peers), *fault) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

// A service is one of the processes.
type service struct {
	mu     sync.Mutex
	log    Log
	lastID atomic.Int64
	role   string
	client *http.Client
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// goroutine returns the number of the goroutine that calls it.
func goroutine() uint64 {
	buf := make([]byte, 40)
	text := string(buf[:runtime.Stack(buf, false)])
	n, _ := strconv.ParseUint(strings.Fields(text)[1], 10, 64)
	return n
}

func (s *service) call(url string) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	span := Span{ID: fmt.Sprintf("%s-%d", s.role, s.lastID.Add(1)), G: goroutine(), Begin: monotonic()}
	req.Header.Set("X-Call", span.ID)
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	span.End = monotonic()
	s.mu.Lock()
	s.log.Made = append(s.log.Made, span)
	s.mu.Unlock()
	return err
}

// handle adds a handler that logs what it serves.
func (s *service) handle(path string, work func() error) {
	http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		span := Span{ID: r.Header.Get("X-Call"), G: goroutine(), Begin: monotonic()}
		err := work()
		span.End = monotonic()
		s.mu.Lock()
		s.log.Served = append(s.log.Served, span)
		s.mu.Unlock()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
}

// A ledger has one lock.
type ledger struct {
	mu      sync.Mutex
	entries [][]byte
}

func (l *ledger) put() {
	l.mu.Lock()
	defer l.mu.Unlock()
	time.Sleep(3 * time.Millisecond)
}

func (l *ledger) allocate() {
	for range 200 {
		l.entries = append(l.entries, bytes.Repeat([]byte("x"), 10_000))
	}
	if len(l.entries) > 2000 {
		l.entries = nil
	}
}

func jitter(mean time.Duration) { time.Sleep(mean/2 + time.Duration(rand.Int64N(int64(mean)))) }

func serve(role string, peers []string, fault string) error {
	s := &service{role: role, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	book := new(ledger)
	switch role {
	case "gateway":
		s.handle("/", func() error { return checkout(s, peers) })
	case "audit":
		s.handle("/", func() error { return s.call(peers[0] + "/") })
	case "stock":
		s.handle("/", func() error { return s.call(peers[0] + "/") })
	case "ledger":
		s.handle("/", func() error {
			if fault == "gc" {
				book.allocate()
			} else {
				book.put()
			}
			return nil
		})
	default:
		s.handle("/", func() error { jitter(2 * time.Millisecond); return nil })
	}
	http.HandleFunc("/log", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(s.log)
		s.log = Log{}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(listener, nil)
}

func checkout(s *service, peers []string) error {
	return errors.Join(s.call(peers[1]+"/"), s.call(peers[0]+"/"))
}

func record(dir, fault string, d time.Duration, rate float64) error {
	urls := map[string]string{}
	for _, role := range []string{"ledger", "stock", "price", "gateway", "audit", "loner"} {
		peers := map[string]string{"stock": urls["ledger"], "gateway": urls["stock"] + " " + urls["price"], "audit": urls["stock"]}[role]
		url, end, err := start(role, peers, fault)
		if err != nil {
			return err
		}
		defer end()
		urls[role] = url
	}
	done := make(chan struct{})
	var load sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	for role, factor := range map[string]float64{"gateway": 1, "audit": 0.3, "loner": 1} {
		load.Go(func() {
			var requests sync.WaitGroup
			defer requests.Wait()
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Duration(rand.ExpFloat64() / (rate * factor) * 1e9)):
				}
				requests.Go(func() {
					if resp, err := client.Get(urls[role]); err == nil {
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				})
			}
		})
	}
	defer load.Wait()
	defer close(done)
	time.Sleep(500 * time.Millisecond)
	for _, url := range urls {
		if _, err := get(url + "/log"); err != nil {
			return err
		}
	}
	errs := make(chan error, len(urls))
	for role, url := range urls {
		go func() {
			b, err := get(fmt.Sprintf("%s/debug/pprof/trace?seconds=%g", url, d.Seconds()))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, role+".trace"), b, 0o666)
			}
			errs <- err
		}()
	}
	for range urls {
		if err := <-errs; err != nil {
			return err
		}
	}
	truth := map[string]json.RawMessage{}
	for role, url := range urls {
		b, err := get(url + "/log")
		if err != nil {
			return err
		}
		truth[role] = b
	}
	b, err := json.Marshal(truth)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "truth.json"), append(b, '\n'), 0o666)
}

// start starts a service and returns its address.
func start(role, peers, fault string) (url string, end func(), err error) {
	cmd := exec.Command(os.Args[0], "-role", role, "-peers", peers, "-fault", fault)
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("starting %s: %w", role, err)
	}
	end = func() { in.Close(); _ = cmd.Wait() }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		end()
		return "", nil, fmt.Errorf("%s did not print its address: %w", role, err)
	}
	return strings.TrimSpace(line), end, nil
}

func get(url string) ([]byte, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return b, err
}
