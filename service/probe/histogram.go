package probe

import (
	"iter"
	"math/bits"
	"time"
)

// bucketCount is the number of buckets of a Histogram.
const bucketCount = 4*octaveCount + 1

// The first bucket ends at 1 µs, which no timer reaches. Then there are four buckets for
// each doubling, so that a quantile is off by at most a quarter. The last bucket starts at
// 7/4 of 2^24 µs, about 29 s.
const octaveCount = 25

// A Histogram counts durations in buckets whose width grows with the duration. The
// zero value is empty.
type Histogram struct {
	// counts[i] is the number of durations below upperBound(i) and not below
	// upperBound(i-1).
	counts [bucketCount]uint64
	// Count, Sum and Max are exact.
	Count uint64
	Sum   time.Duration
	Max   time.Duration
}

// Record adds one duration; a negative one counts as 0. It does not allocate.
func (h *Histogram) Record(d time.Duration) {
	d = max(0, d)
	h.counts[bucketOf(d)]++
	h.Count++
	h.Sum += d
	h.Max = max(h.Max, d)
}

// bucketOf returns the index of a duration's bucket: 0 below 1 µs, else 1 + 4*octave +
// quarter.
func bucketOf(d time.Duration) int {
	us := uint64(d / time.Microsecond)
	if us == 0 {
		return 0
	}
	octave := bits.Len64(us) - 1
	if octave >= octaveCount {
		return bucketCount - 1
	}
	// The two bits below the leading one; of the nanoseconds, since the first
	// octaves have no two such bits in microseconds.
	quarter := int(uint64(d) * 4 / (uint64(time.Microsecond) << octave) & 3)
	return 1 + 4*octave + quarter
}

// Buckets yields each bucket's end, exclusive, and its number of durations, in the order
// of length. The last bucket has no end and yields the largest duration.
func (h *Histogram) Buckets() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		for i, n := range h.counts {
			if !yield(upperBound(i), n) {
				return
			}
		}
	}
}

// upperBound returns the end of bucket i, exclusive.
func upperBound(i int) time.Duration {
	switch {
	case i <= 0:
		return time.Microsecond
	case i >= bucketCount-1:
		return 1<<63 - 1
	}
	octave, quarter := (i-1)/4, (i-1)%4
	return (time.Microsecond << octave) * time.Duration(5+quarter) / 4
}

// Quantile returns a value that at least the share q of the durations do not
// exceed, rounded up to a bucket's end and never above Max; 0 if there are
// none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.Count == 0 {
		return 0
	}
	want := q * float64(h.Count)
	var sum uint64
	for i, n := range h.counts {
		sum += n
		if n > 0 && float64(sum) >= want {
			return min(upperBound(i), h.Max)
		}
	}
	return h.Max
}
