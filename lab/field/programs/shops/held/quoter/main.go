// Quoter answers RPCs of connectrpc.com/connect: it asks another service for
// the prices of six items at the same time, by an errgroup. Those from far
// away take 20 ms.
//
// Faults: limit (the errgroup's limit is one, so that they are asked for one
// after the other, 3 ms each).
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"shop.example/shops/internal/run"
)

type quoter struct{ client *http.Client }

func (q *quoter) quote(ctx context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
	g, ctx := errgroup.WithContext(ctx)
	if run.Fault("limit") {
		g.SetLimit(1)
	}
	var sum atomic.Int64
	for i := range 6 {
		g.Go(func() error {
			n, err := q.price(ctx, r.Msg.GetValue(), i)
			sum.Add(int64(n))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return connect.NewResponse(wrapperspb.String(fmt.Sprint(r.Msg.GetValue(), " ", sum.Load()))), nil
}

// price asks for the price of an item from somewhere.
func (q *quoter) price(ctx context.Context, from string, item int) (int, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprint("http://", *run.Peer, "/price?item=", item, "&from=", url.QueryEscape(from)), nil)
	if err != nil {
		return 0, err
	}
	resp, err := q.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return len(b), err
}

func main() {
	run.Parse("limit")
	if *run.AsPeer {
		log.Fatal(http.ListenAndServe(*run.Listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.FormValue("from") == "far" {
				time.Sleep(17 * time.Millisecond)
			}
			time.Sleep(3 * time.Millisecond)
			io.WriteString(w, "12")
		})))
	}
	q := &quoter{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 50}}}
	mux := http.NewServeMux()
	const quote = "/shop.v1.Quotes/Quote"
	mux.Handle(quote, connect.NewUnaryHandler(quote, q.quote))
	run.ServeRequests(mux)
}
