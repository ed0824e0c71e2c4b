package path

import (
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A QuickGroup is the group of a request, determined without walking its path.
type QuickGroup struct {
	Group        GroupKey
	handlerFrame tracefmt.FrameID
	// Sufficient reports that a walk would find the same group, so that walked requests may represent this one.
	Sufficient       bool
	handlerSeenTwice bool
}

// FindQuickGroup sets quick to the group of a request, from the stacks of its goroutine only. Sufficient is false if a walk
// might find another group: for open, cut or long requests, requests under http.TimeoutHandler, observers, and if only CPU
// samples could show the handler.
func (s *Stage) FindQuickGroup(r *request.Request, quick *QuickGroup) {
	*quick = QuickGroup{}
	if r.Open || r.CutAtStart || r.Piece != request.WholeRequest {
		return
	}
	if s.hasTimeoutHandler && (r.Kind == request.HTTP1 || r.Kind == request.HTTP2) {
		return // handlers may run on other goroutines
	}
	s.bestHandler, s.handlerStack, s.handlerSeenTwice = request.Handler{}, 0, false
	s.namingStacks = s.namingStacks[:0]
	switch {
	case r.Kind.IsCall():
		s.namingStacks = s.Win.TrackedStacks(r.G, r.Start, r.End, s.namingStacks)
	case !s.Win.MayHaveTrackedStack(r.G, r.Start, r.End):
		// No stack of this goroutine can name a handler.
	default:
		// Other kinds of requests may begin or end in the middle of a handler's spans.
		s.spans = s.Win.SpansCoarse(r.G, r.Start, r.End, s.spans[:0])
		for i := range s.spans {
			if sp := &s.spans[i]; sp.Stack != 0 && sp.Origin != timeline.OriginCreated {
				s.namingStacks = append(s.namingStacks, sp.Stack)
			}
		}
	}
	for i := len(s.namingStacks) - 1; i >= 0; i-- { // in the order of a walk
		s.offerHandler(s.namer.HandlerOf(s.namingStacks[i]), s.namingStacks[i])
	}
	if s.bestHandler.Key == 0 && s.hasSamplesIn(r) {
		return // a walk may find the handler in a sample
	}
	if s.bestHandler.IsObserver {
		return
	}
	quick.Sufficient, quick.handlerSeenTwice = true, s.handlerSeenTwice
	quick.handlerFrame = s.findGroupKey(r, &quick.Group)
}

// StratumBits is the binary logarithm of the number of latency strata in an octave. Of some strata only a sample of the
// requests is walked.
const StratumBits = 2

// NamesByEntryAlone reports whether, in the current window, no stack of an event or a CPU sample can show a handler. Then jobs and
// iterations with the same fields but their times are in one group.
func (s *Stage) NamesByEntryAlone() bool { return !s.hasCPUSamples && !s.Win.MayHaveTrackedStacks() }

// Unwalked returns the NotWalked result of units whose group is known only by QuickGroup. r is the request of the first. The result
// is valid until the next call.
func (s *Stage) Unwalked(r *request.Request, quick *QuickGroup, units []request.Unit) *WalkResult {
	w := &s.unwalked
	w.Units, w.Weight = units, int64(len(units))
	w.Req, w.Start, w.PathStart, w.HandlerSeenTwice = r, r.Start, r.Start, quick.handlerSeenTwice
	w.Group, w.HandlerFrame = s.IDs.GroupID(quick.Group), quick.handlerFrame
	return w
}

// hasSamplesIn reports whether CPU samples hit the request's own goroutine during the request.
func (s *Stage) hasSamplesIn(r *request.Request) bool {
	if !s.hasCPUSamples {
		return false
	}
	for i := s.Win.GenIndex(r.Start); i <= s.Win.GenIndex(r.End); i++ {
		if len(s.Win.Gens[i].SamplesIn(r.G, r.Start, r.End)) > 0 {
			return true
		}
	}
	return false
}
