package peers

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
)

// A Peer is the group that serves what another one waits for.
type Peer struct {
	Group path.GroupID
	// Also are further groups of which requests lie in the waits.
	Also []path.GroupID
	// Waits is how many there were, Held in how many of them one request of the
	// group lay, and ByChance the part of them that have one if moved in time.
	Waits, Held, Joined int
	ByChance            float64
	// AsLong says that Held and ByChance count those alone that are as long as the
	// wait: shorter ones lie in waits by chance.
	AsLong bool
	// WaitNS is what the waits took. Of the Joined that hold a request, ServedNS is what
	// these had, ThereNS what went before them and BackNS what came after: of the
	// first, messages may have lain unread for UnseenNS, and of the second whoever
	// waited was not run for LateNS.
	WaitNS, ServedNS, ThereNS, BackNS, UnseenNS, LateNS int64
	Confidence                                          float64
	// Sure says that what was observed leaves no other reading; else only times fit.
	Sure bool

	apart int64 // see proven
}

// Elsewhere says that no socket of the process led to itself when all were looked at; so many may have between two looks.
// Where these are fewer than the waits that a peer needs, there is none here.
func (s *Sum) Elsewhere(unsure int) { s.refuted = unsure < scale.Enough }

// Refuted reports whether the process's sockets say that it does not ask itself.
func (s *Sum) Refuted() bool { return s.refuted }

// Of returns the group that serves what requests of a group wait for; ok is
// false where there is none, or too little tells.
func (s *Sum) Of(id path.GroupID) (Peer, bool) {
	if s.own == nil {
		s.own = make(map[path.GroupID]Peer)
		if !s.refuted {
			for of := range s.waits {
				if p, ok := s.find(of); ok {
					s.own[of] = p
				}
			}
			s.oneEach()
			s.cutCircles()
		}
	}
	p, ok := s.own[id]
	return p, ok
}

// cutCircles drops what cannot be: requests that wait for others, which wait for them. A hint gives way first.
func (s *Sum) cutCircles() {
	for _, sure := range []bool{false, true} {
		var in []path.GroupID
		for id, p := range s.own {
			if p.Sure == sure && s.leads(id, id, make(map[path.GroupID]bool)) {
				in = append(in, id)
			}
		}
		for _, id := range in {
			delete(s.own, id)
		}
	}
}

// leads reports whether requests of a group wait for those of another one, also through a third.
func (s *Sum) leads(from, to path.GroupID, seen map[path.GroupID]bool) bool {
	p, ok := s.own[from]
	if !ok || seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(append([]path.GroupID{p.Group}, p.Also...), func(next path.GroupID) bool { return next == to || s.leads(next, to, seen) })
}

// find is Of without what several groups' peers say of each other.
func (s *Sum) find(id path.GroupID) (best Peer, ok bool) {
	waits := s.waits[id]
	if len(waits) < scale.Enough {
		return best, false
	}
	// Ids depend on which worker saw what; what was served first does not.
	ids := slices.SortedFunc(maps.Keys(s.served), func(a, b path.GroupID) int {
		x, y := &s.served[a][0], &s.served[b][0]
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.Request.G, y.Request.G))
	})
	var of []Peer
	for _, other := range ids {
		if other == id {
			continue
		}
		// Of several, one may call the next: the one that takes most of the waits is
		// what was called.
		p := s.judge(waits, s.served[other])
		p.Group = other
		if of = append(of, p); p.Confidence > 0 && (!ok || p.Sure && !best.Sure || p.Sure == best.Sure && p.ServedNS > best.ServedNS) {
			best, ok = p, true
		}
	}
	if !best.Sure {
		if together, any := s.several(waits, of); any && (!ok || together.Sure) {
			return together, true
		}
	}
	return best, ok
}

// judge is compare for requests of this process: what only fits in time is a hint.
func (s *Sum) judge(waits, served []answers.Span) Peer {
	p := compare(waits, served)
	switch part, apart, likely := s.proven(waits, served); {
	case part >= scale.NearlyAll:
		p.Sure, p.Confidence, p.apart = true, min(0.95, part), apart
	case likely:
		p.Confidence = min(p.Confidence, hinted)
	default:
		p.Confidence = 0
	}
	return p
}

// several returns the groups that serve waits together, where no single one does:
// a gateway passes each request to the method that it names.
func (s *Sum) several(waits []answers.Span, of []Peer) (best Peer, ok bool) {
	slices.SortStableFunc(of, func(a, b Peer) int { return cmp.Compare(b.Held, a.Held) })
	if len(of) == 0 || of[0].Held == 0 {
		return best, false
	}
	best = of[0]
	all := s.served[best.Group]
	for _, p := range of[1:] {
		if len(best.Also) == mostAlso || float64(p.Held) < scale.Speck*float64(len(waits)) {
			break
		}
		with := slices.Concat(all, s.served[p.Group])
		answers.Sort(with)
		if more := s.judge(waits, with); float64(more.Held-best.Held) >= scale.Speck*float64(len(waits)) {
			more.Group, more.Also = best.Group, append(best.Also, p.Group)
			best, all = more, with
		}
	}
	return best, best.Confidence > 0
}

// compare holds waits against requests.
func compare(waits, served []answers.Span) Peer {
	p := Peer{Waits: len(waits)}
	for _, w := range waits {
		p.WaitNS += w.End - w.Start
	}
	fit := 0
	p.Held = answers.Match(waits, served, 0, func(w, r answers.Span) {
		fit += isAsLong(w, r)
		p.ServedNS += min(w.End, r.End) - max(w.Start, r.Start)
		p.ThereNS += max(0, r.Start-w.Start)
		p.BackNS += max(0, w.End-r.End)
		p.UnseenNS += min(max(0, r.Start-w.Start), max(0, r.UnreadNS))
		p.LateNS += min(max(0, w.End-r.End), w.UnreadNS)
	})
	p.Joined = p.Held
	fits := float64(p.Held) / float64(len(waits))
	if fits < scale.NearlyAll {
		return p
	}
	// How often they are about as far apart as the shifts are from each other is
	// another matter for each of these.
	apart := float64(waits[len(waits)-1].Start-waits[0].Start) / float64(len(waits))
	all, moved := float64(len(waits)), 0
	for _, by := range []float64{1.37, -1.91, 2.71, -3.33, 4.19} {
		n := answers.Match(waits, served, int64(by*apart), func(w, r answers.Span) { moved += isAsLong(w, r) })
		p.ByChance += float64(n) / all / 5
	}
	fitting, byChance := float64(fit)/all, float64(moved)/all/5
	switch {
	case p.ByChance <= scale.Half:
		p.Confidence = min(0.95, fits*(1-p.ByChance*p.ByChance))
	// Somebody always waits: most waits must have a request that is as long, and moved ones not.
	case fitting >= scale.Most && byChance <= scale.Much:
		p.Held, p.ByChance, p.AsLong = fit, byChance, true
		p.Confidence = min(0.95, fits*(1-byChance*byChance))
	}
	return p
}

// isAsLong returns 1 if a request begins and ends nearly with the wait in which it
// lies, else 0.
func isAsLong(w, r answers.Span) int {
	if away := max(w.Start-r.Start, r.Start-w.Start) + max(w.End-r.End, r.End-w.End); float64(away) <= scale.Some*float64(w.End-w.Start) {
		return 1
	}
	return 0
}
