// Relay passes requests on to another service, by http.Transport.
//
// Faults: conns (MaxConnsPerHost is 1).
package main

import (
	"io"
	"net/http"
	"time"

	"shop.example/shops/internal/run"
)

type relay struct {
	client *http.Client
}

func (y *relay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resp, err := y.client.Get("http://" + *run.Peer + "/page")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	io.Copy(w, resp.Body)
}

func main() {
	run.Parse("conns")
	run.AnswerAsPeer(5*time.Millisecond, "a page")
	t := &http.Transport{MaxIdleConnsPerHost: 50}
	if run.Fault("conns") {
		t.MaxConnsPerHost = 1
	}
	run.ServePath("/page", &relay{&http.Client{Transport: t}})
}
