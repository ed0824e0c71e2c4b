package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/whylate/whylate/lab/internal/child"
)

// The page makes four parallel calls that take 20 ms each: two to a backend in another process, one to its own process over the
// network, and one that sleeps. Times do not show which waits for which.

const pageTakes = 20 * time.Millisecond

var pageClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}

func fetch(url string) error {
	resp, err := pageClient.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func prices(w http.ResponseWriter, backend string) { fetch(backend); fmt.Fprintln(w, "prices") }
func stock(w http.ResponseWriter, backend string)  { fetch(backend); fmt.Fprintln(w, "stock") }
func front(w http.ResponseWriter, self string)     { fetch(self + "/inner"); fmt.Fprintln(w, "front") }
func inner(w http.ResponseWriter)                  { time.Sleep(pageTakes); fmt.Fprintln(w, "inner") }
func advert(w http.ResponseWriter)                 { time.Sleep(pageTakes); fmt.Fprintln(w, "advert") }

// page is the service, or its backend with role "backend".
func page(role string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	self := "http://" + l.Addr().String()
	fmt.Println(self)
	child.EndWithParent()
	mux := http.DefaultServeMux // it has pprof
	if role == "backend" {
		mux.HandleFunc("/answer", func(w http.ResponseWriter, _ *http.Request) { inner(w) })
		return http.Serve(l, mux)
	}
	mux.HandleFunc("/prices", func(w http.ResponseWriter, _ *http.Request) { prices(w, role+"/answer") })
	mux.HandleFunc("/stock", func(w http.ResponseWriter, _ *http.Request) { stock(w, role+"/answer") })
	mux.HandleFunc("/front", func(w http.ResponseWriter, _ *http.Request) { front(w, self) })
	mux.HandleFunc("/inner", func(w http.ResponseWriter, _ *http.Request) { inner(w) })
	mux.HandleFunc("/advert", func(w http.ResponseWriter, _ *http.Request) { advert(w) })
	return http.Serve(l, mux)
}

// recordPage starts both, loads pages, and writes a trace of the service.
func recordPage(dir string, d time.Duration) error {
	backend, end, err := child.Start("-page", "backend")
	if err != nil {
		return err
	}
	defer end()
	service, end, err := child.Start("-page", backend)
	if err != nil {
		return err
	}
	defer end()
	done := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		tick := time.NewTicker(30 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			var all sync.WaitGroup
			for _, path := range []string{"/prices", "/stock", "/front", "/advert"} {
				all.Go(func() { fetch(service + path) })
			}
			all.Wait()
		}
	})
	defer load.Wait()
	defer close(done)
	time.Sleep(300 * time.Millisecond) // connections are open then
	return child.SaveTraces(dir, d, map[string]string{"page": service})
}
