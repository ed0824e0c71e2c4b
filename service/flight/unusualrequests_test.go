package flight

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// TestRouteLimit compares a route's limit with the quantile of its latencies.
func TestRouteLimit(t *testing.T) {
	for b := 1; b < bucketCount-1; b++ {
		if d := upperBound(b); bucketOf(d-1) != b || bucketOf(d) != b+1 {
			t.Fatalf("bucket %d ends at %d, which is in %d", b, d, bucketOf(d))
		}
	}
	check.Equal(t, bucketOf(math.MaxInt64), bucketCount-1, "the longest is in bucket")
	r := newRoute()
	for range minRequests - 1 {
		must.False(t, r.add(time.Millisecond), "slow, before anything is known")
	}
	r.updateLimit(0.99, 3, 0)
	check.False(t, r.add(time.Hour), "slow, while too few are known")
	for i := range 10000 {
		r.add(time.Duration(i%1000) * time.Microsecond)
	}
	r.updateLimit(0.99, 3, 0)
	if got := time.Duration(r.limit.Load()); got < 3*990*time.Microsecond || got > 3*1150*time.Microsecond {
		t.Errorf("the limit is %v, want three times 990µs, at most an eighth more", got)
	}
	check.True(t, !r.add(2*time.Millisecond) && r.add(4*time.Millisecond), "2 ms is slow, or 4 ms is not")
	r.updateLimit(0.99, 3, time.Second)
	check.True(t, time.Duration(r.limit.Load()) == time.Second, "the limit is %v, want the least", time.Duration(r.limit.Load()))
	// Old latencies do not count.
	for range windowCount {
		r.rotate()
		for range minRequests {
			r.add(10 * time.Millisecond)
		}
	}
	if r.updateLimit(0.5, 1, 0); time.Duration(r.limit.Load()) < 10*time.Millisecond {
		t.Errorf("the limit is %v although the last minutes were slower", time.Duration(r.limit.Load()))
	}
}

func TestRoutesAreBounded(t *testing.T) {
	var rs routes
	for i := range 2 * maxRoutes {
		if r := rs.getOrCreate(fmt.Sprint(i)); (r == nil) != (i >= maxRoutes) {
			t.Fatalf("route %d: %v", i, r)
		}
	}
	if first := rs.getOrCreate("7"); first == nil || rs.getOrCreate("7") != first {
		t.Error("a route is not the same twice")
	}
}
