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
				wait := limiterWait{tracefmt.FrameID(1), uint64(i), interval{burst*100*ms + i, (burst*100+c.endMS(i))*ms + (burst*7+i*3)%5*ms/2}}
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
