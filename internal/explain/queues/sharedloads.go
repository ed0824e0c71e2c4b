package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// A SharedLoad describes calls from one line of the service of which one would do for all that come during it: at other times hardly a request makes
// the call, and during one all do, as when what a cache holds for all of them has expired.
type SharedLoad struct {
	File string
	Line int
	// Loads counts the calls that began while no other was under way, Callers the requests that came during these and called as well, and Passers
	// those that came then and did not.
	Loads, Callers, Passers int
}

// sharedLoadOf compares the requests that make a call with the starts of all that clients sent. Calls for different things leave other requests as
// they are: as many pass during a call as in any such time, in which else no request calls.
func sharedLoadOf(callers []requestCallCount, starts []int64) (l SharedLoad, ok bool) {
	slices.SortFunc(callers, func(a, b requestCallCount) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.key, b.key))
	})
	var loadNS, callNS, end int64 // callNS is the part of loadNS that is no queue
	for _, c := range callers {
		if c.start < end {
			l.Callers++
			continue
		}
		from, _ := slices.BinarySearch(starts, c.start+1)
		to, _ := slices.BinarySearch(starts, c.start+c.latencyNS)
		l.Loads, l.Passers, loadNS, callNS, end = l.Loads+1, l.Passers+to-from, loadNS+c.latencyNS, callNS+c.callNS, c.start+c.latencyNS
	}
	l.Passers -= l.Callers
	passed, otherNS := len(starts)-len(callers)-l.Passers, starts[len(starts)-1]-starts[0]-loadNS
	usual := float64(passed) * float64(loadNS) / float64(max(otherNS, 1))
	return l, 2*callNS >= loadNS && l.Loads >= threshold.Repeats && float64(l.Loads) <= threshold.MinorShare*float64(passed) && usual >= threshold.SmallSample &&
		float64(l.Callers) >= threshold.HalfShare*usual && float64(l.Passers) <= threshold.MajorShare*usual
}

// SharedLoads returns the lines with such calls, ordered by file and line. Merge must have been called.
func (s *Sum) SharedLoads(sp *spell.Speller) (out []SharedLoad) {
	callers := map[callCountKey][]requestCallCount{}
	for key, sum := range s.workers[0].callCounts {
		key.group = 0 // one line may be called by several groups
		for _, r := range sum.requests.Sorted() {
			if r.isServed {
				callers[key] = append(callers[key], r)
			}
		}
	}
	slices.Sort(s.workers[0].servedStarts)
	for key, list := range callers {
		if load, ok := sharedLoadOf(list, s.workers[0].servedStarts); ok {
			load.File, load.Line = sp.File(sp.Syms.String(key.file)), int(key.line)
			out = append(out, load)
		}
	}
	slices.SortFunc(out, func(a, b SharedLoad) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return out
}
