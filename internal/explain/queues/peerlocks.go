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

// releasesOf returns how many of the long waits end when one of the other calls ends, each with another one, and how many would by chance:
// the mean over the same calls, shifted in time. Both answers are on their way at the same time, so they come within a part of a round
// trip, which the shortest waits measure, and within maxApartNS.
func releasesOf(waits, otherCalls []interval) (lock PeerLock, byChance float64) {
	if len(waits) < threshold.MedianSample {
		return lock, 0
	}
	lengths := make([]int64, len(waits))
	for i, w := range waits {
		lengths[i] = w.end - w.start
	}
	slices.Sort(lengths)
	quarter := lengths[:len(lengths)/4]
	for _, ns := range quarter {
		lock.AloneNS += ns / int64(len(quarter))
	}
	var ends, released []int64
	for _, w := range waits {
		if w.end-w.start >= threshold.FarFactor*lock.AloneNS {
			ends = append(ends, w.end)
		}
	}
	for _, call := range otherCalls {
		released = append(released, call.end)
	}
	slices.Sort(ends)
	slices.Sort(released)
	tolerance := max(threshold.LoopbackNS, min(lock.AloneNS/4, maxApartNS))
	matches := func(shift int64) (n int) {
		k := 0
		for _, end := range ends {
			for k < len(released) && released[k]+shift < end-tolerance {
				k++
			}
			if k < len(released) && released[k]+shift <= end+tolerance {
				n, k = n+1, k+1
			}
		}
		return n
	}
	lock.Long, lock.Waits = len(ends), matches(0)
	shifts := []int64{-7, -5, -3, 3, 5, 7}
	for _, s := range shifts {
		byChance += float64(matches(s*tolerance)) / float64(len(shifts))
	}
	return lock, byChance
}

// peerLockOf returns the lock that makes calls wait, whose answers are waits, for those of another line. otherCalls has the answers of the
// other lines, in a fixed order.
func peerLockOf(waits []interval, otherCalls [][]interval) (found PeerLock, release int) {
	release = -1
	matched := make([]int, len(otherCalls))
	for i := range otherCalls {
		lock, byChance := releasesOf(waits, otherCalls[i])
		if lock.Long < minLongWaits {
			return PeerLock{}, -1
		}
		matched[i] = lock.Waits
		if float64(lock.Waits) >= threshold.MostShare*float64(lock.Long) && float64(lock.Waits) >= threshold.FarFactor*byChance && lock.Waits > found.Waits {
			found, release = lock, i
		}
	}
	for i, n := range matched {
		if i != release && float64(n) > threshold.HalfShare*float64(found.Long) {
			return PeerLock{}, -1 // everything ends at these moments
		}
	}
	return found, release
}

// setPeerLocks finds the locks of a peer for all lines of a group at which a request itself waits, as for a database: it also makes the
// call that ends its transaction. answers has the answers of each line.
func setPeerLocks(lines []PeerCalls, answers map[*report.Site][]interval) {
	for i := range lines {
		if lines[i].Via != nil {
			continue
		}
		var otherCalls [][]interval
		var sites []*report.Site
		for k := range lines {
			if k != i && lines[k].Via == nil && 2*lines[k].Requests >= lines[i].Requests {
				otherCalls, sites = append(otherCalls, answers[lines[k].Site]), append(sites, lines[k].Site)
			}
		}
		if lock, release := peerLockOf(answers[lines[i].Site], otherCalls); release >= 0 {
			lock.Release = sites[release]
			lines[i].Lock = lock
		}
	}
}
