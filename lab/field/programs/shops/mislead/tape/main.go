// Tape has prices that a ticker brings, each to those who watch for a while, and every fifth to those who ask for the next one.
package main

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"shop.example/shops/internal/run"
)

type tape struct {
	mu      sync.Mutex
	price   int
	printed chan struct{} // closed with the next fifth price
	watch   map[chan int]bool
}

// print brings a price every so often.
func (t *tape) print(every time.Duration) {
	for range time.Tick(every) {
		t.mu.Lock()
		t.price++
		if t.price%5 == 0 {
			close(t.printed)
			t.printed = make(chan struct{})
		}
		for c := range t.watch {
			select {
			case c <- t.price:
			default:
			}
		}
		t.mu.Unlock()
	}
}

// next is a long poll: it waits for the next price, its client or 2 s.
func (t *tape) next(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	printed := t.printed
	t.mu.Unlock()
	up := time.NewTimer(2 * time.Second)
	defer up.Stop()
	select {
	case <-printed:
	case <-up.C:
	case <-r.Context().Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(w, t.price)
}

// follow sends each price as it comes, for a while.
func (t *tape) follow(w http.ResponseWriter, r *http.Request) {
	c := make(chan int, 8)
	t.mu.Lock()
	t.watch[c] = true
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		delete(t.watch, c)
		t.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	for end := time.After(700 * time.Millisecond); ; {
		select {
		case p := <-c:
			fmt.Fprintf(w, "data: %d\n\n", p)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		case <-end:
			return
		}
	}
}

func main() {
	run.Parse()
	t := &tape{printed: make(chan struct{}), watch: map[chan int]bool{}}
	go t.print(65 * time.Millisecond)
	http.HandleFunc("/next", t.next)
	http.HandleFunc("/follow", t.follow)
	run.ServeRequests(nil)
}
