package path

import (
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/freeze"
)

// SplitAtFreezes cuts a request's segments at the borders of candidate freezes. Of what
// runs, or wants to, the overlap may have been lost to a freeze; of a wait only
// if its end falls into the burst in which what fell due meanwhile is made up
// for: a backend that takes 30 ms is no later for a freeze in the middle.
//
// The result is segs where there is no candidate, else it lies in buf.
func (s *Stage) SplitAtFreezes(buf *[]cause.Segment, segs []cause.Segment) []cause.Segment {
	freezes := s.options.Freezes
	if freezes == nil || len(segs) == 0 || !freezes.HasCandidates(segs[0].Start, segs[len(segs)-1].End) {
		return segs
	}
	out := (*buf)[:0]
	defer func() { *buf = out }()
	for _, segment := range segs {
		freezes.EachCandidate(segment.Start, segment.End, func(candidate freeze.Candidate) {
			from, to := max(segment.Start, candidate.Start), min(segment.End, candidate.End)
			if s.options.Settlement != nil && !s.options.Settlement.IsFreeze(candidate.Class) {
				return
			}
			if from >= to || isWait(segment.Code.Cause()) && (segment.End < candidate.End || segment.End > candidate.End+freeze.BurstNS) {
				return
			}
			if segment.Start < from {
				before := segment
				before.End = from
				out = append(out, before)
			}
			inside := segment
			inside.Start, inside.End, inside.Code = from, to, cause.Pending(segment.Code.Cause(), candidate.Class)
			if s.options.Settlement != nil {
				inside = s.options.Settlement.SettleSegment(inside)
			}
			out = append(out, inside)
			segment.Start = to
		})
		if segment.Start < segment.End {
			out = append(out, segment)
		}
	}
	return out
}

// isWait reports whether a cause is a wait for something outside.
func isWait(c cause.Cause) bool {
	switch c {
	case cause.Sleep, cause.Network, cause.SchedPoll, cause.GCWait, cause.Lock, cause.Chan, cause.Unknown:
		return true
	}
	return false
}
