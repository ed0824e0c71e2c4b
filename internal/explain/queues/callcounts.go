package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Slow requests may make many more calls to a peer than others: for more items, or for other requests. The calls are counted by the
// service's line, whatever closure or stack leads to it: the compiler copies a closure when it inlines the function around it.

// A callCountKey identifies the calls of one group from one line of the service.
type callCountKey struct {
	group path.GroupID
	file  tracefmt.StringID
	line  uint32
}

// A requestCallCount is how many calls a request made from a line, and their time.
type requestCallCount struct {
	key              uint64 // for sampling
	start, latencyNS int64
	calls, callNS    int64
	isServed         bool             // a client sent it
	caller           tracefmt.FrameID // calls the line's function for the longest call; 0: unknown
}

// A callCountSum has a sample of the requests that call from one line.
type callCountSum struct {
	requests *sample.TopN[requestCallCount]
	drain    tracefmt.FrameID // the library's function that does the work of other requests there; 0: none
}

// maxCallCounts bounds the requests of one line.
const maxCallCounts = 1000

// add adds a request.
func (s *callCountSum) add(count requestCallCount) {
	if s.requests == nil {
		s.requests = sample.New(maxCallCounts, func(a, b requestCallCount) int {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.latencyNS, b.latencyNS))
		})
	}
	s.requests.Add(count)
}

// addCallCounts adds the calls of a request, which addPeerCalls has found, without those of others during which it waited for a lock.
func (p *workerSum) addCallCounts(w *path.WalkResult, waits []critpath.FollowedWait) {
	isOthers := func(call *requestCalls) bool {
		return call.root >= 0 && waits[call.root].Kind == critpath.WaitLock
	}
	done := map[callCountKey]bool{}
	for i := range p.callScratch {
		key := p.callCountKeyOf(w.Group, &p.callScratch[i])
		if done[key] || isOthers(&p.callScratch[i]) {
			continue
		}
		done[key] = true
		count := requestCallCount{key: sample.Hash(uint64(w.Req.Start) ^ w.Req.G<<40), start: w.Req.Start, latencyNS: w.Req.End - w.Req.Start, isServed: w.Req.IsServed()}
		sum, longestNS := entry.GetOrAdd(p.callCounts, key), int64(0)
		for k := range p.callScratch {
			if call := &p.callScratch[k]; p.callCountKeyOf(w.Group, call) == key && !isOthers(call) {
				count.calls, count.callNS = count.calls+call.Calls, count.callNS+call.AnswerNS
				if call.AnswerNS > longestNS {
					longestNS, count.caller = call.AnswerNS, p.stage.Sites.CallerOfSite(call.stack)
				}
				sum.drain = max(sum.drain, p.stage.Sites.FrameWith(call.stack, knowledge.Drain))
			}
		}
		sum.add(count)
	}
}

// callCountKeyOf returns the key of a request's calls.
func (p *workerSum) callCountKeyOf(group path.GroupID, call *requestCalls) callCountKey {
	site := p.stage.Sites.SiteOf(call.stack)
	line := p.stage.Syms.Line(cmp.Or(p.stage.Syms.Frame(site).Caller, site))
	return callCountKey{group, line.File, line.Number}
}

// inReport returns the key with the report's id of the group.
func (k callCountKey) inReport(t path.Translation) callCountKey {
	k.group = t.Groups[k.group]
	return k
}

// merge adds the requests of another sum.
func (s *callCountSum) merge(addend *callCountSum) {
	s.drain = max(s.drain, addend.drain)
	for _, request := range addend.requests.Sorted() {
		s.add(request)
	}
}

// CallCounts compares how many calls the slow requests of a group and the others make from one line of the service.
type CallCounts struct {
	File string
	Line int
	// SlowCalls is the mean number of calls of a tenth of the requests, the slowest ones; UsualCalls is that of the faster half.
	SlowCalls, UsualCalls float64
	// SlowCallShare is the share of these calls in the time of the slow requests.
	SlowCallShare float64
	// CallNS is the mean time of a call, UsualNS the mean latency of the faster half.
	CallNS, UsualNS int64
	// SlowCaller is where most slow requests call the function of that line, and most others do not; nil if there is no such place.
	SlowCaller *report.Site
	// Drain is the library's function that does the work of other requests there; nil if none is known.
	Drain *report.Site
}

// AreUneven reports whether slow requests are slow because they make far more calls than others.
func (c *CallCounts) AreUneven() bool {
	return c != nil && c.SlowCalls >= threshold.Repeats && c.SlowCalls >= threshold.FarFactor*c.UsualCalls && c.SlowCallShare >= threshold.HalfShare
}

// CallCounts returns the call counts of a group's lines with enough requests, ordered by file and line. Merge must have been called.
func (s *Sum) CallCounts(sp *spell.Speller, group path.GroupID) (out []CallCounts) {
	for key, sum := range s.workers[0].callCounts {
		list := slices.Clone(sum.requests.Sorted())
		if key.group != group || len(list) < threshold.MedianSample {
			continue
		}
		slices.SortFunc(list, func(a, b requestCallCount) int {
			return cmp.Or(cmp.Compare(a.latencyNS, b.latencyNS), cmp.Compare(a.key, b.key))
		})
		slowest, faster := list[len(list)-max(threshold.Repeats, len(list)/10):], list[:len(list)/2]
		slow, usual := sumOfCalls(slowest), sumOfCalls(faster)
		all := sumOfCalls(list)
		out = append(out, CallCounts{
			File: sp.File(sp.Syms.String(key.file)), Line: int(key.line), Drain: sp.Site(sum.drain), SlowCaller: sp.Site(slowCaller(slowest, faster)),
			SlowCalls:     float64(slow.calls) / float64(max(threshold.Repeats, len(list)/10)),
			UsualCalls:    float64(usual.calls) / float64(len(list)/2),
			SlowCallShare: float64(slow.callNS) / float64(max(slow.latencyNS, 1)),
			CallNS:        all.callNS / max(all.calls, 1), UsualNS: usual.latencyNS / int64(len(list)/2),
		})
	}
	slices.SortFunc(out, func(a, b CallCounts) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
	return out
}

// slowCaller returns the place from which threshold.MostShare of the slowest requests call, and at most threshold.MajorShare of the faster ones; 0 if
// there is none.
func slowCaller(slowest, faster []requestCallCount) tracefmt.FrameID {
	callers := func(list []requestCallCount) map[tracefmt.FrameID]int {
		counts := map[tracefmt.FrameID]int{}
		for i := range list {
			counts[list[i].caller]++
		}
		return counts
	}
	usual := callers(faster)
	for frame, n := range callers(slowest) { // at most one has so many
		if frame != 0 && float64(n) >= threshold.MostShare*float64(len(slowest)) && float64(usual[frame]) <= threshold.MajorShare*float64(len(faster)) {
			return frame
		}
	}
	return 0
}

// sumOfCalls adds up requests.
func sumOfCalls(list []requestCallCount) (sum requestCallCount) {
	for _, r := range list {
		sum.latencyNS, sum.calls, sum.callNS = sum.latencyNS+r.latencyNS, sum.calls+r.calls, sum.callNS+r.callNS
	}
	return sum
}
