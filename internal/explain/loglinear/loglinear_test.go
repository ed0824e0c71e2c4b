package loglinear

import (
	"math"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestBuckets: buckets are adjacent, a value is between the lower bounds of its bucket and of the next one, and no bucket is
// wider than its share.
func TestBuckets(t *testing.T) {
	for _, sub := range []uint{0, 2, 5, 8} {
		check.Equal(t, Bucket(-1, sub), 0, "%d bits: a negative value is not in the bucket of 0", sub)
		last := Bucket(math.MaxInt64, sub)
		for b := range last {
			from, to := LowerBound(b, sub), LowerBound(b+1, sub)
			must.True(t, from < to && Bucket(from, sub) == b && Bucket(to-1, sub) == b && Bucket(to, sub) == b+1,
				"%d bits: bucket %d is from %d to %d", sub, b, from, to)
			if width := to - from; width > 1 && width > from>>sub {
				t.Fatalf("%d bits: bucket %d from %d is %d wide", sub, b, from, width)
			}
		}
	}
}
