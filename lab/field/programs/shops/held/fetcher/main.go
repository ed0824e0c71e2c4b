// Fetcher passes requests on by hashicorp/go-retryablehttp.
//
// Faults: unavailable (the other service answers two of three requests with
// 503, and the client waits 20 ms and 40 ms before it asks again).
package main

import (
	"io"
	"log"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"shop.example/shops/internal/run"
)

type fetcher struct{ client *retryablehttp.Client }

func (f *fetcher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, err := f.fetch()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Write(b)
}

func (f *fetcher) fetch() ([]byte, error) {
	resp, err := f.client.Get("http://" + *run.Peer + "/stock")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

func main() {
	run.Parse("unavailable")
	if *run.AsPeer {
		var n atomic.Int64
		log.Fatal(http.ListenAndServe(*run.Listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if run.Fault("unavailable") && n.Add(1)%3 != 0 {
				http.Error(w, "not now", http.StatusServiceUnavailable)
				return
			}
			io.WriteString(w, "17")
		})))
	}
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = 8, 20*time.Millisecond, 40*time.Millisecond
	c.HTTPClient.Transport.(*http.Transport).MaxIdleConnsPerHost = 50
	run.ServePath("/stock", &fetcher{c})
}
