// News tells readers what is new: a reader waits until there is something.
//
// Faults: batch (writers wait until what they wrote is kept in another process,
// every 35 ms, all together).
package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"shop.example/shops/internal/run"
	"shop.example/shops/mislead/wire"
)

type news struct {
	mu      sync.Mutex
	readers map[chan string]bool
	pending []chan struct{}
	archive *wire.Conn
}

func (n *news) read(w http.ResponseWriter, r *http.Request) {
	c := make(chan string, 1)
	n.mu.Lock()
	n.readers[c] = true
	n.mu.Unlock()
	defer func() { n.mu.Lock(); delete(n.readers, c); n.mu.Unlock() }()
	give := time.NewTimer(900 * time.Millisecond)
	defer give.Stop()
	select {
	case item := <-c:
		fmt.Fprintln(w, item)
	case <-give.C:
		w.WriteHeader(http.StatusNoContent)
	case <-r.Context().Done():
	}
}

// publish has something new now and then.
func (n *news) publish() {
	for {
		time.Sleep(time.Duration(250+rand.IntN(400)) * time.Millisecond)
		n.mu.Lock()
		for c := range n.readers {
			select {
			case c <- "it rains":
			default:
			}
		}
		n.mu.Unlock()
	}
}

func (n *news) write(w http.ResponseWriter, r *http.Request) {
	kept := make(chan struct{})
	n.mu.Lock()
	n.pending = append(n.pending, kept)
	n.mu.Unlock()
	<-kept
	io.WriteString(w, "kept\n")
}

// flush keeps what was written.
func (n *news) flush() {
	for {
		<-time.After(35 * time.Millisecond)
		n.mu.Lock()
		all := n.pending
		n.pending = nil
		n.mu.Unlock()
		if len(all) == 0 {
			continue
		}
		run.Must(n.archive.Ask("keep"))
		for _, c := range all {
			close(c)
		}
	}
}

func main() {
	run.Parse("batch")
	if *run.AsPeer {
		wire.Serve(*run.Listen, func(string) string { return "ok" })
	}
	n := &news{readers: map[chan string]bool{}}
	if run.Fault("batch") {
		n.archive = wire.Dial(*run.Peer)
		go n.flush()
	} else {
		go n.publish()
	}
	http.HandleFunc("/read", n.read)
	http.HandleFunc("/write", n.write)
	run.ServeRequests(nil)
}
