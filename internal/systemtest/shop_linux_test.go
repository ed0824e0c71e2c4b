package systemtest_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/service"
	"github.com/whylate/whylate/service/debugz"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/mark"
	"github.com/whylate/whylate/service/tune"
)

// A shop is a service with a flight recorder, in a child process, with faults that the test injects.
type shop struct {
	mu           sync.Mutex
	orders       map[int]int
	stock        *item // a large heap for the garbage collector
	largeExports atomic.Bool
	fullCounts   atomic.Bool
}

type item struct {
	next *item
	name [6]*int
}

// order needs the lock.
func (s *shop) order(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	s.orders[len(s.orders)%1000]++
	s.mu.Unlock()
	io.WriteString(w, "ok\n")
}

// list computes a little, or much during the fault "freeze".
func (s *shop) list(w http.ResponseWriter, _ *http.Request) {
	n := 10_000
	if s.fullCounts.Load() {
		n = 1_000_000
	}
	fmt.Fprintln(w, s.sum(n))
}

func (s *shop) sum(n int) (sum int) {
	for i, x := 0, s.stock; i < n; i, x = i+1, x.next {
		sum += len(x.name)
	}
	return sum
}

// export allocates 64 KiB, or 16 MiB during the fault "gc".
func (s *shop) export(w http.ResponseWriter, _ *http.Request) {
	n := 64 << 10
	if s.largeExports.Load() {
		n = 16 << 20
	}
	fmt.Fprintln(w, len(allocate(n)))
}

// allocate allocates about this many bytes.
func allocate(bytes int) []*item {
	list := make([]*item, 0, bytes/64)
	for range cap(list) {
		list = append(list, new(item))
	}
	return list
}

// audit is the fault "lock": it sleeps with the lock held.
func (s *shop) audit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	time.Sleep(300 * time.Millisecond)
}

// collect is the fault "gc": it enables the garbage collector, which has a large heap to mark, while requests allocate much.
func (s *shop) collect() {
	s.largeExports.Store(true)
	debug.SetGCPercent(20)
	time.Sleep(500 * time.Millisecond)
	s.largeExports.Store(false)
	debug.SetGCPercent(-1)
}

// count is the fault "freeze": lists count the whole stock, under a quota that does not suffice.
func (s *shop) count() {
	s.fullCounts.Store(true)
	time.Sleep(1200 * time.Millisecond)
	s.fullCounts.Store(false)
}

// serveShop starts the shop, with its controls on another port, and prints both ports.
func serveShop(dir string) error {
	debug.SetGCPercent(-1)
	s := &shop{orders: map[int]int{}}
	for range 2 << 20 {
		s.stock = &item{next: s.stock}
	}
	svc := service.Start(service.Options{
		Logger: slog.New(slog.DiscardHandler),
		Tune:   &tune.Options{Procs: tune.ModeOff, Memory: tune.ModeOff, GC: tune.ModeOff},
		Flight: &flight.Options{Dir: dir, MinUnusual: minSlowLatency, MinAge: 5 * time.Second, Gap: recordingGap, PerHour: -1, PerDay: -1},
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /order", s.order)
	mux.HandleFunc("GET /list", s.list)
	mux.HandleFunc("GET /export", s.export)
	control := http.NewServeMux()
	control.Handle("/debug/flight", svc.Handler(debugz.Options{}))
	control.HandleFunc("POST /fault", func(_ http.ResponseWriter, r *http.Request) {
		switch r.FormValue("name") {
		case "lock":
			go s.audit()
		case "gc":
			go s.collect()
		case "freeze":
			go s.count()
		}
	})
	out := ""
	for _, h := range []http.Handler{mark.Handler(mux), control} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		go http.Serve(l, h)
		out += " " + strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	fmt.Println(out)
	return nil
}
