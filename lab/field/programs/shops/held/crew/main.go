// Crew has its requests' work done by a pool of panjf2000/ants: each asks
// another service, which takes 8 ms.
//
// Faults: few (the pool has two workers for all requests).
package main

import (
	"io"
	"net/http"
	"time"

	"github.com/panjf2000/ants/v2"

	"shop.example/shops/internal/run"
)

type crew struct {
	pool   *ants.Pool
	client *http.Client
}

func (c *crew) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	done := make(chan error, 1)
	if err := c.pool.Submit(func() { done <- c.work() }); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if err := <-done; err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	io.WriteString(w, "done\n")
}

// work asks the other service.
func (c *crew) work() error {
	resp, err := c.client.Get("http://" + *run.Peer + "/work")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func main() {
	run.Parse("few")
	run.AnswerAsPeer(8*time.Millisecond, "ok")
	size := 100
	if run.Fault("few") {
		size = 2
	}
	pool := run.Must(ants.NewPool(size))
	run.ServePath("/work", &crew{pool, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}})
}
