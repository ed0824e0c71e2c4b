package probe

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/check"
)

// TestEachBucket tests that each bucket starts at the end of the previous one, and that a bound belongs to the later bucket.
func TestEachBucket(t *testing.T) {
	var last time.Duration
	for i := range bucketCount {
		end := upperBound(i)
		if end <= last || i == 0 && end != time.Microsecond || i == bucketCount-1 && end != math.MaxInt64 {
			t.Fatalf("bucket %d ends at %v, the one before at %v", i, end, last)
		}
		if bucketOf(end-1) != i || i < bucketCount-1 && bucketOf(end) != i+1 || bucketOf(last) != i {
			t.Errorf("bucket %d: %v is in %d, %v in %d", i, end-1, bucketOf(end-1), end, bucketOf(end))
		}
		last = end
	}
	for i, want := range map[int]time.Duration{-1: time.Microsecond, 1: 1250, 4: 2000, 5: 2500, 8: 4000, 99: 7 << 22 * time.Microsecond, 100: math.MaxInt64, 200: math.MaxInt64} {
		check.Equal(t, upperBound(i), want, "bucket %d ends at", i)
	}
	var h Histogram
	check.Equal(t, h.Quantile(1), 0, "of nothing there is a quantile")
	for _, d := range []time.Duration{-5, 0, 1, 1500, 3000, 3100, time.Hour} {
		h.Record(d)
	}
	for q, want := range map[float64]time.Duration{0: 1000, 3. / 7: 1000, 3.01 / 7: 1750, 4. / 7: 1750, 5. / 7: 3500, 6. / 7: 3500, 1: time.Hour, 2: time.Hour} {
		check.Equal(t, h.Quantile(q), want, "quantile %v", q)
	}
	check.True(t, h.Count == 7 && h.Sum == time.Hour+1+1500+3000+3100 && h.Max == time.Hour, "%d, %v, %v", h.Count, h.Sum, h.Max)
	n, sum := 0, uint64(0)
	for _, c := range h.Buckets() {
		if n++; n <= 2 {
			sum += c
		}
		if n == 5 {
			break
		}
	}
	check.True(t, n == 5 && sum == 3, "%d buckets, %d in the first two", n, sum)
}

// TestEstimates tests ticks whose CPU time explains all, a part or none of their lateness.
func TestEstimates(t *testing.T) {
	const m = time.Millisecond
	for _, c := range []struct {
		tick tick
		want freezeEstimate
	}{
		{tick{0, 10 * m, 10 * m, 5 * m, 1, 0.5, m}, freezeEstimate{}},
		{tick{0, 10 * m, 9 * m, 0, 1, 0, m}, freezeEstimate{}},
		{tick{0, 10 * m, 110 * m, 0, 1, 0, m}, freezeEstimate{100 * m, 101 * m, 101 * m, 0}},
		{tick{0, 10 * m, 110 * m, 0, 1, 0, 20 * m}, freezeEstimate{100 * m, 110 * m, 110 * m, 0}},
		{tick{0, 10 * m, 110 * m, 30 * m, 1, 0, 5 * m}, freezeEstimate{70 * m, 80 * m, 80 * m, 20 * m}},
		{tick{0, 10 * m, 110 * m, 110 * m, 1, 0, 5 * m}, freezeEstimate{0, 0, 0, 100 * m}},
		{tick{0, 10 * m, 110 * m, 200 * m, 1, 0, 5 * m}, freezeEstimate{0, 0, 0, 100 * m}},
		{tick{0, 10 * m, 110 * m, 40 * m, 4, 0, 5 * m}, freezeEstimate{90 * m, 100 * m, 100 * m, 0}},
		{tick{0, 10 * m, 110 * m, 40 * m, 4, 2, 5 * m}, freezeEstimate{90 * m, 100 * m, 90 * m, 10 * m}},
		{tick{0, 10 * m, 110 * m, 40 * m, 4, 3.2, 5 * m}, freezeEstimate{90 * m, 100 * m, 97500 * time.Microsecond, 2500 * time.Microsecond}},
		{tick{0, 10 * m, 110 * m, 40 * m, 4, 9, 5 * m}, freezeEstimate{90 * m, 100 * m, 100 * m, 0}},
		{tick{0, 10 * m, 110 * m, 5 * m, 0, 1, 5 * m}, freezeEstimate{95 * m, 105 * m, 105 * m, 0}},
		{tick{100 * m, 110 * m, 210 * m, 5 * m, 0.5, 1, 5 * m}, freezeEstimate{95 * m, 105 * m, 105 * m, 0}},
	} {
		check.Equal(t, c.tick.estimate(), c.want, "%+v", c.tick)
	}
}

// TestStateHelpers tests how windows are added, and when ticks become fast.
func TestStateHelpers(t *testing.T) {
	var s state
	for i, want := range []float64{2, 3, 3.5} {
		s.updateUsualCPUs(max(float64(2*i+2)-float64(i/2)*2, 0))
		check.Equal(t, s.usualCPUs, want, "after %d ticks the rate", i+1)
	}
	for _, c := range []struct {
		used, procs, quota float64
		fast               bool
	}{{1, 2, 0, true}, {0.99, 2, 0, false}, {0.5, 2, 1, true}, {0.49, 2, 1, false}, {1, 2, 4, true}, {0.9, 2, 4, false}} {
		s := state{quota: c.quota, fastUntil: time.Second}
		s.speedUpNearLimit(c.used, c.procs, 5*time.Second)
		check.Equal(t, s.fastUntil, map[bool]time.Duration{true: 7 * time.Second, false: time.Second}[c.fast], "%+v: fast until", c)
	}
	alreadyFast := state{fastUntil: time.Minute}
	alreadyFast.speedUpNearLimit(9, 1, 0)
	check.Equal(t, alreadyFast.fastUntil, time.Minute, "fast until")
	o := &Options{Interval: 1, IdleInterval: 2}
	check.True(t, (&state{tickStart: 4, fastUntil: 5}).interval(o) == 1 && (&state{tickStart: 5, fastUntil: 5}).interval(o) == 2,
		"ticks are fast at the wrong time")
	noThrottling, ownThrottling := cgroup.Throttling{Verdict: cgroup.VerdictNone}, cgroup.Throttling{Verdict: cgroup.VerdictOwn, Evidence: "x", Own: 1, Ancestor: 2, Periods: 3, ThrottledPeriods: 4}
	sum := noThrottling
	addThrottling(&sum, ownThrottling)
	addThrottling(&sum, ownThrottling)
	check.True(t, sum == (cgroup.Throttling{Verdict: cgroup.VerdictOwn, Evidence: "x", Own: 2, Ancestor: 4, Periods: 6, ThrottledPeriods: 8}), "%+v", sum)
	addThrottling(&sum, noThrottling)
	check.Equal(t, sum.Verdict, cgroup.VerdictOwn, "a window without throttling makes %+v", sum)
	addThrottling(&noThrottling, cgroup.Throttling{Verdict: cgroup.VerdictNone, Evidence: "y"})
	check.Equal(t, noThrottling.Evidence, "y", "%+v", noThrottling)
	before := cgroup.Stat{Throttled: 5, Periods: 5, Local: 5, Has: cgroup.HasLocal}
	for i, want := range []bool{false, true, true, true, false} {
		after := before
		switch i {
		case 1:
			after.Throttled--
		case 2:
			after.Periods--
		case 3:
			after.Local--
		case 4:
			after.Local, after.Has = 0, 0
		}
		check.Equal(t, wentBackwards(&before, &after), want, "change %d goes back: %v", i, !want)
	}
	for _, c := range []struct {
		unsplit             cgroup.Throttling
		delay               time.Duration
		queue, unsplitDelay time.Duration
	}{{cgroup.Throttling{Verdict: cgroup.VerdictNone}, 9, 9, 0}, {cgroup.Throttling{Verdict: cgroup.VerdictNone}, -9, 0, 0}, {cgroup.Throttling{Verdict: cgroup.VerdictOwn, Own: 2, Ancestor: 3}, 9, 0, 4}, {cgroup.Throttling{Verdict: cgroup.VerdictOwn, Own: 5, Ancestor: 5}, 9, 0, 0}, {cgroup.Throttling{Verdict: cgroup.VerdictUnknown}, 9, 0, 9}, {cgroup.Throttling{Verdict: cgroup.VerdictNone, Own: 1}, 9, 0, 8}} {
		s := state{unsplit: c.unsplit}
		if s.splitRunDelay(c.delay); s.snap.RunQueue != c.queue || s.snap.Unsplit != c.unsplitDelay {
			t.Errorf("%+v: %d in the run queue, %d in either", c, s.snap.RunQueue, s.snap.Unsplit)
		}
	}
}

// TestPollTimes tests that counters are read each second, or at each tick if ticks are rare, and that the process's move to
// another group is detected.
func TestPollTimes(t *testing.T) {
	stat := func(throttled int) string {
		return fmt.Sprintf("usage_usec 10\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n", 5+throttled, throttled, 1000*throttled)
	}
	fsys := cpuFiles(stat(0), "")
	o := Options{Cgroup: cgroup.Options{FS: fsys}, Interval: 10 * time.Millisecond, IdleInterval: 250 * time.Millisecond}
	s := &state{}
	s.open(o)
	defer s.close()
	if s.snap.Has&HasThrottling == 0 || s.quota != 0.5 || s.nextPoll != time.Second || s.fastUntil != startDuration || s.nextMovedCheck != movedInterval || s.nextThreadRead != pollInterval {
		t.Fatalf("at the start %+v", s)
	}
	set := func(text string) { fsys["sys/fs/cgroup/a/cpu.stat"].Data = []byte(text) }
	set(stat(1))
	s.poll(&o, time.Second-1)
	check.Equal(t, s.lastStat.ThrottledPeriods, 0, "the counters were read too early")
	fsys["sys/fs/cgroup/a/cpu.max"].Data = []byte("100000 100000\n")
	if s.poll(&o, time.Second); s.lastStat.ThrottledPeriods != 1 || s.fastUntil != time.Second+alertDuration || s.quota != 1 || s.nextPoll != 2*time.Second {
		t.Errorf("after a second %+v", s)
	}
	s.tickStart = time.Minute // much later, when ticks are rare
	set(stat(1))
	if s.poll(&o, time.Minute); s.nextPoll != time.Minute || s.fastUntil != time.Second+alertDuration {
		t.Errorf("where ticks are rare %v, %v", s.nextPoll, s.fastUntil)
	}
	for name, f := range cpuFiles(stat(7), "") {
		fsys[strings.Replace(name, "/a/", "/b/", 1)] = f
	}
	fsys["proc/self/cgroup"].Data = []byte("0::/b\n")
	s.poll(&o, time.Minute+movedInterval-1)
	check.Equal(t, s.lastStat.ThrottledPeriods, 1, "it was followed too early")
	s.poll(&o, time.Minute+movedInterval)
	check.True(t, s.lastStat.ThrottledPeriods == 7 && s.total().ThrottledPeriods == 1,
		"in its new group %+v, in all %+v", s.lastStat, s.total())
	set = func(text string) { fsys["sys/fs/cgroup/b/cpu.stat"].Data = []byte(text) }
	set(stat(9))
	s.poll(&o, 2*time.Minute)
	check.True(t, s.total().ThrottledPeriods == 3 && s.total().Own == 3*time.Millisecond, "in all %+v", s.total())
	set(stat(2)) // another group of the same name
	s.poll(&o, 3*time.Minute)
	check.Equal(t, s.total().ThrottledPeriods, 3, "with a group that was replaced %+v", s.total())
	delete(fsys, "sys/fs/cgroup/b/cpu.stat")
	if got := s.readCounters(); got.Verdict != cgroup.VerdictUnknown || s.lastStatOK {
		t.Errorf("without a file %+v", got)
	}
}

// TestHostileOnFreeze tests that a panic in OnFreeze does not end the measuring goroutine.
func TestHostileOnFreeze(t *testing.T) {
	called := 0
	p := newProbe(Options{OnFreeze: func(Freeze) { called++; panic("no") }})
	p.report(Freeze{})
	p.report(Freeze{})
	go p.run()
	p.Stop()
	check.True(t, called == 2, "it was called %d times", called)
}
