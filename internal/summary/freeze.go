package summary

import (
	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/internal/freeze"
)

// While requests are walked it is not known yet which silences were freezes.
// What overlaps one that may be is summed up under keys of its own; Settle
// then turns it into cause throttle, or back into what it was.

// split cuts a request's segments at the borders of candidate freezes. Of what
// runs, or wants to, the overlap may have been lost to a freeze; of a wait only
// if its end falls into the burst in which what fell due meanwhile is made up
// for: a backend that takes 30 ms is no later for a freeze in the middle.
func (t *Tables) split(segs []cause.Segment) []cause.Segment { return t.splitTo(&t.cut, segs) }

// splitTo is split with a buffer.
func (t *Tables) splitTo(buf *[]cause.Segment, segs []cause.Segment) []cause.Segment {
	if t.Freezes == nil || len(segs) == 0 || !t.Freezes.Any(segs[0].Start, segs[len(segs)-1].End) {
		return segs
	}
	cut := (*buf)[:0]
	defer func() { *buf = cut }()
	for _, s := range segs {
		t.Freezes.Candidates(s.Start, s.End, func(c freeze.Candidate) {
			from, to := max(s.Start, c.Start), min(s.End, c.End)
			if t.Froze != nil && !t.Froze(c.Class) {
				return
			}
			if from >= to || waits(s.Cause) && (s.End < c.End || s.End > c.End+freeze.BurstNS) {
				return
			}
			if s.Start < from {
				before := s
				before.End = from
				cut = append(cut, before)
			}
			in := s
			in.Start, in.End, in.Freeze = from, to, c.Class
			if t.Froze != nil {
				in = in.Throttled()
			}
			cut = append(cut, in)
			s.Start = to
		})
		if s.Start < s.End {
			cut = append(cut, s)
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

// held is a candidate's class and what it would be otherwise.
type held struct {
	class freeze.Class
	cause cause.Cause
}

// Settle decides about all that overlaps candidates. It is called once, when
// all tables are merged.
func (t *Tables) Settle(isFreeze func(freeze.Class) bool) {
	t.Froze = isFreeze
	for id := range t.keys {
		k := &t.keys[id]
		if k.freeze == 0 {
			continue
		}
		if isFreeze(k.freeze) {
			*k = causeKey{cause: cause.Throttle, site: k.site, via: k.via} // as Segment.Throttled does
			delete(t.ran, int32(id))
		}
		k.freeze = 0
	}
	for _, g := range t.groups {
		for _, b := range g.blocks {
			for h, ns := range b.held {
				if isFreeze(h.class) {
					h.cause = cause.Throttle
				}
				b.causes[h.cause] += ns
			}
			b.held = nil
		}
		g.graphs.Settle(isFreeze)
		for _, s := range g.slow {
			s.settle(isFreeze)
		}
		for _, s := range g.sample {
			s.settle(isFreeze)
		}
	}
}

// settle decides about a request's segments and joins again what was cut for
// nothing.
func (s *Slow) settle(isFreeze func(freeze.Class) bool) {
	n := 0
	for i, g := range s.Segments {
		was := g.Freeze
		if was != 0 && isFreeze(was) {
			g = g.Throttled()
		}
		g.Freeze = 0
		if n > 0 {
			l := &s.Segments[n-1]
			joint := *l
			joint.Start, joint.End = g.Start, g.End
			if joint == g && l.End == g.Start {
				l.End = g.End
				continue
			}
		}
		s.Segments[n], s.Vias[n] = g, s.Vias[i]
		n++
	}
	s.Segments, s.Vias = s.Segments[:n], s.Vias[:n]
}
