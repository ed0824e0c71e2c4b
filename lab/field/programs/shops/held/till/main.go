// Till takes payments behind valyala/fasthttp, and asks a bank for each by
// fasthttp's own client.
//
// Faults: lock (a mutex of the till is held while the bank is asked, which
// takes 6 ms).
package main

import (
	"log"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"shop.example/shops/internal/run"
)

type till struct {
	bank fasthttp.Client
	mu   sync.Mutex
	paid int
}

func (t *till) handle(ctx *fasthttp.RequestCtx) {
	if err := t.pay(); err != nil {
		ctx.Error(err.Error(), fasthttp.StatusBadGateway)
		return
	}
	ctx.SetBodyString("paid\n")
}

func (t *till) pay() error {
	if run.Fault("lock") {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.paid++
		return t.ask()
	}
	t.mu.Lock()
	t.paid++
	t.mu.Unlock()
	return t.ask()
}

// ask asks the bank.
func (t *till) ask() error {
	_, _, err := t.bank.Get(nil, "http://"+*run.Peer+"/pay")
	return err
}

func main() {
	run.Parse("lock")
	if *run.AsPeer {
		log.Fatal(fasthttp.ListenAndServe(*run.Listen, func(ctx *fasthttp.RequestCtx) {
			if run.Fault("lock") {
				time.Sleep(6 * time.Millisecond)
			}
			ctx.SetBodyString("ok")
		}))
	}
	t := &till{}
	run.Profiles()
	log.Fatal(fasthttp.ListenAndServe(*run.Listen, t.handle))
}
