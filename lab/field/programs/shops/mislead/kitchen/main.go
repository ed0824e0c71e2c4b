// Kitchen has cooks who take orders from a list and ask another service, by HTTP, for 9 ms each.
//
// Faults: few (two cooks for all orders).
package main

import (
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"shop.example/shops/internal/run"
)

type order struct{ done chan error }

type kitchen struct {
	mu    sync.Mutex
	some  *sync.Cond
	list  []order
	stove *http.Client
}

func (k *kitchen) serve(w http.ResponseWriter, _ *http.Request) {
	o := order{make(chan error, 1)}
	k.mu.Lock()
	k.list = append(k.list, o)
	k.mu.Unlock()
	k.some.Signal()
	if err := <-o.done; err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

func (k *kitchen) cook() {
	for {
		k.mu.Lock()
		for len(k.list) == 0 {
			k.some.Wait()
		}
		o := k.list[0]
		k.list = k.list[1:]
		k.mu.Unlock()
		o.done <- k.heat()
	}
}

func (k *kitchen) heat() error {
	resp, err := k.stove.Get("http://" + *run.Peer + "/heat")
	if err != nil {
		return err
	}
	io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}

func main() {
	run.Parse("few")
	if *run.AsPeer {
		http.HandleFunc("/heat", func(http.ResponseWriter, *http.Request) { time.Sleep(9 * time.Millisecond) })
		log.Fatal(http.ListenAndServe(*run.Listen, nil))
	}
	k := &kitchen{stove: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	k.some = sync.NewCond(&k.mu)
	n := 24
	if run.Fault("few") {
		n = 2
	}
	for range n {
		go k.cook()
	}
	http.HandleFunc("/order", k.serve)
	run.ServeRequests(nil)
}
