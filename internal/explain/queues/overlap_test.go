package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestOverlap counts intervals that touch as one after the other.
func TestOverlap(t *testing.T) {
	var o Overlap
	for _, i := range []interval{{10, 20}, {5, 15}, {0, 10}} {
		o.Add(i.start, i.end)
	}
	for time, want := range map[int64]int{-1: 0, 0: 1, 7: 2, 10: 2, 17: 1, 20: 0} {
		check.Equal(t, o.At(time), want, "intervals at a time")
	}
	check.Equal(t, o.Max(), 2, "most intervals")
}
