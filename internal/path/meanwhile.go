package path

import (
	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
)

// ranWindow is how much of one wait for a P is looked at, in ns.
const ranWindow = 300e3

// EachRanMeanwhile calls f with what others than a goroutine ran between from
// and to, or in a part of it that stands for all.
func (s *Stage) EachRanMeanwhile(from, to int64, me uint64, f func(site tracefmt.FrameID, ns int64)) {
	// Which part depends on when it was, so that it is the same in every run.
	weight := int64(1)
	if d := to - from; d > ranWindow {
		weight = d / ranWindow
		from += int64(uint64(from)*0x9e3779b97f4a7c15>>1) % (d - ranWindow)
		to = from + ranWindow
	}
	if to <= from {
		return
	}
	g := s.Win.Gens[s.Win.At(from)]
	g.EachRun(from, to, func(r timeline.Run) {
		if r.G == me {
			return
		}
		stack := r.Stack
		if stack == 0 {
			// A run to the goroutine's end shows no stack, however long it was; its start function is known.
			if b, ok := g.BirthOf(r.G); ok {
				stack = b.Start
			}
		}
		f(s.Sites.Of(stack), (min(r.To, to)-max(r.From, from))*weight)
	})
}
