package capacity

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A hold is an interval in which a lock or slot was held: from the end of the holder's own wait until the holder ended another
// wait.
type hold struct {
	start, end int64
	hadQueue   bool // a goroutine was waiting when the hold began
}

// A heldQueue is what the waits for one lock or pool show about its holders.
type heldQueue struct {
	holds []hold
	waits []wait // waits, without those whose goroutine was woken and lost the lock to another one
	// by line: time that holders spent in leaves there while others waited
	leafNS  map[tracefmt.Line]float64
	readNS  map[tracefmt.Line]float64 // parts of leafNS: of readers
	heldNS  float64                   // time during which a waiter's holder was observed; leafNS are parts of this time
	byGroup map[path.GroupID]float64
	tails   []float64 // times from a leaf's end to the release
	leads   []float64 // times from the end of the holder's own wait to its leaf
	gaps    []float64 // times between two leaves of one hold
}

// addHeld adds a lock or a pool, for which the requests of list waited, as a resource. It chooses how to measure the demand: by
// the lines at which holders wait (measureLeaves), for an RWMutex by its writes (measureWrites), else by the holds that were
// seen (measureHolds). If the recording shows too little, the resource is skipped with the reason.
func (a *analysis) addHeld(list []*wait, isLock bool) {
	kind := report.LimitPool
	if isLock {
		kind = report.LimitLock
	}
	q := a.observeHolders(list)
	if len(q.waits) < threshold.Repeats {
		a.skip(kind, list, fmt.Sprintf("only %d requests waited for it", len(q.waits)))
		return
	}
	if list[0].isPool { // it is held during the call at the same line
		for _, w := range list {
			q.leafNS[a.lineOf(w.stack)]++
		}
		q.heldNS = 0
	}
	r := &resource{
		kind: kind, factor: 1, site: a.siteOf(mostFrequent(list)), waits: list, groups: q.byGroup, lines: q.heldLines(),
		gapNS: sample.Quantile(slices.Sorted(slices.Values(q.gaps)), threshold.NearlyAllShare),
	}
	reason := ""
	switch {
	case isLock && list[0].isRW:
		reason = a.measureWrites(r, q)
	case len(r.lines) > 0:
		reason = a.measureLeaves(r, q, 0)
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

// observeHolders follows the holders through the waits of one queue, sorted by their ends, and returns the holds and where holders
// spent their time.
func (a *analysis) observeHolders(list []*wait) *heldQueue {
	q := &heldQueue{leafNS: map[tracefmt.Line]float64{}, readNS: map[tracefmt.Line]float64{}, byGroup: map[path.GroupID]float64{}}
	acquired, lastOf := map[uint64]hold{}, map[uint64]int{} // by goroutine
	lastRelease := int64(0)
	for k, w := range list {
		merged := *w
		if i, ok := lastOf[w.g]; ok && q.waits[i].request == w.request && w.start-q.waits[i].end <= threshold.IdleCheckNS && w.start >= q.waits[i].end {
			merged.start = q.waits[i].start
			q.waits[i] = merged
		} else {
			lastOf[w.g] = len(q.waits)
			q.waits = append(q.waits, merged)
		}
		var leaves []leaf
		holder := a.holderOf(w)
		if holder != nil {
			leaves = holder.leaves
		}
		if got, ok := acquired[w.waker]; ok && (holder == nil || got.start >= holder.start) {
			got.end = w.end
			q.holds = append(q.holds, got)
			delete(acquired, w.waker)
			if i := slices.IndexFunc(leaves, func(l leaf) bool { return l.start >= got.start && l.start < w.end }); i >= 0 {
				q.leads = append(q.leads, float64(leaves[i].start-got.start))
			}
		}
		if from := max(w.start, lastRelease); holder != nil && w.end > from {
			q.heldNS += float64(w.end - from)
			if client := holder.outermost(); client.isLoad {
				q.byGroup[client.group] += float64(w.end - from)
			}
			leafEnd := int64(0)
			for i, l := range leaves {
				if ns := min(l.end, w.end) - max(l.start, from); ns > 0 {
					if leafEnd > 0 && leaves[i-1].g == l.g {
						q.gaps = append(q.gaps, float64(l.start-leafEnd))
					}
					q.leafNS[a.lineOf(l.stack)] += float64(ns)
					if w.endsRead {
						q.readNS[a.lineOf(l.stack)] += float64(ns)
					}
					leafEnd = max(leafEnd, min(l.end, w.end))
				}
			}
			if leafEnd > 0 {
				q.tails = append(q.tails, float64(w.end-leafEnd))
			}
		}
		lastRelease = w.end
		hadQueue := slices.ContainsFunc(list[k+1:min(len(list), k+64)], func(next *wait) bool { return next.start < w.end })
		acquired[w.g] = hold{start: w.end, hadQueue: hadQueue}
	}
	return q
}

// mostFrequent returns the most frequent stack of waits, the smallest id of several.
func mostFrequent(list []*wait) (stack tracefmt.StackID) {
	counts := map[tracefmt.StackID]int{}
	for _, w := range list {
		counts[w.stack]++
	}
	for s, n := range counts {
		if n > counts[stack] || n == counts[stack] && s < stack {
			stack = s
		}
	}
	return stack
}

// heldLines returns the lines at which holders spent noticeable time in leaves (waits, system calls) while others waited; none
// if holders mostly ran.
func (q *heldQueue) heldLines() map[tracefmt.Line]bool {
	sum := 0.0
	for _, ns := range q.leafNS {
		sum += ns
	}
	out := map[tracefmt.Line]bool{}
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

// A leafSpan is an interval in which a goroutine of a request was in leaves at some lines, without long gaps.
type leafSpan struct {
	request    *servedRequest
	start, end int64
}

// leafSpans returns the intervals in which any request was in leaves at the lines, whether or not another goroutine waited, sorted
// by start. Leaves of one goroutine with at most gapNS between them are one interval.
func (a *analysis) leafSpans(lines map[tracefmt.Line]bool, gapNS float64) (out []leafSpan) {
	if len(lines) == 0 {
		return nil
	}
	for _, r := range a.requests {
		last := map[uint64]int{} // interval by goroutine, plus 1
		for _, l := range r.leaves {
			if !lines[a.lineOf(l.stack)] {
				continue
			}
			if k := last[l.g]; k > 0 && float64(l.start-out[k-1].end) <= gapNS {
				out[k-1].end = l.end
				continue
			}
			out = append(out, leafSpan{r.outermost(), l.start, l.end})
			last[l.g] = len(out)
		}
	}
	slices.SortFunc(out, func(x, y leafSpan) int { return cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.end, y.end)) })
	return out
}

// measureLeaves sets the demand for a lock or pool whose holders are in leaves at known lines (r.lines). Every request passes
// these lines, not only while others wait, so all of them count. The number of slots is the largest number of requests there at
// once, if the resource was that full whenever a request had to wait; a lock that was not counts as several locks. leadNS is
// further time that a holder which waited needs. It returns the reason if the resource cannot be judged, else "".
func (a *analysis) measureLeaves(r *resource, q *heldQueue, leadNS float64) string {
	spans := a.leafSpans(r.lines, r.gapNS)
	// At the limit, each holder has waited: it must wake up first.
	r.tail, r.lead = sample.Median(q.tails), sample.Median(q.leads)+leadNS
	var holders queues.Overlap
	busyNS, loads := 0.0, map[path.GroupID]float64{}
	for _, s := range spans {
		holders.Add(s.start, s.end)
		ns := float64(s.end-s.start) + r.tail + r.lead
		busyNS += ns
		r.service = append(r.service, ns)
		if s.request.isLoad {
			loads[s.request.group] += ns
		}
	}
	most, full := holders.Max(), 0
	for i := range q.waits {
		if holders.At(q.waits[i].start) >= most-1 {
			full++
		}
	}
	r.busy, r.visits = busyNS/float64(a.sliceNS), float64(len(spans))/float64(a.sliceNS)/a.load
	r.error = sampleError(r.service)
	r.groups, r.servers = loads, float64(most)
	r.basis = "the time of all requests at the lines where holders were"
	isFull, isPool := float64(full) >= threshold.MostShare*float64(len(q.waits)), r.kind == report.LimitPool
	switch {
	case isPool && !isFull:
		return "the recording does not show how many slots there are"
	case isPool, isFull && most <= 1:
		return ""
	}
	// Several locks at one line. Each arrival finds its lock held with the probability that is the lock's utilisation.
	waited := float64(len(q.waits)) / float64(len(spans))
	r.servers = max(1, r.busy/waited)
	r.basis = "several locks at this line: the share of requests that had to wait"
	r.error += 2 / math.Sqrt(float64(len(q.waits)))
	return ""
}

// measureWrites sets the demand for an RWMutex whose holders are in leaves at known lines. One request writes, or any number of
// them read. If requests always wait to write, each write lets those reads go first that arrived during the write before. So a
// write needs the lock for its own time and for the longest of these reads. It returns the reason if the lock cannot be judged,
// else "".
func (a *analysis) measureWrites(r *resource, q *heldQueue) string {
	writes := map[tracefmt.Line]bool{}
	r.readLines = map[tracefmt.Line]bool{}
	for at := range r.lines {
		switch share := q.readNS[at] / q.leafNS[at]; {
		case share >= threshold.MostShare:
			r.readLines[at] = true
		case share <= 1-threshold.MostShare:
			writes[at] = true
		default:
			return "requests that read and requests that write hold it at the same line"
		}
	}
	r.lines = writes
	spans, background := a.leafSpans(writes, r.gapNS), 0
	for _, s := range spans {
		if !s.request.isServed && a.hasServed {
			background++
		}
	}
	writeCount := float64(len(spans))
	switch {
	case len(spans) < threshold.SmallSample:
		return fmt.Sprintf("readers share it, and only %d writes were seen", len(spans))
	case float64(background) >= threshold.HalfShare*writeCount:
		return backgroundReason
	}
	var reads []float64
	for _, s := range a.leafSpans(r.readLines, r.gapNS) {
		reads = append(reads, float64(s.end-s.start))
	}
	slices.Sort(reads)
	perWrite := float64(len(reads)) / writeCount
	drainNS := sample.Quantile(reads, perWrite/(perWrite+1))
	if reason := a.measureLeaves(r, q, drainNS); reason != "" {
		return reason
	}
	r.error += 2 * math.Sqrt(max(0, 1-r.visits)/writeCount) // how many requests write
	r.basis = "the time of each write, and of the reads that it waits for"
	return ""
}

// measureHolds sets the demand for a lock whose holders run. Only those holds are seen at whose end a goroutine waited. A hold
// of length S is seen with probability 1-exp(-S/gap) if requests arrive at random with this mean gap, so each counts by the
// inverse of that. The number of uses follows from the number of waits: each use finds the lock held with the probability of
// its utilisation, so waits per ns = uses per ns * (uses per ns * S). It returns the reason if the lock cannot be judged, else
// "".
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
	r.error = sampleError(r.service) + 1/math.Sqrt(float64(len(q.waits)))
	r.visits = uses / a.load
	if whole := math.Round(r.visits); whole >= 1 && math.Abs(r.visits-whole) <= max(0.2, r.error)*whole {
		r.visits = whole
	}
	r.servers, r.busy = 1, r.visits*a.load*meanNS
	return ""
}
