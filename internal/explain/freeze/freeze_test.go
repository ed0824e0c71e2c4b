package freeze

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// seeds is how many variants of each world are made.
const seeds = 4

func TestVerdicts(t *testing.T) {
	talk := sometimes(100_000, 2_500_000) // a busy server
	soon := sometimes(20_000, 900_000)
	tests := []struct {
		name  string
		world world
		want  verdicts // any of these
		// period is the one that must be found with own, lost how much CPU time was
		// really held back, 0: not compared.
		period int64
	}{
		{"a quota of a third, 2 threads that compute", world{threads: 2, length: 3000 * ms, gap: turnsOfMonitor, held: quota(3000*ms, 100*ms, 30*ms, 6*ms, 1), lag: soon}, verdicts{own}, 100 * ms},
		{"a quota of a third, used up like clockwork", world{threads: 2, length: 3000 * ms, gap: turnsOfMonitor, held: quota(3000*ms, 100*ms, 30*ms, 50_000, 1), lag: soon}, verdicts{own}, 100 * ms},
		{"a quota of a third, a server", world{threads: 4, length: 3000 * ms, gap: talk, talkative: true, held: quota(3000*ms, 100*ms, 30*ms, 6*ms, 1), lag: soon}, verdicts{own}, 100 * ms},
		{"a quota nearly enough, a server", world{threads: 4, length: 3000 * ms, gap: talk, talkative: true, held: quota(3000*ms, 100*ms, 85*ms, 6*ms, 1), lag: soon}, verdicts{own}, 100 * ms},
		{"a quota seldom used up", world{threads: 4, length: 8000 * ms, gap: talk, talkative: true, held: quota(8000*ms, 100*ms, 50*ms, 20*ms, 0.2), lag: soon}, verdicts{own}, 100 * ms},
		{"a period of 50 ms", world{threads: 4, length: 3000 * ms, gap: talk, talkative: true, held: quota(3000*ms, 50*ms, 20*ms, 4*ms, 1), lag: soon}, verdicts{own}, 50 * ms},
		{"a period of 50 ms, code that computes", world{threads: 2, length: 3000 * ms, gap: turnsOfMonitor, held: quota(3000*ms, 50*ms, 12*ms, 3*ms, 1), lag: soon}, verdicts{own}, 50 * ms},
		{"a period of 250 ms", world{threads: 4, length: 9000 * ms, gap: talk, talkative: true, held: quota(9000*ms, 250*ms, 120*ms, 20*ms, 1), lag: soon}, verdicts{own}, 250 * ms},
		{"a period of 20 ms", world{threads: 4, length: 3000 * ms, gap: talk, talkative: true, held: quota(3000*ms, 20*ms, 8*ms, 2*ms, 1), lag: sometimes(20_000, 300_000)}, verdicts{own}, 20 * ms},
		{"a single P", world{threads: 1, length: 3000 * ms, gap: turnsOfMonitor, held: quota(3000*ms, 100*ms, 40*ms, 8*ms, 1), lag: soon}, verdicts{own}, 100 * ms},
		{"generations end in freezes", world{threads: 4, length: 3000 * ms, gap: talk, talkative: true, held: quota(3000*ms, 100*ms, 30*ms, 6*ms, 1), lag: soon,
			borders: []int64{700 * ms, 1500 * ms, 2210 * ms, 2950 * ms, 3390 * ms, 4170 * ms}}, verdicts{own}, 100 * ms},

		{"a healthy server", world{threads: 4, length: 3000 * ms, gap: talk, talkative: true}, verdicts{unknown}, 0},
		{"code that computes", world{threads: 2, length: 3000 * ms, gap: turnsOfMonitor}, verdicts{unknown}, 0},
		{"code that computes alone", world{threads: 1, length: 3000 * ms, gap: turnsOfMonitor}, verdicts{unknown}, 0},
		{"a short trace", world{threads: 4, length: 900 * ms, gap: talk, talkative: true}, verdicts{unknown}, 0},
		{"neighbours and a server", world{threads: 4, length: 3000 * ms, gap: talk, talkative: true, held: anyhow(3000*ms, 30*ms, 3*ms, 60*ms), lag: soon}, verdicts{unknown}, 0},
		{"neighbours and code that computes", world{threads: 2, length: 3000 * ms, gap: turnsOfMonitor, held: anyhow(3000*ms, 30*ms, 3*ms, 60*ms), lag: soon}, verdicts{unknown}, 0},
		{"neighbours with turns of 4 ms", world{threads: 2, length: 3000 * ms, gap: talk, talkative: true, held: onTicks(anyhow(3000*ms, 20*ms, 4*ms, 40*ms)), lag: sometimes(20_000, 60_000)}, verdicts{unknown}, 0},
		{"neighbours with a quota of their own", world{threads: 2, length: 3000 * ms, gap: turnsOfMonitor, held: mirrored(quota(3000*ms, 100*ms, 45*ms, 6*ms, 1)), lag: soon}, verdicts{unknown}, 0},
		{"neighbours with a quota of their own and a server", world{threads: 4, length: 3000 * ms, gap: talk, talkative: true, held: mirrored(quota(3000*ms, 100*ms, 45*ms, 6*ms, 1)), lag: soon}, verdicts{unknown}, 0},
		{"a quota and neighbours", world{threads: 4, length: 3000 * ms, gap: talk, talkative: true,
			held: both(quota(3000*ms, 100*ms, 40*ms, 15*ms, 0.5), anyhow(3000*ms, 40*ms, 5*ms, 50*ms)), lag: sometimes(20_000, 8*ms)}, verdicts{own, unknown}, 0},
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
					t.Errorf("seed %d: %s, period %s (score %.1f, %d of %d of at least %s): %s", seed, v.Verdict, millis(v.PeriodNS), v.by.score, v.by.k, v.by.n, millis(v.by.least), v.How)
				}
				if v.Verdict == own && c.period != 0 {
					c.world.compare(t, d, &v, seed)
				} else if v.Verdict != own && (v.LostCPUNS != 0 || v.LostWallNS != 0 || len(v.Intervals()) != 0) {
					t.Errorf("seed %d: %s, but %d freezes", seed, v.Verdict, len(v.Intervals()))
				}
			}
		})
	}
}

// compare compares what freezes took with what was held back.
func (w *world) compare(t *testing.T, d *Detector, v *Verdict, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 77))
	for range w.threads {
		w.gap(rnd)
	}
	wall := int64(0)
	for _, h := range w.held(rnd) {
		wall += h[1] - h[0]
	}
	cpu := wall * int64(w.threads)
	if math.Abs(float64(v.LostCPUNS-cpu)) > 0.15*float64(cpu) {
		t.Errorf("seed %d: %s of CPU time lost, want %s", seed, millis(v.LostCPUNS), millis(cpu))
	}
	if math.Abs(float64(v.LostWallNS-wall)) > 0.2*float64(wall) {
		t.Errorf("seed %d: %s of wall time lost, want %s", seed, millis(v.LostWallNS), millis(wall))
	}
	n := 0
	d.Candidates(0, math.MaxInt64, func(c Candidate) {
		if v.IsFreeze(c.Class) {
			n++
		}
	})
	if n < v.Freezes*9/10 || n > v.Freezes*11/10+1 {
		t.Errorf("seed %d: %d candidates were freezes, of %d", seed, n, v.Freezes)
	}
}

// mirrored has the process run when others are held back.
func mirrored(f func(*rand.Rand) [][2]int64) func(*rand.Rand) [][2]int64 {
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

// onTicks rounds ends to the kernel's ticks of 4 ms.
func onTicks(f func(*rand.Rand) [][2]int64) func(*rand.Rand) [][2]int64 {
	return func(r *rand.Rand) (out [][2]int64) {
		for _, h := range f(r) {
			if h[1] -= h[1] % (4 * ms); h[1] > h[0] && (len(out) == 0 || h[0] > out[len(out)-1][1]) {
				out = append(out, h)
			}
		}
		return out
	}
}

// TestKnown has the kernel's counters beside the trace.
func TestKnown(t *testing.T) {
	talk, soon := sometimes(100_000, 2_500_000), sometimes(20_000, 900_000)
	// Three periods of thirty are too few to believe a trace alone.
	seldom := world{threads: 4, length: 3000 * ms, gap: talk, talkative: true, lag: soon, held: func(*rand.Rand) [][2]int64 {
		return [][2]int64{{430 * ms, 461 * ms}, {1220 * ms, 1261 * ms}, {2440 * ms, 2461 * ms}}
	}}
	data := seldom.trace(t, 1)
	d, v := detect(t, data)
	if v.Verdict != unknown || v.LostCPUNS != 0 {
		t.Errorf("three freezes, alone: %s: %s", v.Verdict, v.How)
	}
	d.Known = Known{CPUs: 2, PeriodNS: 100e6, Verdict: own}
	if v = d.Verdict(); v.Verdict != own || v.Freezes != 3 || v.CPUs != 2 || v.LostCPUNS < 150*ms || v.LostCPUNS > 220*ms {
		t.Errorf("three freezes, known: %s, %d freezes of %d CPUs, lost %s: %s", v.Verdict, v.Freezes, v.CPUs, millis(v.LostCPUNS), v.How)
	}
	often := world{threads: 4, length: 3000 * ms, gap: talk, talkative: true, held: quota(3000*ms, 100*ms, 30*ms, 6*ms, 1), lag: soon}
	d, _ = detect(t, often.trace(t, 1))
	d.Known = Known{Verdict: none}
	v = d.Verdict()
	if v.Verdict != none || v.LostWallNS != 0 {
		t.Errorf("measured none: %s: %s", v.Verdict, v.How)
	}
	d.Candidates(0, math.MaxInt64, func(c Candidate) {
		if v.IsFreeze(c.Class) {
			t.Errorf("measured none, but a freeze at %d", c.Start)
		}
	})
}

// TestFewFreezes: three long silences that end at one phase of the usual period are too few to tell, and no sign that there
// is no quota; at three phases, or one alone, they are what neighbours do. It would catch a trace of three freezes told as
// if nothing could have held it back.
func TestFewFreezes(t *testing.T) {
	at := func(ends ...int64) func(*rand.Rand) [][2]int64 {
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
		{"at one phase", at(458*ms, 1158*ms, 2758*ms), 3},
		{"at three phases", at(458*ms, 1190*ms, 2725*ms), 0},
		{"one alone", at(1158 * ms), 0},
	} {
		w := world{threads: 2, length: 4000 * ms, gap: sometimes(100_000, 2_500_000), talkative: true, held: c.held, lag: sometimes(20_000, 900_000)}
		if _, v := detect(t, w.trace(t, 1)); v.Suspect != c.want || v.Verdict != unknown || v.LostWallNS != 0 {
			t.Errorf("%s: %d suspect, want %d: %s: %s", c.name, v.Suspect, c.want, v.Verdict, v.How)
		}
	}
}
