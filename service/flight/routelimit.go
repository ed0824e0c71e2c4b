package flight

import (
	"maps"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// What a route usually takes is a quantile of its last minutes, from
// histograms of a minute each. So no one has to guess a number, and a service
// that is slow all day does not record all day.
const (
	windowCount = 6 // minutes, the one under way among them
	subBits     = 3 // 8 buckets to an octave: 12 %
	bucketCount = 40 << subBits
	maxRoutes   = 512
)

// minRequests is how many requests must be known before a route has a usual time.
const minRequests = 100

func bucketOf(d time.Duration) int {
	v := uint64(max(d, 1))
	if v < 1<<subBits {
		return int(v)
	}
	e := bits.Len64(v) - 1 - subBits
	return min(e<<subBits+int(v>>e), bucketCount-1)
}

// upperBound is the time below which all of a bucket lie.
func upperBound(b int) time.Duration {
	b++
	if b < 2<<subBits {
		return time.Duration(b)
	}
	e := b>>subBits - 1
	return time.Duration(b&(1<<subBits-1)|1<<subBits) << e
}

// A route counts how long its requests took. Add may be called concurrently
// with the others.
type route struct {
	counts        [windowCount][bucketCount]atomic.Uint32
	currentWindow atomic.Int32 // the window under way
	limit         atomic.Int64 // ns; a request that takes longer is slow
}

func newRoute() *route {
	r := new(route)
	r.limit.Store(math.MaxInt64)
	return r
}

// add counts a request and reports whether it was slow.
func (r *route) add(took time.Duration) bool {
	r.counts[r.currentWindow.Load()][bucketOf(took)].Add(1)
	return int64(took) > r.limit.Load()
}

// rotate begins a new minute.
func (r *route) rotate() {
	next := (r.currentWindow.Load() + 1) % windowCount
	for i := range r.counts[next] {
		r.counts[next][i].Store(0)
	}
	r.currentWindow.Store(next)
}

// updateLimit recomputes the limit: factor times the quantile q, at least least;
// none while too few requests are known.
func (r *route) updateLimit(q, factor float64, minLimit time.Duration) {
	var sum [bucketCount]uint64
	total := uint64(0)
	for w := range r.counts {
		for i := range r.counts[w] {
			n := uint64(r.counts[w][i].Load())
			sum[i] += n
			total += n
		}
	}
	limit := int64(math.MaxInt64)
	if total >= minRequests {
		rank, cumulative := uint64(math.Ceil(q*float64(total))), uint64(0)
		for i, n := range sum {
			if cumulative += n; cumulative >= rank {
				limit = int64(max(minLimit, time.Duration(factor*float64(upperBound(i)))))
				break
			}
		}
	}
	r.limit.Store(limit)
}

// routes are read without a lock and copied to be added to.
type routes struct {
	byName atomic.Pointer[map[string]*route]
	mu     sync.Mutex
}

// snapshot returns what is known, to be read only.
func (rs *routes) snapshot() map[string]*route {
	if m := rs.byName.Load(); m != nil {
		return *m
	}
	return nil
}

// getOrCreate returns a route; nil past maxRoutes.
func (rs *routes) getOrCreate(name string) *route {
	m := rs.snapshot()
	if r := m[name]; r != nil || len(m) >= maxRoutes {
		return r
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	m = rs.snapshot() // others may have been added since
	if r := m[name]; r != nil || len(m) >= maxRoutes {
		return r
	}
	r := newRoute()
	grown := map[string]*route{name: r}
	maps.Copy(grown, m)
	rs.byName.Store(&grown)
	return r
}

func (rs *routes) visit(f func(*route)) {
	for _, r := range rs.snapshot() {
		f(r)
	}
}
