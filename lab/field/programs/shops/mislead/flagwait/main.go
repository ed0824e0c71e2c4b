// Flagwait starts a scan in another process, and looks every 2 ms whether the
// outcome has come.
//
// Faults: slow (the scan takes 50 ms).
package main

import (
	"fmt"
	"log"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"shop.example/shops/internal/run"
	"shop.example/shops/mislead/wire"
)

type scanner struct{ conns sync.Pool }

// start has a file scanned.
func (s *scanner) start(ready *atomic.Bool) {
	c := s.conns.Get().(*wire.Conn)
	defer s.conns.Put(c)
	if _, err := c.Ask("scan"); err != nil {
		log.Print(err)
	}
	ready.Store(true)
}

func (s *scanner) scan(w http.ResponseWriter, r *http.Request) {
	var ready atomic.Bool
	go s.start(&ready)
	for !ready.Load() {
		time.Sleep(2 * time.Millisecond)
	}
	fmt.Fprintln(w, "clean")
}

func main() {
	run.Parse("slow")
	if *run.AsPeer {
		wire.Serve(*run.Listen, func(string) string { time.Sleep(50 * time.Millisecond); return "clean" })
	}
	s := &scanner{sync.Pool{New: func() any { return wire.Dial(*run.Peer) }}}
	http.HandleFunc("/scan", s.scan)
	run.ServeRequests(nil)
}
