package path

import (
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/freeze"
)

// Split cuts a request's segments at the borders of candidate freezes. Of what
// runs, or wants to, the overlap may have been lost to a freeze; of a wait only
// if its end falls into the burst in which what fell due meanwhile is made up
// for: a backend that takes 30 ms is no later for a freeze in the middle.
//
// The result is segs where there is no candidate, else it lies in buf.
func (s *Stage) Split(buf *[]cause.Segment, segs []cause.Segment) []cause.Segment {
	known := s.opts.Freezes
	if known == nil || len(segs) == 0 || !known.Any(segs[0].Start, segs[len(segs)-1].End) {
		return segs
	}
	cut := (*buf)[:0]
	defer func() { *buf = cut }()
	for _, g := range segs {
		known.Candidates(g.Start, g.End, func(c freeze.Candidate) {
			from, to := max(g.Start, c.Start), min(g.End, c.End)
			if s.opts.Settled != nil && !s.opts.Settled.IsFreeze(c.Class) {
				return
			}
			if from >= to || waits(g.Code.Cause()) && (g.End < c.End || g.End > c.End+freeze.BurstNS) {
				return
			}
			if g.Start < from {
				before := g
				before.End = from
				cut = append(cut, before)
			}
			in := g
			in.Start, in.End, in.Code = from, to, cause.Pending(g.Code.Cause(), c.Class)
			if s.opts.Settled != nil {
				in = s.opts.Settled.SettleSegment(in)
			}
			cut = append(cut, in)
			g.Start = to
		})
		if g.Start < g.End {
			cut = append(cut, g)
		}
	}
	return cut
}

// waits reports whether a cause is a wait for something outside.
func waits(c cause.Cause) bool {
	switch c {
	case cause.Sleep, cause.Network, cause.SchedPoll, cause.GCWait, cause.Lock, cause.Chan, cause.Unknown:
		return true
	}
	return false
}
