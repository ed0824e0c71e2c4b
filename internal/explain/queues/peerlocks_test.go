package queues

import (
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
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
		lock, release := peerLockOf(byCall[0], [][]interval{sortedByEnd(byCall[1]), sortedByEnd(byCall[2]), sortedByEnd(byCall[3])}, minLongWaits, countMatches)
		if release >= 0 {
			release++
		}
		check.Equal(t, release, c.want, "%s: %+v", name, lock)
	}
}

// TestLockOfOthers: a background goroutine keeps rows until its transaction ends. Requests that need them are answered together then, while the
// peer answers its other calls. If the peer itself pauses, or works for the last call alone, that is no lock of a transaction.
func TestLockOfOthers(t *testing.T) {
	const ms, transactionNS = int64(1e6), int64(300e6)
	type answerTimes func(start, transactionStart int64) (end int64) // of the request's call
	isOpen := func(start, begin int64) bool { return start >= begin && start < begin+transactionNS }
	locked := func(start, begin int64) int64 {
		if isOpen(start, begin) {
			return begin + transactionNS
		}
		return start + ms
	}
	everyNth := func(n int64) answerTimes {
		return func(start, begin int64) int64 {
			if start/ms%n == 0 {
				return locked(start, begin)
			}
			return start + ms
		}
	}
	for name, c := range map[string]struct {
		answer       answerTimes
		stepNS       int64 // between two calls of the transaction
		commitNS     int64
		transactions int
		want         string
	}{
		"rows locked":                       {locked, ms, 3 * ms, 3, "main.commit"},
		"few requests need the rows":        {everyNth(4), ms, 3 * ms, 1, "main.commit"},
		"the peer works for the commit":     {locked, 400 * ms, 290 * ms, 3, ""},
		"the peer pauses":                   {locked, 400 * ms, 3 * ms, 3, ""},
		"late, but not until a transaction": {func(start, begin int64) int64 { return everyNth(4)(start, begin) - start%(17*ms) }, ms, 3 * ms, 3, ""},
	} {
		pgx := func(fn string, line int) *report.Site {
			return &report.Site{Func: "pgproto3.Read", Module: "pgx", CalledFrom: &report.Caller{Func: fn, Line: line}}
		}
		calls := &PeerCalls{Site: pgx("main.charge", 1)}
		update, commit, read := PeerCalls{Site: pgx("main.rollUp", 2)}, PeerCalls{Site: pgx("main.commit", 3)}, PeerCalls{Site: pgx("main.read", 4)}
		for i := range c.transactions {
			begin := int64(i)*1000*ms + 100*ms
			for clock := begin - 95*ms; clock < begin+900*ms; clock += 3 * ms {
				if name != "the peer pauses" {
					read.wholeCalls = append(read.wholeCalls, interval{clock, clock + ms/2})
				}
			}
			for clock := begin; clock < begin+transactionNS-c.commitNS; clock += c.stepNS {
				update.wholeCalls = append(update.wholeCalls, interval{clock, clock + ms/2})
			}
			commit.wholeCalls = append(commit.wholeCalls, interval{begin + transactionNS - c.commitNS, begin + transactionNS + 20e3})
			for clock := begin - 95*ms; clock < begin+900*ms; clock += 7 * ms {
				end := max(c.answer(clock, begin), clock+ms)
				if clock/ms%3 == 0 {
					end = max(end, clock+4*ms) // a busy machine
				}
				calls.answers = append(calls.answers, interval{clock, end})
			}
		}
		got := ""
		if lock := calls.LockAmong([]PeerCalls{update, commit, read}); lock.Release != nil {
			got = lock.Release.Func
		}
		check.Equal(t, got, c.want, "%s", name)
	}
}
