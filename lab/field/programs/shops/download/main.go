// Download sends files of a quarter of a megabyte over HTTP/2 without TLS. A request
// is a download, by a client that has four of them on one connection.
//
// Faults: window (the clients read slowly, and let the server send 64 KB ahead).
package main

import (
	"io"
	"log"
	"net/http"
	"time"

	"shop.example/shops/internal/run"
)

var file = make([]byte, 256<<10)

func download(w http.ResponseWriter, r *http.Request) {
	for part := file; len(part) > 0; part = part[32<<10:] {
		if _, err := w.Write(part[:32<<10]); err != nil {
			return
		}
	}
}

func fetch(c *http.Client) error {
	resp, err := c.Get("http://" + *run.Load + "/file")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !run.Fault("window") {
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	}
	for {
		if _, err := io.CopyN(io.Discard, resp.Body, 32<<10); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		time.Sleep(16 * time.Millisecond) // for what a slow client does with it
	}
}

func main() {
	run.Parse("window")
	var plain http.Protocols
	plain.SetUnencryptedHTTP2(true)
	if *run.Load != "" {
		t := &http.Transport{Protocols: &plain}
		if run.Fault("window") {
			t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 256 << 10}
		}
		run.Clients(4, 10*time.Millisecond, func(int) error { return fetch(&http.Client{Transport: t}) })
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/file", download)
	run.Profiles()
	log.Fatal((&http.Server{Addr: *run.Listen, Handler: mux, Protocols: &plain}).ListenAndServe())
}
