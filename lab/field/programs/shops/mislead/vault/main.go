// Vault opens boxes. /time is always answered.
//
// Faults: peer (a guard in another process is asked, who never answers), leak
// (one box in twenty waits for a key that nobody brings), mutex (an audit holds the
// vault's lock and waits for a reader of its report, who is gone).
package main

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"shop.example/shops/internal/run"
	"shop.example/shops/mislead/wire"
)

type vault struct {
	mu     sync.RWMutex
	boxes  int
	n      atomic.Int64
	report chan int
	guards sync.Pool
}

func (v *vault) open(w http.ResponseWriter, r *http.Request) {
	switch n := v.n.Add(1); {
	case run.Fault("peer"):
		c := v.guards.Get().(*wire.Conn)
		a, err := c.Ask("open")
		fmt.Fprintln(w, a, err)
	case run.Fault("leak") && n%20 == 0:
		v.turn(make(chan struct{}))
	default:
		v.mu.RLock()
		fmt.Fprintln(w, v.boxes)
		v.mu.RUnlock()
	}
}

// turn waits for the key.
func (v *vault) turn(key chan struct{}) { <-key }

// audit counts the boxes.
func (v *vault) audit() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.boxes++
	v.report <- v.boxes
}

func main() {
	run.Parse("peer", "leak", "mutex")
	if *run.AsPeer {
		wire.Serve(*run.Listen, func(string) string { time.Sleep(time.Hour); return "" })
	}
	v := &vault{report: make(chan int), guards: sync.Pool{New: func() any { return wire.Dial(*run.Peer) }}}
	if run.Fault("mutex") {
		time.AfterFunc(2600*time.Millisecond, v.audit) // while it is recorded
	}
	http.HandleFunc("/open", v.open)
	http.HandleFunc("/time", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, time.Now()) })
	run.ServeRequests(nil)
}
