// Storefront has a page of two parts, which a client asks for at once.
//
// Faults: both (each part asks a store in another process, which takes 17 ms),
// self (the quote asks the process's own rates, which take 14 ms).
package main

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"shop.example/shops/internal/run"
	"shop.example/shops/mislead/wire"
)

type storefront struct{ quotes, rates sync.Pool }

func (s *storefront) quote(w http.ResponseWriter, r *http.Request) {
	if run.Fault("self") {
		resp, err := http.Get("http://" + *run.Listen + "/rates")
		if err != nil {
			http.Error(w, err.Error(), 500)
			return
		}
		defer resp.Body.Close()
		io.Copy(w, resp.Body)
		return
	}
	c := s.quotes.Get().(*wire.Conn)
	defer s.quotes.Put(c)
	a, err := c.Ask("quote")
	fmt.Fprintln(w, a, err)
}

func (s *storefront) currency(w http.ResponseWriter, r *http.Request) {
	if run.Fault("self") {
		time.Sleep(14 * time.Millisecond)
		fmt.Fprintln(w, "1.1")
		return
	}
	c := s.rates.Get().(*wire.Conn)
	defer s.rates.Put(c)
	a, err := c.Ask("rates")
	fmt.Fprintln(w, a, err)
}

func get(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func main() {
	run.Parse("both", "self")
	switch {
	case *run.AsPeer:
		wire.Serve(*run.Listen, func(string) string { time.Sleep(17 * time.Millisecond); return "12" })
	case *run.Load != "":
		run.Clients(3, 40*time.Millisecond, func(int) error {
			if run.Fault("self") {
				return get("http://" + *run.Load + "/quote")
			}
			done := make(chan error, 1)
			go func() { done <- get("http://" + *run.Load + "/rates") }()
			return max2(get("http://"+*run.Load+"/quote"), <-done)
		})
	}
	dial := func() any { return wire.Dial(*run.Peer) }
	s := &storefront{sync.Pool{New: dial}, sync.Pool{New: dial}}
	http.HandleFunc("/quote", s.quote)
	http.HandleFunc("/rates", s.currency)
	run.ServeRequests(nil)
}

func max2(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
