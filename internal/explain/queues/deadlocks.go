package queues

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// Deadlocks describes transactions that wait for each other's locks at a peer, until it ends one of them: its answer and that of the other one,
// which now has the lock, come at the same moment. Only the first one's request then pauses, and begins again.
type Deadlocks struct {
	Count   int
	WaitNS  int64 // mean time of the answers that report one
	OtherNS int64 // nearly all other answers took at most that
}

// leastDeadlocks is the least Count: two late answers rarely come at the same moment by chance, and after one of them a request rarely pauses.
const leastDeadlocks = 2

// setDeadlocks finds the deadlocks at all lines of a group at which a request itself waits.
func setDeadlocks(lines []PeerCalls) {
	type late struct {
		line int
		interval
	}
	var all []late // that do not report a deadlock
	tolerance := make([]int64, len(lines))
	leastNS := make([]int64, len(lines))
	for i := range lines {
		lengths := lengthsOf(lines[i].answers)
		if lines[i].Via != nil || len(lengths) < threshold.MedianSample {
			continue
		}
		medianNS := sample.Median(lengths)
		leastNS[i], tolerance[i] = threshold.FarFactor*medianNS, max(threshold.LoopbackNS, min(medianNS/4, maxApartNS))
		for _, a := range lines[i].answers {
			if a.end-a.start >= leastNS[i] && !slices.ContainsFunc(lines[i].beforePauses, func(b interval) bool { return b.end == a.end }) {
				all = append(all, late{i, a})
			}
		}
	}
	for i := range lines {
		if leastNS[i] == 0 {
			continue
		}
		locks, waitNS, lateCount := Deadlocks{}, int64(0), 0
		for _, b := range lines[i].beforePauses {
			if b.end-b.start < leastNS[i] {
				continue
			}
			lateCount++
			if slices.ContainsFunc(all, func(o late) bool { return max(o.end-b.end, b.end-o.end) <= tolerance[i] }) {
				locks.Count, waitNS = locks.Count+1, waitNS+b.end-b.start
			}
		}
		if locks.Count < leastDeadlocks || float64(locks.Count) < threshold.MostShare*float64(lateCount) {
			continue
		}
		locks.WaitNS = waitNS / int64(locks.Count)
		var otherTimes []int64
		for _, ns := range lengthsOf(lines[i].answers) {
			if float64(ns) < threshold.MostShare*float64(locks.WaitNS) {
				otherTimes = append(otherTimes, ns)
			}
		}
		slices.Sort(otherTimes)
		locks.OtherNS = sample.Quantile(otherTimes, 1-threshold.NoiseShare)
		lines[i].Deadlocks = locks
	}
}
