package request

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A waitStats counts the waits of a loop's goroutines at one stack. chooseIdleWait chooses the idle wait by it.
type waitStats struct {
	count   int
	totalNS int64
	// isLibraryDelay says that service code called a library that waits for another reason than to fetch work.
	// timerCount is how often a timer ended the wait.
	isLibraryDelay bool
	timerCount     int
	// receivedCount is how often a goroutine that reads from the network passed on the next item of work. A loop that falls
	// behind seldom waits for it.
	receivedCount int
	isPause       bool // a sleep of the looping function itself
	// selfEndedCount counts the waits that a goroutine ended which the waiting one had started. The waiting goroutine
	// waits for its own work then, except when a library, in its wait or in a call before it, started the other to fetch work.
	selfEndedCount int
	// isServed says that a client may send the next request here. The client has its answer by then, so the wait ends
	// the iteration even if the iteration has many other waits.
	isServed     bool
	isSend       bool // passes something on
	isClientCall bool // also of a service function that a library's loop calls
	rank         int
}

// idleRank returns how likely a wait is the loop's wait for work, from 0 (it is not) to idleMost. Waits for locks, clients' calls
// and most sleeps are part of the work. isLibraryDelay is true if a library made the loop wait for another reason than work.
func (l *loopSource) idleRank(c *collector, obs *observation) (rank int, isLibraryDelay bool) {
	info := c.stackInfo(obs.stack)
	if info.isClientCall {
		return 0, false
	}
	switch obs.reason {
	case reasonNetwork:
		if info.isReadinessWait {
			return idleMost, false
		}
		if info.isInLibrary && (info.serviceDepth > 0 || !l.isUnknownServer) || info.isWrite {
			return 1, info.isLibraryDelay // probably a client's wait for an answer
		}
		if !l.isUnknownServer {
			return 2, info.isLibraryDelay // the process is the client: all servers in it are known
		}
		return idleMost, false
	case reasonReceive, reasonCond:
		if info.isLibraryDelay {
			return 2, true // less likely than a pause of the loop's own, see chooseIdleWait
		}
		return idleMost, false
	case reasonSync:
		if info.isMutexWait { // the goroutine reached the lock while it worked
			return 0, false
		}
		return 2, info.isLibraryDelay
	case reasonSend:
		return 1, info.isLibraryDelay
	case reasonSleep:
		if info.isLoopPause {
			return 2, info.isLibraryDelay || info.isWorkSleep // the pause between two iterations
		}
		return 1, info.isLibraryDelay || info.isWorkSleep
	}
	return 0, false
}

// idleMost is the rank of the waits in which nearly every worker waits for work.
const idleMost = 3

// isRest reports whether a goroutine that otherwise always has work waits for more of it in this wait.
func (w *waitStats) isRest() bool {
	return w.rank == idleMost && !w.isLibraryDelay && 2*w.selfEndedCount < w.count
}

// chooseIdleWait chooses the wait in which the goroutines of a loop wait for work: the one of highest rank, then the nearest to
// the looping function, then the longest in total. If only waits within the work recur, the loop always has work (isBusy), and
// such a wait separates iterations. It chooses none while too few waits are known.
func (r *loopFunc) chooseIdleWait(c *collector) {
	if r.isBenchmark {
		if len(r.sequence) >= threshold.MedianSample && !r.isDecided {
			r.idleWait = findIterations(c, r.sequence)
			r.isBusy, r.isDecided, r.sequence = r.idleWait != 0, true, nil
		}
		return
	}
	maxCount, maxRank, isPaced := 0, 0, false
	for _, stats := range r.waits {
		maxCount, maxRank = max(maxCount, stats.count), max(maxRank, stats.rank)
		isPaced = isPaced || stats.isPause && stats.count > 1 // a function that sleeps twice at one line loops
	}
	if maxCount < threshold.SmallSample && (!isPaced || maxRank == idleMost) {
		return
	}
	var idleWaits, busyWaits []tracefmt.StackID
	for id, stats := range r.waits {
		isFrequent := stats.count*4 >= maxCount
		switch {
		case stats.count < threshold.SmallSample && !stats.isPause || !isFrequent && !stats.isServed && 2*stats.receivedCount <= stats.count || 2*stats.selfEndedCount >= stats.count:
		case stats.isClientCall:
			busyWaits = append(busyWaits, id) // a client's call in a library's loop that always has work
		case stats.rank == 0:
		case stats.isLibraryDelay && 2*stats.timerCount > stats.count:
			busyWaits = append(busyWaits, id) // a library delayed the loop: a limiter or a backoff
		default:
			idleWaits = append(idleWaits, id)
		}
	}
	if len(idleWaits)+len(busyWaits) == 0 {
		return
	}
	if len(idleWaits) == 0 {
		idleWaits, r.isBusy = busyWaits, true
	}
	r.idleWait = slices.MinFunc(idleWaits, func(a, b tracefmt.StackID) int {
		v, stats := r.waits[a], r.waits[b]
		p, q := *c.stackInfo(a), c.stackInfo(b)
		return cmp.Or(stats.rank-v.rank, intOf(stats.isPause)-intOf(v.isPause), p.serviceDepth-q.serviceDepth, p.depth-q.depth,
			cmp.Compare(stats.totalNS, v.totalNS), cmp.Compare(a, b))
	})
	info := c.stackInfo(r.idleWait)
	r.isIdleWaitServed, r.isIdleWaitRead, r.isEventLoop = r.waits[r.idleWait].isServed, info.isPacketRead, info.isReadinessWait
	if r.isBusy {
		r.restWaits = make(map[tracefmt.StackID]bool)
		for id, stats := range r.waits {
			r.restWaits[id] = stats.isRest()
		}
	}
}

// intOf returns 1 for true and 0 for false.
func intOf(b bool) int {
	if b {
		return 1
	}
	return 0
}
