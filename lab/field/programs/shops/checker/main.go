// Checker looks every three seconds whether its targets accept connections. main
// only sleeps. A request is one check, from when it was due until the target has
// answered: one that begins late is late.
//
// Faults: herd (all tickers start in the same moment).
package main

import (
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"shop.example/shops/internal/run"
)

const targets = 3000

type target struct {
	addr  string
	fails atomic.Int32
}

// check connects once.
func (t *target) check(due time.Time) {
	c, err := net.DialTimeout("tcp", t.addr, time.Second)
	run.Took(due, err)
	if err != nil {
		t.fails.Add(1)
		return
	}
	t.fails.Store(0)
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// watch checks the target again and again.
func (t *target) watch(interval time.Duration) {
	if !run.Fault("herd") {
		time.Sleep(rand.N(interval))
	}
	for due := range time.Tick(interval) {
		t.check(due)
	}
}

func main() {
	run.Parse("herd")
	if *run.AsPeer {
		l := run.Must(net.Listen("tcp", *run.Listen))
		for {
			if c, err := l.Accept(); err == nil {
				c.Close()
			}
		}
	}
	for range targets {
		go (&target{addr: *run.Peer}).watch(3 * time.Second)
	}
	run.Profiles()
	for {
		time.Sleep(time.Hour)
	}
}
