//go:build go1.25

package flight

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/trace"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/cputime"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/mark"
)

// TestCostFigures prints the table of docs/flight.md: the CPU time of a service that is idle,
// serves a thousand requests a second, as many as it can, and 40,000 without a network;
// each without a recorder, with the runtime's, and with ours. It checks nothing.
func TestCostFigures(t *testing.T) {
	if os.Getenv("WHYLATE_COST") == "" {
		t.Skip("takes a quiet machine for a minute: WHYLATE_COST=1")
	}
	const long = 4 * time.Second
	rates := []int{0, 1000, -1, 40000}
	if one, err := strconv.Atoi(os.Getenv("WHYLATE_COST")); err == nil && one != 1 {
		rates = []int{one}
	}
	mux, inside := measuredServer(t), httptest.NewRequest("GET", "/inside", nil)
	for _, rate := range rates {
		for _, mode := range []string{"nothing", "runtime", "recorder", "nothing again"} {
			var h http.Handler = mux
			var r *Recorder
			fr := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: 10 * time.Second, MaxBytes: 10 << 20})
			switch mode {
			case "runtime":
				must.Do(t, fr.Start())
			case "recorder":
				h = mark.Handler(mux)
				var err error
				if r, err = Start(Options{Dir: t.TempDir(), Budget: -1, Factor: -1}); err != nil {
					t.Fatal(err)
				}
			}
			srv := httptest.NewServer(h)
			c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
			var sent atomic.Int64
			get := func() {
				sent.Add(1)
				if res, err := c.Get(srv.URL + "/items/7"); err == nil {
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			}
			runtime.GC()
			before, _ := cputime.Process()
			began := time.Now()
			var wg sync.WaitGroup
			workers := 16
			if rate == 40000 {
				workers = 1
			}
			for i := range workers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for n := 0; time.Since(began) < long; n++ {
						switch rate {
						case 0:
							time.Sleep(long)
						case -1:
							get()
						case 40000: // 40 at once in each millisecond
							time.Sleep(time.Until(began.Add(time.Duration(n) * time.Millisecond)))
							sent.Add(40)
							for range 40 {
								wg.Add(1)
								go func() {
									defer wg.Done()
									h.ServeHTTP(discardWriter{}, inside.Clone(context.Background()))
								}()
							}
						default:
							time.Sleep(time.Until(began.Add(time.Duration(16*n+i) * time.Second / time.Duration(rate))))
							get()
						}
					}
				}()
			}
			wg.Wait()
			after, _ := cputime.Process()
			took := time.Since(began)
			line := fmt.Sprintf("%6d req/s, %-13s: %6.2f %% of a CPU", int(float64(sent.Load())/took.Seconds()), mode, 100*(after-before).Seconds()/took.Seconds())
			if n := sent.Load(); n > 0 {
				line += fmt.Sprintf(", %.1f us a request", float64((after-before).Microseconds())/float64(n))
			}
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			line += fmt.Sprintf(", heap %.1f MB", float64(m.HeapAlloc)/1e6)
			if r != nil {
				w := httptest.NewRecorder()
				start := time.Now()
				r.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				line += fmt.Sprintf(", snapshot %.2f MB in %v", float64(w.Body.Len())/1e6, time.Since(start).Round(100*time.Microsecond))
				s := r.State()
				line += fmt.Sprintf("; says %.2f %% by %s, own %.3f %%, %.0f bytes/s", 100*s.Cost, s.CostFrom, 100*s.OwnCost, s.BytesPerSecond)
				if n := sent.Load(); n > 0 && s.BytesPerSecond > 0 {
					line += fmt.Sprintf(", %.0f bytes a request", s.BytesPerSecond*took.Seconds()/float64(n))
				}
				r.Stop()
			}
			fr.Stop()
			srv.Close()
			c.CloseIdleConnections()
			t.Log(line)
		}
	}
}

// measuredServer returns the server whose cost is measured. A request of /inside, which needs no network, waits for another
// goroutine, as most requests do.
func measuredServer(t *testing.T) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	work := make(chan chan bool)
	t.Cleanup(func() { close(work) })
	for range 2 {
		go func() {
			for done := range work {
				done <- true
			}
		}()
	}
	mux.HandleFunc("GET /inside", func(http.ResponseWriter, *http.Request) {
		done := make(chan bool)
		work <- done
		<-done
	})
	return mux
}

// TestCostByTurns prints the CPU time of a request: without a recorder, with the runtime's
// recorder, with ours, and with ours while every request is a trigger. The modes alternate
// many times, and each result is compared with another one of the same round, so that
// other work on the machine matters little. It checks nothing.
func TestCostByTurns(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("WHYLATE_COST_ROUNDS"))
	if err != nil {
		t.Skip("takes minutes: WHYLATE_COST_ROUNDS=20")
	}
	mux, inside := measuredServer(t), httptest.NewRequest("GET", "/inside", nil)
	// 40,000 a second without a network: 40 at once in each millisecond.
	paced := func(h http.Handler) (n int) {
		const ticks = 2000
		var wg sync.WaitGroup
		began := time.Now()
		for i := range ticks {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Millisecond)))
			for range 40 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					h.ServeHTTP(discardWriter{}, inside.Clone(context.Background()))
				}()
			}
		}
		wg.Wait()
		return 40 * ticks
	}
	loopback := func(h http.Handler) (n int) {
		const all, clients = 32000, 16
		srv := httptest.NewServer(h)
		defer srv.Close()
		c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
		defer c.CloseIdleConnections()
		var wg sync.WaitGroup
		for range clients {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range all / clients {
					if res, err := c.Get(srv.URL + "/items/7"); err == nil {
						io.Copy(io.Discard, res.Body)
						res.Body.Close()
					}
				}
			}()
		}
		wg.Wait()
		return all
	}
	const noRecorder, runtimeRecorder, flightRecorder, storm = 0, 1, 2, 3
	names := []string{"nothing", "the runtime's recorder", "ours, with marks", "ours, each a trigger"}
	for _, load := range []struct {
		name string
		run  func(http.Handler) int
	}{{"40,000 a second, no network", paced}, {"as fast as it goes, loopback", loopback}} {
		cpu, rate := make([][]float64, 4), make([][]float64, 4)
		for round := range rounds {
			for k := range 4 {
				mode := (k + round) % 4
				var h http.Handler = mux
				stop := func() {}
				switch mode {
				case runtimeRecorder:
					fr := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: 10 * time.Second, MaxBytes: 10 << 20})
					must.Do(t, fr.Start())
					stop = fr.Stop
				case flightRecorder, storm:
					h = mark.Handler(mux)
					opts := Options{Dir: t.TempDir(), Budget: -1, Tail: time.Millisecond, Slow: time.Hour}
					if mode == storm {
						opts.Slow = 1
					}
					r := must.Have(Start(opts))(t)
					// Its only recording is taken before the measurement.
					r.requestEnded(mark.Ended{Name: "first", Took: 2 * time.Hour})
					waitUntil(t, "the storm's recording", func() bool { return r.State().Kept == 1 })
					stop = func() {
						if s := r.State(); mode == storm && s.Kept != 1 {
							t.Errorf("the storm costs %d recordings", s.Kept)
						}
						r.Stop()
					}
				}
				runtime.GC()
				before, _ := cputime.Process()
				began := time.Now()
				n := load.run(h)
				after, _ := cputime.Process()
				took := time.Since(began)
				stop()
				cpu[mode] = append(cpu[mode], float64(after-before)/float64(n))
				rate[mode] = append(rate[mode], float64(n)/took.Seconds())
			}
		}
		spread := func(v []float64) (q1, q2, q3 float64) {
			v = slices.Sorted(slices.Values(v))
			return v[len(v)/4], v[len(v)/2], v[3*len(v)/4]
		}
		ratios := func(v [][]float64, a, b int) (out []float64) {
			for i := range v[a] {
				out = append(out, v[a][i]/v[b][i])
			}
			return out
		}
		for mode, name := range names {
			q1, q2, q3 := spread(cpu[mode])
			r1, r2, r3 := spread(ratios(cpu, mode, noRecorder))
			_, per, _ := spread(rate[mode])
			t.Logf("%s: %-22s %.2f us of CPU a request (%.2f to %.2f), %.3f of nothing's (%.3f to %.3f), %.0f a second", load.name, name, q2/1e3, q1/1e3, q3/1e3, r2, r1, r3, per)
		}
		for _, p := range [][2]int{{flightRecorder, runtimeRecorder}, {storm, flightRecorder}} {
			q1, q2, q3 := spread(ratios(cpu, p[0], p[1]))
			r1, r2, r3 := spread(ratios(rate, p[0], p[1]))
			t.Logf("%s: %s against %s: CPU time %.3f (%.3f to %.3f), throughput %.3f (%.3f to %.3f)", load.name, names[p[0]], names[p[1]], q2, q1, q3, r2, r1, r3)
		}
	}
}

// A discardWriter discards a response.
type discardWriter struct{}

func (discardWriter) Header() http.Header         { return http.Header{} }
func (discardWriter) Write(p []byte) (int, error) { return len(p), nil }
func (discardWriter) WriteHeader(int)             {}

// BenchmarkTrigger measures slow requests that get no recording any more.
func BenchmarkTrigger(b *testing.B) {
	r := must.Have(Start(Options{Dir: b.TempDir(), Budget: -1, Slow: time.Millisecond, Tail: time.Hour}))(b)
	defer r.Stop()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			r.requestEnded(mark.Ended{Name: "GET /", Status: "2xx", Took: time.Second})
		}
	})
}

// BenchmarkCost serves requests over the loopback network to clients in the
// same process, as fast as possible: without a recorder, with the runtime's
// recorder alone, and with a Recorder and marks. docs/flight.md has the figures.
func BenchmarkCost(b *testing.B) {
	serve := func(b *testing.B, wrap func(http.Handler) http.Handler) {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
		srv := httptest.NewServer(wrap(mux))
		defer srv.Close()
		c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
		defer c.CloseIdleConnections()
		var remaining atomic.Int64
		remaining.Store(int64(b.N))
		b.ResetTimer()
		before, _ := cputime.Process()
		began := time.Now()
		var wg sync.WaitGroup
		for range 16 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for remaining.Add(-1) >= 0 {
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
		r := must.Have(Start(Options{Dir: b.TempDir(), Budget: -1, Factor: -1}))(b)
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
