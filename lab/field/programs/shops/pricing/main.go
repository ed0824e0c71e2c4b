// Pricing asks a partner for prices and keeps to the number of calls that the
// partner allows (x/time/rate).
//
// Faults: limit (160 calls a second at 150 requests a second: each burst waits).
package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/time/rate"

	"shop.example/shops/internal/run"
)

type pricing struct {
	limit *rate.Limiter
}

// price asks the partner when it may.
func (p *pricing) price(r *http.Request) (string, error) {
	if err := p.limit.Wait(r.Context()); err != nil {
		return "", err
	}
	resp, err := http.Get("http://" + *run.Peer + "/price?item=" + r.FormValue("item"))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func (p *pricing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	price, err := p.price(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	fmt.Fprintln(w, price)
}

func main() {
	run.Parse("limit")
	run.AnswerAsPeer(time.Millisecond, "9.99")
	p := &pricing{rate.NewLimiter(5000, 100)}
	if run.Fault("limit") {
		p.limit = rate.NewLimiter(160, 1)
	}
	run.ServePath("/price", p)
}
