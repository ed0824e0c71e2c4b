package path

import (
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Glance describes a request without walking it.
type QuickGroup struct {
	Group        GroupKey
	handlerFrame tracefmt.FrameID
	// Sufficient says that a walk would tell no other group, so that other requests
	// may stand for this one.
	Sufficient       bool
	handlerSeenTwice bool
}

// QuickGroup names a request of which all is in the window by the stacks of its own
// goroutine, as a walk would.
func (s *Stage) QuickGroup(r *request.Request) QuickGroup {
	if r.Open || r.CutAtStart || r.Piece != request.WholeRequest {
		return QuickGroup{}
	}
	if s.hasTimeoutHandler && (r.Kind == request.HTTP1 || r.Kind == request.HTTP2) {
		return QuickGroup{} // handlers run on other goroutines
	}
	s.bestHandler, s.handlerStack, s.handlerSeenTwice = request.Handler{}, 0, false
	s.namingStacks = s.namingStacks[:0]
	switch {
	case r.Kind.IsCall():
		s.namingStacks = s.Win.Telling(r.G, r.Start, r.End, s.namingStacks)
	case !s.Win.MayTell(r.G, r.Start, r.End):
		// No stack of it names anything.
	default:
		// Its borders may lie in the middle of what a stack tells.
		s.spans = s.Win.SpansCoarse(r.G, r.Start, r.End, s.spans[:0])
		for i := range s.spans {
			if sp := &s.spans[i]; sp.Stack != 0 && sp.How != timeline.HowCreated {
				s.namingStacks = append(s.namingStacks, sp.Stack)
			}
		}
	}
	for i := len(s.namingStacks) - 1; i >= 0; i-- { // from the last one on, as a walk goes
		s.noteHandler(s.namer.HandlerOf(s.namingStacks[i]), s.namingStacks[i])
	}
	if s.bestHandler.Key == 0 && s.sampledIn(r) {
		return QuickGroup{} // a sample on its path may tell
	}
	if s.bestHandler.IsObserver {
		return QuickGroup{}
	}
	quick := QuickGroup{Sufficient: true, handlerSeenTwice: s.handlerSeenTwice}
	quick.Group, quick.handlerFrame = s.groupKey(r)
	return quick
}

// StratumBits divide an octave of latency into the strata of which only some requests are walked: in four.
const StratumBits = 2

// Unwalked returns a request of which no more than a Glance is known. The result is
// valid until the next call.
func (s *Stage) Unwalked(r *request.Request, quick *QuickGroup) *WalkResult {
	s.result = WalkResult{Req: r, Form: NotWalked, Weight: 1, Sparse: true, Start: r.Start, PathStart: r.Start, ReadyNS: -1, HandlerSeenTwice: quick.handlerSeenTwice, stage: s}
	s.result.Group, s.result.HandlerFrame = s.IDs.GroupID(quick.Group), quick.handlerFrame
	return &s.result
}

// sampledIn reports whether CPU samples fell into a request's own goroutine.
func (s *Stage) sampledIn(r *request.Request) bool {
	if !s.hasCPUSamples {
		return false
	}
	for i := s.Win.At(r.Start); i <= s.Win.At(r.End); i++ {
		if len(s.Win.Gens[i].SamplesIn(r.G, r.Start, r.End)) > 0 {
			return true
		}
	}
	return false
}
