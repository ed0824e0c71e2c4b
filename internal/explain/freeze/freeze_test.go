package freeze

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// seeds is how many variants of each workload are tested.
const seeds = 4

func TestVerdicts(t *testing.T) {
	shortGap := uniform(100_000, 2_500_000) // a busy server
	shortLag := uniform(20_000, 900_000)
	tests := []struct {
		name  string
		world workload
		want  verdicts // any of these
		// period is the period that must be found with ownQuota; 0: do not compare it.
		period int64
	}{
		{"a quota of a third, 2 threads that compute", workload{threads: 2, length: 3000 * ms, runLength: monitorTurns, holds: quotaHolds(3000*ms, 100*ms, 30*ms, 6*ms, 1), lag: shortLag}, verdicts{ownQuota}, 100 * ms},
		{"a quota of a third, used up at equal times", workload{threads: 2, length: 3000 * ms, runLength: monitorTurns, holds: quotaHolds(3000*ms, 100*ms, 30*ms, 50_000, 1), lag: shortLag}, verdicts{ownQuota}, 100 * ms},
		{"a quota of a third, a server", workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true, holds: quotaHolds(3000*ms, 100*ms, 30*ms, 6*ms, 1), lag: shortLag}, verdicts{ownQuota}, 100 * ms},
		{"a quota that is nearly sufficient, a server", workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true, holds: quotaHolds(3000*ms, 100*ms, 85*ms, 6*ms, 1), lag: shortLag}, verdicts{ownQuota}, 100 * ms},
		{"a quota seldom used up", workload{threads: 4, length: 8000 * ms, runLength: shortGap, yields: true, holds: quotaHolds(8000*ms, 100*ms, 50*ms, 20*ms, 0.2), lag: shortLag}, verdicts{ownQuota}, 100 * ms},
		{"a period of 50 ms", workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true, holds: quotaHolds(3000*ms, 50*ms, 20*ms, 4*ms, 1), lag: shortLag}, verdicts{ownQuota}, 50 * ms},
		{"a period of 50 ms, code that computes", workload{threads: 2, length: 3000 * ms, runLength: monitorTurns, holds: quotaHolds(3000*ms, 50*ms, 12*ms, 3*ms, 1), lag: shortLag}, verdicts{ownQuota}, 50 * ms},
		{"a period of 250 ms", workload{threads: 4, length: 9000 * ms, runLength: shortGap, yields: true, holds: quotaHolds(9000*ms, 250*ms, 120*ms, 20*ms, 1), lag: shortLag}, verdicts{ownQuota}, 250 * ms},
		{"a period of 20 ms", workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true, holds: quotaHolds(3000*ms, 20*ms, 8*ms, 2*ms, 1), lag: uniform(20_000, 300_000)}, verdicts{ownQuota}, 20 * ms},
		{"a single P", workload{threads: 1, length: 3000 * ms, runLength: monitorTurns, holds: quotaHolds(3000*ms, 100*ms, 40*ms, 8*ms, 1), lag: shortLag}, verdicts{ownQuota}, 100 * ms},
		{"generations end in freezes", workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true, holds: quotaHolds(3000*ms, 100*ms, 30*ms, 6*ms, 1), lag: shortLag,
			borders: []int64{700 * ms, 1500 * ms, 2210 * ms, 2950 * ms, 3390 * ms, 4170 * ms}}, verdicts{ownQuota}, 100 * ms},

		{"a healthy server", workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true}, verdicts{unknownQuota}, 0},
		{"code that computes", workload{threads: 2, length: 3000 * ms, runLength: monitorTurns}, verdicts{unknownQuota}, 0},
		{"code that computes alone", workload{threads: 1, length: 3000 * ms, runLength: monitorTurns}, verdicts{unknownQuota}, 0},
		{"a short trace", workload{threads: 4, length: 900 * ms, runLength: shortGap, yields: true}, verdicts{unknownQuota}, 0},
		{"other processes and a server", workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true, holds: randomHolds(3000*ms, 30*ms, 3*ms, 60*ms), lag: shortLag}, verdicts{unknownQuota}, 0},
		{"other processes and code that computes", workload{threads: 2, length: 3000 * ms, runLength: monitorTurns, holds: randomHolds(3000*ms, 30*ms, 3*ms, 60*ms), lag: shortLag}, verdicts{unknownQuota}, 0},
		{"other processes with time slices of 4 ms", workload{threads: 2, length: 3000 * ms, runLength: shortGap, yields: true, holds: roundToTicks(randomHolds(3000*ms, 20*ms, 4*ms, 40*ms)), lag: uniform(20_000, 60_000)}, verdicts{unknownQuota}, 0},
		{"other processes with a quota", workload{threads: 2, length: 3000 * ms, runLength: monitorTurns, holds: inverseHolds(quotaHolds(3000*ms, 100*ms, 45*ms, 6*ms, 1)), lag: shortLag}, verdicts{unknownQuota}, 0},
		{"other processes with a quota, and a server", workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true, holds: inverseHolds(quotaHolds(3000*ms, 100*ms, 45*ms, 6*ms, 1)), lag: shortLag}, verdicts{unknownQuota}, 0},
		{"a quota and other processes", workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true,
			holds: mergeHolds(quotaHolds(3000*ms, 100*ms, 40*ms, 15*ms, 0.5), randomHolds(3000*ms, 40*ms, 5*ms, 50*ms)), lag: uniform(20_000, 8*ms)}, verdicts{ownQuota, unknownQuota}, 0},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := uint64(seeds)
			if testing.Short() {
				n = 1
			}
			for seed := range n {
				d, v := detect(t, c.world.trace(t, seed))
				if !slices.Contains(c.want, v.Verdict) || c.period != 0 && v.PeriodNS != c.period {
					t.Errorf("seed %d: %s, period %s (score %.1f, %d of %d of at least %s): %s", seed, v.Verdict, formatMillis(v.PeriodNS), v.lock.score, v.lock.inWindow, v.lock.tested, formatMillis(v.lock.shortest), v.Text)
				}
				if v.Verdict == ownQuota && c.period != 0 {
					c.world.compare(t, d, &v, seed)
				} else if v.Verdict != ownQuota && (v.LostCPUNS != 0 || v.LostWallNS != 0 || len(v.Intervals()) != 0) {
					t.Errorf("seed %d: %s, but %d freezes", seed, v.Verdict, len(v.Intervals()))
				}
			}
		})
	}
}

// compare compares the loss of a verdict with the holds of the workload.
func (w *workload) compare(t *testing.T, d *Detector, v *Verdict, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 77))
	for range w.threads {
		w.runLength(rnd)
	}
	wall := int64(0)
	for _, h := range w.holds(rnd) {
		wall += h[1] - h[0]
	}
	cpu := wall * int64(w.threads)
	check.True(t, math.Abs(float64(v.LostCPUNS-cpu)) <= 0.15*float64(cpu),
		"seed %d: %s of CPU time lost, want %s", seed, formatMillis(v.LostCPUNS), formatMillis(cpu))
	check.True(t, math.Abs(float64(v.LostWallNS-wall)) <= 0.2*float64(wall),
		"seed %d: %s of wall time lost, want %s", seed, formatMillis(v.LostWallNS), formatMillis(wall))
	n := 0
	d.EachCandidate(0, math.MaxInt64, func(c Candidate) {
		if v.IsFreeze(c.Class) {
			n++
		}
	})
	check.True(t, n >= v.Freezes*9/10 && n <= v.Freezes*11/10+1, "seed %d: %d candidates were freezes, of %d", seed, n, v.Freezes)
}

// inverseHolds lets the process run only when others are stopped.
func inverseHolds(f func(*rand.Rand) [][2]int64) func(*rand.Rand) [][2]int64 {
	return func(r *rand.Rand) (out [][2]int64) {
		last := int64(0)
		for _, h := range f(r) {
			if last > 0 {
				out = append(out, [2]int64{last, h[0]})
			}
			last = h[1]
		}
		return out
	}
}

// roundToTicks rounds ends to the kernel's ticks of 4 ms.
func roundToTicks(f func(*rand.Rand) [][2]int64) func(*rand.Rand) [][2]int64 {
	return func(r *rand.Rand) (out [][2]int64) {
		for _, h := range f(r) {
			if h[1] -= h[1] % (4 * ms); h[1] > h[0] && (len(out) == 0 || h[0] > out[len(out)-1][1]) {
				out = append(out, h)
			}
		}
		return out
	}
}

// TestKernelLimits has the kernel's counters in addition to the trace.
func TestKernelLimits(t *testing.T) {
	shortGap, shortLag := uniform(100_000, 2_500_000), uniform(20_000, 900_000)
	// A trace alone does not show a quota if only three of thirty periods have a freeze.
	seldom := workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true, lag: shortLag, holds: func(*rand.Rand) [][2]int64 {
		return [][2]int64{{430 * ms, 461 * ms}, {1220 * ms, 1261 * ms}, {2440 * ms, 2461 * ms}}
	}}
	data := seldom.trace(t, 1)
	d, v := detect(t, data)
	check.True(t, v.Verdict == unknownQuota && v.LostCPUNS == 0, "three freezes, without counters: %s: %s", v.Verdict, v.Text)
	d.Kernel = KernelLimits{CPUs: 2, PeriodNS: 100e6, Verdict: ownQuota}
	if v = d.Verdict(); v.Verdict != ownQuota || v.Freezes != 3 || v.CPUs != 2 || v.LostCPUNS < 150*ms || v.LostCPUNS > 220*ms {
		t.Errorf("three freezes, with counters: %s, %d freezes of %d CPUs, lost %s: %s", v.Verdict, v.Freezes, v.CPUs, formatMillis(v.LostCPUNS), v.Text)
	}
	often := workload{threads: 4, length: 3000 * ms, runLength: shortGap, yields: true, holds: quotaHolds(3000*ms, 100*ms, 30*ms, 6*ms, 1), lag: shortLag}
	d, _ = detect(t, often.trace(t, 1))
	d.Kernel = KernelLimits{Verdict: noQuota}
	v = d.Verdict()
	check.True(t, v.Verdict == noQuota && v.LostWallNS == 0, "no throttling measured: %s: %s", v.Verdict, v.Text)
	d.EachCandidate(0, math.MaxInt64, func(c Candidate) {
		check.False(t, v.IsFreeze(c.Class), "no throttling measured, but a freeze at %d", c.Start)
	})
}

// TestFewFreezes: three long silences that end at one phase of the default period are too few for a verdict, but
// suspect. At three phases, or a single one, they may come from other processes. It fails if a trace with three
// freezes has no suspects.
func TestFewFreezes(t *testing.T) {
	endingAt := func(ends ...int64) func(*rand.Rand) [][2]int64 {
		return func(*rand.Rand) (held [][2]int64) {
			for _, e := range ends {
				held = append(held, [2]int64{e - 45*ms, e})
			}
			return held
		}
	}
	for _, c := range []struct {
		name string
		held func(*rand.Rand) [][2]int64
		want int
	}{
		{"at one phase", endingAt(458*ms, 1158*ms, 2758*ms), 3},
		{"at three phases", endingAt(458*ms, 1190*ms, 2725*ms), 0},
		{"a single one", endingAt(1158 * ms), 0},
	} {
		w := workload{threads: 2, length: 4000 * ms, runLength: uniform(100_000, 2_500_000), yields: true, holds: c.held, lag: uniform(20_000, 900_000)}
		if _, v := detect(t, w.trace(t, 1)); v.Suspect != c.want || v.Verdict != unknownQuota || v.LostWallNS != 0 {
			t.Errorf("%s: %d suspect, want %d: %s: %s", c.name, v.Suspect, c.want, v.Verdict, v.Text)
		}
	}
}
