package load

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestGateThresholds checks each gate with a run on either side of its threshold; these runs pass all
// other gates.
func TestGateThresholds(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Result)
		code   string
		valid  bool
	}{
		{"well", func(*Result) {}, "", true},
		{"almost the rate", func(r *Result) { r.AchievedPerS = 992 }, "", true},
		{"not the rate", func(r *Result) { r.AchievedPerS = 985 }, "rate", false},
		// Failed requests have a separate gate: the successful answers came at the requested rate.
		{"the rate but for errors", func(r *Result) { r.Errors, r.answered, r.AchievedPerS = 50, 9950, 993 }, "errors", true},
		{"many errors at the rate", func(r *Result) { r.Errors, r.answered, r.AchievedPerS = 500, 9500, 948 }, "errors", false},
		// The same queue that grows: errors excuse as much of the rate as they are, once.
		{"errors, and not the rate", func(r *Result) { r.Errors, r.answered, r.AchievedPerS = 500, 9500, 920 }, "errors rate", false},
		{"late at p50", func(r *Result) { r.Lateness.P50 = 2e5 }, "lateness", true},
		{"late at p99 alone", func(r *Result) { r.Lateness.P99 = 4e6 }, "lateness", true},
		{"too late at p99 alone", func(r *Result) { r.Lateness.P99 = 12e6 }, "lateness", false},
		{"hardly late", func(r *Result) { r.Lateness.P99 = 1e6 }, "", true},
		{"late at p99, by all of the share", func(r *Result) { r.Lateness.P99 = 2e6 }, "", true},
		{"late at p50, by half", func(r *Result) { r.Lateness.P50 = 5e5 }, "lateness", true},
		{"late at p50, by more than half", func(r *Result) { r.Lateness.P50 = 500001 }, "lateness", false},
		{"late in a closed loop", func(r *Result) { r.Loop, r.Lateness.P99 = "closed", 12e6 }, "closed-loop", true},
		{"slower", func(r *Result) { r.Halves[1].P50 = 15e5 + 1 }, "halves", true},
		{"hardly slower", func(r *Result) { r.Halves[1].P50 = 15e5 }, "", true},
		{"faster", func(r *Result) { r.Halves[1].P50 = 666666 }, "halves", true},
		{"slower in a closed loop", func(r *Result) { r.Loop, r.Halves[1].P50 = "closed", 3e6 }, "closed-loop", true},
		{"slower with phases", func(r *Result) { r.Phases, r.Halves[1].P50 = make([]PhaseResult, 2), 3e6 }, "", true},
		{"slower, of few", func(r *Result) { r.answered, r.Requests, r.Halves[1].P50 = 199, 199, 3e6 }, "few", true},
		{"slower, of enough", func(r *Result) { r.answered, r.Requests, r.Halves[1].P50 = 200, 200, 3e6 }, "halves few", true},
		{"few for a p99", func(r *Result) { r.answered, r.Requests = 99, 99 }, "few", true},
		{"just enough", func(r *Result) { r.answered, r.Requests = 1000, 1000 }, "", true},
		{"none", func(r *Result) { r.answered, r.Dropped = 0, 5 }, "no-answers", false},
		{"dropped", func(r *Result) { r.Dropped = 1 }, "dropped", false},
		{"busy", func(r *Result) { r.Client.CPUShare = 0.71 }, "client-cpu", true},
		{"too busy", func(r *Result) { r.Client.CPUShare = 0.91 }, "client-cpu", false},
		{"throttled", func(r *Result) { r.Client.ThrottledNS = new(int64(10e6 + 1)) }, "client-throttled", true},
		{"hardly throttled", func(r *Result) { r.Client.ThrottledNS = new(int64(10e6)) }, "", true},
		{"throttled too much", func(r *Result) { r.Client.ThrottledNS = new(int64(100e6 + 1)) }, "client-throttled", false},
		{"an error in a thousand", func(r *Result) { r.Errors = 10 }, "", true},
		{"an error more", func(r *Result) { r.Errors = 11 }, "errors", true},
		{"one in a hundred", func(r *Result) { r.Errors = 100 }, "errors", true},
		{"more than that", func(r *Result) { r.Errors = 101 }, "errors", false},
	} {
		r := &Result{Valid: true, Loop: "open", Requests: 10000, answered: 10000, RequestedPerS: 1000, AchievedPerS: 1000,
			Intended: Percentiles{P50: 1e6, P99: 2e7}, Halves: [2]Percentiles{{P50: 1e6}, {P50: 1e6}}}
		c.change(r)
		r.checkGates(10 * time.Second)
		codes := []string{}
		for _, w := range r.Warnings {
			codes = append(codes, w.Code)
		}
		want := strings.Fields(c.code)
		check.True(t, slices.Equal(codes, want) && r.Valid == c.valid,
			"%s: warnings %v, valid %v; want %v, %v", c.name, codes, r.Valid, want, c.valid)
	}
}

// TestAchievedRate: the achieved rate counts until the last answer, less the time of one answer. It
// fails if a service that keeps up is reported as slow because of its last answer's time, and if one
// that answers long after the end is reported as fast.
func TestAchievedRate(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct {
		name       string
		took, last int64
		achieved   float64
	}{
		{"at once", s / 1000, 10 * s, 100},
		{"before the end", s / 1000, 9 * s, 100},
		{"each takes 300 ms", 3 * s / 10, 10*s + 3*s/10, 100},
		{"more than a twentieth of the run is not the answer's", 2 * s, 12 * s, 1000 / 11.5},
		{"the queue grows", s / 10, 20*s + s/10, 50},
	} {
		g := &generator{options: &Options{Phases: []Phase{{StartRate: 100, EndRate: 100, Duration: 10 * time.Second}}, CPUs: 1}, schedule: &Schedule{duration: 10 * s}, recorders: []*recorder{newRecorder(1, 1)}, requestContext: context.Background()}
		for range 1000 {
			g.recorders[0].add(&Sample{Due: c.last - c.took, Start: c.last - c.took, End: c.last, Status: 200}, 0, 0)
		}
		if got := g.newResult().AchievedPerS; got < c.achieved*0.999 || got > c.achieved*1.001 {
			t.Errorf("%s: %.4g answers a second, want %.4g", c.name, got, c.achieved)
		}
	}
}

// TestUnansweredRequests: requests in flight at the end of a run are counted as unanswered and as
// nothing else; those of a warm-up are not counted.
func TestUnansweredRequests(t *testing.T) {
	for name, c := range map[string]struct {
		o          Options
		answered   bool
		unanswered int64
	}{
		"open":              {Options{Phases: phases(t, "100", 10*time.Second), Arrivals: Constant}, true, 50},
		"closed":            {Options{Phases: []Phase{{Duration: 10 * time.Second}}, ClosedClients: 7}, true, 7},
		"one client":        {Options{Phases: []Phase{{Duration: 10 * time.Second}}, ClosedClients: 1}, true, 1},
		"closed, at a rate": {Options{Phases: phases(t, "100", 10*time.Second), Arrivals: Constant, ClosedClients: 7}, true, 7},
		"warm-up":           {Options{Phases: phases(t, "100", 10*time.Second), Arrivals: Constant, Warmup: 2 * time.Second}, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin, calls := time.Now(), atomic.Int64{}
			ctx, cancel := context.WithCancel(context.Background())
			c.o.Targets = []Target{{URL: "http://model/"}}
			c.o.Send = func(ctx context.Context, _ int) Answer {
				calls.Add(1)
				if time.Sleep(time.Millisecond); time.Since(begin) > time.Second { // the server hangs from now on
					<-ctx.Done()
					return Answer{Err: ctx.Err()}
				}
				return Answer{Status: 200}
			}
			time.AfterFunc(1500*time.Millisecond+time.Microsecond, cancel)
			r, err := Run(ctx, c.o)
			must.True(t, errors.Is(err, context.Canceled) && (r != nil) == c.answered, "%s: %v, %v", name, r, err)
			if r == nil {
				return
			}
			if d := r.Unanswered - c.unanswered; d < -1 || d > 1 || r.Requests+r.Unanswered != calls.Load() || r.Errors != 0 || r.TimedOut != 0 || r.Requests < 99 {
				t.Errorf("%s: %d of %d requests unanswered, %d answered, %d failed", name, r.Unanswered, calls.Load(), r.Requests, r.Errors)
			}
			check.Equal(t, r.Loop != "closed", c.o.ClosedClients == 0, "%s: the loop is %q", name, r.Loop)
			if got := codes(r); !strings.Contains(got, "interrupted") || strings.Contains(got, "rate") || strings.Contains(got, "errors") {
				t.Errorf("%s: warnings %s", name, got)
			}
		})
	}
}

// TestRanges: the ends of each range in a message are allowed, values beyond are not, and 0 means the
// default.
func TestRanges(t *testing.T) {
	for name, c := range map[string]struct {
		min, max int64
		set      func(o *Options, v int64)
	}{
		"clients":   {0, 100_000, func(o *Options, v int64) { o.ClosedClients = int(v) }},
		"in flight": {1, 1_000_000, func(o *Options, v int64) { o.MaxInFlight = int(v) }},
		"time-out":  {int64(time.Millisecond), int64(10 * time.Minute), func(o *Options, v int64) { o.Timeout = time.Duration(v) }},
		"warm-up":   {0, int64(MaxDuration), func(o *Options, v int64) { o.Warmup = time.Duration(v) }},
		"targets":   {1, maxTargets, func(o *Options, v int64) { o.Targets = make([]Target, v) }},
	} {
		for v, ok := range map[int64]bool{c.min: true, c.max: true, c.min - 1: name == "in flight", c.max + 1: false} {
			o := Options{Targets: make([]Target, 1), Phases: []Phase{{StartRate: 1, EndRate: 1, Duration: time.Second}}}
			c.set(&o, v)
			check.Equal(t, (o.check() == nil), ok, "%s of %d is allowed: %v", name, v, !ok)
		}
	}
	o := Options{Targets: make([]Target, 1), Phases: make([]Phase, 1)}
	if err := o.check(); err != nil || o.MaxInFlight != 4096 || o.Timeout != 30*time.Second || o.Pace != PaceTimer || o.Arrivals != Poisson || o.CPUs < 1 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, change := range []func(*Options){func(o *Options) { o.Phases = nil }, func(o *Options) { o.Arrivals = "x" }, func(o *Options) { o.Pace = "x" }} {
		o := o
		if change(&o); o.check() == nil {
			t.Errorf("%+v is allowed", o)
		}
	}
}
