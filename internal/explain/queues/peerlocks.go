package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A PeerLock describes calls whose answers come when another goroutine's call at another line ends: a lock of the peer, such as
// on a row, that a transaction of that goroutine held. It is zero unless nearly all long answers do, and only for that line.
type PeerLock struct {
	Release *report.Site // where the others wait for the answer to the call that ends the transaction
	Waits   int          // long answers that came at that moment, of Long ones
	Long    int
	AloneNS int64 // mean time of the quarter of the answers that took the shortest time
	// Work is where a request with the lock waits for most of the time from this call's answer to its last call of a peer; nil if that is in the
	// same library.
	Work *report.Site
}

// minLongWaits is the least PeerLock.Long of requests that wait for each other. Each of fewer may end with another call by chance. maxApartNS
// is how long a peer and this process, both busy, need to send and to read two answers, leastApartNS how long a peer's process needs to wake
// another one that answers.
const (
	minLongWaits = 2 * threshold.SmallSample
	maxApartNS   = 2e6
	leastApartNS = 2 * threshold.LoopbackNS
)

// peerLockOf returns the lock that makes calls wait, whose answers are waits, and the index of the line that releases it; -1 if there is none.
// lines has the answers of each other line, in the order of their ends. Each long wait must end with another answer of that line, whose call
// was made before, far more often than if the same answers are shifted in time. Both answers are on their way at the same time, so they come
// within a part of a round trip, which the shortest waits measure, and within maxApartNS. Long waits that are short compared with that of a
// random moment have another reason. That answer must be the nearest one of any line, as a rule: if a peer pauses, all lines' answers come
// together. matches counts the long waits that end with an answer, as countMatches does.
func peerLockOf(waits []interval, lines [][]interval, leastLong int, matches func(long, answers []interval, shift, tolerance int64) int) (lock PeerLock, release int) {
	if len(waits) < threshold.MedianSample {
		return PeerLock{}, -1
	}
	lengths := lengthsOf(waits)
	slices.Sort(lengths)
	quarter := lengths[:len(lengths)/4]
	for _, ns := range quarter {
		lock.AloneNS += ns / int64(len(quarter))
	}
	tolerance := max(leastApartNS, min(lock.AloneNS/4, maxApartNS))
	long := sortedByEnd(waits)
	removeShort := func(leastNS int64) {
		long = slices.DeleteFunc(long, func(w interval) bool { return w.end-w.start < leastNS })
	}
	removeShort(threshold.FarFactor * max(lock.AloneNS, tolerance))
	removeShort(int64(threshold.NoticeableShare * lengthBiasedMean(long)))
	if lock.Long = len(long); lock.Long < leastLong {
		return PeerLock{}, -1
	}
	nearest := make([]int, len(lines)+1) // numbers of long waits, by nearestLine + 1
	for _, w := range long {
		nearest[nearestLine(w.end, lines)+1]++
	}
	release = slices.Index(nearest, slices.Max(nearest)) - 1
	if release < 0 || float64(nearest[release+1]) < threshold.MostShare*float64(lock.Long) {
		return PeerLock{}, -1
	}
	for range 2 { // two busy processes may need twice as long
		byChance, shifts := 0.0, []int64{-7, -5, -3, 3, 5, 7}
		for _, shift := range shifts {
			byChance += float64(matches(long, lines[release], shift*tolerance, tolerance)) / float64(len(shifts))
		}
		lock.Waits = matches(long, lines[release], 0, tolerance)
		if float64(lock.Waits) >= max(threshold.MostShare*float64(lock.Long), threshold.FarFactor*byChance) {
			return lock, release
		}
		tolerance *= 2
	}
	return PeerLock{}, -1
}

// lengthBiasedMean returns the mean length of the interval that contains a random moment of all of them.
func lengthBiasedMean(list []interval) float64 {
	sum, squares := 0.0, 0.0
	for _, ns := range lengthsOf(list) {
		sum, squares = sum+float64(ns), squares+float64(ns)*float64(ns)
	}
	return squares / max(sum, 1)
}

// countMatches returns how many of the first intervals end with one of the second that has begun before and is shifted in time, within a
// tolerance. Both are ordered by their ends, and each of the second counts once.
func countMatches(first, second []interval, shift, tolerance int64) (n int) {
	k := 0
	for _, v := range first {
		for k < len(second) && second[k].end+shift < v.end-tolerance {
			k++
		}
		if k < len(second) && second[k].end+shift <= v.end+tolerance && second[k].start+shift < v.end {
			n, k = n+1, k+1
		}
	}
	return n
}

// nearestLine returns the index of the line with the answer nearest to a time, to a call that was made before. Each line's answers are in the
// order of their ends. It returns -1 if there are none.
func nearestLine(time int64, lines [][]interval) (line int) {
	line = -1
	leastNS := int64(0)
	for i, answers := range lines {
		k, _ := slices.BinarySearchFunc(answers, time, func(v interval, time int64) int { return cmp.Compare(v.end, time) })
		for _, v := range answers[max(0, k-1):min(len(answers), k+1)] {
			if ns := max(v.end-time, time-v.end); v.start < time && (line < 0 || ns < leastNS) {
				line, leastNS = i, ns
			}
		}
	}
	return line
}

// sortedByEnd returns intervals in the order of their ends.
func sortedByEnd(list []interval) []interval {
	return slices.SortedFunc(slices.Values(list), func(a, b interval) int { return cmp.Compare(a.end, b.end) })
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

// addLaterWaits adds what a request waits for, on its own goroutine, from an answer to its last call of a peer, by its site. 0 is for all time.
func (p *workerSum) addLaterWaits(stored *peerCallSum, w *path.WalkResult, waits []critpath.FollowedWait, answer *placedAnswer) {
	lastStart := int64(0)
	for i := range p.answerScratch {
		if p.answerScratch[i].via == 0 {
			lastStart = p.answerScratch[i].start
		}
	}
	if lastStart <= answer.end {
		return
	}
	addToKey(&stored.laterWaits, 0, (lastStart-answer.end)*w.Weight, plusNS)
	for i := range w.Steps {
		step := &w.Steps[i]
		if step.Kind == critpath.CPU || step.Kind == critpath.Runnable || step.Start < answer.end || step.End > lastStart {
			continue
		}
		stack := step.Stack
		if step.FollowedWait >= 0 {
			stack = waits[outermostWait(waits, step.FollowedWait)].Stack
		}
		addToKey(&stored.laterWaits, p.stage.Sites.SiteOf(stack), (step.End-step.Start)*w.Weight, plusNS)
	}
}

// longestLaterWait returns the site of more than half of the time after an answer; nil if there is none, or if it is in the library that reads
// the answer.
func (s *peerCallSum) longestLaterWait(sp *spell.Speller, answer tracefmt.FrameID) *report.Site {
	for frame, ns := range s.laterWaits {
		if site := sp.Site(frame); site != nil && 2*ns > s.laterWaits[0] && site.Module != sp.Site(answer).Module {
			return site
		}
	}
	return nil
}

// setPeerLocks finds the locks of a peer for all lines of a group at which a request itself waits, as for a database: it also makes the
// call that ends its transaction.
func setPeerLocks(lines []PeerCalls) {
	answers := make([][]interval, len(lines))
	for i := range lines {
		answers[i] = sortedByEnd(lines[i].answers)
	}
	for i := range lines {
		if lines[i].Via != nil {
			continue
		}
		var candidates [][]interval
		var sites []*report.Site
		for k := range lines {
			if k != i && lines[k].Via == nil && 2*lines[k].Requests >= lines[i].Requests {
				candidates, sites = append(candidates, answers[k]), append(sites, lines[k].Site)
			}
		}
		if lock, release := peerLockOf(lines[i].answers, candidates, minLongWaits, countMatches); release >= 0 {
			lock.Release, lock.Work = sites[release], lines[i].laterWork
			lines[i].Lock = lock
		}
	}
}

// LockAmong returns the lock of the peer that calls of others hold, of other groups or of goroutines that serve no requests, as setPeerLocks
// does for the group's own. Their transaction may have locked what many requests need, which then end together. So do the answers of a peer that
// pauses; but here it answers other calls during the waits, and the call that ends the transaction at once.
func (c *PeerCalls) LockAmong(others []PeerCalls) PeerLock {
	if c.Via != nil {
		return PeerLock{}
	}
	var lines [][]interval
	var sites []*report.Site
	for _, candidate := range c.othersOf(others) {
		lines, sites = append(lines, sortedByEnd(candidate.wholeCalls)), append(sites, candidate.serviceLine())
	}
	all := sortedByEnd(slices.Concat(append(lines, c.answers)...))
	isOtherAnswered := func(w interval, until int64) bool {
		k, _ := slices.BinarySearchFunc(all, until, func(v interval, time int64) int { return cmp.Compare(v.end, time) })
		for k--; k >= 0 && all[k].end > w.start; k-- {
			if all[k].start > w.start {
				return true
			}
		}
		return false
	}
	lock, release := peerLockOf(c.answers, lines, threshold.SmallSample, func(long, answers []interval, shift, tolerance int64) (n int) {
		for _, w := range long {
			k, _ := slices.BinarySearchFunc(answers, w.end-tolerance-shift, func(v interval, time int64) int { return cmp.Compare(v.end, time) })
			if k < len(answers) && answers[k].end+shift <= w.end+tolerance && threshold.FarFactor*(answers[k].end-answers[k].start) <= w.end-w.start && isOtherAnswered(w, w.end-tolerance) {
				n++
			}
		}
		return n
	})
	if release >= 0 {
		lock.Release = sites[release]
	}
	return lock
}
