package groups

import "github.com/whylate/whylate/internal/explain/loglinear"

// Latencies are counted in buckets of package loglinear.
const (
	fineBits   = 8 // 256 to an octave: 0.4 %, for percentiles
	coarseBits = 5 // 32 to an octave: 3 %, for tables of causes by latency
)

// coarse returns the coarse bucket that holds a fine one.
func coarse(fine int32) int32 { return loglinear.Bucket(loglinear.Least(fine, fineBits), coarseBits) }

// A histogram counts values in fine buckets.
type histogram struct {
	pages  []*page // of neighbouring buckets; nil where there is nothing
	coarse bool    // counts in coarse buckets
	n      int64
	sum    int64
	max    int64
	min    int64
}

const pageBits = 5

// A page holds the counts of neighbouring buckets.
type page [1 << pageBits]int64

// at returns the count of a bucket.
func (h *histogram) at(bucket int32) *int64 {
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

// add counts a value n times.
func (h *histogram) add(v, n int64) {
	bits := uint(fineBits)
	if h.coarse {
		bits = coarseBits
	}
	*h.at(loglinear.Bucket(v, bits)) += n
	if h.n == 0 || v < h.min {
		h.min = v
	}
	h.n += n
	h.sum += n * v
	h.max = max(h.max, v)
}

func (h *histogram) merge(o *histogram) {
	if o.n == 0 {
		return
	}
	o.each(func(b int32, n int64) { *h.at(b) += n })
	if h.n == 0 || o.min < h.min {
		h.min = o.min
	}
	h.n += o.n
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

// each calls f for every bucket in use, in order.
func (h *histogram) each(f func(bucket int32, n int64)) {
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

// coarsened returns the counts of coarse buckets.
func (h *histogram) coarsened() map[int32]int64 {
	sums := map[int32]int64{}
	h.each(func(b int32, n int64) {
		if !h.coarse {
			b = coarse(b)
		}
		sums[b] += n
	})
	return sums
}

// quantile returns the q-quantile by nearest rank, interpolated inside its
// bucket; it is exact to 0.4 %.
func (h *histogram) quantile(q float64) int64 {
	if h.n == 0 {
		return 0
	}
	rank := int64(q*float64(h.n-1)) + 1
	seen := int64(0)
	value, found := h.max, false
	h.each(func(b int32, c int64) {
		if !found && seen+c >= rank {
			found = true
			lo, hi := loglinear.Least(b, fineBits), loglinear.Least(b+1, fineBits)-1
			lo, hi = max(lo, h.min), min(hi, h.max)
			if c == 1 {
				value = (lo + hi) / 2
			} else {
				value = lo + int64(float64(hi-lo)*float64(rank-seen-1)/float64(c-1))
			}
		}
		seen += c
	})
	return value
}
