package sample

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestQuantile: a quantile is one of the values. Of an even number of values, the median is the upper of the middle ones.
func TestQuantile(t *testing.T) {
	four := []int64{4, 2, 3, 1}
	check.Equal(t, Median(four), 3, "the median of four")
	for q, want := range map[float64]int64{0: 1, 0.5: 2, 0.67: 3, 0.99: 3, 1: 4} {
		check.Equal(t, Quantile(four, q), want, "a quantile of four")
	}
	check.Equal(t, Median([]float64{})+Quantile([]float64(nil), 0.5), 0, "of no values")
}
