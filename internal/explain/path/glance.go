package path

import (
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Glance describes a request without walking it.
type Glance struct {
	Group GroupKey
	entry tracefmt.FrameID
	// Enough says that a walk would tell no other group, so that other requests
	// may stand for this one.
	Enough  bool
	several bool
}

// Glance names a request of which all is in the window by the stacks of its own
// goroutine, as a walk would.
func (s *Stage) Glance(r *request.Request) Glance {
	if r.Open || r.CutAtStart || r.Piece != request.WholeRequest {
		return Glance{}
	}
	if s.aside && (r.Kind == request.HTTP1 || r.Kind == request.HTTP2) {
		return Glance{} // handlers run on other goroutines
	}
	s.best, s.stack, s.several = request.Handler{}, 0, false
	s.told = s.told[:0]
	switch {
	case r.Kind.IsCall():
		s.told = s.Win.Telling(r.G, r.Start, r.End, s.told)
	case !s.Win.MayTell(r.G, r.Start, r.End):
		// No stack of it names anything.
	default:
		// Its borders may lie in the middle of what a stack tells.
		s.spans = s.Win.SpansCoarse(r.G, r.Start, r.End, s.spans[:0])
		for i := range s.spans {
			if sp := &s.spans[i]; sp.Stack != 0 && sp.How != timeline.HowCreated {
				s.told = append(s.told, sp.Stack)
			}
		}
	}
	for i := len(s.told) - 1; i >= 0; i-- { // from the last one on, as a walk goes
		s.named(s.namer.HandlerOf(s.told[i]), s.told[i])
	}
	if s.best.Key == 0 && s.sampledIn(r) {
		return Glance{} // a sample on its path may tell
	}
	if s.best.IsObserver {
		return Glance{}
	}
	g := Glance{Enough: true, several: s.several}
	g.Group, g.entry = s.groupKey(r)
	return g
}

// StratumBits divide an octave of latency into the strata of which only some requests are walked: in four.
const StratumBits = 2

// Seen returns a request of which no more than a Glance is known. The result is
// valid until the next call.
func (s *Stage) Seen(r *request.Request, g *Glance) *Walked {
	s.walked = Walked{Req: r, Form: Glanced, Weight: 1, Sparse: true, Start: r.Start, From: r.Start, Ready: -1, Several: g.several, stage: s}
	s.walked.Group, s.walked.Entry = s.IDs.ID(g.Group), g.entry
	return &s.walked
}

// sampledIn reports whether CPU samples fell into a request's own goroutine.
func (s *Stage) sampledIn(r *request.Request) bool {
	if !s.samples {
		return false
	}
	for i := s.Win.At(r.Start); i <= s.Win.At(r.End); i++ {
		if len(s.Win.Gens[i].SamplesIn(r.G, r.Start, r.End)) > 0 {
			return true
		}
	}
	return false
}
