package probe

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsMeet(t *testing.T) {
	for i := range bucketCount - 1 {
		end := upperBound(i)
		if got := bucketOf(end - 1); got != i {
			t.Errorf("%v is in bucket %d, want %d", end-1, got, i)
		}
		if got := bucketOf(end); got != i+1 {
			t.Errorf("%v is in bucket %d, want %d", end, got, i+1)
		}
		if i > 0 && float64(end) > 1.26*float64(upperBound(i-1)) {
			t.Errorf("bucket %d is wider than a quarter: %v to %v", i, upperBound(i-1), end)
		}
	}
	if got := bucketOf(math.MaxInt64); got != bucketCount-1 {
		t.Errorf("the largest duration is in bucket %d", got)
	}
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
		if got < exact || float64(got) > 1.26*float64(exact) {
			t.Errorf("quantile %v: %v, exact %v", q, got, exact)
		}
	}
	if h.Max != all[len(all)-1] || h.Count != 5000 {
		t.Errorf("max %v count %d", h.Max, h.Count)
	}
	h.Record(-1)
	if h.counts[0] == 0 {
		t.Error("a negative duration was lost")
	}
	var empty Histogram
	if empty.Quantile(0.5) != 0 {
		t.Error("the quantile of nothing is not 0")
	}
}
