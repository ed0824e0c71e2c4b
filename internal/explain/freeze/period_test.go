package freeze

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestBound: no score of a period is above its bound, and random ends have low scores.
func TestBound(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		n := minEnds + rnd.IntN(100)
		locked := int64(10e6) + rnd.Int64N(300e6)
		share := rnd.Float64()
		var ends []int64
		clock := int64(1e9)
		for range n {
			clock += 1e6 + rnd.Int64N(200e6)
			if rnd.Float64() < share {
				clock += locked - clock%locked + rnd.Int64N(1e6)
			}
			ends = append(ends, clock)
		}
		eachPeriod(func(period int64) {
			if period%7_000_000 != 0 {
				return
			}
			if got, bound := testPeriod(ends, period, 3).score, logOddsBound(ends, period, 3); got > bound {
				t.Errorf("period %d: score %g above the bound %g", period, got, bound)
			}
		})
	}
	worst := 0.0
	for range 30 {
		var ends []int64
		for clock := int64(0); len(ends) < 60; {
			clock += 1e6 + rnd.Int64N(150e6)
			ends = append(ends, clock)
		}
		eachPeriod(func(period int64) {
			worst = max(worst, testPeriod(ends, period, math.Log(lengthSets*triedPeriods)).score)
		})
	}
	check.True(t, worst <= minSuspectScore, "random ends have a score of %g", worst)
}

// TestSharpEnds: ends of silences with a sharp edge are refills of a quota, also if most threads wait for a CPU after
// it, or if one end comes before. Ends that are spread, or that precede the majority, are not. It fails if freezes on
// a busy machine are attributed to the machine's load.
func TestSharpEnds(t *testing.T) {
	const period = 100e6
	ends := func(n, from, stepUS int64) (list []int64) { // in us
		for i := range n {
			list = append(list, from*1000+i*stepUS*1000)
		}
		return list
	}
	for _, c := range []struct {
		name string
		offs []int64
		want bool
	}{
		{"all at the edge", ends(60, 0, 15), true},
		{"half of them, the others late", slices.Concat(ends(30, 0, 30), ends(30, 2000, 2000)), true},
		{"a quarter, the others late", slices.Concat(ends(15, 0, 60), ends(45, 2000, 2000)), true},
		{"a quarter, and one before", slices.Concat(ends(1, -20000, 0), ends(15, 0, 60), ends(44, 2000, 2000)), true},
		{"spread", ends(60, 0, 1500), false},
		{"the majority after others", slices.Concat(ends(12, 0, 3000), ends(30, 50000, 30), ends(18, 52000, 2000)), false},
		{"a quarter after others", slices.Concat(ends(8, 0, 3000), ends(15, 50000, 60), ends(37, 52000, 1000)), false},
	} {
		check.Equal(t, isSharp(c.offs, period), c.want, "%s", c.name)
	}
}
