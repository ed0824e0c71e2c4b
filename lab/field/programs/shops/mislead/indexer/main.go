// Indexer answers searches from a catalogue in another process, by UDP, and
// has the words of each search looked at by a goroutine that asks the
// process's own /warm: no search waits for that.
//
// Faults: slow (the catalogue takes 19 ms, the warming 16 ms).
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"shop.example/shops/internal/run"
)

var words = make(chan string, 100)

func search(w http.ResponseWriter, r *http.Request) {
	select {
	case words <- r.URL.RawQuery:
	default:
	}
	c, err := net.Dial("udp", *run.Peer)
	if err != nil {
		http.Error(w, err.Error(), 500)
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(c, "find")
	b := make([]byte, 100)
	n, err := c.Read(b)
	fmt.Fprintln(w, string(b[:n]), err)
}

func warm(w http.ResponseWriter, r *http.Request) {
	if run.Fault("slow") {
		time.Sleep(16 * time.Millisecond)
	}
	fmt.Fprintln(w, "warm")
}

// learn asks for what was searched.
func learn() {
	for range words {
		go func() {
			resp, err := http.Get("http://" + *run.Listen + "/warm")
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
	}
}

func main() {
	run.Parse("slow")
	if *run.AsPeer {
		c := run.Must(net.ListenPacket("udp", *run.Listen))
		for b := make([]byte, 100); ; {
			_, from, err := c.ReadFrom(b)
			run.Check(err)
			time.AfterFunc(19*time.Millisecond, func() { c.WriteTo([]byte("found"), from) })
		}
	}
	http.HandleFunc("/search", search)
	http.HandleFunc("/warm", warm)
	go learn()
	run.ServeRequests(nil)
}
