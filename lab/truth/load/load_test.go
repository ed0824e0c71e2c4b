package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/lab/truth/wire"
)

func TestSummarize(t *testing.T) {
	var reqs []Request
	for i := range int64(100) { // 100 ns down to 1 ns, due 10 ns before the start
		reqs = append(reqs, Request{Due: 1000 * i, Start: 1000*i + 10, End: 1000*i + 10 + (100 - i), BlamedNS: (100 - i) / 2})
	}
	reqs = append(reqs, Request{Err: "broken", End: 1 << 40}, Request{Name: "other", End: 1 << 40})
	got := Summarize(reqs, func(r *Request) bool { return r.Name == "" })
	if got.Count != 100 || got.Failed != 1 || got.MinNS != 1 || got.P10NS != 10 || got.P50NS != 50 || got.P90NS != 90 || got.P99NS != 99 || got.MaxNS != 100 || got.MeanNS != 50 || got.DueP99NS != 109 {
		t.Errorf("%+v", got)
	}
	if want := 2500. / 5050; got.Share != want {
		t.Errorf("share %v, want %v", got.Share, want)
	}
	check.Equal(t, Summarize(nil, nil), (Summary{}), "the summary of no requests")
}

// TestRun compares the generator's counts with the server's, and its times with the server's minimum.
func TestRun(t *testing.T) {
	const nap = 5 * time.Millisecond
	var requests, slowRequests atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/nap", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		requests.Add(1)
		slowRequests.Add(1)
		begin := time.Now()
		time.Sleep(nap)
		w.Header().Set(wire.Blamed, fmt.Sprint(int64(time.Since(begin))))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.Header().Set("Trailer", wire.Blamed)
		io.WriteString(w, strings.Repeat("x", 100<<10))
		w.Header().Set(wire.Blamed, "7")
	})
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	for _, o := range []Options{
		{Proto: "http1", Conns: 3, Rest: time.Millisecond},
		{Proto: "http1", Conns: 1, Rate: 200, Seed: 5},
		{Proto: "h2", Conns: 3, Rest: time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%s/rate=%g", o.Proto, o.Rate), func(t *testing.T) {
			requests.Store(0)
			slowRequests.Store(0)
			o.Duration = 200 * time.Millisecond
			o.Targets = []Target{{URL: srv.URL + "/nap", Name: "nap", Slow: true, Weight: 2}, {URL: srv.URL + "/other", Name: "other"}}
			if o.Proto == "http1" {
				o.Targets = append(o.Targets, Target{URL: srv.URL + "/nap", Name: "nap", Slow: true, Client: "slow-send"}, Target{URL: srv.URL + "/other", Name: "other", Client: "slow-read"})
			}
			res := must.Have(Run(context.Background(), o))(t)
			if res.All.Failed > 0 || int64(res.All.Count) != requests.Load() || int64(res.Slow.Count) != slowRequests.Load() || res.Slow.Count == 0 || res.All.Count == res.Slow.Count {
				t.Errorf("client: %+v, slow %+v; server: %d, %d slow", res.All, res.Slow, requests.Load(), slowRequests.Load())
			}
			for _, r := range res.Requests {
				if r.Start < 0 || r.Due > r.Start || r.End < r.Start || r.First != 0 && (r.First < r.Start || r.First > r.End) {
					t.Errorf("times out of order: %+v", r)
				}
				if r.Slow && (r.BlamedNS < int64(nap) || r.Latency() < nap) || !r.Slow && r.BlamedNS != 7 {
					t.Errorf("a request with a sleep of %v: %+v", nap, r)
				}
			}
		})
	}
}

// TestRunFails: requests without an answer are counted as failed.
func TestRunFails(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	defer srv.Close()
	res, err := Run(context.Background(), Options{Proto: "http1", Conns: 2, Rest: 10 * time.Millisecond, Duration: 50 * time.Millisecond, Targets: []Target{{URL: srv.URL + "/x", Name: "x"}}})
	check.True(t, err == nil && res.All.Count == 0 && res.All.Failed != 0, "%+v, %v", res, err)
	for _, o := range []Options{{Proto: "http1"}, {Proto: "smtp", Targets: []Target{{URL: srv.URL}}}} {
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("Run accepts %+v", o)
		}
	}
}
