package predict

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestParseSetting: a setting is not parsed as a site, and is formatted as it was written.
func TestParseSetting(t *testing.T) {
	for text, want := range map[string]Change{
		"GOGC=400":           {Setting: Setting{GOGC, 400}},
		"gogc=off":           {Setting: Setting{GOGC, math.Inf(1)}},
		"GOMEMLIMIT=900MiB":  {Setting: Setting{GOMEMLIMIT, 900 << 20}},
		"GOMAXPROCS=2":       {Setting: Setting{GOMAXPROCS, 2}},
		"quota=1.5":          {Setting: Setting{Quota, 1.5}},
		"main.quota=50%":     {Site: "main.quota", Relative: true, Scale: 0.5},
		"cpu@GOGC=gone":      {Cause: "cpu", Site: "GOGC", Relative: true},
		"GOMEMLIMIT=1500KiB": {Setting: Setting{GOMEMLIMIT, 1500 << 10}},
	} {
		c, err := Parse(text)
		check.True(t, err == nil && c == want, "%s: %+v, %v", text, c, err)
		if reparsed, err := Parse(c.String()); err != nil || reparsed != c {
			t.Errorf("%s is written as %s, which is read as %+v, %v", text, c, reparsed, err)
		}
	}
	for _, text := range []string{"GOGC=-1", "GOGC=0", "GOGC=1.5", "GOGC=50%", "GOMEMLIMIT=much", "GOMAXPROCS=0", "GOMAXPROCS=2.5", "GOMAXPROCS=off", "quota=NaN", "quota=inf", "quota="} {
		if c, err := Parse(text); err == nil {
			t.Errorf("%s is read as %+v", text, c)
		}
	}
}

// TestErlang compares with a table of Erlang's C: the share of the work that waits, and for one server rho/(1-rho).
func TestErlang(t *testing.T) {
	for _, c := range []struct{ n, a, waits float64 }{{1, 0.5, 0.5}, {2, 1, 1.0 / 3}, {3, 2, 0.4444}, {10, 8, 0.4092}} {
		if got := erlangWait(c.n, c.a) * (c.n - c.a); math.Abs(got-c.waits) > 1e-3 {
			t.Errorf("%v servers, %v busy: %.4f of the work waits, want %.4f", c.n, c.a, got, c.waits)
		}
	}
}

func facts() *Facts {
	return &Facts{
		SpanNS: 1e9, Procs: 2, BusyNS: 0.8e9, Cycles: 10, Measured: 9, LiveBytes: 100 << 20, GoalBytes: 200 << 20,
		MarkNS: 100e6, CollectorNS: 50e6, AssistNS: 50e6, MarksComplete: true, GCStopShare: 1, StepNS: 10e6,
	}
}

// TestRefusals: a setting whose effect the trace does not show is refused with the reason. It fails if there is an answer
// about collections that were not recorded, a queue that never ends, or CPUs that do not exist.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		text   string
		set    func(f *Facts)
		reason string // "": answered // "": answered
	}{
		{"GOGC=400", func(f *Facts) {}, ""},
		{"GOGC=400", func(f *Facts) { f.Cycles = 0 }, "no garbage was collected"},
		{"GOGC=400", func(f *Facts) { f.ForcedCycles, f.GCShare = 9, 0.2 }, "9 times by order"},
		{"GOGC=400", func(f *Facts) { f.Cycles, f.Measured, f.GCShare = 1, 0, 0.2 }, "collected once: too few"},
		{"GOGC=400", func(f *Facts) { f.Cycles, f.Measured, f.GCShare = 1, 0, 0.001 }, ""},
		{"GOGC=50", func(f *Facts) { f.Cycles, f.Measured, f.GCShare = 1, 0, 0.001 }, "collected once: too few"},
		{"GOGC=20", func(f *Facts) { f.MarkNS = 300e6 }, "marking already takes 30%"},
		{"GOMEMLIMIT=1GiB", func(f *Facts) {}, ""},
		{"GOMEMLIMIT=1GiB", func(f *Facts) { f.GoalBytes = 110 << 20 }, "whether a lower limit or a small GOGC"},
		{"GOMEMLIMIT=110MiB", func(f *Facts) {}, "the live heap is"},
		{"GOMEMLIMIT=300MiB", func(f *Facts) { f.Measured, f.FullCycles, f.FullBytes, f.AllocatedBytes = 0, 9, 100<<20, 900<<20 }, ""},
		{"GOMEMLIMIT=110MiB", func(f *Facts) { f.Measured, f.FullCycles, f.FullBytes, f.AllocatedBytes = 0, 9, 100<<20, 900<<20 }, "the live heap is"},
		{"GOMAXPROCS=4", func(f *Facts) {}, ""},
		{"GOMAXPROCS=4", func(f *Facts) { f.CPUs = 2 }, "may run on 2 CPUs"},
		{"GOMAXPROCS=4", func(f *Facts) { f.Throttled = true }, "Ask about quota"},
		{"GOMAXPROCS=1", func(f *Facts) {}, ""},
		{"GOMAXPROCS=1", func(f *Facts) { f.BusyNS = 1.5e9 }, "queue without end"},
		{"GOMAXPROCS=1", func(f *Facts) { f.BusyNS, f.MeanReady = 120e6, 66 }, "arrives in bursts"}, // a herd of tickers
		{"GOMAXPROCS=1", func(f *Facts) { f.BusyNS, f.MeanReady = 120e6, 0.1 }, ""},
		{"quota=2", func(f *Facts) {}, ""},
		{"quota=1", func(f *Facts) { f.MaybeThrottled = true }, "may already throttle"},
		{"quota=0.5", func(f *Facts) {
			for i := range int64(10) {
				f.BusyPs = append(f.BusyPs, [2]int64{i * 10e6, 900})
			}
		}, "whylate sweep measures it"},
		{"quota=0.3", func(f *Facts) { f.Throttled, f.FrozenNS, f.QuotaCPUs = true, 500e6, 0.5 }, "with less it would fall behind"},
		{"quota=1", func(f *Facts) { f.Throttled, f.FrozenNS, f.QuotaCPUs = true, 500e6, 0.5 }, ""},
	} {
		f := facts()
		c.set(f)
		change := must.Have(Parse(c.text))(t)
		m := &Model{facts: f}
		_, note, err := m.PredictSetting(change.Setting)
		var r *Refusal
		switch {
		case c.reason == "" && (err != nil || note == ""):
			t.Errorf("%s: %v, %q", c.text, err, note)
		case c.reason != "" && (!errors.As(err, &r) || !strings.Contains(err.Error(), c.reason)):
			t.Errorf("%s: %v, want %q", c.text, err, c.reason)
		}
	}
	if _, _, err := new(Model).PredictSetting(Setting{GOGC, 400}); err == nil {
		t.Error("a question about an unknown process is answered")
	}
}

// TestEffects: more headroom means fewer collections and less assists in each; a larger quota means shorter freezes. A
// setting at its present value changes nothing.
func TestEffects(t *testing.T) {
	f := facts()
	effectOf := func(s Setting) *effect {
		e, _, err := (&Model{facts: f}).PredictSetting(s)
		must.Do(t, err)
		return e
	}
	previous := effectOf(Setting{GOGC, 100})
	check.True(t, previous.cycles[est] == 1 && previous.assist[est] == 1,
		"present GOGC: cycles %v, assists %v", previous.cycles, previous.assist)
	for _, gogc := range []float64{150, 200, 400, 1000, math.Inf(1)} {
		e := effectOf(Setting{GOGC, gogc})
		if e.cycles[est] >= previous.cycles[est] || e.assist[est] > previous.assist[est] || e.cycles[low] > e.cycles[est] || e.cycles[est] > e.cycles[high] {
			t.Errorf("GOGC=%v: cycles %v after %v, assists %v after %v", gogc, e.cycles, previous.cycles, e.assist, previous.assist)
		}
		previous = e
	}
	check.Equal(t, previous.cycles, variantValues{}, "without collections")
	// Assists do half of the marking, and take two thirds of the Ps that workers leave. With 1.5 times the headroom a phase
	// is so much longer that workers do half as much again, and a quarter remains.
	if got := effectOf(Setting{GOGC, 150}).assist[est]; math.Abs(got-0.75*(1-1.5/3)/0.5) > 1e-9 {
		t.Errorf("assists become %v", got)
	}
	f.Throttled, f.FrozenNS, f.QuotaCPUs = true, 600e6, 0.5
	previous = effectOf(Setting{Quota, 0.5})
	check.True(t, math.Abs(previous.throttle[est]-1) <= 1e-9 && math.Abs(previous.freezeEncounters[est]-1) <= 1e-9,
		"present quota: %+v", previous)
	for _, quota := range []float64{0.6, 0.8, 1, 1.25} {
		e := effectOf(Setting{Quota, quota})
		check.True(t, e.throttle[est] < previous.throttle[est] && e.freezeEncounters[est] < previous.freezeEncounters[est],
			"quota %v: %+v after %+v", quota, e, previous)
		previous = e
	}
	check.Equal(t, previous.throttle[est], 0, "1.25 CPUs are enough, but freezes are %v", previous.throttle)
}

// TestWakeUpsWhileMarking: wake-ups are late while the collector marks, although a P is idle, and go with the mark phase. Another number
// of Ps does not change them.
func TestWakeUpsWhileMarking(t *testing.T) {
	late := interval{target: target{cause: cause.SchedWake}, ns: 4e6, markShare: 0.75}
	if got := (&effect{changesGC: true}).factor(&late, false)[est]; got != 0.25 {
		t.Errorf("without mark phases %v of a wake-up remain", got)
	}
	if got := (&effect{changesProcs: true}).factor(&late, false)[est]; got != 1 {
		t.Errorf("with other Ps %v of a wake-up remain", got)
	}
}

// TestComputingWhileMarking: requests that begin in a mark phase compute for 3 ms, others for 2 ms, so without the phase two thirds of
// the time remain. Where no request shows computing outside of mark phases, it is a share measured elsewhere. Sweeping becomes
// rarer with collections.
func TestComputingWhileMarking(t *testing.T) {
	f := &Facts{MarkPhases: [][2]int64{{0, 100e6}}, MarksComplete: true, SpanNS: 200e6, Cycles: 1}
	inside := interval{target: target{cause: cause.CPU}, ns: 3e6, markShare: 1}
	outside := interval{target: target{cause: cause.CPU}, ns: 2e6}
	var requests group
	for i := range int64(20) {
		requests.graphs = append(requests.graphs, weightedGraph{&Graph{Start: i, intervals: []interval{inside}}, 1})
	}
	e := &effect{changesGC: true}
	e.measureMarkPhases(&requests, f)
	check.Equal(t, e.factor(&inside, false)[est], 0.7, "unknown")
	for i := range int64(20) {
		requests.graphs = append(requests.graphs, weightedGraph{&Graph{Start: 150e6 + i, intervals: []interval{outside}}, 1})
	}
	e.measureMarkPhases(&requests, f)
	check.Equal(t, e.factor(&inside, false)[est], 2.0/3, "in a mark phase")
	check.Equal(t, e.factor(&outside, false)[est], 1, "outside of mark phases")
	e.cycles = variantValues{0.25, 0.25, 0.25}
	check.Equal(t, e.factor(&interval{target: target{cause: cause.GCAssist}}, false)[est], 0.25, "sweeping")
}
