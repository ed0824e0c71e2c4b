// Client is a service of a distributed database, as in the story tso: its transactions fetch two timestamps each from PD, over
// PD's own client, whose requests go through one batching goroutine.
//
//	GET /txn   begins, works for a moment, commits: two timestamps
//
// The faults are unrelated work: -tickers goroutines that only tick once a second, -loops goroutines that compute without a pause,
// in pieces of -piece, with -tight without a call in a piece, which Go before 1.14 could not preempt (nor today's with
// GODEBUG=asyncpreemptoff=1). With -bounded, loops and ticks share slots of service/pool, GOMAXPROCS-1, and one timer serves all ticks.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof"
	"runtime"
	"sync/atomic"
	"time"

	pd "github.com/tikv/pd/client"

	"github.com/whylate/whylate/service/pool"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve on")
	server := flag.String("pd", "http://127.0.0.1:2379", "URL of a PD server")
	tickers := flag.Int("tickers", 0, "goroutines that tick once a second")
	loops := flag.Int("loops", 0, "goroutines that compute without a pause")
	piece := flag.Duration("piece", 20*time.Millisecond, "of a loop's work, between which a bounded one gives its place away")
	tight := flag.Bool("tight", false, "compute a piece without a call in it")
	bounded := flag.Bool("bounded", false, "bound what computes beside requests")
	flag.Parse()
	if err := run(*listen, *server, *tickers, *loops, *piece, *tight, *bounded); err != nil {
		log.Fatal(err)
	}
}

type service struct{ client pd.Client }

func run(listen, server string, tickers, loops int, piece time.Duration, tight, bounded bool) error {
	client, err := pd.NewClient([]string{server}, pd.SecurityOption{})
	if err != nil {
		return fmt.Errorf("connecting to PD at %s: %w", server, err)
	}
	s := &service{client}
	b := &beside{piece: piece}
	if tight {
		const rounds = 20_000_000
		begin := time.Now()
		sink.Store(spin(rounds))
		b.rounds = int(float64(rounds) * float64(piece) / float64(time.Since(begin)))
	}
	if bounded {
		b.places = pool.New(max(1, int64(runtime.GOMAXPROCS(0))-1))
	}
	if bounded {
		go b.tickAll(tickers)
	} else {
		for range tickers {
			go b.tick()
		}
	}
	for range loops {
		go b.loop()
	}
	http.HandleFunc("GET /txn", s.txn)
	http.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.timestamp(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	return http.Serve(l, nil)
}

// txn is a transaction without its reads and writes.
func (s *service) txn(w http.ResponseWriter, r *http.Request) {
	begin, err := s.timestamp(r.Context())
	if err == nil {
		var commit int64
		if commit, err = s.timestamp(r.Context()); err == nil && commit <= begin {
			err = errors.New("time runs backwards")
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintln(w, begin)
}

func (s *service) timestamp(ctx context.Context) (int64, error) {
	physical, logical, err := s.client.GetTS(ctx)
	return physical<<18 | logical, err
}

// beside is the work without a connection to requests.
type beside struct {
	piece  time.Duration
	rounds int           // of a piece without a call; 0: it looks at the clock
	places *pool.Limiter // nil: as much at once as there is
}

func (b *beside) do(f func()) {
	if b.places == nil {
		f()
		return
	}
	if b.places.Acquire(context.Background(), 1) == nil {
		defer b.places.Release(1)
		f()
	}
}

// tick wakes once a second for next to nothing, all of them at the same time.
func (b *beside) tick() {
	n := 0
	for range time.Tick(time.Second) {
		b.do(func() { n++ })
	}
}

// tickAll does the same for n of them in one piece of work.
func (b *beside) tickAll(n int) {
	counts := make([]int, n)
	for range time.Tick(time.Second) {
		b.do(func() {
			for i := range counts {
				counts[i]++
			}
		})
	}
}

// loop computes for ever.
func (b *beside) loop() {
	for {
		b.do(b.compute)
	}
}

var sink atomic.Uint64 // keeps the loop from being compiled away

// compute takes a piece of CPU time.
func (b *beside) compute() {
	if b.rounds > 0 {
		sink.Store(spin(b.rounds))
		return
	}
	for begin := time.Now(); time.Since(begin) < b.piece; {
		sink.Store(spin(100_000))
	}
}

// spin computes without a call.
func spin(rounds int) uint64 {
	x := uint64(1)
	for range rounds {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}
