package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/report"
)

// A process is a service whose requests are simulated: start returns, for one recording, the latency of a request that ends at a time.
type process struct {
	name string
	// percent is the largest percentage of false alarms, and isClear says that a change of 40 % is found.
	percent int
	isClear bool
	start   func(rng *rand.Rand, seconds int) func(second float64) float64
}

// processes are difficult in different ways. Latencies are in ns.
var processes = []process{
	{"independent", 5, true, func(rng *rand.Rand, _ int) func(float64) float64 {
		return func(float64) float64 { return 5e6 * (0.5 + 0.25*(rng.ExpFloat64()+rng.ExpFloat64())) }
	}},
	{"heavy tail", 5, true, func(rng *rand.Rand, _ int) func(float64) float64 {
		return func(float64) float64 { return 1e6 * math.Pow(1-rng.Float64(), -1/1.3) }
	}},
	{"two peaks", 5, true, func(rng *rand.Rand, _ int) func(float64) float64 {
		return func(float64) float64 {
			if rng.IntN(10) == 0 {
				return 200e6 * (1 + 0.01*rng.Float64())
			}
			return 5e6 * (1 + 0.1*rng.Float64())
		}
	}},
	{"two equal peaks", 5, true, func(rng *rand.Rand, _ int) func(float64) float64 {
		return func(float64) float64 {
			if rng.IntN(2) == 0 {
				return 200e6 * (1 + 0.01*rng.Float64())
			}
			return 5e6 * (1 + 0.1*rng.Float64())
		}
	}},
	{"busy seconds", 5, false, func(rng *rand.Rand, seconds int) func(float64) float64 {
		busy := make([]float64, seconds+1)
		for i := range busy {
			busy[i] = rng.ExpFloat64()
		}
		return func(second float64) float64 { return 2e6 * (1 + busy[int(second)]*rng.Float64()) }
	}},
	{"slow drift", 6, false, func(rng *rand.Rand, seconds int) func(float64) float64 {
		level := make([]float64, seconds*20+1)
		v := rng.NormFloat64()
		for i := range level {
			v = 0.95*v + math.Sqrt(1-0.95*0.95)*rng.NormFloat64()
			level[i] = 0.5 * v
		}
		return func(second float64) float64 { return 3e6 * math.Exp(level[int(second*20)]) * (0.8 + 0.4*rng.Float64()) }
	}},
	{"rare stops", 5, true, stops(0.2)},
	{"stops", 5, true, stops(0.45)},
	{"many stops", 5, false, stops(1.5)},
	{"quiet", 5, true, func(rng *rand.Rand, _ int) func(float64) float64 {
		return func(float64) float64 { return 4e6 * (1 + 0.2*rng.Float64()) }
	}},
	{"timer", 5, true, func(rng *rand.Rand, _ int) func(float64) float64 {
		phase := 2.3 * rng.Float64()
		return func(second float64) float64 {
			if in := math.Mod(second+phase, 2.3); in < 0.3 {
				return (0.3-in)*1e9 + 4e6
			}
			return 4e6 * (1 + 0.2*rng.Float64())
		}
	}},
}

// stops returns a process that stops for 300 ms from time to time, independently.
func stops(perSecond float64) func(rng *rand.Rand, seconds int) func(float64) float64 {
	return func(rng *rand.Rand, seconds int) func(float64) float64 {
		var begins []float64
		for begin := rng.ExpFloat64() / perSecond; begin < float64(seconds); begin += rng.ExpFloat64() / perSecond {
			begins = append(begins, begin)
		}
		return func(second float64) float64 {
			longest := 0.0
			for _, b := range begins {
				if second >= b && second < b+0.3 {
					longest = max(longest, b+0.3-second)
				}
			}
			return longest*1e9 + 4e6*(1+0.2*rng.Float64())
		}
	}
}

// simulated returns a recording of a process.
func (p *process) simulated(seconds, rate int, factor float64, seed uint64) *report.Report {
	rng := rand.New(rand.NewPCG(seed, 11))
	latency := p.start(rng, seconds)
	r := reportOf(p.name, load{"main.h", report.KindHTTP1, seconds, rate, func(_ *rand.Rand, second float64) []spent {
		return []spent{{"network", "main.h", 1, int64(factor * latency(second))}}
	}}.group(seed))
	r.Input.DurationNS = int64(seconds) * 1e9
	return r
}

// TestFalseAlarms compares pairs of recordings of one process. With any number or row as evidence, at most 5 % of pairs may differ, also
// if load comes and goes for a second at a time, or a part of the recordings has a rare stop. Changes of 40 % are found where the
// recordings can show them. docs/internals/diff.md has the results of WHYLATE_FULL=1.
func TestFalseAlarms(t *testing.T) {
	pairs, cases := 40, [][2]int{{10, 60}}
	switch {
	case testfull.IsEnabled():
		pairs, cases = 1000, [][2]int{{10, 60}, {4, 50}, {10, 400}, {2, 100}}
	case testing.Short():
		pairs = 10
	}
	var table strings.Builder
	for i := range processes {
		p := &processes[i]
		for _, c := range cases {
			alarms, hints, detected, changed := 0, 0, 0, min(pairs, 200)
			for k := range uint64(pairs) {
				old := p.simulated(c[0], c[1], 1, 2*k)
				if g := &Reports(old, p.simulated(c[0], c[1], 1, 2*k+1)).Groups[0]; g.Changed {
					alarms++
				} else if slices.ContainsFunc(g.Numbers(), func(n Number) bool { return n.Probable }) {
					hints++
				}
				if int(k) < changed && Reports(old, p.simulated(c[0], c[1], 0.6, 2*k+1)).Groups[0].Changed {
					detected++
				}
			}
			fmt.Fprintf(&table, "| %s | %d s, %d/s | %.1f %% | %.0f %% |\n", p.name, c[0], c[1], 100*float64(alarms)/float64(pairs), 100*float64(detected)/float64(changed))
			// Of a recording of a few seconds, nothing can say whether a level of a second is usual.
			check.False(t, c[0] >= 10 && alarms > max(2, pairs*p.percent/100),
				"%s, %v: %d of %d pairs of equal services differ", p.name, c, alarms, pairs)
			check.False(t, c[0] >= 10 && hints > max(3, pairs/6), "%s, %v: hints for %d of %d pairs of equal services", p.name, c, hints, pairs)
			check.False(t, p.isClear && c[0] >= 10 && detected < changed*9/10,
				"%s, %v: a change of 40 %% was seen in %d of %d pairs", p.name, c, detected, changed)
		}
	}
	t.Logf("\n%s", table.String())
}

// TestTimer: a timer makes a tenth of the requests slow, in four short intervals. After the change none is, which is evidence because
// the intervals are regular: four stops at random are none against none.
func TestTimer(t *testing.T) {
	detected := 0
	for seed := range uint64(20) {
		old := processNamed("timer").simulated(9, 60, 1, seed)
		new := processNamed("quiet").simulated(9, 60, 1, seed+100)
		if g := &Reports(old, new).Groups[0]; g.P99.Evidence && g.Mean.Evidence {
			detected++
		}
	}
	check.True(t, detected >= 18, "seen in %d of 20 pairs", detected)
}

func processNamed(name string) *process {
	return &processes[slices.IndexFunc(processes, func(p process) bool { return p.name == name })]
}
