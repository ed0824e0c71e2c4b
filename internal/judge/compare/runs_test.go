package compare

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestRunsCover simulates experiments: the intervals of 1,000 cover the truth in 93 to 97 %, and equal arms are called
// different in at most 5 %. Runs vary by a factor (lognormal), as p99s do, or around a mean.
func TestRunsCover(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand experiments of each kind")
	}
	for _, c := range []struct {
		name  string
		scale Scale
		truth float64
		draw  func(*rand.Rand) float64
	}{
		{"p99", Ratio, 20e6, func(r *rand.Rand) float64 { return 20e6 * math.Exp(0.3*r.NormFloat64()) }},
		{"wild p99.9", Ratio, 50e6, func(r *rand.Rand) float64 { return 50e6 * math.Exp(r.NormFloat64()) }},
		{"throttled", Sum, 900, func(r *rand.Rand) float64 { return 900 + 200*r.NormFloat64() }},
	} {
		for _, n := range []int{3, 5, 10} {
			random := rand.New(rand.NewPCG(uint64(n), 11))
			draw := func() []float64 {
				v := make([]float64, n)
				for i := range v {
					v[i] = c.draw(random)
				}
				return v
			}
			const experiments = 1000
			covered, different := 0, 0
			for range experiments {
				a, b := draw(), draw()
				if i := RunsInterval(a, c.scale); *i.Low <= c.truth && c.truth <= *i.High {
					covered++
				}
				if CompareRuns(a, b, c.scale).Evidence {
					different++
				}
			}
			check.True(t, covered >= 930 && covered <= 970,
				"%s, %d runs: %d of %d intervals cover the truth", c.name, n, covered, experiments)
			check.True(t, different <= 50, "%s, %d runs: %d of %d equal arms are called different", c.name, n, different, experiments)
		}
	}
}

// TestCompareRunsFinds: a real difference is found, with its sign and size.
func TestCompareRunsFinds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	found := 0
	for range 200 {
		var a, b []float64
		for range 10 {
			a = append(a, 20*math.Exp(0.1*random.NormFloat64()))
			b = append(b, 30*math.Exp(0.1*random.NormFloat64()))
		}
		c := CompareRuns(a, b, Ratio)
		if c.Evidence && c.Relative && c.Est > 0.3 && c.Est < 0.75 && *c.Low < c.Est && c.Est < *c.High {
			found++
		}
	}
	check.True(t, found >= 198, "half as much again was found %d times in 200", found)
}

func TestRunsFew(t *testing.T) {
	if i := RunsInterval(nil, Ratio); i.Est != 0 || i.Low != nil {
		t.Errorf("nothing gives %+v", i)
	}
	if i := RunsInterval([]float64{7}, Ratio); math.Abs(i.Est-7) > 1e-9 || i.Low != nil {
		t.Errorf("one run gives %+v", i)
	}
	if i := RunsInterval([]float64{0, 0, 3}, Ratio); i.Est != 1 || *i.Low != 0 && *i.Low > 1 {
		t.Errorf("zeros give %+v", i)
	}
	if i := RunsInterval([]float64{0, 0, 3}, Sum); *i.Low != 0 {
		t.Errorf("a time is at least %v", *i.Low)
	}
	if c := CompareRuns([]float64{1}, []float64{2}, Ratio); c.Evidence || c.Low != nil || math.Abs(c.Est-1) > 1e-9 {
		t.Errorf("one run each: %+v", c)
	}
	if c := CompareRuns([]float64{5, 5}, []float64{5, 5}, Ratio); c.Evidence {
		t.Errorf("equal runs: %+v", c)
	}
	if c := CompareRuns([]float64{0, 0}, []float64{5, 6}, Sum); c.Relative || math.Abs(c.Est-5.5) > 1e-9 {
		t.Errorf("from nothing: %+v", c)
	}
	if c := CompareRuns(nil, []float64{5, 6}, Sum); c.Evidence || c.Est != 0 {
		t.Errorf("no run on a side: %+v", c)
	}
}
