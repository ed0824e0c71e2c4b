package tune

import (
	"testing"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/check"
)

// TestLatencyWindow tests the measurements between two polls, and that missing ones are reported.
func TestLatencyWindow(t *testing.T) {
	begin := time.Unix(1000, 0)
	inputsAt := func(periods, throttled int64, ownThrottling, ancestorThrottling, cpu time.Duration, waited float64) inputs {
		var i inputs
		i.stat = cgroup.Stat{Has: cgroup.HasBandwidth | cgroup.HasLocal | cgroup.HasAncestors, Periods: periods, ThrottledPeriods: throttled, Throttled: ownThrottling, Local: ownThrottling + ancestorThrottling, AncestorThrottled: ancestorThrottling}
		i.statOK, i.cpuOK, i.cpu, i.cpus = true, true, cpu, 8
		i.bounds = cgroup.Tightest{Quota: 2, Period: 100 * time.Millisecond, QuotaDepth: 1}
		i.goStats.schedWait = waited
		return i
	}
	window := func(change func(from, to *inputs)) latencyWindow {
		tuner := &Tuner{opts: Options{MinProcs: 1, MaxProcs: 5}, previous: inputsAt(10, 1, time.Second, time.Second, time.Second, 3), current: inputsAt(30, 6, 2*time.Second, time.Second, 5*time.Second, 7)}
		tuner.previous.readAt, tuner.current.readAt = begin, begin.Add(2*time.Second)
		change(&tuner.previous, &tuner.current)
		return tuner.latencyWindow(4)
	}
	bare := latencyWindow{quota: 2, cpus: 8, current: 4, minProcs: 1, maxProcs: 5}
	ownThrottling := bare
	ownThrottling.measured, ownThrottling.periods, ownThrottling.throttled, ownThrottling.runnable, ownThrottling.usedCPUs = true, 20, 5, 2, 2
	ancestorThrottling := ownThrottling
	ancestorThrottling.throttled = 5 // half of the 8 s that four Ps had in it
	ancestorThrottling.periods = 20
	noWaits := ownThrottling
	noWaits.runnable = 0
	whole := ancestorThrottling
	whole.throttled = 20
	for name, c := range map[string]struct {
		change func(from, to *inputs)
		want   latencyWindow
	}{
		"own quota":           {func(*inputs, *inputs) {}, ownThrottling},
		"no time passed":      {func(from, to *inputs) { to.readAt = from.readAt }, bare},
		"nothing read before": {func(from, _ *inputs) { from.statOK = false }, bare},
		"nothing read now":    {func(_, to *inputs) { to.statOK = false }, bare},
		"no CPU time":         {func(_, to *inputs) { to.cpuOK = false }, bare},
		"waits that fall":     {func(_, to *inputs) { to.goStats.schedWait = 1 }, noWaits},
		"an ancestor's": {func(from, to *inputs) {
			*to = inputsAt(10, 1, time.Second, 3*time.Second, 5*time.Second, 7)
			to.readAt = begin.Add(2 * time.Second)
		}, ancestorThrottling},
		"an ancestor's, all the time": {func(from, to *inputs) {
			*to = inputsAt(10, 1, time.Second, 30*time.Second, 5*time.Second, 7)
			to.readAt = begin.Add(2 * time.Second)
		}, whole},
	} {
		check.Equal(t, window(c.change), c.want, "%s", name)
	}
}

// TestMeasureGC tests that the collector's share is measured in windows that end at a collection and are long enough.
func TestMeasureGC(t *testing.T) {
	begin := time.Unix(1000, 0)
	tuner := &Tuner{gcShare: -1, quotaShare: -1}
	look := func(after time.Duration, gc, total, idle float64, cpu time.Duration, quota float64) {
		tuner.current.readAt, tuner.current.cpuOK, tuner.current.cpu = begin.Add(after), true, cpu
		tuner.current.goStats.gcSeconds, tuner.current.goStats.totalSeconds, tuner.current.goStats.idleSeconds = gc, total, idle
		tuner.current.bounds.Quota = quota
		tuner.measureGC()
	}
	check := func(name string, share, ofQuota float64) {
		t.Helper()
		if d := tuner.gcShare - share; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s: a share of %v, want %v", name, tuner.gcShare, share)
		}
		if d := tuner.quotaShare - ofQuota; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s: of the quota %v, want %v", name, tuner.quotaShare, ofQuota)
		}
	}
	look(0, 1, 10, 5, time.Second, 2)
	check("first", -1, -1)
	look(minShareWindow-1, 2, 20, 7, 2*time.Second, 2)
	check("too short", -1, -1)
	look(minShareWindow, 1, 10, 5, 9*time.Second, 2)
	check("no collection since", -1, -1)
	look(2*minShareWindow, 2, 20, 5, 3*time.Second, 0.5)
	check("ten seconds busy", 0.1, 0.1*2/(0.5*2*minShareWindow.Seconds()))
	from := 2 * minShareWindow
	look(from+minShareWindow, 3, 25, 5, 5*time.Second, 0)
	check("no quota", 0.2, -1)
	look(from+2*minShareWindow, 2, 30, 5, 6*time.Second, 2)
	check("a counter that falls", -1, -1)
	tuner.current.cpuOK = false
	tuner.gcShare = 7
	tuner.current.readAt = begin.Add(time.Hour)
	if tuner.measureGC(); tuner.gcShare != 7 || !tuner.gcTimesStartAt.Equal(tuner.current.readAt) {
		t.Errorf("without CPU time: %v from %v", tuner.gcShare, tuner.gcTimesStartAt)
	}
}
