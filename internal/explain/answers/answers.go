// Package answers finds the request of a process that answers a network wait of another request of the same process.
// No event of a trace connects the two, but the request is inside the wait.
//
// Package peers decides which groups answer which. A Finder then matches request to wait while a trace is read, so
// that a critical path continues in the answering request.
package answers

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// A Span is the time of a request, or of a network wait of a request.
type Span struct {
	Start, End int64
	// UnreadNS is, for a request, the time that its message may have been unread before the request began. For a wait,
	// it is the time at its end during which no P polled the network, or the goroutine waited for a CPU.
	UnreadNS int64
	// Request is the request itself, or the one that waits.
	Request RequestKey
	// Parts are the parts of a wait, each of which ended with a wake-up; nil where they are not needed.
	Parts []WaitPart
	// PollerWakes are, for a request, the goroutines that the network poller woke shortly before and after its end, by
	// time.
	PollerWakes []timeline.PollerWake
	// SendTimes are the times at which goroutines of the process wrote to the network shortly before the start of a
	// wait or the end of a request: client and server may use another goroutine to send.
	SendTimes []int64
}

// A WaitPart is one blocked interval of goroutine G until its wake-up. The message may have been unread for UnreadNS
// before it.
type WaitPart struct {
	Start, Wake, UnreadNS int64
	G                     uint64
}

// A RequestKey identifies a request by its goroutine and its start.
type RequestKey struct {
	G     uint64
	Start int64
}

// IsWhole reports whether a request was walked from its start to its end, so that it can wait for an answer or be one.
func IsWhole(w *path.WalkResult) bool { return w.Form == path.Whole && w.IsComplete() }

// AnswerSpan returns the span of a request, and true if the request can be an answer: only requests of a protocol, and marked
// ones, have a client.
func AnswerSpan(w *path.WalkResult) (Span, bool) {
	if k := w.Req.Kind; k == request.Mark || k.HasProtocol() {
		return Span{Start: w.Start, End: w.Req.End, UnreadNS: w.PollGapNS, Request: keyOf(w)}, true
	}
	return Span{}, false
}

func keyOf(w *path.WalkResult) RequestKey { return RequestKey{w.Req.G, w.Start} }

// EachWait calls f with each network wait of a request for a peer. The parts of the span use the memory of buf.
func EachWait(w *path.WalkResult, buf []WaitPart, f func(Span)) {
	var wait Span
	emit := func() {
		if wait.End-wait.Start >= threshold.ThreadWakeNS {
			wait.Request = keyOf(w)
			f(wait)
		}
	}
	for i := range w.Segments {
		segment := &w.Segments[i]
		switch segment.Code.Cause() {
		case cause.SchedPoll, cause.Sched, cause.SchedWake:
			// A message that has arrived is not read before the waiting goroutine runs.
			if wait.End != 0 && segment.Start == wait.End {
				if p := &wait.Parts[len(wait.Parts)-1]; segment.Code.Cause() == cause.SchedPoll && p.Wake == segment.Start {
					p.Wake, p.UnreadNS = segment.End, p.UnreadNS+segment.End-segment.Start
				}
				wait.End, wait.UnreadNS = segment.End, wait.UnreadNS+segment.End-segment.Start
			}
		case cause.Network:
			if segment.Inbound || segment.Remote != 0 {
				continue
			}
			// The reader of a shared connection passes on other requests' answers between the parts of one wait.
			if wait.End == 0 || segment.Start-wait.End > max(threshold.LoopbackNS, wait.End-wait.Start) {
				emit()
				wait = Span{Start: segment.Start, Parts: buf[:0]}
			}
			wait.End, wait.UnreadNS = segment.End, 0
			if k := len(wait.Parts) - 1; k >= 0 && wait.Parts[k].Wake == segment.Start && wait.Parts[k].G == segment.G {
				wait.Parts[k].Wake, wait.Parts[k].UnreadNS = segment.End, 0 // continue the part: it was cut at a possible freeze
			} else {
				wait.Parts = append(wait.Parts, WaitPart{Start: segment.Start, Wake: segment.End, G: segment.G})
			}
		}
	}
	emit()
}

// Sort sorts spans as Match requires. It sorts indexes, because spans are large.
func Sort(list []Span) {
	order := make([]int32, len(list))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, k int32) int {
		a, b := &list[i], &list[k]
		if a.Start != b.Start {
			return cmp.Compare(a.Start, b.Start)
		}
		return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.Request.G, b.Request.G), cmp.Compare(a.Request.Start, b.Request.Start))
	})
	unsorted := slices.Clone(list)
	for i, from := range order {
		list[i] = unsorted[from]
	}
}

// Match assigns to each wait, shifted in time by shift ns, at most one request inside it, calls emit for each pair,
// and returns the number of pairs. If a request is inside several waits, it gets the one with the nearest start and
// end, and preferably one that starts before and ends after the request.
func Match(waits, requests []Span, shift int64, emit func(w, r Span)) (n int) {
	var openWaits []Span // waits without a request that may still get one, by their ends
	next := 0
	for _, r := range requests {
		duration := r.End - r.Start
		for ; next < len(waits) && waits[next].Start+shift < r.End; next++ {
			w := waits[next]
			w.Start, w.End = w.Start+shift, w.End+shift
			position, _ := slices.BinarySearchFunc(openWaits, w.End, func(o Span, end int64) int { return cmp.Compare(o.End, end) })
			openWaits = slices.Insert(openWaits, position, w)
		}
		expired, _ := slices.BinarySearchFunc(openWaits, r.Start, func(o Span, t int64) int { return cmp.Compare(o.End, t) })
		openWaits = openWaits[expired:]
		best, bestDistance, inOrder := -1, int64(0), false
		for i := range openWaits {
			w := &openWaits[i]
			if inOrder && w.End-r.End > bestDistance {
				break
			}
			// A request may begin before the waiting goroutine blocks, and end a little after its answer was read.
			if overlap := min(w.End, r.End) - max(w.Start, r.Start); overlap <= 0 || float64(overlap) < threshold.HalfShare*float64(duration) || w.Request == r.Request && r.Request.G != 0 {
				continue
			}
			distance, order := max(w.Start-r.Start, r.Start-w.Start)+max(w.End-r.End, r.End-w.End), w.Start <= r.Start+threshold.ThreadWakeNS && w.End >= r.End
			if best < 0 || order && !inOrder || order == inOrder && distance < bestDistance {
				best, bestDistance, inOrder = i, distance, order
			}
		}
		if best >= 0 {
			n++
			emit(openWaits[best], r)
			openWaits = slices.Delete(openWaits, best, best+1)
		}
	}
	return n
}
