// Gatekeep lets ninety visitors in a second, as its owner wants: a ticker puts
// tickets into a channel.
package main

import (
	"io"
	"net/http"
	"time"

	"shop.example/shops/internal/run"
)

type gate struct{ tickets chan struct{} }

// issue makes tickets.
func (g *gate) issue(rate int) {
	t := time.NewTicker(time.Second / time.Duration(rate))
	defer t.Stop()
	for range t.C {
		g.tickets <- struct{}{}
	}
}

func (g *gate) enter(w http.ResponseWriter, r *http.Request) {
	select {
	case <-g.tickets:
		io.WriteString(w, "in\n")
	case <-r.Context().Done():
	}
}

func main() {
	run.Parse("limit")
	g := &gate{make(chan struct{})}
	go g.issue(90)
	http.HandleFunc("/enter", g.enter)
	run.ServeRequests(nil)
}
