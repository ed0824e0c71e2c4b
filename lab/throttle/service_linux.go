package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/trace"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
)

// kinds are the services. Those with a handler receive load from the parent.
var kinds = map[string]func() http.HandlerFunc{
	"http":   handleHTTP,   // two milliseconds of work a request
	"light":  handleLight,  // a tenth of a millisecond of work after a wait of five
	"gc":     handleGC,     // garbage collection nearly all the time
	"spin":   startSpin,    // a busy loop for each P
	"one":    startOne,     // one busy loop and a ticker of 100 ms
	"batch":  startBatch,   // 30 ms of work every 100 ms, by a ticker
	"bursts": startBursts,  // 30 ms of work on all Ps at once every 100 ms
	"ticks":  startTickers, // a thousand tickers of 100 ms
}

func isKind(kind string) bool { return kinds[kind] != nil }

func kindList() string {
	var names []string
	for k := range kinds {
		names = append(names, k)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// sink prevents the compiler from removing work.
var sink atomic.Uint64

// compute needs about n/1000 milliseconds of CPU time. It counts iterations instead of time, so that a quota does not reduce
// the work.
func compute(n int) {
	x := uint64(n) | 88172645463325252
	for range n * 600 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	sink.Store(x)
}

func handleHTTP() http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		compute(2000)
		_, _ = io.WriteString(w, "done\n")
	}
}

func handleLight() http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(5 * time.Millisecond)
		compute(100)
		_, _ = io.WriteString(w, "done\n")
	}
}

type node struct {
	next *node
	data [6]uint64
}

func handleGC() http.HandlerFunc {
	debug.SetGCPercent(20)
	var live *node
	for range 300_000 {
		live = &node{next: live}
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		var list *node
		for range 10_000 {
			list = &node{next: list}
		}
		runtime.KeepAlive(live)
		fmt.Fprintln(w, list.data[0])
	}
}

func startSpin() http.HandlerFunc {
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for {
				compute(1000)
			}
		}()
	}
	go func() {
		for range time.Tick(5 * time.Millisecond) {
			sink.Add(1)
		}
	}()
	return nil
}

func startOne() http.HandlerFunc {
	go func() {
		for {
			compute(1000)
		}
	}()
	go func() {
		for range time.Tick(100 * time.Millisecond) {
			sink.Add(1)
		}
	}()
	return nil
}

func startBatch() http.HandlerFunc {
	go func() {
		for range time.Tick(100 * time.Millisecond) {
			compute(30_000)
		}
	}()
	return nil
}

func startBursts() http.HandlerFunc {
	for range runtime.GOMAXPROCS(0) {
		startBatch()
	}
	return nil
}

func startTickers() http.HandlerFunc {
	for range 1000 {
		go func() {
			for range time.Tick(100 * time.Millisecond) {
				compute(5)
			}
		}()
	}
	return nil
}

// A count has a service's measurements of itself during the trace.
type count struct {
	cpugroup.Stat
	WallNS int64 `json:"wall_ns"`
	CPUNS  int64 `json:"cpu_ns"`
	Procs  int   `json:"procs"`
	CPUs   int   `json:"cpus"`
}

// serveVerb is the service: it prints its address, warms up, writes a trace, and prints the kernel's counts during the trace.
func serveVerb(args []string) error {
	fs := flag.NewFlagSet("throttle serve", flag.ExitOnError)
	kind := fs.String("kind", "", "")
	d := fs.Duration("d", 0, "")
	out := fs.String("o", "", "")
	dir := fs.String("group", "", "")
	_ = fs.Parse(args)
	handler := kinds[*kind]()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	if handler != nil {
		mux.HandleFunc("/", handler)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
	fmt.Println(ln.Addr())
	time.Sleep(700 * time.Millisecond)
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	if err := trace.Start(f); err != nil {
		return err
	}
	start, cpu := time.Now(), processCPU()
	readStat := func() (s cpugroup.Stat, err error) {
		if *dir == "" {
			return s, nil
		}
		return cpugroup.ReadStat(*dir)
	}
	before, err := readStat()
	if err != nil {
		return err
	}
	time.Sleep(*d)
	after, err := readStat()
	c := count{Stat: after.Minus(before), WallNS: time.Since(start).Nanoseconds(), CPUNS: processCPU() - cpu, Procs: runtime.GOMAXPROCS(0), CPUs: runtime.NumCPU()}
	trace.Stop()
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(c)
}

func processCPU() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// burnVerb is a busy process. It ends when its standard input does.
func burnVerb() {
	go func() {
		for {
			compute(1000)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}
