package path

import (
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/freeze"
)

// splitAtFreezes divides segments at the borders of candidate freezes (freeze.Candidate: silences of all threads that a later
// verdict may find to be freezes). The part inside of a candidate gets a pending code or, if there is a Settlement, its final
// cause.
//
// A freeze takes time from goroutines that run or are ready. It lengthens a wait only if the wait ended in the burst after the
// freeze, when overdue wakes happen: a backend that takes 30 ms is not later because of a freeze in the middle of the wait.
//
// The result is segs if no candidate overlaps, otherwise it uses buf.
func (s *Stage) splitAtFreezes(buf *[]cause.Segment, segs []cause.Segment) []cause.Segment {
	freezes := s.options.Freezes
	if freezes == nil || len(segs) == 0 || !freezes.HasCandidates(segs[0].Start, segs[len(segs)-1].End) {
		return segs
	}
	out := (*buf)[:0]
	defer func() { *buf = out }()
	for _, segment := range segs {
		if segment.Remote != 0 || s.isObserved(&segment) {
			out = append(out, segment)
			continue
		}
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

// isObserved reports whether the kernel's events cover a segment and show what its thread did, so that no freeze has to be
// inferred for it.
func (s *Stage) isObserved(segment *cause.Segment) bool {
	threads := s.options.Threads
	if threads == nil || segment.Start < threads.Start() || segment.End > threads.End() {
		return false
	}
	switch segment.Code.Cause() {
	case cause.CPU, cause.Syscall, cause.GCAssist, cause.STW, cause.CPUWait, cause.Disk, cause.Throttle:
		return true
	}
	return false
}

// isWait reports whether a goroutine with this cause waits and so does not need a CPU.
func isWait(c cause.Cause) bool {
	switch c {
	case cause.Sleep, cause.Network, cause.SchedPoll, cause.GCWait, cause.Lock, cause.Chan, cause.Unknown:
		return true
	}
	return false
}
