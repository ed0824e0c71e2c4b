// Service is an HTTP service that reads an order in JSON, prices it and answers in JSON, as in the story container. -procs says
// who sets GOMAXPROCS: the runtime (or the environment variable), go.uber.org/automaxprocs, or service/tune.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"log"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
	"slices"

	"go.uber.org/automaxprocs/maxprocs"

	"github.com/whylate/whylate/service/tune"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address to serve on")
	procs := flag.String("procs", "runtime", "who sets GOMAXPROCS: runtime, automaxprocs, tune")
	rounds := flag.Int("rounds", 100, "work a line of an order")
	flag.Parse()
	if err := run(*listen, *procs, *rounds); err != nil {
		log.Fatal(err)
	}
}

func run(listen, procs string, rounds int) error {
	switch procs {
	case "runtime":
	case "automaxprocs":
		if _, err := maxprocs.Set(maxprocs.Logger(log.Printf)); err != nil {
			return err
		}
	case "tune":
		defer tune.Start(tune.Options{Procs: tune.ModeApply, Memory: tune.ModeObserve, GC: tune.ModeObserve, Logger: slog.Default()}).Stop()
	default:
		return fmt.Errorf("-procs %q: runtime, automaxprocs or tune", procs)
	}
	http.HandleFunc("POST /order", func(w http.ResponseWriter, r *http.Request) { order(w, r, rounds) })
	http.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	return http.Serve(l, nil)
}

// A Line is so many of one article.
type Line struct {
	Article string  `json:"article"`
	Count   int     `json:"count"`
	Price   float64 `json:"price"`
	Check   uint64  `json:"check,omitempty"`
}

// An Order is a customer's order.
type Order struct {
	Customer string  `json:"customer"`
	Lines    []Line  `json:"lines"`
	Total    float64 `json:"total,omitempty"`
}

// stock is what the service keeps of each article, as such services do: with next to no live heap the collector would run six times a
// second, and what its workers and assists do on more Ps than CPUs would hide the fault of the story.
var stock = make([]uint64, 8<<20) // 64 MB

func order(w http.ResponseWriter, r *http.Request, rounds int) {
	var o Order
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&o); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	price(&o, rounds)
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(&o); err != nil {
		log.Printf("answering: %v", err)
	}
}

// price computes what an order costs, with a check sum a line that takes rounds.
func price(o *Order, rounds int) {
	h := fnv.New64a()
	for i := range o.Lines {
		l := &o.Lines[i]
		for range rounds {
			h.Write([]byte(l.Article))
		}
		l.Check = h.Sum64() + stock[h.Sum64()%uint64(len(stock))]
		o.Total += float64(l.Count) * l.Price
	}
	slices.SortFunc(o.Lines, func(a, b Line) int { return cmp.Compare(a.Check, b.Check) })
}
