package groups

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestBuckets: buckets cover all values without gap or overlap, and are narrow enough.
func TestBuckets(t *testing.T) {
	for _, sub := range []uint{coarseBits, fineBits} {
		last := loglinear.Bucket(math.MaxInt64, sub)
		for b := range last {
			lo, next := loglinear.LowerBound(b, sub), loglinear.LowerBound(b+1, sub)
			must.True(t, next > lo && loglinear.Bucket(lo, sub) == b && loglinear.Bucket(next-1, sub) == b,
				"%d bits: bucket %d is [%d, %d), but holds %d to %d", sub, b, lo, next, loglinear.Bucket(lo, sub), loglinear.Bucket(next-1, sub))
			if width := next - lo; width > 1 && float64(width) > float64(lo)/float64(uint64(1)<<sub) {
				t.Fatalf("%d bits: bucket %d is %d wide at %d", sub, b, width, lo)
			}
		}
	}
	check.Equal(t, loglinear.Bucket(-5, fineBits), 0, "a negative latency has no bucket")
	for range 10000 {
		v := rand.Int64() >> rand.IntN(63)
		if got, want := coarseBucket(loglinear.Bucket(v, fineBits)), loglinear.Bucket(v, coarseBits); got != want {
			t.Fatalf("%d: the coarse bucket of its fine one is %d, its own %d", v, got, want)
		}
	}
}

// TestQuantiles compares quantiles with those of the sorted values, for one histogram and for several that are merged.
func TestQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	shapes := map[string]func() int64{
		"log-normal": func() int64 { return int64(1e6 * math.Exp(rng.NormFloat64())) },
		"two modes":  func() int64 { return []int64{1e5, 5e7}[rng.IntN(2)] + rng.Int64N(1000) },
		"constant":   func() int64 { return 123456789 },
		"zeros":      func() int64 { return rng.Int64N(3) },
	}
	for name, shape := range shapes {
		for _, n := range []int{1, 2, 7, 100, 5000} {
			var one histogram
			parts := make([]histogram, 3)
			var values []int64
			sum := int64(0)
			for range n {
				v := shape()
				values = append(values, v)
				sum += v
				one.add(v, 1)
				parts[rng.IntN(len(parts))].add(v, 1)
			}
			slices.Sort(values)
			var merged histogram
			for i := range parts {
				merged.merge(&parts[i])
			}
			must.True(t, one.count == int64(n) && one.sum == sum && one.max == values[n-1] && one.min == values[0],
				"%s, %d values: n %d, sum %d, min %d, max %d", name, n, one.count, one.sum, one.min, one.max)
			for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1} {
				got := one.quantile(q)
				if mergedQuantile := merged.quantile(q); mergedQuantile != got || merged.count != one.count || merged.sum != one.sum || merged.max != one.max {
					t.Fatalf("%s, %d values: q%g is %d, merged %d", name, n, q, got, mergedQuantile)
				}
				want := values[int64(q*float64(n-1))]
				check.True(t, math.Abs(float64(got-want)) <= 0.004*float64(want)+1,
					"%s, %d values: q%g is %d, want %d", name, n, q, got, want)
			}
		}
	}
	check.Equal(t, (&histogram{}).quantile(0.5), 0, "the median of nothing")
}

// TestMinValues: a quantile is reported only with enough values.
func TestMinValues(t *testing.T) {
	for q, want := range map[float64]int64{0.5: 5, 0.9: 10, 0.99: 100, 0.999: 1000} {
		if got := minValues(q); got != want {
			t.Errorf("q%g needs %d values, want %d", q, got, want)
		}
		var h histogram
		h.add(1e6, want-1)
		if r := latencyOf(&h); map[float64]*int64{0.5: r.P50, 0.9: r.P90, 0.99: r.P99, 0.999: r.P999}[q] != nil {
			t.Errorf("q%g of %d values is reported", q, want-1)
		}
	}
}

// TestCells compares a table with a map.
func TestCells(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var table cellTable[cell]
	want := map[[2]int32]cell{}
	for range 20000 {
		k := [2]int32{rng.Int32N(300), rng.Int32N(50)}
		ns := rng.Int64N(1000)
		c := table.getOrAdd(k[0], k[1])
		c.ns += ns
		c.requests++
		want[k] = cell{ns: want[k].ns + ns, requests: want[k].requests + 1}
	}
	must.Equal(t, table.count, len(want), "sums")
	table.forEach(func(bucket, cause int32, c *cell) {
		if want[[2]int32{bucket, cause}] != *c {
			t.Errorf("bucket %d, cause %d: %+v, want %+v", bucket, cause, *c, want[[2]int32{bucket, cause}])
		}
		delete(want, [2]int32{bucket, cause})
	})
	check.True(t, len(want) == 0, "%d sums were not visited", len(want))
}
