// Teller gives out balances: it computes a little, and asks a bank in another
// process, which answers at once.
package main

import (
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"sync"
	"time"

	"shop.example/shops/internal/run"
	"shop.example/shops/mislead/wire"
)

type teller struct{ banks sync.Pool }

func (t *teller) balance(w http.ResponseWriter, r *http.Request) {
	h := fnv.New64()
	for range 20000 {
		io.WriteString(h, "balance")
	}
	c := t.banks.Get().(*wire.Conn)
	defer t.banks.Put(c)
	a, err := c.Ask("balance")
	fmt.Fprintln(w, a, err, h.Sum64())
}

func main() {
	run.Parse("stopped", "bursts")
	switch {
	case *run.AsPeer:
		wire.Serve(*run.Listen, func(string) string { return "7" })
	case *run.Load != "": // bursts of twelve requests
		run.Clients(1, 20*time.Millisecond, func(int) error {
			time.Sleep(450 * time.Millisecond)
			var all sync.WaitGroup
			for range 12 {
				all.Go(func() {
					resp, err := http.Get("http://" + *run.Load + "/balance")
					if err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
				})
			}
			all.Wait()
			return nil
		})
	}
	t := &teller{sync.Pool{New: func() any { return wire.Dial(*run.Peer) }}}
	http.HandleFunc("/balance", t.balance)
	run.ServeRequests(nil)
}
