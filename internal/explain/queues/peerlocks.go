package queues

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// A PeerLock describes calls whose answers come when another request's call at another line ends, one for each: a lock of the peer, such as
// on a row, that a transaction of the other request held. It is zero unless nearly all long answers do, and only for that line.
type PeerLock struct {
	Release *report.Site // where the other requests wait for the answer to the call that ends the transaction
	Waits   int          // long answers that came at that moment, of Long ones
	Long    int
	AloneNS int64 // mean time of the quarter of the answers that took the shortest time
}

// minLongWaits is the least PeerLock.Long. Each of fewer may end with another call by chance. maxApartNS is how long a peer and this
// process, both busy, need to send and to read two answers.
const (
	minLongWaits = 2 * threshold.SmallSample
	maxApartNS   = 2e6
)

// peerLockOf returns the lock that makes calls wait, whose answers are waits, and the index of the line that releases it; -1 if there is none.
// ends has, for each other line, when its answers came, in order. Each long wait must end with another answer of that line, far more often
// than if the same answers are shifted in time. Both answers are on their way at the same time, so they come within a part of a round trip,
// which the shortest waits measure, and within maxApartNS.
func peerLockOf(waits []interval, ends [][]int64) (lock PeerLock, release int) {
	if len(waits) < threshold.MedianSample {
		return PeerLock{}, -1
	}
	lengths := lengthsOf(waits)
	slices.Sort(lengths)
	quarter := lengths[:len(lengths)/4]
	for _, ns := range quarter {
		lock.AloneNS += ns / int64(len(quarter))
	}
	long := slices.DeleteFunc(slices.Clone(waits), func(w interval) bool { return w.end-w.start < threshold.FarFactor*lock.AloneNS })
	if lock.Long = len(long); lock.Long < minLongWaits {
		return PeerLock{}, -1
	}
	longEnds, tolerance := endsOf(long), max(threshold.LoopbackNS, min(lock.AloneNS/4, maxApartNS))
	release = -1
	matched := make([]int, len(ends))
	for i := range ends {
		byChance, shifts := 0.0, []int64{-7, -5, -3, 3, 5, 7}
		for _, shift := range shifts {
			byChance += float64(countMatches(longEnds, ends[i], shift*tolerance, tolerance)) / float64(len(shifts))
		}
		n := countMatches(longEnds, ends[i], 0, tolerance)
		matched[i] = n
		if float64(n) >= threshold.MostShare*float64(lock.Long) && float64(n) >= threshold.FarFactor*byChance && n > lock.Waits {
			lock.Waits, release = n, i
		}
	}
	for i, n := range matched {
		if i != release && float64(n) > threshold.HalfShare*float64(lock.Long) {
			return PeerLock{}, -1 // everything ends at these moments
		}
	}
	return lock, release
}

// countMatches returns how many of the first ends have one of the second, shifted in time, within a tolerance. Both are sorted, and each of
// the second counts once.
func countMatches(first, second []int64, shift, tolerance int64) (n int) {
	k := 0
	for _, end := range first {
		for k < len(second) && second[k]+shift < end-tolerance {
			k++
		}
		if k < len(second) && second[k]+shift <= end+tolerance {
			n, k = n+1, k+1
		}
	}
	return n
}

// endsOf returns the ends of intervals, sorted.
func endsOf(list []interval) []int64 {
	ends := make([]int64, len(list))
	for i, v := range list {
		ends[i] = v.end
	}
	slices.Sort(ends)
	return ends
}

// setPeerLocks finds the locks of a peer for all lines of a group at which a request itself waits, as for a database: it also makes the
// call that ends its transaction.
func setPeerLocks(lines []PeerCalls) {
	allEnds := make([][]int64, len(lines))
	for i := range lines {
		allEnds[i] = endsOf(lines[i].answers)
	}
	for i := range lines {
		if lines[i].Via != nil {
			continue
		}
		var ends [][]int64
		var sites []*report.Site
		for k := range lines {
			if k != i && lines[k].Via == nil && 2*lines[k].Requests >= lines[i].Requests {
				ends, sites = append(ends, allEnds[k]), append(sites, lines[k].Site)
			}
		}
		if lock, release := peerLockOf(lines[i].answers, ends); release >= 0 {
			lock.Release = sites[release]
			lines[i].Lock = lock
		}
	}
}
