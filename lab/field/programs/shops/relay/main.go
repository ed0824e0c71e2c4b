// Relay passes requests on to another service, by http.Transport.
//
// Faults: conns (MaxConnsPerHost is 1).
package main

import (
	"io"
	"log"
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
	if *run.AsPeer {
		log.Fatal(http.ListenAndServe(*run.Listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * time.Millisecond)
			io.WriteString(w, "a page")
		})))
	}
	t := &http.Transport{MaxIdleConnsPerHost: 50}
	if run.Fault("conns") {
		t.MaxConnsPerHost = 1
	}
	mux := http.NewServeMux()
	mux.Handle("/page", &relay{&http.Client{Transport: t}})
	run.Profiles()
	log.Fatal(run.ListenAndServe(mux))
}
