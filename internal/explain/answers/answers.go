// Package answers finds out which request of a process answers which wait of
// another one of it. No event of a trace leads from one to the other: the
// request lies in the wait. Package peers judges from which groups that may be
// believed of which; a Finder here then joins request to request while a trace
// is read, so that a path goes on into the other half.
package answers

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// A Span is a wait of a request, or a request.
type Span struct {
	Start, End int64
	// UnreadNS is, of a request, how long its message may have lain unread before it
	// began; of a wait, how much of its end nobody looked or a CPU was waited for.
	UnreadNS int64
	// Request is the request, or the one that waits.
	Request RequestKey
	// Parts are those of a wait, each of which ended as something came: nil where nobody asked for them.
	Parts []WaitPart
	// PollerWakes are, of a request, the goroutines that the poller woke shortly before and after its end, by time.
	PollerWakes []timeline.PollerWake
	// SendTimes are times at which goroutines of the process wrote to the network shortly before a wait began, or a request ended:
	// who asks, or answers, may have another goroutine send it.
	SendTimes []int64
}

// A Part is what a goroutine waited for something to come, until it was woken. It may have been there for Unseen before.
type WaitPart struct {
	Start, Wake, UnreadNS int64
	G                     uint64
}

// A Key tells requests apart.
type RequestKey struct {
	G     uint64
	Start int64
}

// IsWhole reports whether a request can wait for an answer, or be one: it was
// walked from its start to its end.
func IsWhole(w *path.Walked) bool { return w.Form == path.Whole && w.Ended() }

// AnswerSpan returns the request itself, if it can be an answer: somebody asked for it.
func AnswerSpan(w *path.Walked) (Span, bool) {
	if k := w.Req.Kind; k == request.Mark || k.HasProtocol() {
		return Span{Start: w.Start, End: w.Req.End, UnreadNS: w.Gap, Request: keyOf(w)}, true
	}
	return Span{}, false
}

func keyOf(w *path.Walked) RequestKey { return RequestKey{w.Req.G, w.Start} }

// EachWait calls f with each time that a request waited for a peer. Its parts are appended to buf, from its beginning.
func EachWait(w *path.Walked, buf []WaitPart, f func(Span)) {
	var wait Span
	emit := func() {
		if wait.End-wait.Start >= scale.Blink {
			wait.Request = keyOf(w)
			f(wait)
		}
	}
	for i := range w.Segments {
		s := &w.Segments[i]
		switch s.Code.Cause() {
		case cause.SchedPoll, cause.Sched, cause.SchedWake:
			// What has come is not read before a CPU runs who waits.
			if wait.End != 0 && s.Start == wait.End {
				if p := &wait.Parts[len(wait.Parts)-1]; s.Code.Cause() == cause.SchedPoll && p.Wake == s.Start {
					p.Wake, p.UnreadNS = s.End, p.UnreadNS+s.End-s.Start
				}
				wait.End, wait.UnreadNS = s.End, wait.UnreadNS+s.End-s.Start
			}
		case cause.Network:
			if s.Inbound {
				continue
			}
			// The reader of a connection that many requests share hands answers to others meanwhile.
			if wait.End == 0 || s.Start-wait.End > max(scale.Loopback, wait.End-wait.Start) {
				emit()
				wait = Span{Start: s.Start, Parts: buf[:0]}
			}
			wait.End, wait.UnreadNS = s.End, 0
			if k := len(wait.Parts) - 1; k >= 0 && wait.Parts[k].Wake == s.Start && wait.Parts[k].G == s.G {
				wait.Parts[k].Wake, wait.Parts[k].UnreadNS = s.End, 0 // cut where a freeze may be
			} else {
				wait.Parts = append(wait.Parts, WaitPart{Start: s.Start, Wake: s.End, G: s.G})
			}
		}
	}
	emit()
}

// Sort brings spans into the order that Match needs.
func Sort(list []Span) {
	slices.SortFunc(list, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End), cmp.Compare(a.Request.G, b.Request.G), cmp.Compare(a.Request.Start, b.Request.Start))
	})
}

// Match gives each wait, moved in time by some ns, one request that lies in it,
// reports each, and returns how many have one. Of several waits in which a
// request lies it is in the one that begins and ends nearest to it: one that began before and ended after it, if there is any.
func Match(waits, requests []Span, shift int64, emit func(w, r Span)) (n int) {
	var openWaits []Span // waits that may still have one, by their ends
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
			// A request may begin before the one who asks has gone to sleep, and end a little after its answer was read.
			if overlap := min(w.End, r.End) - max(w.Start, r.Start); overlap <= 0 || float64(overlap) < scale.Half*float64(duration) || w.Request == r.Request && r.Request.G != 0 {
				continue
			}
			distance, order := max(w.Start-r.Start, r.Start-w.Start)+max(w.End-r.End, r.End-w.End), w.Start <= r.Start+scale.Blink && w.End >= r.End
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
