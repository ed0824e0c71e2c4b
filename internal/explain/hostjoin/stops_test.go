package hostjoin

import (
	"bytes"
	"testing"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/stops"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestStops joins samples of a stopped process with the silences of its trace: an idle process was not stopped, the
// idle time before a stop does not count, and suspicions from the trace alone are dropped if samples have the
// process's state.
func TestStops(t *testing.T) {
	w := window(0, 50)
	traceTime := func(i int64) int64 { mono, _ := sampleTime(i); return mono + 5e12 }
	silences := []stops.Silence{
		{Start: traceTime(3), End: traceTime(8), RequestsAfter: 1},                               // idle
		{Start: traceTime(12), End: traceTime(25) - 5*ms, RequestsDuring: 1, RequestsAfter: 9},   // idle for a while, then stopped
		{Start: traceTime(30), End: traceTime(34), RequestsAfter: 8},                             // as if it was stopped
		{Start: traceTime(40) + 3*ms, End: traceTime(43), RequestsDuring: 2, RequestsAfter: 200}, // frozen
	}
	samples := func(states bool) *host.Samples {
		x := &recording{}
		l := host.Line{Kind: host.KindStart, Schema: host.Schema, HasStates: states}
		l.MonoNS, l.WallNS = sampleTime(0)
		x.line(l)
		for i := range int64(51) {
			x.sample(i, func(l *host.Line) {
				switch {
				case !states:
				case i >= 20 && i < 25:
					l.HaltReason = host.HaltedBySignal
				case i == 41 || i == 42:
					l.HaltReason = host.HaltedByFreezer
				}
			})
		}
		return must.Have(host.Read(bytes.NewReader(x.b.Bytes())))(t)
	}
	rep := &report.Report{}
	AddStops(samples(true), w, rep, nil, silences, 300)
	got := rep.Runtime.Stops
	must.True(t, got != nil && got.State == "stopped" && got.Count == 2 && got.During == 3 && got.After == 209 && got.Requests == 300, "%+v", got)
	// The last sample before the stop that shows none is number 19. The trace continues just before the next one that shows none.
	if a, b := got.Intervals[0], got.Intervals[1]; a != [2]int64{380 * ms, 115 * ms} || b != [2]int64{803 * ms, 57 * ms} {
		t.Errorf("%v, %v", a, b)
	}
	for name, s := range map[string]*host.Samples{"samples without states": samples(false), "no samples": nil} {
		rep := &report.Report{}
		if AddStops(s, w, rep, nil, silences, 300); rep.Runtime.Stops != nil {
			t.Errorf("%s: %+v", name, rep.Runtime.Stops)
		}
		suspects := []stops.Silence{{Start: traceTime(10), End: traceTime(20), RequestsAfter: 60}, {Start: traceTime(30), End: traceTime(40), RequestsAfter: 60}}
		if AddStops(s, w, rep, nil, suspects, 360); rep.Runtime.Stops == nil || rep.Runtime.Stops.State != "" || rep.Runtime.Stops.Confidence > 0.5 {
			t.Errorf("%s: %+v", name, rep.Runtime.Stops)
		}
		rep = &report.Report{}
		rep.Runtime.Throttle.Verdict = report.ThrottleOwn
		if AddStops(s, w, rep, nil, suspects, 360); rep.Runtime.Stops != nil {
			t.Errorf("%s, and a quota: %+v", name, rep.Runtime.Stops)
		}
	}
	// The kernel's events show stops, also without samples, and refute suspicions.
	for name, held := range map[string][]freeze.Interval{"stopped": {{Start: traceTime(31), End: traceTime(33)}}, "not stopped": nil} {
		rep := &report.Report{Kernel: &report.Kernel{Coverage: 1}}
		AddStops(nil, w, rep, held, silences, 300)
		switch got := rep.Runtime.Stops; {
		case held == nil && got != nil:
			t.Errorf("%s: %+v", name, got)
		case held != nil && (got == nil || got.Count != 1 || got.TotalNS != traceTime(33)-traceTime(31) || got.State != "stopped" || got.Confidence != 1):
			t.Errorf("%s: %+v", name, got)
		}
	}
}
