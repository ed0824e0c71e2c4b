package probe

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
)

func TestBucketsMeet(t *testing.T) {
	for i := range bucketCount - 1 {
		end := upperBound(i)
		check.Equal(t, bucketOf(end-1), i, "%v is in bucket", end-1)
		check.Equal(t, bucketOf(end), i+1, "%v is in bucket", end)
		if i > 0 && float64(end) > 1.26*float64(upperBound(i-1)) {
			t.Errorf("bucket %d is wider than a quarter: %v to %v", i, upperBound(i-1), end)
		}
	}
	check.Equal(t, bucketOf(math.MaxInt64), bucketCount-1, "the largest duration is in bucket")
}

func TestQuantilesAgreeWithSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	var all []time.Duration
	for range 5000 {
		d := time.Duration(math.Exp(r.NormFloat64()*2) * float64(time.Millisecond))
		all = append(all, d)
		h.Record(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 0.999, 1} {
		exact := all[int(math.Ceil(q*float64(len(all))))-1]
		got := h.Quantile(q)
		check.True(t, got >= exact && float64(got) <= 1.26*float64(exact), "quantile %v: %v, exact %v", q, got, exact)
	}
	check.True(t, h.Max == all[len(all)-1] && h.Count == 5000, "max %v count %d", h.Max, h.Count)
	h.Record(-1)
	check.True(t, h.counts[0] != 0, "a negative duration was lost")
	var empty Histogram
	check.Equal(t, empty.Quantile(0.5), 0, "the quantile of nothing is not 0")
}
