package queues

import (
	"math"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestLimiterRate: bursts of 5 requests wait for one limiter of 100 in a second, or each for its own. A wake-up is late by up to 2 ms.
// A wait that several requests have on their paths counts once.
func TestLimiterRate(t *testing.T) {
	const ms = int64(1e6)
	for _, c := range []struct {
		name    string
		endMS   func(i int64) int64 // of the i-th wait of a burst
		rate    float64
		waiters int
	}{
		{"one limiter", func(i int64) int64 { return 10 + 10*i }, 100, 5},
		{"a limiter for each client", func(i int64) int64 { return 3 + i*i*i }, 0, 5},
	} {
		s := New()
		s.sliceNS = 1000 * ms
		first, second := new(workerSum), new(workerSum)
		s.workers = []*workerSum{first, second}
		for burst := range int64(10) {
			for i := range int64(5) {
				wait := limiterWait{tracefmt.FrameID(1), uint64(i), 0, interval{burst*100*ms + i, (burst*100+c.endMS(i))*ms + (burst*7+i*3)%5*ms/2}}
				first.limiterWaits, second.limiterWaits = append(first.limiterWaits, wait), append(second.limiterWaits, wait)
			}
		}
		s.aggregateLimiters()
		sum := s.limiters[1]
		check.True(t, math.Abs(sum.rate()-c.rate) <= 0.05*c.rate, "%s: a rate of %g", c.name, sum.rate())
		check.Equal(t, sum.maxWaiters, c.waiters, "%s: waiters", c.name)
		check.True(t, c.rate == 0 || sum.queuedNS >= 500*ms && sum.queuedNS <= 525*ms, "%s: queued for %d ns", c.name, sum.queuedNS)
	}
}

// TestBurstDeficit: 3 requests at once make 3 calls each through a limiter of 100 in a second. At most 3 calls wait at once, but 9
// calls come within 6 ms if none of them waits. The next such burst comes when all tokens are there again.
func TestBurstDeficit(t *testing.T) {
	const ms = int64(1e6)
	s := New()
	s.sliceNS = 1000 * ms
	worker := new(workerSum)
	s.workers = []*workerSum{worker}
	for burst := range int64(5) {
		for request := range int64(3) {
			start, waited := burst*200*ms, int64(0)
			for call := range int64(3) {
				end := (burst*200 + 10*(1+3*call+request)) * ms
				worker.limiterWaits = append(worker.limiterWaits, limiterWait{tracefmt.FrameID(1), uint64(request), waited, interval{start, end}})
				waited += end - start
				start = end + 3*ms
			}
		}
	}
	s.aggregateLimiters()
	sum := s.limiters[1]
	check.Equal(t, sum.burstDeficit(sum.rate()), 9, "burst deficit")
	check.Equal(t, sum.burstDeficit(0), 0, "without a rate")
	check.Equal(t, [3]int{sum.maxWaiters, sum.waits, sum.requests}, [3]int{3, 45, 15}, "waiters, waits, requests")
}
