// Press prints pages: four workers take them from a channel, and compute some
// milliseconds for each.
package main

import (
	"crypto/sha512"
	"fmt"
	"net/http"

	"shop.example/shops/internal/run"
)

type page struct {
	text []byte
	ink  chan byte
}

var pages = make(chan page)

func work() {
	for p := range pages {
		p.ink <- ink(p.text)
	}
}

func ink(text []byte) byte {
	sum := sha512.Sum512(text)
	for range 7000 {
		sum = sha512.Sum512(sum[:])
	}
	return sum[0]
}

func show(w http.ResponseWriter, r *http.Request) {
	p := page{[]byte(r.URL.Path), make(chan byte)}
	pages <- p
	fmt.Fprintln(w, <-p.ink)
}

func main() {
	run.Parse("quota")
	for range 4 {
		go work()
	}
	http.HandleFunc("/", show)
	run.ServeRequests(nil)
}
