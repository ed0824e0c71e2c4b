// Till takes payments behind valyala/fasthttp, and asks a bank for each by
// fasthttp's own client.
//
// Faults: lock (a mutex of the till is held while the bank is asked, which
// takes 6 ms), calls (the bank is asked eighteen times by net/rpc, one call
// after the other), places (two connections to the bank for all payments).
package main

import (
	"log"
	"net"
	"net/rpc"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"shop.example/shops/internal/run"
)

type till struct {
	bank fasthttp.Client
	book *rpc.Client
	few  *fasthttp.HostClient
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

// Bank answers calls by net/rpc.
type Bank struct{}

func (Bank) Book(item int, booked *int) error {
	time.Sleep(500 * time.Microsecond)
	*booked = item
	return nil
}

// booked books each item of a payment.
func (t *till) booked() error {
	for item := range 18 {
		var booked int
		if err := t.book.Call("Bank.Book", item, &booked); err != nil {
			return err
		}
	}
	return nil
}

// ask asks the bank.
func (t *till) ask() error {
	switch {
	case t.book != nil:
		return t.booked()
	case t.few != nil:
		_, _, err := t.few.Get(nil, "http://"+*run.Peer+"/pay")
		return err
	}
	_, _, err := t.bank.Get(nil, "http://"+*run.Peer+"/pay")
	return err
}

func main() {
	run.Parse("lock", "calls", "places")
	if *run.AsPeer {
		if run.Fault("calls") {
			l := run.Must(net.Listen("tcp", *run.Listen))
			rpc.Register(Bank{})
			rpc.Accept(l)
		}
		log.Fatal(fasthttp.ListenAndServe(*run.Listen, func(ctx *fasthttp.RequestCtx) {
			if run.Fault("lock") || run.Fault("places") {
				time.Sleep(6 * time.Millisecond)
			}
			ctx.SetBodyString("ok")
		}))
	}
	t := &till{}
	switch {
	case run.Fault("calls"):
		var err error
		if t.book, err = rpc.Dial("tcp", *run.Peer); err != nil {
			log.Fatal(err)
		}
	case run.Fault("places"):
		t.few = &fasthttp.HostClient{Addr: *run.Peer, MaxConns: 2, MaxConnWaitTimeout: time.Second}
	}
	run.Profiles()
	log.Fatal(fasthttp.ListenAndServe(*run.Listen, t.handle))
}
