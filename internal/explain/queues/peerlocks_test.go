package queues

import (
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestPeerLock: transactions lock a row by their first call, and the last one releases it. The same calls without a lock are no lock, nor
// are calls that all end when a peer's pause does, or when this process's does.
func TestPeerLock(t *testing.T) {
	const calls = 4
	var random *rand.Rand
	// run returns the times of the calls of transactions, by call, which work for workNS after the first one. Answers are read within readNS.
	// answerTime returns when the peer has done a call that arrives at a time.
	run := func(roundTrip, workNS, readNS int64, answerTime func(call int, clock int64) int64, locks bool) (byCall [calls][]interval) {
		random = rand.New(rand.NewPCG(5, 6))
		free, start := int64(0), int64(0)
		for range 80 {
			start += random.Int64N(40e6)
			clock := start
			for call := range calls {
				done := answerTime(call, clock+roundTrip/2)
				if call == 0 && locks {
					done = max(done, free)
				}
				end := done + roundTrip/2 + random.Int64N(readNS)
				byCall[call] = append(byCall[call], interval{clock, end})
				clock, free = end, max(free, done)
				if call == 0 {
					clock += workNS
				}
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
		roundTrip, workNS, readNS int64
		answerTime                func(int, int64) int64
		locks                     bool
		want                      int
	}{
		"a lock":                      {5e6, 0, 300e3, noWait, true, calls - 1},
		"a lock held during work":     {100e3, 10e6, 100e3, noWait, true, calls - 1}, // the call before the last one ends a moment earlier
		"a lock, and busy processes":  {1200e3, 8e6, 1300e3, noWait, true, calls - 1},
		"no lock, and busy processes": {1200e3, 8e6, 1300e3, noWait, false, -1},
		"no lock":                     {5e6, 0, 300e3, noWait, false, -1},
		"no lock, and work":           {100e3, 10e6, 100e3, noWait, false, -1},
		"a slow call":                 {5e6, 0, 300e3, slow, false, -1},
		"a peer pauses":               {5e6, 0, 300e3, pauses, false, -1},
		"a peer of fast calls pauses": {100e3, 0, 100e3, pauses, false, -1},
	} {
		byCall := run(c.roundTrip, c.workNS, c.readNS, c.answerTime, c.locks)
		lock, release := peerLockOf(byCall[0], [][]interval{sortedByEnd(byCall[1]), sortedByEnd(byCall[2]), sortedByEnd(byCall[3])})
		if release >= 0 {
			release++
		}
		check.Equal(t, release, c.want, "%s: %+v", name, lock)
	}
}
