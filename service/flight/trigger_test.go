package flight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/mark"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/redact"
)

// An emptyRing can be started and holds nothing.
type emptyRing struct {
	running bool
	fail    error
}

func (s *emptyRing) start(time.Duration, uint64) error {
	if s.fail == nil {
		s.running = true
	}
	return s.fail
}
func (s *emptyRing) stop()                            { s.running = false }
func (s *emptyRing) enabled() bool                    { return s.running }
func (s *emptyRing) writeTo(io.Writer) (int64, error) { return 0, errors.New("it holds nothing") }

// newIdleRecorder returns a recorder without its goroutines.
func newIdleRecorder(o Options) *Recorder {
	now := time.Now()
	return &Recorder{opts: o, ring: &emptyRing{running: true}, planChanged: make(chan struct{}, 1), missedSinceLast: map[Kind]uint64{}, governor: newGovernor(-1, o.MinAge),
		plan: plan{tail: time.Second, gap: time.Minute, minAge: o.MinAge, reach: o.MinAge}, hourBucket: newTokenBucket(100, time.Hour, now), dayBucket: newTokenBucket(100, time.Hour, now),
		state: State{Recording: true, Triggers: map[Kind]uint64{}, Missed: map[Kind]uint64{}}}
}

// TestHandleSecond tests that a second's metrics trigger above their bound, not at it, and not without a bound.
func TestHandleSecond(t *testing.T) {
	base := Options{MinAge: 10 * time.Second, MaxBytes: 1 << 20, Share: 0.5, Latency: time.Millisecond, Goroutines: 100, GC: 0.25}
	for name, c := range map[string]struct {
		change       func(*Options)
		metrics      metricsReading
		marked, slow uint64
		want         []Kind
	}{
		"nothing":             {nil, metricsReading{}, 100, 0, nil},
		"at each bound":       {nil, metricsReading{schedLatency: time.Millisecond, goroutines: 100, gcShare: 0.25}, 20, 9, nil},
		"beyond each":         {nil, metricsReading{schedLatency: time.Millisecond + 1, goroutines: 101, gcShare: 0.2501}, 20, 10, []Kind{KindGC, KindGoroutines, KindLatency, KindMany}},
		"just half":           {nil, metricsReading{}, 20, 10, []Kind{KindMany}},
		"less than half":      {nil, metricsReading{}, 21, 10, nil},
		"half, of too few":    {nil, metricsReading{}, 18, 9, nil},
		"without bounds":      {func(o *Options) { o.Share, o.Latency, o.Goroutines, o.GC = 0, 0, 0, 0 }, metricsReading{schedLatency: time.Hour, goroutines: 1e6, gcShare: 1}, 20, 20, nil},
		"of each alone":       {func(o *Options) { o.Latency, o.GC = 0, 0 }, metricsReading{schedLatency: time.Hour, goroutines: 101, gcShare: 1}, 0, 0, []Kind{KindGoroutines}},
		"the collector alone": {func(o *Options) { o.Goroutines, o.Share = 0, 0 }, metricsReading{goroutines: 1e6, gcShare: 0.3}, 20, 20, []Kind{KindGC}},
	} {
		o := base
		if c.change != nil {
			c.change(&o)
		}
		r := newIdleRecorder(o)
		r.markedRequests, r.slowRequests = c.marked, c.slow
		c.metrics.elapsed = time.Second
		r.handleSecond(1, c.metrics)
		var got []Kind
		for k, n := range r.state.Triggers {
			if got = append(got, k); n != 1 {
				t.Errorf("%s: %d times %s", name, n, k)
			}
		}
		slices.Sort(got)
		check.True(t, slices.Equal(got, c.want) && r.markedRequests == 0 && r.slowRequests == 0,
			"%s: %v, want %v; %d seen, %d slow are left", name, got, c.want, r.markedRequests, r.slowRequests)
	}
}

// TestReach tests that the reach is MinAge, or less if MaxBytes are written in less time.
func TestReach(t *testing.T) {
	r := newIdleRecorder(Options{MinAge: 10 * time.Second, MaxBytes: 1 << 20})
	r.handleSecond(1, metricsReading{starts: (1 << 20) / startBytes, elapsed: time.Second}) // the moving average adds a fifth of it
	if d := r.plan.reach - 5*time.Second; d < -10*time.Millisecond || d > 10*time.Millisecond || r.state.Reach != r.plan.reach {
		t.Errorf("it reaches %v back", r.plan.reach)
	}
	for n := range 100 {
		r.handleSecond(n, metricsReading{elapsed: time.Second})
	}
	check.True(t, r.plan.reach == 10*time.Second, "when it is calm it reaches %v back", r.plan.reach)
}

// TestRequestEnded tests which requests are slow by Options.Slow and which are unusual for their route.
func TestRequestEnded(t *testing.T) {
	began := time.Now().Add(-time.Minute)
	r := newIdleRecorder(Options{MinAge: 10 * time.Second, Slow: time.Second, Factor: 2, Share: 1})
	route := r.routes.getOrCreate("/a")
	route.limit.Store(int64(500 * time.Millisecond))
	for i, c := range []struct {
		took time.Duration
		want Kind
	}{{500 * time.Millisecond, ""}, {500*time.Millisecond + 1, KindUnusual}, {time.Second, KindUnusual}, {time.Second + 1, KindSlow}} {
		before := map[Kind]uint64{KindSlow: r.state.Triggers[KindSlow], KindUnusual: r.state.Triggers[KindUnusual]}
		r.requestEnded(mark.Ended{Name: "/a", Took: c.took, Began: began})
		for k, n := range before {
			check.Equal(t, r.state.Triggers[k] > n, k == c.want, "request %d of %v: %s fired", i, c.took, k)
		}
	}
	check.True(t, r.markedRequests == 4 && r.slowRequests == 3, "%d seen, %d slow", r.markedRequests, r.slowRequests)
	freezes := newIdleRecorder(Options{MinAge: 10 * time.Second, Freeze: 50 * time.Millisecond})
	for _, d := range []time.Duration{50*time.Millisecond - 1, 50 * time.Millisecond, time.Second} {
		freezes.OnFreeze(probe.Freeze{Likely: d})
	}
	check.True(t, freezes.state.Triggers[KindFreeze] == 2 && len(freezes.plan.waiting) == 1 && freezes.plan.waiting[0].took == time.Second,
		"%v, %+v", freezes.state.Triggers, freezes.plan.waiting)
}

// TestFire tests that the first trigger wakes the recorder's goroutine, and that a trigger counts as missed if no recording
// can hold it or the recorder is off.
func TestFire(t *testing.T) {
	r := newIdleRecorder(Options{MinAge: 10 * time.Second})
	now := time.Now()
	r.fire(moment{kind: KindSlow, end: now, took: time.Second})
	check.True(t, len(r.planChanged) == 1 && len(r.missedSinceLast) == 0, "%d wake, %v missed", len(r.planChanged), r.missedSinceLast)
	<-r.planChanged
	if r.fire(moment{kind: KindSlow, end: now, took: time.Second}); len(r.planChanged) != 0 || r.state.Triggers[KindSlow] != 2 {
		t.Errorf("a further trigger wakes %d, %v", len(r.planChanged), r.state.Triggers)
	}
	// The plan waits for the end of a gap. A far worse request is recorded at once, so the recorder's goroutine must not sleep on.
	r.plan.tailStart, r.plan.lastRecorded[classRequests], r.plan.longestRecorded[classRequests] = now.Add(5*time.Second), now.Add(-5*time.Second), time.Second
	r.fire(moment{kind: KindSlow, end: now, took: farWorseFactor * time.Second})
	check.True(t, len(r.planChanged) == 1 && r.plan.tailStart.Equal(now), "a far worse trigger wakes %d, due %v after it", len(r.planChanged), r.plan.tailStart.Sub(now))
	r.stopRing("why")
	check.True(t, !r.state.Recording && r.state.Why == "why" && r.state.Missed[KindSlow] == 3 && !r.ring.enabled(), "%+v", r.state)
	r.fire(moment{kind: KindGC, end: now})
	check.True(t, r.missedSinceLast[KindGC] == 1 && r.state.Missed[KindGC] == 1, "while it is off: %v", r.missedSinceLast)
	r.ring.(*emptyRing).fail = errors.New("busy")
	r.startRing()
	check.True(t, !r.state.Recording && r.state.Why == "busy; it is tried again", "%+v", r.state)
	r.ring.(*emptyRing).fail = nil
	r.startRing()
	check.True(t, r.state.Recording && r.state.Why == "", "%+v", r.state)
	r.hourBucket.tokens = 0
	r.fire(moment{kind: KindSlow, end: now})
	check.Equal(t, r.missedSinceLast[KindSlow], 4, "beyond the hour's: %v", r.missedSinceLast)
	check.True(t, !r.checkLimits(KindSlow, now) && r.checkLimits(KindSlow, now.Add(time.Hour)), "the hour's number is not kept")
	r.hourBucket.tokens = 50.5
	check.True(t, !r.checkLimits(KindFreeze, now) && r.checkLimits(KindSlow, now), "half of them are not for requests")
	a := &captureRequest{trigger: Trigger{Kind: KindAsked}, heldCounts: map[Kind]uint64{KindGC: 2}, done: make(chan struct{})}
	check.True(t, !r.capture(a) && a.err != nil, "a ring that holds nothing was kept")
}

// TestSetDefaults tests the defaults of options and the ends of their ranges.
func TestSetDefaults(t *testing.T) {
	var o Options
	must.Do(t, o.setDefaults())
	const want = "268435456 4 10ms 50ms 200ms 1m0s 6 48 10s 10485760 0.02"
	if got := fmt.Sprint(o.MaxDisk, o.Factor, o.MinUnusual, o.Freeze, o.Tail, o.Gap, o.PerHour, o.PerDay, o.MinAge, o.MaxBytes, o.Budget); got != want || !strings.HasSuffix(o.Dir, "whylate-flight") {
		t.Errorf("%s, %s", got, o.Dir)
	}
	for name, change := range map[string]func(o *Options, v int){
		"slow": func(o *Options, v int) { o.Slow = time.Duration(v) }, "least": func(o *Options, v int) { o.MinUnusual = time.Duration(v) }, "tail": func(o *Options, v int) { o.Tail = time.Duration(v) }, "gap": func(o *Options, v int) { o.Gap = time.Duration(v) }, "age": func(o *Options, v int) { o.MinAge = time.Duration(v) },
		"disk": func(o *Options, v int) { o.MaxDisk = int64(v) }, "goroutines": func(o *Options, v int) { o.Goroutines = v }, "latency": func(o *Options, v int) { o.Latency = time.Duration(v) }, "freeze": func(o *Options, v int) { o.Freeze = time.Duration(v) },
	} {
		for v, ok := range map[int]bool{-1: false, 0: true, 1: true} {
			var o Options
			change(&o, v)
			check.Equal(t, (o.setDefaults() == nil), ok, "%s of %d is taken: %v", name, v, !ok)
		}
	}
	for v, ok := range map[float64]bool{-0.01: false, 0: true, 1: true, 1.01: false} {
		check.True(t, (&Options{Share: v}).setDefaults() == nil == ok && (&Options{GC: v}).setDefaults() == nil == ok,
			"shares of %v are taken: %v", v, !ok)
	}
	sink := Options{Sink: func(_ context.Context, _ string, _ io.Reader) error { return nil }}
	check.True(t, sink.setDefaults() == nil && sink.Dir == "", "with a sink there is a directory %s", sink.Dir)
	if sink.Upload = new(UploadOptions); sink.setDefaults() == nil {
		t.Error("an upload without a directory")
	}
	check.Error(t, (&Options{Redact: redact.Options{Logs: redact.Trim}}).setDefaults(), "an invalid mode")
	for n, want := range map[int]int{300: 300, 301: 300} {
		check.Equal(t, len(clip(strings.Repeat("x", n))), want, "%d bytes are clipped to", n)
	}
	if got := clip(strings.Repeat("x", 299) + "é"); got != strings.Repeat("x", 299)+"?" {
		t.Errorf("%q", got[290:])
	}
}

// TestPaused: a recorder that costs more than its budget pauses after ten seconds, says why and for which share of the time it runs,
// and records again when the cost has fallen.
func TestPaused(t *testing.T) {
	for share, c := range map[float64]struct {
		seconds int // calls until it pauses: the cost is a moving average
		why     string
	}{0.02: {15, "paused: it would cost about 1.9% of the CPUs, more than 1%, so it runs 52% of the time"}, 0.9: {10, "paused: it would cost about 80.3% of the CPUs, more than 1%"}} {
		r := newIdleRecorder(Options{MinAge: 10 * time.Second, Budget: 0.01})
		r.governor = newGovernor(0.01, 10*time.Second)
		busy := metricsReading{elapsed: time.Second, starts: share / (startBytes * byteCost) * float64(runtime.GOMAXPROCS(0))}
		r.fire(moment{kind: KindSlow, end: time.Now()})
		r.byteCount = new(byteCounting)
		seconds := 0
		for ; r.ring.enabled() && seconds < 100; seconds++ {
			check.True(t, r.State().Recording && r.State().Why == "", "second %d: %+v", seconds, r.State())
			r.govern(seconds+1, busy)
		}
		s := r.State()
		check.True(t, seconds == c.seconds && s.Why == c.why && !s.Recording && r.byteCount == nil && s.Missed[KindSlow] == 1 && s.Off == time.Second && s.CostFrom == costByStarts, "share %v, second %d: %+v", share, seconds, s)
		r.govern(seconds, busy)
		check.Equal(t, r.State().Off, 2*time.Second, "the time off")
		for range 60 {
			r.govern(seconds, metricsReading{elapsed: time.Second})
		}
		s = r.State()
		check.True(t, s.Recording && s.Why == "" && s.Duty == 1 && s.Cost < 0.01, "share %v, calm: %+v", share, s)
	}
}
