// Tso asks PD, the placement driver of TiKV, for timestamps with its own client, as each transaction of a database does.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/signal"
	"time"

	pd "github.com/tikv/pd/client"
)

func main() {
	server := flag.String("server", "", "PD's client URL")
	rate := flag.Float64("rate", 150, "timestamps a second")
	fault := flag.String("fault", "", "tickers: ten thousand goroutines that only tick, all at once")
	pprof := flag.String("pprof", "", "")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	client, err := pd.NewClientWithContext(ctx, []string{*server}, pd.SecurityOption{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	if *fault == "tickers" {
		begin := time.Now().Add(time.Second)
		for range 10_000 {
			go tick(ctx, begin)
		}
	}
	go http.ListenAndServe(*pprof, nil)
	for due := time.Now(); ctx.Err() == nil; {
		due = due.Add(time.Duration(rand.ExpFloat64() / *rate * float64(time.Second)))
		time.Sleep(time.Until(due))
		go transaction(ctx, client)
	}
}

// transaction needs one timestamp to begin, and one to commit.
func transaction(ctx context.Context, client pd.Client) {
	began := time.Now()
	_, _, err := client.GetTS(ctx)
	if err == nil {
		_, _, err = client.GetTS(ctx)
	}
	is := "ok"
	if err != nil {
		is = "err"
	}
	fmt.Println("sample", time.Now().UnixNano(), int64(time.Since(began)), is)
}

// tick is a goroutine of a colleague.
func tick(ctx context.Context, begin time.Time) {
	time.Sleep(time.Until(begin))
	t := time.NewTicker(time.Second)
	defer t.Stop()
	n := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			for range 2000 { // some microseconds
				n = n*31 + 1
			}
		}
	}
}
