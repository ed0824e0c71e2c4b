//go:build go1.25

package flight

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/cputime"
	"github.com/whylate/whylate/service/mark"
)

// BenchmarkCost serves requests over the loopback network to clients in the
// same process, as fast as they go: with nothing, with the runtime's recorder
// alone, and with a Recorder and marks. docs/flight.md has the figures.
func BenchmarkCost(b *testing.B) {
	serve := func(b *testing.B, wrap func(http.Handler) http.Handler) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
		srv := httptest.NewServer(wrap(mux))
		defer srv.Close()
		c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
		defer c.CloseIdleConnections()
		var left atomic.Int64
		left.Store(int64(b.N))
		b.ResetTimer()
		before, _ := cputime.Process()
		began := time.Now()
		var wg sync.WaitGroup
		for range 16 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for left.Add(-1) >= 0 {
					res, err := c.Get(srv.URL + "/items/7")
					if err != nil {
						b.Error(err)
						return
					}
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			}()
		}
		wg.Wait()
		after, _ := cputime.Process()
		b.ReportMetric(float64(after-before)/float64(b.N), "cpu-ns/op")
		b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "req/s")
	}
	plain := func(h http.Handler) http.Handler { return h }
	marked := func(h http.Handler) http.Handler { return mark.Handler(h) }
	b.Run("nothing", func(b *testing.B) { serve(b, plain) })
	b.Run("marks", func(b *testing.B) { serve(b, marked) })
	b.Run("runtime", func(b *testing.B) {
		fr := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: 10 * time.Second, MaxBytes: 10 << 20})
		if err := fr.Start(); err != nil {
			b.Skip(err)
		}
		defer fr.Stop()
		serve(b, plain)
	})
	b.Run("recorder", func(b *testing.B) {
		r, err := Start(Options{Dir: b.TempDir(), Budget: -1, Factor: -1})
		if err != nil {
			b.Fatal(err)
		}
		defer r.Stop()
		serve(b, marked)
		b.StopTimer()
		began := time.Now()
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "snapshot-ms")
		b.ReportMetric(float64(w.Body.Len())/1e6, "snapshot-MB")
	})
}
