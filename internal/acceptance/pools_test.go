package acceptance_test

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestPools: of a slow request that queued for a pool, the report shows who held each slot: as many slots as the pool has, held one
// holder after the other, for nearly all of the wait.
func TestPools(t *testing.T) {
	for _, c := range []struct {
		recording string
		slots     int
	}{{"truth/connection-pool.trace", 2}, {"truth/semaphore.trace", 1}, {"field/redis-pool.whylate", 1}} {
		rep := explainFile(t, testprog.Recording(t, c.recording), "--slowest", "1")
		must.True(t, len(rep.Groups) > 0 && len(rep.Groups[0].Slowest) == 1, "%s has no slow request", c.recording)
		r := &rep.Groups[0].Slowest[0]
		must.True(t, len(r.Pools) == 1 && len(r.Pools[0].Slots) == c.slots, "%s: %+v, want %d slots", c.recording, r.Pools, c.slots)
		pool, heldNS := &r.Pools[0], int64(0)
		for _, slot := range pool.Slots {
			end := r.StartNS
			for _, hold := range slot {
				check.True(t, hold.StartNS >= end && hold.DurationNS > 0 && !hold.Background && hold.Site != nil && hold.StartNS+hold.DurationNS <= r.StartNS+r.LatencyNS, "%s: %+v after %d", c.recording, hold, end)
				end = hold.StartNS + hold.DurationNS
				heldNS += hold.DurationNS
			}
		}
		if share := float64(heldNS) / float64(c.slots) / float64(pool.ToNS-pool.FromNS); share < 0.85 {
			t.Errorf("%s: slots are held for %.2f of the wait", c.recording, share)
		}
	}
}
