// Feed sends events to all who listen (server-sent events) when there are any:
// a few a second, so that every stream mostly waits. A request is one event:
// from when it happened until a listener has it. It has no faults.
package main

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"shop.example/shops/internal/run"
)

type feed struct {
	mu        sync.Mutex
	listeners map[chan string]bool
}

// publish lets events happen, each a new moment of the clock.
func (f *feed) publish() {
	for range time.Tick(100 * time.Millisecond) {
		event := strconv.FormatInt(time.Now().UnixNano(), 10)
		f.mu.Lock()
		for c := range f.listeners {
			select {
			case c <- event:
			default:
			}
		}
		f.mu.Unlock()
	}
}

func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := make(chan string, 16)
	f.mu.Lock()
	f.listeners[c] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.listeners, c)
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		select {
		case event := <-c:
			fmt.Fprintf(w, "data: %s\n\n", event)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (f *feed) health(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") }

func listen() {
	resp := run.Must(http.Get("http://" + *run.Load + "/events"))
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		if ns, ok := strings.CutPrefix(in.Text(), "data: "); ok {
			at, err := strconv.ParseInt(ns, 10, 64)
			run.Took(time.Unix(0, at), err)
		}
	}
}

func main() {
	run.Parse()
	if *run.Load != "" {
		for range 30 {
			go listen()
		}
		run.End()
	}
	f := &feed{listeners: map[chan string]bool{}}
	go f.publish()
	mux := http.NewServeMux()
	mux.Handle("/events", f)
	mux.HandleFunc("/healthz", f.health)
	run.ServeRequests(mux)
}
