package compare

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/report"
)

// A process is a service whose requests are simulated: start returns, for one recording, the latency of a request that ends at a time.
type process struct {
	name  string
	start func(rng *rand.Rand, seconds int) func(at float64) float64
}

// processes are difficult in different ways. Latencies are in ns.
var processes = []process{
	{"independent", func(rng *rand.Rand, _ int) func(float64) float64 {
		return func(float64) float64 { return 5e6 * (0.5 + 0.25*(rng.ExpFloat64()+rng.ExpFloat64())) }
	}},
	{"heavy tail", func(rng *rand.Rand, _ int) func(float64) float64 {
		return func(float64) float64 { return 1e6 * math.Pow(1-rng.Float64(), -1/1.3) }
	}},
	{"two peaks", func(rng *rand.Rand, _ int) func(float64) float64 {
		return func(float64) float64 {
			if rng.IntN(10) == 0 {
				return 200e6 * (1 + 0.01*rng.Float64())
			}
			return 5e6 * (1 + 0.1*rng.Float64())
		}
	}},
	{"two equal peaks", func(rng *rand.Rand, _ int) func(float64) float64 {
		return func(float64) float64 {
			if rng.IntN(2) == 0 {
				return 200e6 * (1 + 0.01*rng.Float64())
			}
			return 5e6 * (1 + 0.1*rng.Float64())
		}
	}},
	{"busy seconds", func(rng *rand.Rand, seconds int) func(float64) float64 {
		busy := make([]float64, seconds+1)
		for i := range busy {
			busy[i] = rng.ExpFloat64()
		}
		return func(at float64) float64 { return 2e6 * (1 + busy[int(at)]*rng.Float64()) }
	}},
	{"slow drift", func(rng *rand.Rand, seconds int) func(float64) float64 {
		level := make([]float64, seconds*20+1)
		v := rng.NormFloat64()
		for i := range level {
			v = 0.95*v + math.Sqrt(1-0.95*0.95)*rng.NormFloat64()
			level[i] = 0.5 * v
		}
		return func(at float64) float64 { return 3e6 * math.Exp(level[int(at*20)]) * (0.8 + 0.4*rng.Float64()) }
	}},
	{"rare stops", stops(0.2)},
	{"stops", stops(0.45)},
	{"many stops", stops(1.5)},
	{"timer", func(rng *rand.Rand, _ int) func(float64) float64 {
		phase := 2.3 * rng.Float64()
		return func(at float64) float64 {
			if in := math.Mod(at+phase, 2.3); in < 0.3 {
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
		for at := rng.ExpFloat64() / perSecond; at < float64(seconds); at += rng.ExpFloat64() / perSecond {
			begins = append(begins, at)
		}
		return func(at float64) float64 {
			longest := 0.0
			for _, b := range begins {
				if at >= b && at < b+0.3 {
					longest = max(longest, b+0.3-at)
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
	r := reportOf(p.name, load{"main.h", report.KindHTTP1, seconds, rate, func(_ *rand.Rand, at float64) []spent {
		return []spent{{"network", "main.h", 1, int64(factor * latency(at))}}
	}}.group(seed))
	r.Input.DurationNS = int64(seconds) * 1e9
	return r
}

func TestCoverageX(t *testing.T) {
	testfull.Need(t, "simulates thousands of recordings")
	pairs := 800
	for _, p := range processes {
		for _, c := range []struct{ seconds, rate int }{{10, 60}, {4, 50}} {
			var by [4]int
			alarms, rows, seen := 0, 0, 0
			for i := range pairs {
				a := p.simulated(c.seconds, c.rate, 1, uint64(2*i))
				g := &Reports(a, p.simulated(c.seconds, c.rate, 1, uint64(2*i+1))).Groups[0]
				any := false
				for k, n := range g.Numbers() {
					if n.Evidence {
						by[k]++
						any = true
					}
				}
				if any {
					alarms++
				}
				if g.Changed && !any {
					rows++
				}
				if i < 100 && Reports(a, p.simulated(c.seconds, c.rate, 0.6, uint64(2*i+1))).Groups[0].Changed {
					seen++
				}
			}
			t.Logf("%-16s %2d s, %3d/s: alarms %.1f %% (mean, p50, p90, p99 %v, rows %d), 0.6 seen %d %%", p.name, c.seconds, c.rate, 100*float64(alarms)/float64(pairs), by, rows, seen)
		}
	}
}
