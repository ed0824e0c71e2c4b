package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
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
func recordPage(file string, d time.Duration) error {
	startProcess := func(what string) (url string, stop func(), err error) {
		cmd := exec.Command(os.Args[0], "-page", what)
		out, err := cmd.StdoutPipe()
		if err != nil {
			return "", nil, err
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return "", nil, err
		}
		stop = func() { cmd.Process.Kill(); cmd.Wait() }
		_, err = fmt.Fscanln(out, &url)
		return url, stop, err
	}
	backend, stop, err := startProcess("backend")
	if err != nil {
		return err
	}
	defer stop()
	service, stop, err := startProcess(backend)
	if err != nil {
		return err
	}
	defer stop()
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
	resp, err := http.Get(fmt.Sprintf("%s/debug/pprof/trace?seconds=%g", service, d.Seconds()))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, resp.Body); err != nil {
		return err
	}
	return f.Close()
}
