package flight

import (
	"maps"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// A route's limit is a multiple of a quantile of its latencies in the last minutes. So
// the user does not have to guess a limit, and a service that is slow all day does not
// record all day. Each minute has a log-linear histogram.
const (
	windowCount = 6 // minutes, including the current one
	subBits     = 3 // 2^3 buckets for each power of two: 12 % wide
	bucketCount = 40 << subBits
	maxRoutes   = 512
)

// minRequests is the number of requests in the last minutes below which a route has no limit.
const minRequests = 100

// bucketOf returns the number of the histogram bucket of a latency.
func bucketOf(d time.Duration) int {
	v := uint64(max(d, 1))
	if v < 1<<subBits {
		return int(v)
	}
	e := bits.Len64(v) - 1 - subBits
	return min(e<<subBits+int(v>>e), bucketCount-1)
}

// upperBound returns the upper bound of bucket b, which is exclusive.
func upperBound(b int) time.Duration {
	b++
	if b < 2<<subBits {
		return time.Duration(b)
	}
	e := b>>subBits - 1
	return time.Duration(b&(1<<subBits-1)|1<<subBits) << e
}

// A route has the histograms of its requests' latencies, and the limit that follows. add
// may be called concurrently with the other methods.
type route struct {
	counts        [windowCount][bucketCount]atomic.Uint32
	currentWindow atomic.Int32 // index of the current minute
	limit         atomic.Int64 // ns; a request that takes longer is unusual
}

// newRoute returns a route that no request exceeds, until its limit is computed.
func newRoute() *route {
	r := new(route)
	r.limit.Store(math.MaxInt64)
	return r
}

// add counts a request and reports whether it took longer than the limit.
func (r *route) add(took time.Duration) bool {
	r.counts[r.currentWindow.Load()][bucketOf(took)].Add(1)
	return int64(took) > r.limit.Load()
}

// rotate starts a new window, a minute, in place of the oldest one. One goroutine at a time calls it.
func (r *route) rotate() {
	next := (r.currentWindow.Load() + 1) % windowCount
	for i := range r.counts[next] {
		r.counts[next][i].Store(0)
	}
	r.currentWindow.Store(next)
}

// updateLimit sets the limit to factor times the quantile q (0 to 1) of the latencies in all windows, but at least minLimit. With fewer than
// minRequests requests there is no limit (math.MaxInt64).
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

// routes maps names to routes. Readers take no lock; a writer replaces the map by a copy.
type routes struct {
	byName atomic.Pointer[map[string]*route]
	mu     sync.Mutex
}

// snapshot returns the current map, which is shared and must not be changed; nil if there is none yet.
func (rs *routes) snapshot() map[string]*route {
	if m := rs.byName.Load(); m != nil {
		return *m
	}
	return nil
}

// getOrCreate returns the route of a name, nil if it is new and there are maxRoutes already.
func (rs *routes) getOrCreate(name string) *route {
	m := rs.snapshot()
	if r := m[name]; r != nil || len(m) >= maxRoutes {
		return r
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	m = rs.snapshot() // another goroutine may have added routes
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
