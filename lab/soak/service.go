package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/whylate/whylate/service"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/mark"
)

const (
	slowThreshold = 150 * time.Millisecond
	maxDisk       = 64 << 20
)

// faults are injected in turn into /order.
var faults = []string{"lock", "backend", "compute"}

// A sample has the service's measurements of itself.
type sample struct {
	Time              time.Time
	RSS, Live         uint64
	Goroutines, Files int
	CPU               time.Duration
	State             flight.State
}

// A leftover has what remains after Stop in addition to the state before Start.
type leftover struct {
	Goroutines, Files int
	Parts             []string
	Disk              int64
}

// serveUntilEOF runs the service until standard input ends, and then prints what remains.
func serveUntilEOF(dir, collector string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0") // before counting, because the poller's own files remain
	if err != nil {
		return err
	}
	goroutines, files := runtime.NumGoroutine(), openFiles()
	s := service.Start(service.Options{Flight: &flight.Options{
		Dir: dir, MaxDisk: maxDisk, Slow: slowThreshold, Factor: -1, Gap: 5 * time.Second, Freeze: 5 * time.Second, PerHour: -1, PerDay: -1,
		Upload: &flight.UploadOptions{URL: collector},
	}})
	rec := s.Flight()
	if rec == nil {
		return fmt.Errorf("the recorder did not start")
	}
	o := new(orders)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /list", func(w http.ResponseWriter, _ *http.Request) {
		done := make(chan []byte)
		go func() { done <- []byte(strings.Repeat("x", 512)) }()
		_, _ = w.Write(<-done)
	})
	mux.HandleFunc("GET /order", o.order)
	all := http.NewServeMux()
	all.Handle("/", mark.Handler(mux))
	all.HandleFunc("/fault", o.injectFault)
	all.HandleFunc("/sample", func(w http.ResponseWriter, _ *http.Request) {
		m := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(m)
		_ = json.NewEncoder(w).Encode(sample{
			Time: time.Now(), RSS: rss(), Live: m[0].Value.Uint64(), Goroutines: runtime.NumGoroutine(), Files: openFiles(), CPU: cpuTime(), State: rec.State(),
		})
	})
	srv := &http.Server{Handler: all}
	ended := make(chan struct{})
	go func() { _ = srv.Serve(ln); close(ended) }()
	fmt.Println("http://" + ln.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = srv.Close()
	<-ended
	s.Stop()
	var leftovers leftover
	for range 50 { // for connections' goroutines to end
		leftovers.Goroutines, leftovers.Files = runtime.NumGoroutine()-goroutines, openFiles()-(files-1) // the listener is closed
		if leftovers.Goroutines <= 0 && leftovers.Files <= 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	leftovers.Parts, _ = filepath.Glob(filepath.Join(dir, "*.part-*"))
	leftovers.Disk = dirSize(dir)
	return json.NewEncoder(os.Stdout).Encode(leftovers)
}

// orders is the route with the faults.
type orders struct {
	mu          sync.Mutex
	slowAnswers atomic.Int32 // number of requests that the backend will answer late
	compute     atomic.Int32
}

func (o *orders) order(w http.ResponseWriter, _ *http.Request) {
	o.mu.Lock()
	late := o.slowAnswers.Load() > 0 && o.slowAnswers.Add(-1) >= 0 // orders wait for the lock's holder
	o.mu.Unlock()
	if late {
		time.Sleep(400 * time.Millisecond)
	}
	if o.compute.Load() > 0 && o.compute.Add(-1) >= 0 {
		for end := cpuTime() + 250*time.Millisecond; cpuTime() < end; {
		}
	}
	_, _ = io.WriteString(w, "ok")
}

func (o *orders) injectFault(_ http.ResponseWriter, q *http.Request) {
	switch q.FormValue("name") {
	case "lock":
		o.mu.Lock()
		time.Sleep(300 * time.Millisecond)
		o.mu.Unlock()
	case "backend":
		o.slowAnswers.Store(3)
	case "compute":
		o.compute.Store(1)
	}
}

func openFiles() int {
	files, _ := os.ReadDir("/proc/self/fd")
	return len(files)
}

func rss() uint64 {
	text, _ := os.ReadFile("/proc/self/statm")
	var all, resident uint64
	_, _ = fmt.Sscan(string(text), &all, &resident)
	return resident * uint64(os.Getpagesize())
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
