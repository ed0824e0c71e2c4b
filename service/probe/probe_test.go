package probe

import (
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/cputime"
)

func TestATickAllocatesNothing(t *testing.T) {
	p := newProbe(Options{})
	defer p.close()
	runTick := func() {
		interval := p.beginTick()
		// Every path of a tick: counters, threads and bounds too.
		p.state.nextPoll, p.state.nextThreadRead = 0, 0
		p.endTick(interval)
	}
	check.Equal(t, testing.AllocsPerRun(200, runTick), 0, "allocations a tick")
	var s Snapshot
	if n := testing.AllocsPerRun(200, func() { p.Snapshot(&s) }); n != 0 {
		t.Errorf("%v allocations a snapshot", n)
	}
	// A tick that reports a freeze.
	if n := testing.AllocsPerRun(200, func() {
		p.beginTick()
		p.state.tickStart -= time.Second
		if _, frozen := p.endTick(10 * time.Millisecond); !frozen {
			t.Fatal("a second without CPU time is no freeze")
		}
	}); n != 0 {
		t.Errorf("%v allocations a freeze", n)
	}
}

// TestNothingToRead runs a probe on a machine without readable counters.
func TestNothingToRead(t *testing.T) {
	p := Start(Options{Cgroup: cgroup.Options{FS: fstest.MapFS{}}, Interval: time.Millisecond, IdleInterval: time.Millisecond})
	var s Snapshot
	for s.Ticks < 5 {
		p.Snapshot(&s)
	}
	p.Stop()
	p.Stop()
	p.Snapshot(&s)
	check.Equal(t, s.Has&(HasThrottling|HasRunQueue|HasSteal), 0, "measured from nothing: %b", s.Has)
	check.Equal(t, s.Throttled.Verdict, cgroup.VerdictUnknown, "verdict")
	check.True(t, s.Lateness.Count == s.Ticks, "%d ticks, %d latenesses", s.Ticks, s.Lateness.Count)
}

// cpuFiles returns a v2 group with the given cpu.stat and, if not empty,
// cpu.stat.local.
func cpuFiles(stat, local string) fstest.MapFS {
	m := fstest.MapFS{
		"proc/self/cgroup":               {Data: []byte("0::/a\n")},
		"proc/self/mountinfo":            {Data: []byte("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")},
		"sys/fs/cgroup/a/cpu.max":        {Data: []byte("50000 100000\n")},
		"sys/fs/cgroup/a/cpu.stat":       {Data: []byte(stat)},
		"sys/fs/cgroup/a/cgroup.procs":   {},
		"sys/fs/cgroup/cgroup.procs":     {},
		"sys/fs/cgroup/a/cpu.stat.local": {Data: []byte(local)},
	}
	if local == "" {
		delete(m, "sys/fs/cgroup/a/cpu.stat.local")
	}
	return m
}

func TestVerdictOfAFreeze(t *testing.T) {
	const unchanged = "usage_usec 10\nnr_periods 5\nnr_throttled 1\nthrottled_usec 1000\n"
	for _, c := range []struct {
		name        string
		stat, local string // after the freeze
		before      string // cpu.stat.local before; empty: no such file
		want        cgroup.Verdict
		interval    time.Duration
	}{
		{"own", "usage_usec 20\nnr_periods 6\nnr_throttled 2\nthrottled_usec 76000\n", "throttled_usec 76000\n", "throttled_usec 1000\n", cgroup.VerdictOwn, 10 * ms},
		{"ancestor", unchanged, "throttled_usec 76000\n", "throttled_usec 1000\n", cgroup.VerdictAncestor, 10 * ms},
		{"neighbours", unchanged, "throttled_usec 1000\n", "throttled_usec 1000\n", cgroup.VerdictNone, 250 * ms},
	} {
		fsys := cpuFiles(unchanged, c.before)
		p := newProbe(Options{Cgroup: cgroup.Options{FS: fsys}})
		p.beginTick()
		for name, data := range cpuFiles(c.stat, c.local) {
			fsys[name] = data
		}
		p.state.tickStart -= 100 * time.Millisecond
		f, frozen := p.endTick(10 * time.Millisecond)
		check.True(t, frozen && f.Verdict == c.want,
			"%s: frozen %v, verdict %q (%s), want %q", c.name, frozen, f.Verdict, f.Evidence, c.want)
		check.True(t, f.Min >= 85*time.Millisecond && f.Likely >= f.Min && f.Max >= f.Likely && f.End.After(f.Start), "%s: %+v", c.name, f)
		var s Snapshot
		p.Snapshot(&s)
		p.state.tickStart += startDuration + time.Second // it has run for a while
		p.Snapshot(&s)
		if want := c.interval; s.Interval != want {
			t.Errorf("%s: ticks every %v after a freeze, want %v", c.name, s.Interval, want)
		}
		var n uint64
		for _, v := range cgroup.Verdicts() {
			n += s.FreezesBy(v).Count
		}
		check.Equal(t, f.Throttled.Verdict, f.Verdict, "%s: counters %+v", c.name, f.Throttled)
		lost, measured := s.Lost()
		if measurable := s.Has&HasThrottling != 0 && s.Throttled.Verdict != cgroup.VerdictUnknown; measured != measurable || measurable && lost != s.Throttled.Own+s.Throttled.Ancestor || !measurable && lost != f.CPU {
			t.Errorf("%s: lost %v, measured %v; counters %+v", c.name, lost, measured, s.Throttled)
		}
		check.True(t, n == 1 && s.FreezesBy(f.Verdict).Sum == f.Likely && s.Freezes.Count == 1 && s.FreezeTime == f.Likely && s.FreezeCPU == f.CPU,
			"%s: snapshot %v %d %v %v", c.name, n, s.Freezes.Count, s.FreezeTime, s.FreezeCPU)
		p.close()
	}
}

// TestHiddenAncestors tests a container on a kernel without cpu.stat.local: a hidden
// ancestor's quota may have throttled the process, so the verdict must not be none.
func TestHiddenAncestors(t *testing.T) {
	p := newProbe(Options{Cgroup: cgroup.Options{FS: fstest.MapFS{
		"proc/self/cgroup":       {Data: []byte("0::/pod/app\n")},
		"proc/self/mountinfo":    {Data: []byte("30 23 0:26 /pod/app /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")},
		"sys/fs/cgroup/cpu.max":  {Data: []byte("max 100000\n")},
		"sys/fs/cgroup/cpu.stat": {Data: []byte("usage_usec 10\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")},
	}}})
	defer p.close()
	p.beginTick()
	p.state.tickStart -= 100 * time.Millisecond
	f, frozen := p.endTick(10 * time.Millisecond)
	check.True(t, frozen && f.Verdict == cgroup.VerdictUnknown, "frozen %v, verdict %q (%s), want unknown", frozen, f.Verdict, f.Evidence)
	var s Snapshot
	p.Snapshot(&s)
	check.True(t, s.Throttled.Verdict == cgroup.VerdictUnknown,
		"verdict of the whole %q (%s), want unknown", s.Throttled.Verdict, s.Throttled.Evidence)
}

// TestCountersNeverFall tests that the counters of a snapshot never fall even if the
// kernel's do: exporters interpret a fall as a restart.
func TestCountersNeverFall(t *testing.T) {
	const stat = "usage_usec 10\nnr_periods 5\nnr_throttled 2\nthrottled_usec %d\n"
	fsys := cpuFiles(fmt.Sprintf(stat, 0), "throttled_usec 0\n")
	p := newProbe(Options{Cgroup: cgroup.Options{FS: fsys}})
	defer p.close()
	var last cgroup.Throttling
	for _, counters := range []struct{ ownUS, localUS int }{{0, 100000}, {0, 200000}, {50000, 210000}, {50000, 90000}, {0, 0}, {10, 10}, {70000, 300000}} {
		fsys["sys/fs/cgroup/a/cpu.stat"] = &fstest.MapFile{Data: fmt.Appendf(nil, stat, counters.ownUS)}
		fsys["sys/fs/cgroup/a/cpu.stat.local"] = &fstest.MapFile{Data: fmt.Appendf(nil, "throttled_usec %d\n", counters.localUS)}
		p.state.nextPoll = 0
		p.beginTick()
		p.endTick(10 * time.Millisecond)
		var s Snapshot
		p.Snapshot(&s)
		if s.Throttled.Own < last.Own || s.Throttled.Ancestor < last.Ancestor || s.Throttled.Periods < last.Periods || s.Throttled.ThrottledPeriods < last.ThrottledPeriods {
			t.Errorf("at %+v: %+v after %+v", counters, s.Throttled, last)
		}
		last = s.Throttled
	}
	check.True(t, last.Own != 0 && last.Ancestor != 0, "nothing was counted: %+v", last)
}

func TestRunDelayIsSplitByQuota(t *testing.T) {
	var s state
	s.unsplit = cgroup.Throttling{Verdict: cgroup.VerdictNone}
	s.splitRunDelay(30 * ms)
	s.splitRunDelay(-5 * ms)
	s.unsplit = cgroup.Throttling{Verdict: cgroup.VerdictOwn, Own: 20 * ms}
	s.splitRunDelay(50 * ms)
	s.splitRunDelay(10 * ms)
	s.unsplit = cgroup.Throttling{Verdict: cgroup.VerdictUnknown}
	s.splitRunDelay(7 * ms)
	check.True(t, s.snap.RunQueue == 30*ms && s.snap.Unsplit == 37*ms, "run queue %v, unsplit %v", s.snap.RunQueue, s.snap.Unsplit)
}

// TestTickBudget tests that ticks at the default interval use less than a thousandth of a
// CPU. It takes the least CPU time of several rounds, so that other processes do not
// matter.
func TestTickBudget(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes everything slower")
	}
	p := newProbe(Options{})
	defer p.close()
	p.state.fastUntil = 1 << 62
	const ticks = 2000
	best := time.Hour
	for range 10 {
		from, ok := cputime.Process()
		if !ok {
			t.Skip("no CPU clock here")
		}
		for range ticks {
			p.endTick(p.beginTick())
		}
		to, _ := cputime.Process()
		best = min(best, (to-from)/ticks)
	}
	rate := time.Second / p.opts.Interval
	if share := (best * rate).Seconds(); share > 0.001 {
		t.Errorf("%v a tick, %d ticks a second: %.2f %% of one CPU", best, rate, 100*share)
	}
	t.Logf("%v a tick", best)
}

func BenchmarkTick(b *testing.B) {
	p := newProbe(Options{})
	defer p.close()
	p.state.fastUntil = 1 << 62
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		p.endTick(p.beginTick())
	}
	perSecond := float64(time.Second / p.opts.Interval)
	b.ReportMetric(100*perSecond*b.Elapsed().Seconds()/float64(b.N), "%cpu")
}

// BenchmarkLook measures a tick with a poll: once a second, or at each slow tick.
func BenchmarkLook(b *testing.B) {
	p := newProbe(Options{})
	defer p.close()
	b.ReportAllocs()
	for range b.N {
		p.state.nextPoll, p.state.nextThreadRead = 0, 0
		p.endTick(p.beginTick())
	}
	b.ReportMetric(100*b.Elapsed().Seconds()/float64(b.N), "%cpu")
}

// TestThrottlingIsWatchedClosely tests that signs of throttling, in the group or above it, make ticks fast for a while, and
// that ticks remain slow without them.
func TestThrottlingIsWatchedClosely(t *testing.T) {
	stat := func(periods, throttled, us int) []byte {
		return fmt.Appendf(nil, "usage_usec 1000000\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", periods, throttled, us)
	}
	for name, c := range map[string]struct {
		ownStat, parentStat []byte
		fast                bool
	}{
		"nothing":               {stat(20, 0, 0), stat(20, 0, 0), false},
		"time alone":            {stat(20, 0, 5000), stat(20, 0, 0), true},
		"periods alone":         {stat(20, 2, 0), stat(20, 0, 0), true},
		"an ancestor's":         {stat(20, 0, 0), stat(20, 2, 5000), true},
		"an ancestor's periods": {stat(20, 0, 0), stat(20, 2, 0), false}, // the process may have lost none of these
	} {
		fsys := fstest.MapFS{
			"proc/self/cgroup":               {Data: []byte("0::/pod/app\n")},
			"proc/self/mountinfo":            {Data: []byte("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")},
			"sys/fs/cgroup/cgroup.procs":     {},
			"sys/fs/cgroup/pod/cpu.max":      {Data: []byte("100000 100000")},
			"sys/fs/cgroup/pod/cpu.stat":     {Data: stat(10, 0, 0)},
			"sys/fs/cgroup/pod/app/cpu.max":  {Data: []byte("100000 100000")},
			"sys/fs/cgroup/pod/app/cpu.stat": {Data: stat(10, 0, 0)},
		}
		p := newProbe(Options{Cgroup: cgroup.Options{FS: fsys}})
		s := &p.state
		s.readCounters()
		s.fastUntil, s.nextPoll, s.nextThreadRead = 0, 0, 1<<62
		fsys["sys/fs/cgroup/pod/cpu.stat"] = &fstest.MapFile{Data: c.parentStat}
		fsys["sys/fs/cgroup/pod/app/cpu.stat"] = &fstest.MapFile{Data: c.ownStat}
		s.poll(&p.opts, time.Second)
		if fast := s.fastUntil == time.Second+alertDuration; fast != c.fast || !fast && s.fastUntil != 0 {
			t.Errorf("%s: fast until %v", name, s.fastUntil)
		}
		p.close()
	}
}
