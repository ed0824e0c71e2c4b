package groups

import "github.com/whylate/whylate/internal/explain/loglinear"

// Latencies are counted in buckets of package loglinear.
const (
	fineBits   = 8 // 256 to an octave: 0.4 %, for percentiles
	coarseBits = 5 // 32 to an octave: 3 %, for tables of causes by latency
)

// coarseBucket returns the coarse bucket that contains a fine one.
func coarseBucket(fine int32) int32 {
	return loglinear.Bucket(loglinear.LowerBound(fine, fineBits), coarseBits)
}

// A histogram counts values, such as latencies in ns, in log-linear buckets.
type histogram struct {
	pages  []*page // counters, by groups of adjacent buckets; a nil page has no values
	coarse bool    // the buckets are coarse ones
	count  int64
	sum    int64
	max    int64
	min    int64
}

const pageBits = 5

// A page holds the counts of adjacent buckets.
type page [1 << pageBits]int64

// countAt returns the counter of a bucket, creating its page on demand.
func (h *histogram) countAt(bucket int32) *int64 {
	for int(bucket>>pageBits) >= len(h.pages) {
		h.pages = append(h.pages, nil)
	}
	p := h.pages[bucket>>pageBits]
	if p == nil {
		p = new(page)
		h.pages[bucket>>pageBits] = p
	}
	return &p[bucket&(1<<pageBits-1)]
}

// add counts the value v (in ns) n times.
func (h *histogram) add(v, n int64) {
	bits := uint(fineBits)
	if h.coarse {
		bits = coarseBits
	}
	*h.countAt(loglinear.Bucket(v, bits)) += n
	if h.count == 0 || v < h.min {
		h.min = v
	}
	h.count += n
	h.sum += n * v
	h.max = max(h.max, v)
}

// merge adds another histogram with buckets of the same width.
func (h *histogram) merge(addend *histogram) {
	if addend.count == 0 {
		return
	}
	addend.forEach(func(b int32, n int64) { *h.countAt(b) += n })
	if h.count == 0 || addend.min < h.min {
		h.min = addend.min
	}
	h.count += addend.count
	h.sum += addend.sum
	h.max = max(h.max, addend.max)
}

// forEach calls f for every bucket that is not empty, in order of values.
func (h *histogram) forEach(f func(bucket int32, n int64)) {
	for i, p := range h.pages {
		if p == nil {
			continue
		}
		for k, n := range p {
			if n != 0 {
				f(int32(i<<pageBits|k), n)
			}
		}
	}
}

// A bucketCount is the number of values in a bucket.
type bucketCount struct {
	bucket int32
	count  int64
}

// coarseCounts returns the coarse buckets (3 % wide) that are not empty, in order.
func (h *histogram) coarseCounts() (list []bucketCount) {
	h.forEach(func(b int32, n int64) {
		if !h.coarse {
			b = coarseBucket(b)
		}
		if len(list) == 0 || list[len(list)-1].bucket != b {
			list = append(list, bucketCount{bucket: b})
		}
		list[len(list)-1].count += n
	})
	return list
}

// quantile returns the q-quantile by nearest rank, interpolated inside of its bucket; it is exact to 0.4 %. It is 0 for no
// values.
func (h *histogram) quantile(q float64) int64 {
	if h.count == 0 {
		return 0
	}
	rank := int64(q*float64(h.count-1)) + 1
	cumulative := int64(0)
	value, found := h.max, false
	h.forEach(func(b int32, c int64) {
		if !found && cumulative+c >= rank {
			found = true
			lo, hi := loglinear.LowerBound(b, fineBits), loglinear.LowerBound(b+1, fineBits)-1
			lo, hi = max(lo, h.min), min(hi, h.max)
			if c == 1 {
				value = (lo + hi) / 2
			} else {
				value = lo + int64(float64(hi-lo)*float64(rank-cumulative-1)/float64(c-1))
			}
		}
		cumulative += c
	})
	return value
}
