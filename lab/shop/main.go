// Command shop records a small shop of services that call each other over HTTP/1, HTTP/2 or gRPC, or by the messages of long streams of
// gRPC, in the same seconds:
//
//	gateway -> stock -> ledger, whose one lock is held for 3 ms or, with -fault gc, which allocates much
//	gateway -> price
//	audit   -> stock: another client of the same server
//	loner, which nobody of them calls, and which calls nobody
//
//	go run ./lab/shop -o DIR                      # gateway.trace and so on, truth.json
//	go run ./lab/shop -o DIR -whylate whylate     # shop.whylate, truth.json
//
// truth.json has each call twice: as the client measured it and as the server did, with the goroutine and the time by
// CLOCK_MONOTONIC, which all processes of a machine share.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/lab/internal/child"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
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
	Wall   int64  `json:"wall"` // the Unix time minus CLOCK_MONOTONIC, ns
}

func main() {
	role := flag.String("role", "", "run this service")
	peers := flag.String("peers", "", "URLs of the services that it calls")
	fault := flag.String("fault", "lock", "lock or gc")
	out := flag.String("o", ".", "write to this directory")
	d := flag.Duration("d", 500*time.Millisecond, "length of the recordings")
	rate := flag.Float64("rate", 120, "requests per second")
	protocol := flag.String("protocol", "http1", "http1, http2, grpc or stream: how they call each other")
	flying := flag.Int("flying", 1, "messages of a stream that a client sends before it has their answers")
	burst := flag.Int("burst", 1, "requests that arrive at once")
	idle := flag.Int("idle", 16, "idle connections of HTTP/1 that a service keeps for each other one")
	whylate := flag.String("whylate", "", "record all services into one file by this command")
	flag.Parse()
	run := func() error { return record(*out, *whylate, *fault, *protocol, *d, *rate, *burst, *idle, *flying) }
	if *role != "" {
		run = func() error { return serve(*role, strings.Fields(*peers), *fault, *protocol, *idle, *flying) }
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
	conns  map[string]*grpc.ClientConn // by address; nil for HTTP
	// messengers are by address; nil without streams.
	messengers map[string]*messenger
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

func (s *service) call(peer string) error {
	span := Span{ID: fmt.Sprintf("%s-%d", s.role, s.lastID.Add(1)), G: goroutine(), Begin: monotonic()}
	var err error
	if m := s.messengers[peer]; m != nil {
		err = m.call(span.ID)
	} else if conn := s.conns[peer]; conn != nil {
		err = conn.Invoke(context.Background(), callMethod, wrapperspb.String(span.ID), new(wrapperspb.StringValue))
	} else {
		err = s.get(peer+"/", span.ID)
	}
	span.End = monotonic()
	s.mu.Lock()
	s.log.Made = append(s.log.Made, span)
	s.mu.Unlock()
	return err
}

func (s *service) get(url, id string) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-Call", id)
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return err
}

// answer works for a call and logs that.
func (s *service) answer(id string, work func() error) error {
	span := Span{ID: id, G: goroutine(), Begin: monotonic()}
	err := work()
	span.End = monotonic()
	s.mu.Lock()
	s.log.Served = append(s.log.Served, span)
	s.mu.Unlock()
	return err
}

// handle adds a handler.
func (s *service) handle(path string, work func() error) {
	http.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if err := s.answer(r.Header.Get("X-Call"), work); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
}

const callMethod = "/shop.Shop/Call"

// A shopServer is the service shop.Shop.
type shopServer interface {
	call(id string) error
}

type workServer struct {
	service *service
	work    func() error
}

func (w *workServer) call(id string) error { return w.service.answer(id, w.work) }

var shopDesc = grpc.ServiceDesc{
	ServiceName: "shop.Shop", HandlerType: (*shopServer)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(srv any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		id := new(wrapperspb.StringValue)
		if err := decode(id); err != nil {
			return nil, err
		}
		return id, srv.(shopServer).call(id.GetValue())
	}}},
	Streams: []grpc.StreamDesc{messageStream},
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

func serve(role string, peers []string, fault, protocol string, idle, flying int) error {
	s := &service{role: role}
	transport := &http.Transport{MaxIdleConnsPerHost: idle}
	switch protocol {
	case "http2":
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	case "grpc", "stream":
		s.conns, s.messengers = map[string]*grpc.ClientConn{}, map[string]*messenger{}
		for _, p := range peers {
			conn, err := grpc.NewClient(p, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				return fmt.Errorf("connecting to %s: %w", p, err)
			}
			s.conns[p] = conn
			if protocol == "stream" {
				s.messengers[p] = newMessenger(conn, flying)
			}
		}
	}
	s.client = &http.Client{Transport: transport}
	book := new(ledger)
	var work func() error
	switch role {
	case "gateway":
		work = func() error { return checkout(s, peers) }
	case "audit", "stock":
		work = func() error { return s.call(peers[0]) }
	case "ledger":
		work = func() error {
			if fault == "gc" {
				book.allocate()
			} else {
				book.put()
			}
			return nil
		}
	default:
		work = func() error { jitter(2 * time.Millisecond); return nil }
	}
	s.handle("/", work)
	http.HandleFunc("/log", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.log.Wall = time.Now().UnixNano() - monotonic()
		_ = json.NewEncoder(w).Encode(s.log)
		s.log = Log{}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	url := "http://" + listener.Addr().String()
	called := url
	if s.conns != nil {
		calls, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listening: %w", err)
		}
		called = calls.Addr().String()
		server := grpc.NewServer()
		server.RegisterService(&shopDesc, &workServer{s, work})
		go func() { _ = server.Serve(calls) }()
	}
	fmt.Println(url, called)
	child.EndWithParent()
	server := &http.Server{Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server.Serve(listener)
}

func checkout(s *service, peers []string) error {
	return errors.Join(s.call(peers[1]), s.call(peers[0]))
}

func record(dir, whylate, fault, protocol string, d time.Duration, rate float64, burst, idle, flying int) error {
	urls, called := map[string]string{}, map[string]string{}
	for _, role := range []string{"ledger", "stock", "price", "gateway", "audit", "loner"} {
		peers := map[string]string{"stock": called["ledger"], "gateway": called["stock"] + " " + called["price"], "audit": called["stock"]}[role]
		addresses, end, err := child.Start("-role", role, "-peers", peers, "-fault", fault, "-protocol", protocol, "-idle", strconv.Itoa(idle), "-flying", strconv.Itoa(flying))
		if err != nil {
			return err
		}
		defer end()
		urls[role], called[role], _ = strings.Cut(addresses, " ")
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
				case <-time.After(time.Duration(rand.ExpFloat64() / (rate * factor) * float64(burst) * 1e9)):
				}
				for range burst {
					requests.Go(func() {
						if resp, err := client.Get(urls[role]); err == nil {
							_, _ = io.Copy(io.Discard, resp.Body)
							resp.Body.Close()
						}
					})
				}
			}
		})
	}
	defer load.Wait()
	defer close(done)
	time.Sleep(500 * time.Millisecond)
	for _, url := range urls {
		if _, err := child.Get(url + "/log"); err != nil {
			return err
		}
	}
	save := child.SaveTraces
	if whylate != "" {
		save = func(dir string, d time.Duration, urls map[string]string) error {
			return saveRecording(whylate, dir, d, urls)
		}
	}
	if err := save(dir, d, urls); err != nil {
		return err
	}
	truth := map[string]json.RawMessage{}
	for role, url := range urls {
		b, err := child.Get(url + "/log")
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

// saveRecording records all services into one file.
func saveRecording(whylate, dir string, d time.Duration, urls map[string]string) error {
	args := []string{"record", "-d", d.String(), "-o", filepath.Join(dir, "shop.whylate")}
	for _, role := range slices.Sorted(maps.Keys(urls)) {
		args = append(args, role+"="+urls[role])
	}
	if out, err := exec.Command(whylate, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("recording: %w: %s", err, out)
	}
	return nil
}
