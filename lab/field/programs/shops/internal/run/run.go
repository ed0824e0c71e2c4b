// Package run is what the programs share: their flags, the server of their
// profiles, and the waiting client's clock.
//
//	program -listen ADDR -pprof ADDR [-fault NAME] [-backend URL] [-peer ADDR]
//	program -as-peer -listen ADDR
//	program -load ADDR [-fault NAME]
//
// The first form is the service, the second the other service that it calls,
// and the third are its clients, where they speak more than HTTP; each is a
// process of its own. What was measured is told as lines "sample END-UNIX-NS
// TOOK-NS ok": by the clients on standard output when they are stopped, by a
// service whose work nobody sends (a consumer, a job) when it is asked for
// /samples on the profiles' address. A line each time would be work of its own
// in the trace.
package run

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The flags' values.
var (
	Listen  = flag.String("listen", "127.0.0.1:0", "address to serve on")
	Load    = flag.String("load", "", "be the clients of the service at this address")
	Backend = flag.String("backend", "", "the server that the service needs: a database, a broker")
	Peer    = flag.String("peer", "", "address of the other service that the service calls")
	AsPeer  = flag.Bool("as-peer", false, "be the other service")
	profile = flag.String("pprof", "127.0.0.1:0", "address of the profiles")
	fault   = flag.String("fault", "", "fault to have (none: the healthy twin)")
)

// Parse reads the command line of a program that can have these faults.
func Parse(faults ...string) {
	flag.Parse()
	if flag.NArg() > 0 || *fault != "" && !slices.Contains(faults, *fault) {
		log.Fatalf("the faults are: %s", strings.Join(faults, ", "))
	}
}

// Fault says whether the program has this fault.
func Fault(name string) bool { return *fault == name }

// Must returns the value of a call, and ends the program if it failed.
func Must[T any](value T, err error) T {
	Check(err)
	return value
}

// Check ends the program if there is an error.
func Check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// AnswerAsPeer answers all requests after a pause if the program is the other service; otherwise it does nothing.
func AnswerAsPeer(pause time.Duration, answer string) {
	if *AsPeer {
		log.Fatal(http.ListenAndServe(*Listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(pause)
			io.WriteString(w, answer)
		})))
	}
}

// ServePath serves requests for one path, and the profiles.
func ServePath(path string, h http.Handler) {
	mux := http.NewServeMux()
	mux.Handle(path, h)
	ServeRequests(mux)
}

// ServeRequests serves requests, and the profiles.
func ServeRequests(h http.Handler) {
	Profiles()
	log.Fatal(http.ListenAndServe(*Listen, h))
}

// Profiles serves the profiles. A program calls it when it is ready, so who
// waits for an answer there waits for the program.
func Profiles() {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	Serve(mux)
}

// Serve serves the profiles' address by a mux of the program's own.
func Serve(mux *http.ServeMux) {
	mux.HandleFunc("/samples", func(w http.ResponseWriter, _ *http.Request) { tell(w) })
	l := Must(net.Listen("tcp", *profile))
	go func() { log.Fatal(http.Serve(l, mux)) }()
}

type sample struct {
	end  time.Time
	took time.Duration
	err  error
}

var (
	mu   sync.Mutex
	seen []sample
)

// Took notes a request that began at start and is answered now.
func Took(start time.Time, err error) {
	end := time.Now()
	mu.Lock()
	defer mu.Unlock()
	seen = append(seen, sample{end, end.Sub(start), err})
}

func tell(w io.Writer) {
	mu.Lock()
	defer mu.Unlock()
	b := bufio.NewWriter(w)
	defer b.Flush()
	for _, s := range seen {
		answer := "ok"
		if s.err != nil {
			answer = "err"
		}
		fmt.Fprintln(b, "sample", s.end.UnixNano(), s.took.Nanoseconds(), answer)
	}
}

// Clients keeps n clients at work until the program is told to stop, and ends
// it. Each makes one request after the other, with pauses of that mean between
// them.
func Clients(n int, pause time.Duration, request func(client int) error) {
	for i := range n {
		go func() {
			for {
				time.Sleep(time.Duration(rand.ExpFloat64() * float64(pause)))
				start := time.Now()
				err := request(i)
				Took(start, err)
				if err != nil {
					log.Print(err)
				}
			}
		}()
	}
	End()
}

// End waits until the program is told to stop, and ends it.
func End() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	<-c
	tell(os.Stdout)
	os.Exit(0)
}
