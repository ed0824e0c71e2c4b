// Courier passes letters on to another process, which takes 9 ms for each.
//
// Faults: few (three connections for all letters).
package main

import (
	"fmt"
	"net/http"
	"time"

	"shop.example/shops/internal/run"
	"shop.example/shops/mislead/wire"
)

type courier struct{ idle chan *wire.Conn }

func (c *courier) deliver(letter string) (string, error) {
	conn := <-c.idle
	defer func() { c.idle <- conn }()
	return conn.Ask(letter)
}

func main() {
	run.Parse("few")
	if *run.AsPeer {
		wire.Serve(*run.Listen, func(string) string { time.Sleep(9 * time.Millisecond); return "ok" })
	}
	n := 40
	if run.Fault("few") {
		n = 3
	}
	c := &courier{make(chan *wire.Conn, n)}
	for range n {
		c.idle <- wire.Dial(*run.Peer)
	}
	http.HandleFunc("/letter", func(w http.ResponseWriter, r *http.Request) {
		a, err := c.deliver("letter")
		fmt.Fprintln(w, a, err)
	})
	run.ServeRequests(nil)
}
