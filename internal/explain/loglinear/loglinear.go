// Package loglinear divides non-negative numbers, such as latencies, into buckets that grow with the value: 1<<subBits buckets
// for each power of two. So the width of a bucket is a fixed share of its value, at most one part in 1<<subBits. Values below
// 1<<subBits have a bucket each. HdrHistogram uses the same division.
package loglinear

import "math/bits"

// Bucket returns the bucket of a value, with 1<<subBits buckets for each power of two. A negative value is in the bucket of
// 0.
func Bucket(v int64, subBits uint) int32 {
	u := uint64(max(v, 0))
	if u < 1<<subBits {
		return int32(u)
	}
	shift := uint(bits.Len64(u)) - 1 - subBits
	return int32(shift)<<subBits + int32(u>>shift)
}

// LowerBound returns the smallest value of a bucket; subBits is that of Bucket.
func LowerBound(bucket int32, subBits uint) int64 {
	if bucket < 1<<subBits {
		return int64(bucket)
	}
	shift := uint(bucket>>subBits) - 1
	return int64(uint64(bucket&(1<<subBits-1)|1<<subBits) << shift)
}
