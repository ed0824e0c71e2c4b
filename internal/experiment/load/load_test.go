package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// A model answers requests by the clock of a synctest bubble and has a log of the latencies.
type model struct {
	begin time.Time
	mu    sync.Mutex
	log   []time.Duration // latencies from a request's arrival
	serve func(elapsed time.Duration) error
	token chan struct{} // has a token while serveAlone serves a request
}

// serveAlone serves one request at a time. It waits on a channel of the bubble, because a wait for a
// mutex would not let the bubble's clock advance.
func (m *model) serveAlone(d time.Duration) {
	m.token <- struct{}{}
	time.Sleep(d)
	<-m.token
}

func (m *model) send(ctx context.Context, _ int) Answer {
	arrived := time.Now()
	err := m.serve(arrived.Sub(m.begin))
	if ctx.Err() != nil {
		return Answer{Err: ctx.Err()}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, time.Since(arrived))
	if err != nil {
		return Answer{Status: 503, Err: err}
	}
	return Answer{Status: 200}
}

// run runs a load against a model in a synctest bubble.
func run(t *testing.T, o Options, serve func(m *model, elapsed time.Duration) error) (r *Result, m *model) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m = &model{begin: time.Now(), token: make(chan struct{}, 1)}
		m.serve = func(elapsed time.Duration) error { return serve(m, elapsed) }
		o.Send = m.send
		if o.Targets == nil {
			o.Targets = []Target{{URL: "http://model/"}}
		}
		var err error
		if r, err = Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	})
	return r, m
}

func phases(t *testing.T, rate string, d time.Duration) []Phase {
	t.Helper()
	return must.Have(ParseRate(rate, d))(t)
}

func codes(r *Result) string {
	var list []string
	for _, w := range r.Warnings {
		list = append(list, w.Code)
	}
	return strings.Join(list, " ")
}

func rankOf[T time.Duration | int64](all []T, q float64) T {
	s := slices.Clone(all)
	slices.Sort(s)
	return s[max(0, int(q*float64(len(s))+0.999999)-1)]
}

func wantNear(t *testing.T, name string, got, want int64, tolerance float64) {
	t.Helper()
	if d := float64(got - want); d > tolerance*float64(want) || -d > tolerance*float64(want) {
		t.Errorf("%s is %v, want %v", name, time.Duration(got), time.Duration(want))
	}
}

// stall answers in 100 us, except from 2 s to 3 s.
func stall(_ *model, elapsed time.Duration) error {
	if elapsed >= 2*time.Second && elapsed < 3*time.Second {
		time.Sleep(3*time.Second - elapsed)
	}
	time.Sleep(100 * time.Microsecond)
	return nil
}

// TestCoordinatedOmission: the open loop reports the p99 of the server's log. A closed loop of ten
// clients meets the stall ten times in 2500 requests, so its p99 does not show it, and it has a
// warning.
func TestCoordinatedOmission(t *testing.T) {
	for _, arrivals := range []Arrivals{Poisson, Constant} {
		r, m := run(t, Options{Phases: phases(t, "500", 5*time.Second), Arrivals: arrivals, Seed: 1}, stall)
		truth := int64(rankOf(m.log, 0.99))
		must.True(t, truth >= int64(900*time.Millisecond), "the server's own p99 is %v", time.Duration(truth))
		wantNear(t, "p99 from the intended start", r.Intended.P99, truth, 0.05)
		check.True(t, r.Valid && len(m.log) == int(r.Requests), "%d requests, the server counts %d; warnings %s", r.Requests, len(m.log), codes(r))
	}
	r, _ := run(t, Options{Phases: phases(t, "500", 5*time.Second), ClosedClients: 10, Seed: 1}, stall)
	wantNear(t, "p99 of the closed loop", r.Intended.P99, int64(100*time.Microsecond), 0.01)
	if got := codes(r); !strings.Contains(got, "closed-loop") {
		t.Errorf("a closed loop warns of %q", got)
	}
	check.True(t, r.Lateness.P99 >= int64(900*time.Millisecond),
		"the closed loop's lateness, which holds what it left out, is %v at p99", time.Duration(r.Lateness.P99))
}

// TestTimes: the three times of requests that wait for a free client are those of a queue with one
// server.
func TestTimes(t *testing.T) {
	var waited []int64
	r, m := run(t, Options{Phases: phases(t, "100", 10*time.Second), Seed: 3}, func(m *model, _ time.Duration) error {
		begin := time.Now()
		m.serveAlone(5 * time.Millisecond)
		m.mu.Lock()
		defer m.mu.Unlock()
		waited = append(waited, int64(time.Since(begin))-5e6)
		return nil
	})
	check.True(t, r.Service == r.Intended && r.Lateness.Max <= 1, "service %+v, intended %+v, lateness %+v", r.Service, r.Intended, r.Lateness)
	wantNear(t, "p90", r.Intended.P90, int64(rankOf(m.log, 0.9)), 0.001)
	wantNear(t, "p90 of waiting and serving", r.Intended.P90, rankOf(waited, 0.9)+5e6, 0.001)
	check.True(t, r.Valid && r.AchievedPerS >= 0.99*r.RequestedPerS, "achieved %v of %v: %s", r.AchievedPerS, r.RequestedPerS, codes(r))
}

// TestGates: each gate gives its warning, and the gates that make a run unusable make it invalid.
func TestGates(t *testing.T) {
	quick := func(*model, time.Duration) error { time.Sleep(time.Millisecond); return nil }
	var requests, calls atomic.Int64
	for _, c := range []struct {
		name  string
		o     Options
		serve func(*model, time.Duration) error
		codes string
		valid bool
	}{
		{"good", Options{Phases: phases(t, "200", 10*time.Second)}, quick, "", true},
		{"few", Options{Phases: phases(t, "5", 10*time.Second)}, quick, "few", true},
		{"overloaded", Options{Phases: phases(t, "200", 10*time.Second)}, func(m *model, _ time.Duration) error {
			m.serveAlone(6 * time.Millisecond) // 167 requests a second
			return nil
		}, "rate halves", false},
		{"overloaded from the start", Options{Phases: phases(t, "200", 10*time.Second)}, func(_ *model, elapsed time.Duration) error {
			time.Sleep(20*time.Second - elapsed)
			return nil
		}, "rate", false},
		{"dropped", Options{Phases: phases(t, "200", 10*time.Second), MaxInFlight: 5}, func(_ *model, elapsed time.Duration) error {
			if elapsed > 5*time.Second && elapsed < 6*time.Second {
				time.Sleep(6*time.Second - elapsed)
			}
			return quick(nil, 0)
		}, "dropped rate", false},
		{"some errors", Options{Phases: phases(t, "200", 10*time.Second)}, func(*model, time.Duration) error {
			if calls.Add(1)%200 == 7 {
				return errors.New("status 503")
			}
			return quick(nil, 0)
		}, "errors", true},
		{"many errors", Options{Phases: phases(t, "200", 10*time.Second)}, func(*model, time.Duration) error {
			if requests.Add(1)%20 == 7 {
				return errors.New("status 503")
			}
			return quick(nil, 0)
		}, "errors", false},
		{"nothing", Options{Phases: phases(t, "200", time.Second)}, func(*model, time.Duration) error { return errors.New("connection refused") }, "no-answers", false},
		{"unsettled", Options{Phases: phases(t, "200", 10*time.Second)}, func(_ *model, elapsed time.Duration) error {
			if elapsed < 5*time.Second {
				time.Sleep(3 * time.Millisecond)
			}
			return quick(nil, 0)
		}, "halves", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := run(t, c.o, c.serve)
			if got := codes(r); got != c.codes || r.Valid != c.valid {
				t.Errorf("warnings %q, valid %v, want %q, %v: %+v", got, r.Valid, c.codes, c.valid, r)
			}
			for _, w := range r.Warnings {
				check.True(t, strings.ContainsAny(w.Text, ":;"), "no remedy in %q", w.Text)
			}
		})
	}
}

// TestTimeouts: a request that times out counts as an error and has the time-out as its latency.
func TestTimeouts(t *testing.T) {
	r, _ := run(t, Options{Phases: phases(t, "100", 10*time.Second), Timeout: time.Second}, func(_ *model, elapsed time.Duration) error {
		if elapsed > 5*time.Second && elapsed < 6*time.Second {
			time.Sleep(2 * time.Second)
		}
		return nil
	})
	if r.TimedOut < 60 || r.Errors != r.TimedOut || r.Intended.P99 < int64(time.Second) || r.Valid {
		t.Errorf("%d timed out, %d errors, p99 %v, valid %v", r.TimedOut, r.Errors, time.Duration(r.Intended.P99), r.Valid)
	}
}

// TestWarmup: a slow start is not in the figures, and the recorded part has the whole schedule.
func TestWarmup(t *testing.T) {
	r, m := run(t, Options{Phases: phases(t, "100", 5*time.Second), Warmup: time.Second, Seed: 4}, func(_ *model, elapsed time.Duration) error {
		if elapsed < 900*time.Millisecond {
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	})
	s := must.Have(NewSchedule(phases(t, "100", 5*time.Second), Poisson, 4, []int{1}))(t)
	check.True(t, int(r.Requests) == s.Len() && len(m.log) >= s.Len()+60 && r.Intended.Max <= 1e6,
		"%d requests of %d recorded, %d served, max %v", r.Requests, s.Len(), len(m.log), time.Duration(r.Intended.Max))
}

// TestInterrupted: an interrupted run is marked as such and keeps its answers.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		m := &model{begin: time.Now(), serve: func(time.Duration) error { time.Sleep(time.Millisecond); return nil }}
		r, err := Run(ctx, Options{Targets: []Target{{}}, Phases: phases(t, "100", 10*time.Second), Send: m.send})
		if !errors.Is(err, context.DeadlineExceeded) || r == nil || r.Requests < 150 || r.Requests > 250 || r.Valid || r.AchievedPerS < 80 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestSaturation: a closed loop without a rate measures the capacity of a service.
func TestSaturation(t *testing.T) {
	r, _ := run(t, Options{Phases: []Phase{{Duration: 10 * time.Second}}, ClosedClients: 16}, func(m *model, _ time.Duration) error {
		m.serveAlone(2 * time.Millisecond)
		return nil
	})
	check.True(t, r.AchievedPerS >= 495 && r.AchievedPerS <= 505 && r.RequestedPerS == 0, "achieved %v", r.AchievedPerS)
}

// TestPhasesAndTargets: the result has separate figures for each phase and target.
func TestPhasesAndTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		send := func(_ context.Context, target int) Answer {
			d := time.Duration(1+target) * 10 * time.Millisecond
			if time.Since(begin) > 5*time.Second {
				d *= 4
			}
			time.Sleep(d)
			return Answer{Status: 200}
		}
		r := must.Have(Run(context.Background(), Options{Targets: []Target{{URL: "http://x/a", Weight: 3}, {URL: "http://x/b"}}, Phases: phases(t, "100,300", 10*time.Second), Send: send}))(t)
		must.True(t, len(r.Phases) == 2 && len(r.Targets) == 2, "%+v", r)
		wantNear(t, "the first phase", r.Phases[0].Intended.P50, 10e6, 0.001)
		wantNear(t, "the second phase", r.Phases[1].Intended.P50, 40e6, 0.001)
		wantNear(t, "the rare target", r.Targets[1].Intended.Max, 80e6, 0.001)
		wantNear(t, "requests of the second phase", r.Phases[1].Requests, 1500, 0.1)
		wantNear(t, "the frequent target", r.Targets[0].Requests, 3*r.Targets[1].Requests, 0.1)
		check.True(t, r.Targets[0].Name == "GET /a", "a target is called %q", r.Targets[0].Name)
	})
}

func TestSchedule(t *testing.T) {
	const d = 100 * time.Second
	for _, rate := range []string{"50", "10..90", "90..10", "20,80", "50..50,50"} {
		for _, arrivals := range []Arrivals{Constant, Poisson} {
			p := phases(t, rate, d)
			s := must.Have(NewSchedule(p, arrivals, 7, []int{1}))(t)
			spread := 1.0
			if arrivals == Poisson {
				spread = 200 // five standard deviations of a count of about 1250
			}
			check.True(t, s.Len() == 5000, "%s %s: %v requests", rate, arrivals, s.Len())
			check.True(t, slices.IsSorted(s.dueTimes) && s.dueTimes[0] >= 0 && s.dueTimes[s.Len()-1] < int64(d),
				"%s %s: times are not in order, or outside of the run", rate, arrivals)
			// The first quarter of the time has its part of the integral.
			first := float64(slices.IndexFunc(s.dueTimes, func(v int64) bool { return v > int64(d)/4 }))
			want := map[string]float64{"50": 1250, "10..90": 500, "90..10": 2000, "20,80": 500, "50..50,50": 1250}[rate]
			check.True(t, first >= want-spread-1 && first <= want+spread+1, "%s %s: %v requests in the first quarter, want %v", rate, arrivals, first, want)
			sameSeed, _ := NewSchedule(p, arrivals, 7, []int{1})
			otherSeed, _ := NewSchedule(p, arrivals, 8, []int{1})
			if !slices.Equal(sameSeed.dueTimes, s.dueTimes) || arrivals == Poisson && slices.Equal(otherSeed.dueTimes, s.dueTimes) {
				t.Errorf("%s %s: the seed does not decide the schedule", rate, arrivals)
			}
		}
	}
	if s, _ := NewSchedule(phases(t, "10", time.Second), Constant, 1, []int{1}); s.dueTimes[3] != 300e6 {
		t.Errorf("the fourth of ten a second is due at %v", time.Duration(s.dueTimes[3]))
	}
}

func TestBadSchedules(t *testing.T) {
	for _, s := range []string{"", "0", "-1", "x", "1..", "NaN", "Inf", "1e9", "1,,2"} {
		if p, err := ParseRate(s, time.Second); err == nil {
			t.Errorf("rate %q gives %v", s, p)
		}
	}
	for _, d := range []time.Duration{0, -1, 2 * time.Hour} {
		if _, err := ParseRate("1", d); err == nil {
			t.Errorf("a duration of %v is taken", d)
		}
	}
	if _, err := NewSchedule([]Phase{{1e6, 1e6, time.Minute}}, Constant, 1, nil); err == nil {
		t.Error("sixty million requests are laid out")
	}
}

// TestPercentiles: percentiles are those of a sort of all samples to three digits, for any
// distribution of the samples over recorders.
func TestPercentiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	whole := newRecorder(1, 1)
	parts := []*recorder{newRecorder(1, 1), newRecorder(1, 1), newRecorder(1, 1)}
	var all []int64
	for range 200_000 {
		ns := int64(1e5 * (0.2 + random.ExpFloat64()*random.ExpFloat64()*random.ExpFloat64()))
		all = append(all, ns)
		s := Sample{End: ns}
		whole.add(&s, 0, 0)
		parts[random.IntN(3)].add(&s, 0, 0)
	}
	parts[0].merge(parts[1])
	parts[0].merge(parts[2])
	check.True(t, parts[0].intended.Equals(whole.intended) && parts[0].answered == whole.answered, "merged recorders differ from a single one")
	got := percentiles(whole.intended)
	for _, c := range []struct {
		q   float64
		got int64
	}{{0.5, got.P50}, {0.9, got.P90}, {0.99, got.P99}, {0.999, got.P999}, {1, got.Max}} {
		wantNear(t, fmt.Sprint("quantile ", c.q), c.got, rankOf(all, c.q), 0.001)
	}
	h := newHistogram()
	recordValue(h, 10*maxLatency)
	recordValue(h, -5)
	check.True(t, h.TotalCount() == 2, "values outside of the range are not counted")
}

// TestViews: other tools can read the histogram log and the benchmark line.
func TestViews(t *testing.T) {
	r, m := run(t, Options{Phases: phases(t, "200", 10*time.Second), Seed: 1}, func(_ *model, elapsed time.Duration) error {
		time.Sleep(elapsed % (17 * time.Millisecond))
		return nil
	})
	var b bytes.Buffer
	must.Do(t, WriteHDR(&b, r))
	h, err := hdr.NewHistogramLogReader(&b).NextIntervalHistogram()
	if err != nil || h == nil {
		t.Fatal(h, err)
	}
	check.True(t, h.TotalCount() == int64(len(m.log)) && h.ValueAtPercentile(99) == r.Intended.P99,
		"the log holds %d requests with a p99 of %d", h.TotalCount(), h.ValueAtPercentile(99))
	b.Reset()
	must.Do(t, WriteBench(&b, r, "/a b"))
	if want := fmt.Sprintf("BenchmarkLoad/path=/a_b/rate=%.4g %d %d p50-ns ", r.RequestedPerS, r.Requests, r.Intended.P50); !strings.HasPrefix(b.String(), want) || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("%q does not begin with %q", b.String(), want)
	}
	b.Reset()
	must.Do(t, WriteText(&b, r, "http://model/\x1b[2J"))
	for _, want := range []string{"p99.9", "latency from the intended start", "99.219%"} {
		check.True(t, strings.Contains(b.String(), want), "no %q in\n%s", want, b.String())
	}
	check.False(t, strings.Contains(b.String(), "\x1b"), "a control character came through")
}

func TestBadOptions(t *testing.T) {
	ok := Options{Targets: []Target{{URL: "http://127.0.0.1:1/"}}, Phases: phases(t, "10", time.Second)}
	for name, change := range map[string]func(*Options){
		"no target":  func(o *Options) { o.Targets = nil },
		"no phase":   func(o *Options) { o.Phases = nil },
		"arrivals":   func(o *Options) { o.Arrivals = "bursts" },
		"pace":       func(o *Options) { o.Pace = "fast" },
		"clients":    func(o *Options) { o.ClosedClients = -1 },
		"cap":        func(o *Options) { o.MaxInFlight = -1 },
		"time-out":   func(o *Options) { o.Timeout = time.Hour },
		"warm-up":    func(o *Options) { o.Warmup = -1 },
		"no scheme":  func(o *Options) { o.Targets = []Target{{URL: "127.0.0.1:1"}} },
		"no request": func(o *Options) { o.Phases = []Phase{{1e-9, 1e-9, time.Second}} },
		"too long":   func(o *Options) { o.Phases = []Phase{{Duration: 48 * time.Hour}}; o.ClosedClients = 1 },
	} {
		o := ok
		change(&o)
		if r, err := Run(context.Background(), o); err == nil {
			t.Errorf("%s: ran and gave %+v", name, r)
		}
	}
}
