package freeze

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestBound checks that no period is passed over whose score is above the
// bound, and that ends at random score nothing.
func TestBound(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := leastEnds + rnd.IntN(100)
		locked := int64(10e6) + rnd.Int64N(300e6)
		share := rnd.Float64()
		var ends []int64
		at := int64(1e9)
		for range n {
			at += 1e6 + rnd.Int64N(200e6)
			if rnd.Float64() < share {
				at += locked - at%locked + rnd.Int64N(1e6)
			}
			ends = append(ends, at)
		}
		eachPeriod(func(period int64) {
			if period%7_000_000 != 0 {
				return
			}
			if got, bound := test(ends, period, 3).score, atMost(ends, period, 3); got > bound {
				t.Errorf("period %d: score %g above the bound %g", period, got, bound)
			}
		})
	}
	worst := 0.0
	for range 30 {
		var ends []int64
		for at := int64(0); len(ends) < 60; {
			at += 1e6 + rnd.Int64N(150e6)
			ends = append(ends, at)
		}
		eachPeriod(func(period int64) { worst = max(worst, test(ends, period, math.Log(sets*periods)).score) })
	}
	if worst > someScore {
		t.Errorf("ends at random score %g", worst)
	}
}
