// Package loglinear divides non-negative numbers, such as latencies, into buckets that grow with the value: 1<<bits
// of them to each power of two, so that a bucket's width is a fixed share of its value, at most one part in 1<<bits.
// Smaller values have a bucket each. HdrHistogram divides alike.
package loglinear

import "math/bits"

// Bucket returns the bucket of a value; of a negative one that of 0.
func Bucket(v int64, sub uint) int32 {
	u := uint64(max(v, 0))
	if u < 1<<sub {
		return int32(u)
	}
	e := uint(bits.Len64(u)) - 1 - sub
	return int32(e)<<sub + int32(u>>e)
}

// Least returns the smallest value of a bucket.
func Least(b int32, sub uint) int64 {
	if b < 1<<sub {
		return int64(b)
	}
	e := uint(b>>sub) - 1
	return int64(uint64(b&(1<<sub-1)|1<<sub) << e)
}
