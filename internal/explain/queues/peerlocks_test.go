package queues

import (
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestPeerLock: transactions lock a row by their first call, and the last one releases it. The same calls without a lock are no lock, nor
// are calls that all end when a peer's pause does, or when this process's does.
func TestPeerLock(t *testing.T) {
	const roundTrip, calls = int64(5e6), 4
	random := rand.New(rand.NewPCG(5, 6))
	// run returns the times of the calls of transactions, by call. answerTime returns when the peer has done a call that arrives at a time.
	run := func(answerTime func(call int, clock int64) int64, locks bool) (byCall [calls][]interval) {
		free, start := int64(0), int64(0)
		for range 80 {
			start += random.Int64N(40e6)
			clock := start
			for call := range calls {
				done := answerTime(call, clock+roundTrip/2)
				if call == 0 && locks {
					done = max(done, free)
				}
				end := done + roundTrip/2 + random.Int64N(300e3)
				byCall[call] = append(byCall[call], interval{clock, end})
				clock, free = end, max(free, done)
			}
		}
		return byCall
	}
	noWait := func(_ int, clock int64) int64 { return clock }
	pauses := func(_ int, clock int64) int64 {
		if clock%200e6 < 40e6 {
			return clock - clock%200e6 + 40e6
		}
		return clock
	}
	slow := func(call int, clock int64) int64 {
		if call == 0 {
			clock += random.Int64N(60e6)
		}
		return clock
	}
	for name, c := range map[string]struct {
		answerTime func(int, int64) int64
		locks      bool
		want       int
	}{
		"a lock":        {noWait, true, calls - 1},
		"no lock":       {noWait, false, -1},
		"a slow call":   {slow, false, -1},
		"a peer pauses": {pauses, false, -1},
	} {
		byCall := run(c.answerTime, c.locks)
		lock, release := peerLockOf(byCall[0], [][]int64{endsOf(byCall[1]), endsOf(byCall[2]), endsOf(byCall[3])})
		if release >= 0 {
			release++
		}
		check.Equal(t, release, c.want, "%s: %+v", name, lock)
	}
}
