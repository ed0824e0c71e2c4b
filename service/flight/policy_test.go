package flight

import (
	"math"
	"runtime/debug"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/internal/tracebatch"
)

func TestTokenBucket(t *testing.T) {
	clock := time.Unix(1000, 0)
	b := newTokenBucket(3, time.Hour, clock)
	passed := 0
	for range 5 * 60 { // five hours, one attempt a minute
		clock = clock.Add(time.Minute)
		if b.checkToken(clock, true) {
			b.takeToken()
			passed++
		}
	}
	if passed != 3+14 { // a full bucket gains nothing
		t.Errorf("%d passed in five hours, want 3 at once and then one in 20 minutes", passed)
	}
	clock = clock.Add(1000 * time.Hour)
	for passed = 0; b.checkToken(clock, true); passed++ {
		b.takeToken()
	}
	check.Equal(t, passed, 3, "passed at once after a long rest")
	check.False(t, b.checkToken(clock.Add(-time.Hour), true), "a clock that goes back lets one pass")
	check.True(t, newTokenBucket(-1, time.Hour, clock).checkToken(clock, false), "no bound does not let pass")
}

// A simulatedService has two Ps and uses CPU time for each goroutine start, and more while
// it is recorded.
type simulatedService struct {
	governor
	startCPU, recordedCPU float64 // CPU seconds a start
	runSeconds, seconds   int
}

func (g *simulatedService) second(starts float64) bool {
	per := g.startCPU
	if g.running {
		per += g.recordedCPU
		g.runSeconds++
	}
	g.seconds++
	return g.decide(time.Second, starts, 2, time.Duration(starts*per*1e9))
}

// TestGovernor tests that the recorder stays within its budget: always on below it, part of
// the time above it, off far above it, and on again later.
func TestGovernor(t *testing.T) {
	const budget = 0.02
	start := startBytes * byteCost
	costs := func(share float64) float64 { return share * 2 / start } // starts a second on two Ps
	fresh := func() *simulatedService {
		return &simulatedService{governor: newGovernor(budget, 10*time.Second), startCPU: 20e-6, recordedCPU: start}
	}
	service := fresh()
	for i := range 60 {
		must.True(t, service.second(costs(0.015)), "off after %d seconds within the budget", i)
	}
	must.True(t, service.second(costs(0.1)), "off after one second over the budget")
	for service.second(costs(0.015)); service.cost > 0.016; {
		must.True(t, service.second(costs(0.015)), "off after one burst")
	}
	seconds := 0
	for ; service.second(costs(0.1)); seconds++ {
		must.True(t, seconds <= 60, "never off")
	}
	check.True(t, seconds >= 9, "off after %d seconds", seconds)
	service.runSeconds, service.seconds = 0, 0
	longest, run := 0, 0
	for range 2000 {
		if run++; !service.second(costs(0.1)) {
			run = 0
		}
		longest = max(longest, run)
	}
	if part := float64(service.runSeconds) / float64(service.seconds); part < 0.17 || part > 0.23 {
		t.Errorf("it costs five times its budget and runs %.2f of the time", part)
	}
	check.True(t, longest >= 14, "it runs for %d s at once, which is no recording of 10 s", longest)
	for seconds = 0; service.duty != 1; seconds++ {
		service.second(costs(0.01))
		must.True(t, seconds <= 60, "never on again")
	}
	// The recorder is off if it could run for less than a twentieth of the time.
	for range 60 {
		service.second(costs(1))
	}
	check.True(t, !service.running && service.duty == 0, "it runs although it costs fifty times its budget: %+v", service.governor)
	for seconds = 0; !service.second(costs(0.1)); seconds++ {
		must.True(t, seconds <= 90, "never on again")
	}
	// Counted bytes correct the estimate by starts, and measured CPU time corrects both.
	service = fresh()
	service.noteBytes(100*5*startBytes, 100) // too few
	check.Equal(t, service.costSource, costByStarts, "a hundred starts tell %v bytes each", service.bytesPerStart)
	if service.noteBytes(4*startBytes*1e4, 1e4); service.costSource != costByBytes || service.bytesPerStart != 4*startBytes {
		t.Errorf("each start writes %v bytes by %s", service.bytesPerStart, service.costSource)
	}
	for range 30 {
		service.second(costs(0.015))
	}
	check.True(t, math.Abs(service.cost-0.06) <= 0.005, "the cost is %v, want 0.06", service.cost)
	service = fresh()
	service.recordedCPU = 3 * start
	for range 2000 {
		service.second(costs(0.05))
	}
	check.True(t, service.costSource == costByCPU && math.Abs(service.cpuFactor-3) <= 0.1 && math.Abs(service.cost-0.15) <= 0.01,
		"by %s it costs %v, factor %v; want 0.15 and 3", service.costSource, service.cost, service.cpuFactor)
	// Varying work of the service is not the recorder's cost.
	service = fresh()
	service.recordedCPU = -start // the service used less CPU time while recorded
	for range 2000 {
		service.second(costs(0.05))
	}
	check.Equal(t, service.cpuFactor, 1./maxCPUFactor, "the factor")
	service = fresh()
	service.budget = -1
	for range 100 {
		must.True(t, service.second(costs(1)), "no bound is one")
	}
	service = fresh()
	for range 100 { // a system without CPU clocks
		service.decide(time.Second, costs(0.05), 2, -1)
	}
	check.True(t, service.costSource == costByStarts && service.duty <= 0.5,
		"by %s it runs %v of the time", service.costSource, service.duty)
}

// TestGovernorMedian tests that the recorder's cost is the median of the last cycles: a cycle in which
// other work used CPU time, or less than usual, has no effect.
func TestGovernorMedian(t *testing.T) {
	const start = startBytes * byteCost
	g := newGovernor(0.02, 10*time.Second)
	cycle := func(cost float64) {
		const starts = 1e4
		g.phaseUsage[1] = usage{cpu: starts * 20e-6, starts: starts}
		g.phaseUsage[0] = usage{cpu: starts * (20e-6 + cost*start), starts: starts}
		g.compareCPU()
	}
	for i, c := range []struct{ cost, want float64 }{
		{2, 1}, {0.1, 1}, {2.2, 1}, {2.4, 2.2}, // four cycles are needed
		{90, 2.2}, {90, 2.4}, {2.1, 2.2}, // 0.1 2 2.1 2.2 2.4 90 90
		{2.3, 2.3}, {2.3, 2.3}, // the oldest are dropped: 2.1 2.2 2.3 2.3 2.4 90 90
	} {
		cycle(c.cost)
		check.True(t, math.Abs(g.cpuFactor-c.want) <= 1e-9, "after %d cycles the factor is %v, want %v", i+1, g.cpuFactor, c.want)
	}
	before := g.cpuFactor
	g.phaseUsage = [2]usage{{cpu: 1, starts: minStarts - 1}, {cpu: 1, starts: minStarts}}
	g.compareCPU()
	check.True(t, g.cpuFactor == before && len(g.measuredCosts) == medianCycles, "a phase of few starts is compared: %+v", g)
}

// TestCounter tests the estimate of the ring's bytes, also for generations that it has dropped.
func TestCounter(t *testing.T) {
	batch := func(gen byte, size int) []byte {
		return append([]byte{1, gen, 0, 0}, make([]byte, size-4)...)
	}
	c := byteCounter{afterGeneration: 3, headerLeft: tracebatch.HeaderLen}
	for _, p := range [][]byte{make([]byte, tracebatch.HeaderLen), batch(3, 50), {52}, batch(5, 100), batch(5, 60), {52}, batch(6, 40)} {
		if n, err := c.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
	}
	if c.lastGeneration != 6 || c.estimateBytes() != 300 { // the fourth wrote as much as the two others did each
		t.Errorf("%+v: %v bytes", c, c.estimateBytes())
	}
	if _, err := c.Write([]byte("text")); err == nil {
		t.Error("text is a batch")
	}
}

// TestSamplingPace tests that samples of the kernel's counters stay within their budget.
func TestSamplingPace(t *testing.T) {
	var p samplingPace
	if d := p.nextInterval(100*time.Microsecond, 2, false); d != sampleInterval || p.cpuShare(d, 2) > samplingBudget {
		t.Errorf("every %v, %v of the CPUs", d, p.cpuShare(d, 2))
	}
	check.Equal(t, p.nextInterval(100*time.Microsecond, 2, true), idleSampleInterval, "an idle process is looked at every")
	one, two := samplingPace{}, samplingPace{}
	if d := one.nextInterval(time.Millisecond, 1, false); d != 2*two.nextInterval(time.Millisecond, 2, false) {
		t.Errorf("with one P every %v, want half as often as with two", d)
	}
	d := time.Duration(0)
	for range 100 { // thousands of threads
		d = p.nextInterval(5*time.Millisecond, 2, true)
	}
	if got := p.cpuShare(d, 2); d < 900*time.Millisecond || got > 0.003 {
		t.Errorf("every %v, %v of the CPUs", d, got)
	}
}

func TestQuantile(t *testing.T) {
	bounds := []float64{math.Inf(-1), 0, 1e-6, 1e-3, math.Inf(1)}
	if got := quantile(bounds, []uint64{0, 985, 5, 10}, 1000, 0.99); got != time.Millisecond {
		t.Errorf("%v, want 1ms", got)
	}
	if got := quantile(bounds, []uint64{0, 995, 5, 0}, 1000, 0.99); got != 0 {
		t.Errorf("%v, want 0", got)
	}
	check.Equal(t, quantile(bounds, []uint64{0, 0, 0, 99}, 99, 0.99), 0, "of too few")
}

func TestDescribeService(t *testing.T) {
	env := map[string]string{
		"OTEL_RESOURCE_ATTRIBUTES": "service.name=old, k8s.pod.name=shop-1,password=x", "OTEL_SERVICE_NAME": "shop", "POD_NAME": "other", "NODE_NAME": "n1",
	}
	build := &debug.BuildInfo{Main: debug.Module{Path: "example.org/shop", Version: "v1.2.3"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "4fe1"}, {Key: "vcs.modified", Value: "true"}, {Key: "-tags", Value: "x"}}}
	got := describeService(func(k string) string { return env[k] }, build)
	for k, want := range map[string]string{"service.name": "shop", "k8s.pod.name": "shop-1", "k8s.node.name": "n1", "password": "",
		"module": "example.org/shop", "version": "v1.2.3", "revision": "4fe1", "modified": "true"} {
		check.Equal(t, got[k], want, "%s", k)
	}
	check.True(t, got["go"] != "" && got["pid"] != "", "described as %v", got)
}

// TestTokenBucketJitter tests that requests that end out of order, each a tenth of a second
// before or after the previous one, add no tokens.
func TestTokenBucketJitter(t *testing.T) {
	clock := time.Unix(1000, 0)
	b := newTokenBucket(6, time.Hour, clock)
	for b.checkToken(clock, true) {
		b.takeToken()
	}
	for i := range 100_000 {
		must.False(t, b.checkToken(clock.Add(time.Duration(i%2)*100*time.Millisecond), true),
			"one passes after %d looks within a tenth of a second", i)
	}
	// After the clock was set back by a day, tokens are added from there.
	clock = clock.Add(-24 * time.Hour)
	check.False(t, b.checkToken(clock, true), "a clock that goes back lets one pass")
	check.True(t, b.checkToken(clock.Add(10*time.Minute), true) && !b.checkToken(clock.Add(9*time.Minute), false),
		"ten minutes after that there is not exactly one")
}

// TestReplay tests that a process that is restarted repeatedly has the tokens that one
// process would have, also if the clock was set back.
func TestReplay(t *testing.T) {
	clock := time.Unix(100_000, 0)
	tokensLeft := func(ago ...time.Duration) (n int) {
		b := newTokenBucket(6, time.Hour, clock)
		var passed []time.Time
		for _, d := range ago {
			passed = append(passed, clock.Add(-d))
		}
		b.replay(passed, clock)
		for ; b.checkToken(clock, true); n++ {
			b.takeToken()
		}
		return n
	}
	m := time.Minute
	for _, c := range []struct {
		ago  []time.Duration
		want int
	}{
		{nil, 6},
		{[]time.Duration{m, m, m, m, m, m}, 0},
		{[]time.Duration{m, 11 * m, m, m, m, m}, 1},
		{[]time.Duration{2 * 60 * m, 2 * 60 * m, 2 * 60 * m}, 6},
		{[]time.Duration{m, m}, 4},
		{[]time.Duration{m, m, m, m, m, m, m, m, m, m, m, m}, 0}, // of several processes in the directory
		{[]time.Duration{-24 * 60 * m, -24 * 60 * m, m}, 3},
	} {
		if n := tokensLeft(c.ago...); n != c.want {
			t.Errorf("after those of %v ago there are %d left, want %d", c.ago, n, c.want)
		}
	}
}
