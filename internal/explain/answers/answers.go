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
	// Unseen is, of a request, how long its message may have lain unread before it
	// began; of a wait, how much of its end nobody looked or a CPU was waited for.
	Unseen int64
	// Of is the request, or the one that waits.
	Of Key
	// Parts are those of a wait, each of which ended as something came: nil where nobody asked for them.
	Parts []Part
	// Near are, of a request, the goroutines that the poller woke shortly before and after its end, by time.
	Near []timeline.PollerWake
	// Sent are times at which goroutines of the process wrote to the network shortly before a wait began, or a request ended:
	// who asks, or answers, may have another goroutine send it.
	Sent []int64
}

// A Part is what a goroutine waited for something to come, until it was woken. It may have been there for Unseen before.
type Part struct {
	From, Wake, Unseen int64
	G                  uint64
}

// A Key tells requests apart.
type Key struct {
	G     uint64
	Start int64
}

// IsWhole reports whether a request can wait for an answer, or be one: it was
// walked from its start to its end.
func IsWhole(w *path.Walked) bool { return w.Form == path.Whole && w.Ended() }

// Served returns the request itself, if it can be an answer: somebody asked for it.
func Served(w *path.Walked) (Span, bool) {
	if k := w.Req.Kind; k == request.Mark || k.HasProtocol() {
		return Span{Start: w.Start, End: w.Req.End, Unseen: w.Gap, Of: keyOf(w)}, true
	}
	return Span{}, false
}

func keyOf(w *path.Walked) Key { return Key{w.Req.G, w.Start} }

// Waits calls f with each time that a request waited for a peer. Its parts are appended to buf, from its beginning.
func Waits(w *path.Walked, buf []Part, f func(Span)) {
	var last Span
	done := func() {
		if last.End-last.Start >= scale.Blink {
			last.Of = keyOf(w)
			f(last)
		}
	}
	for i := range w.Segments {
		s := &w.Segments[i]
		switch s.Code.Cause() {
		case cause.SchedPoll, cause.Sched, cause.SchedWake:
			// What has come is not read before a CPU runs who waits.
			if last.End != 0 && s.Start == last.End {
				if p := &last.Parts[len(last.Parts)-1]; s.Code.Cause() == cause.SchedPoll && p.Wake == s.Start {
					p.Wake, p.Unseen = s.End, p.Unseen+s.End-s.Start
				}
				last.End, last.Unseen = s.End, last.Unseen+s.End-s.Start
			}
		case cause.Network:
			if s.Inbound {
				continue
			}
			// The reader of a connection that many requests share hands answers to others meanwhile.
			if last.End == 0 || s.Start-last.End > max(scale.Loopback, last.End-last.Start) {
				done()
				last = Span{Start: s.Start, Parts: buf[:0]}
			}
			last.End, last.Unseen = s.End, 0
			if k := len(last.Parts) - 1; k >= 0 && last.Parts[k].Wake == s.Start && last.Parts[k].G == s.G {
				last.Parts[k].Wake, last.Parts[k].Unseen = s.End, 0 // cut where a freeze may be
			} else {
				last.Parts = append(last.Parts, Part{From: s.Start, Wake: s.End, G: s.G})
			}
		}
	}
	done()
}

// Sort brings spans into the order that Match needs.
func Sort(list []Span) {
	slices.SortFunc(list, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End), cmp.Compare(a.Of.G, b.Of.G), cmp.Compare(a.Of.Start, b.Of.Start))
	})
}

// Match gives each wait, moved in time by some ns, one request that lies in it,
// reports each, and returns how many have one. Of several waits in which a
// request lies it is in the one that begins and ends nearest to it: one that began before and ended after it, if there is any.
func Match(waits, served []Span, by int64, found func(w, r Span)) (n int) {
	var open []Span // waits that may still have one, by their ends
	next := 0
	for _, r := range served {
		took := r.End - r.Start
		for ; next < len(waits) && waits[next].Start+by < r.End; next++ {
			w := waits[next]
			w.Start, w.End = w.Start+by, w.End+by
			at, _ := slices.BinarySearchFunc(open, w.End, func(o Span, end int64) int { return cmp.Compare(o.End, end) })
			open = slices.Insert(open, at, w)
		}
		gone, _ := slices.BinarySearchFunc(open, r.Start, func(o Span, t int64) int { return cmp.Compare(o.End, t) })
		open = open[gone:]
		best, away, inOrder := -1, int64(0), false
		for i := range open {
			w := &open[i]
			if inOrder && w.End-r.End > away {
				break
			}
			// A request may begin before the one who asks has gone to sleep, and end a little after its answer was read.
			if in := min(w.End, r.End) - max(w.Start, r.Start); in <= 0 || float64(in) < scale.Half*float64(took) || w.Of == r.Of && r.Of.G != 0 {
				continue
			}
			d, order := max(w.Start-r.Start, r.Start-w.Start)+max(w.End-r.End, r.End-w.End), w.Start <= r.Start+scale.Blink && w.End >= r.End
			if best < 0 || order && !inOrder || order == inOrder && d < away {
				best, away, inOrder = i, d, order
			}
		}
		if best >= 0 {
			n++
			found(open[best], r)
			open = slices.Delete(open, best, best+1)
		}
	}
	return n
}
