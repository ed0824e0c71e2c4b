package capacity

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A hold is for how long a lock or slot was held, from the end of the holder's wait until it ended another wait.
type hold struct {
	start, end int64
	request    int32 // of the holder; -1 if it served none
	hadQueue   bool  // a goroutine was waiting when it began
}

// A heldQueue is what the waits for a lock or for slots show.
type heldQueue struct {
	holds   []hold
	waits   []*wait // without those that lost the lock again
	leafNS  map[line]float64
	heldNS  float64 // time in which a waiter's holder was observed; leafNS are parts of it
	byGroup map[path.GroupID]float64
	tails   []float64 // times from a leaf's end to the release
	leads   []float64 // times from the end of the holder's own wait to its leaf
}

// addHeld adds a lock or a pool for which requests waited.
func (a *analysis) addHeld(list []int32, isLock bool) {
	kind := report.LimitPool
	if isLock {
		kind = report.LimitLock
	}
	q := a.observe(list)
	if len(q.waits) < threshold.Repeats {
		a.skip(kind, list, fmt.Sprintf("only %d requests waited for it", len(q.waits)))
		return
	}
	if a.waits[list[0]].isPool { // it is held during the call at the same line
		for _, i := range list {
			q.leafNS[a.lineOf(a.waits[i].stack)]++
		}
		q.heldNS = 0
	}
	r := &resource{kind: kind, factor: 1, site: a.siteOf(a.mostFrequent(list)), waits: list, groups: q.byGroup, lines: q.heldLines()}
	reason := ""
	switch spans := a.leafSpans(r.lines); {
	case isLock && q.waits[0].isRW:
		reason = "readers share it, so it has no fixed number of holders"
	case len(r.lines) > 0:
		reason = a.measureLeaves(r, q, spans)
	case isLock && len(q.waits) < threshold.SmallSample:
		reason = fmt.Sprintf("only %d requests waited for it", len(q.waits))
	case isLock:
		reason = a.measureHolds(r, q)
	default:
		reason = "the recording does not show how many slots there are"
	}
	if reason != "" {
		a.skip(kind, list, reason)
		return
	}
	a.resources = append(a.resources, r)
}

// observe follows the holders through a queue.
func (a *analysis) observe(list []int32) *heldQueue {
	q := &heldQueue{leafNS: map[line]float64{}, byGroup: map[path.GroupID]float64{}}
	type acquisition struct {
		time     int64
		hadQueue bool
	}
	acquired, lastOf := map[uint64]acquisition{}, map[uint64]*wait{}
	lastRelease := int64(0)
	for k, i := range list {
		w := &a.waits[i]
		if last := lastOf[w.g]; last != nil && last.request == w.request && w.start-last.end <= threshold.IdleCheckNS && w.start >= last.end {
			merged := *w
			merged.start = last.start
			*last = merged
		} else {
			merged := *w
			q.waits = append(q.waits, &merged)
			lastOf[w.g] = &merged
		}
		holder := a.holderOf(w)
		from := max(w.start, lastRelease)
		if got, ok := acquired[w.waker]; ok && (holder < 0 || got.time >= a.requests[holder].start) {
			q.holds = append(q.holds, hold{got.time, w.end, holder, got.hadQueue})
			delete(acquired, w.waker)
			if holder >= 0 {
				for _, l := range a.leavesOf[holder] {
					if l.start >= got.time && l.start < w.end {
						q.leads = append(q.leads, float64(l.start-got.time))
						break
					}
				}
			}
		}
		if holder >= 0 && w.end > from {
			q.heldNS += float64(w.end - from)
			if a.isLoad[holder] {
				q.byGroup[a.requests[holder].group] += float64(w.end - from)
			}
			leafEnd := int64(0)
			for _, l := range a.leavesOf[holder] {
				if ns := min(l.end, w.end) - max(l.start, from); ns > 0 {
					q.leafNS[a.lineOf(l.stack)] += float64(ns)
					leafEnd = max(leafEnd, min(l.end, w.end))
				}
			}
			if leafEnd > 0 {
				q.tails = append(q.tails, float64(w.end-leafEnd))
			}
		}
		lastRelease = w.end
		hadQueue := slices.ContainsFunc(list[k+1:min(len(list), k+64)], func(next int32) bool { return a.waits[next].start < w.end })
		acquired[w.g] = acquisition{w.end, hadQueue}
	}
	return q
}

// mostFrequent returns the most frequent stack of waits.
func (a *analysis) mostFrequent(list []int32) (stack tracefmt.StackID) {
	counts := map[tracefmt.StackID]int{}
	for _, i := range list {
		counts[a.waits[i].stack]++
	}
	for s, n := range counts {
		if n > counts[stack] || n == counts[stack] && s < stack {
			stack = s
		}
	}
	return stack
}

// heldLines returns the lines at which holders were while others waited; none if they mostly ran.
func (q *heldQueue) heldLines() map[line]bool {
	sum := 0.0
	for _, ns := range q.leafNS {
		sum += ns
	}
	out := map[line]bool{}
	if sum < threshold.HalfShare*q.heldNS {
		return out
	}
	for at, ns := range q.leafNS {
		if ns >= threshold.MinorShare*sum {
			out[at] = true
		}
	}
	return out
}

// A leafSpan is a time in which a request was at a line where holders are.
type leafSpan struct {
	request    int32
	start, end int64
}

// leafSpans returns the times in which any requests were at some lines, also when no goroutine waited.
func (a *analysis) leafSpans(lines map[line]bool) (out []leafSpan) {
	if len(lines) == 0 {
		return nil
	}
	for i, list := range a.leavesOf {
		for _, l := range list {
			if lines[a.lineOf(l.stack)] {
				out = append(out, leafSpan{int32(i), l.start, l.end})
			}
		}
	}
	slices.SortFunc(out, func(x, y leafSpan) int { return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.end, y.end)) })
	return out
}

// concurrency returns how many spans contain each of some times, and the largest number that overlap anywhere.
func concurrency(spans []leafSpan, times []int64) (counts []int, maxCount int) {
	starts, ends := make([]int64, len(spans)), make([]int64, len(spans))
	for i, s := range spans {
		starts[i], ends[i] = s.start, s.end
	}
	slices.Sort(ends)
	countAt := func(t int64) int {
		started, _ := slices.BinarySearch(starts, t+1)
		ended, _ := slices.BinarySearch(ends, t+1)
		return started - ended
	}
	for _, t := range times {
		counts = append(counts, countAt(t))
	}
	for _, t := range starts {
		maxCount = max(maxCount, countAt(t))
	}
	return counts, maxCount
}

// measureLeaves measures a lock or pool that is held while requests are at known lines. They are there for every request, not
// only while others wait. The number of slots is how many were there whenever a request had to wait. It returns reason the
// resource cannot be judged; "" if it can.
func (a *analysis) measureLeaves(r *resource, q *heldQueue, spans []leafSpan) string {
	var times []int64
	for _, w := range q.waits {
		times = append(times, w.start)
	}
	counts, maxCount := concurrency(spans, times)
	slices.Sort(counts)
	full := 0
	for _, n := range counts {
		if n >= maxCount-1 {
			full++
		}
	}
	// At the limit, each holder has waited: it must wake up first.
	r.tail, r.lead = median(q.tails), median(q.leads)
	leafNS, overhead := 0.0, r.tail+r.lead
	loads := map[path.GroupID]float64{}
	for _, s := range spans {
		leafNS += float64(s.end - s.start)
		r.service = append(r.service, float64(s.end-s.start)+overhead)
		if a.isLoad[s.request] {
			loads[a.requests[s.request].group] += float64(s.end-s.start) + overhead
		}
	}
	sliceNS := float64(a.sliceNS)
	r.busy = (leafNS + overhead*float64(len(spans))) / sliceNS
	r.visits = float64(len(spans)) / sliceNS / a.load
	r.error = sampleError(r.service, len(spans))
	r.groups, r.servers = loads, float64(maxCount)
	r.basis = "the time of all requests at the lines where holders were"
	switch {
	case float64(full) >= threshold.MostShare*float64(len(counts)):
		if r.kind == report.LimitPool && maxCount == 1 || r.kind == report.LimitLock && maxCount > 1 {
			break
		}
		return ""
	case r.kind == report.LimitPool:
		return "the recording does not show how many slots there are"
	}
	if r.kind == report.LimitPool {
		return ""
	}
	// Several locks at one line. Each arrival finds its lock held with the probability that is the lock's utilisation.
	waited := float64(len(q.waits)) / float64(len(spans))
	r.servers = max(1, r.busy/waited)
	r.basis = "several locks at this line: the share of requests that had to wait"
	r.error += 2 / math.Sqrt(float64(len(q.waits)))
	return ""
}

// median returns the median of a list, 0 if it is empty.
func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// measureHolds measures a lock whose holders run. Only those holds show at whose end a goroutine waited. A hold of length S shows
// with probability 1-exp(-S/gap) if requests arrive at random with this mean gap, so each counts by the inverse of that. How
// often the lock is used shows in how many requests wait: each finds it held with the probability of its utilisation, so that
// waits per ns = uses per ns * (uses per ns * S).
func (a *analysis) measureHolds(r *resource, q *heldQueue) string {
	if len(q.holds) < threshold.SmallSample {
		return fmt.Sprintf("only %d holds of it were seen from beginning to end", len(q.holds))
	}
	waitsPerNS := float64(len(q.waits)) / float64(a.sliceNS)
	uses := a.load
	meanNS := 0.0
	for range 20 {
		weightSum, sum := 0.0, 0.0
		for _, h := range q.holds {
			ns, weight := float64(h.end-h.start), 1.0
			if !h.hadQueue {
				weight = 1 / max(1-math.Exp(-ns*uses), 0.02)
			}
			weightSum, sum = weightSum+weight, sum+weight*ns
		}
		meanNS = sum / weightSum
		uses = math.Sqrt(waitsPerNS / meanNS)
	}
	for _, h := range q.holds {
		r.service = append(r.service, float64(h.end-h.start))
	}
	r.basis = "its holds while others waited, and the share of requests that waited"
	r.error = sampleError(r.service, len(q.holds)) + 1/math.Sqrt(float64(len(q.waits)))
	r.visits = uses / a.load
	if whole := math.Round(r.visits); whole >= 1 && math.Abs(r.visits-whole) <= max(0.2, r.error)*whole {
		r.visits = whole
	}
	r.servers, r.busy = 1, r.visits*a.load*meanNS
	return ""
}
