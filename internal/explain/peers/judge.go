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
	// FurtherGroups are further groups of which requests lie in the waits.
	FurtherGroups []path.GroupID
	// Waits is how many there were, Held in how many of them one request of the
	// group lay, and ChanceShare the part of them that have one if moved in time.
	Waits, Fitting, Matched int
	ChanceShare             float64
	// EqualLength says that Held and ChanceShare count those alone that are as long as the
	// wait: shorter ones lie in waits by chance.
	EqualLength bool
	// WaitNS is what the waits took. Of the Joined that hold a request, RequestNS is what
	// these had, ForwardNS what went before them and ReturnNS what came after: of the
	// first, messages may have lain unread for UnreadNS, and of the second whoever
	// waited was not run for RunDelayNS.
	WaitNS, RequestNS, ForwardNS, ReturnNS, UnreadNS, RunDelayNS int64
	Confidence                                                   float64
	// Proven says that what was observed leaves no other reading; else only times fit.
	Proven bool

	gapNS int64 // see proven
}

// RefuteBySockets says that no socket of the process led to itself when all were looked at; so many may have between two looks.
// Where these are fewer than the waits that a peer needs, there is none here.
func (s *Sum) RefuteBySockets(possibleSelfConnections int) {
	s.isRefuted = possibleSelfConnections < scale.Enough
}

// IsRefuted reports whether the process's sockets say that it does not ask itself.
func (s *Sum) IsRefuted() bool { return s.isRefuted }

// PeerOf returns the group that serves what requests of a group wait for; ok is
// false where there is none, or too little tells.
func (s *Sum) PeerOf(id path.GroupID) (Peer, bool) {
	if s.peerByGroup == nil {
		s.peerByGroup = make(map[path.GroupID]Peer)
		if !s.isRefuted {
			for group := range s.waits {
				if p, ok := s.bestPeer(group); ok {
					s.peerByGroup[group] = p
				}
			}
			s.resolveConflicts()
			s.removeCycles()
		}
	}
	p, ok := s.peerByGroup[id]
	return p, ok
}

// removeCycles drops what cannot be: requests that wait for others, which wait for them. A hint gives way first.
func (s *Sum) removeCycles() {
	for _, proven := range []bool{false, true} {
		var inCycle []path.GroupID
		for id, p := range s.peerByGroup {
			if p.Proven == proven && s.waitsFor(id, id, make(map[path.GroupID]bool)) {
				inCycle = append(inCycle, id)
			}
		}
		for _, id := range inCycle {
			delete(s.peerByGroup, id)
		}
	}
}

// waitsFor reports whether requests of a group wait for those of another one, also through a third.
func (s *Sum) waitsFor(from, to path.GroupID, visited map[path.GroupID]bool) bool {
	p, ok := s.peerByGroup[from]
	if !ok || visited[from] {
		return false
	}
	visited[from] = true
	return slices.ContainsFunc(append([]path.GroupID{p.Group}, p.FurtherGroups...), func(next path.GroupID) bool { return next == to || s.waitsFor(next, to, visited) })
}

// bestPeer is Of without what several groups' peers say of each other.
func (s *Sum) bestPeer(id path.GroupID) (best Peer, ok bool) {
	waits := s.waits[id]
	if len(waits) < scale.Enough {
		return best, false
	}
	// Ids depend on which worker saw what; what was served first does not.
	ids := slices.SortedFunc(maps.Keys(s.requests), func(a, b path.GroupID) int {
		x, y := &s.requests[a][0], &s.requests[b][0]
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.Request.G, y.Request.G))
	})
	var candidates []Peer
	for _, candidate := range ids {
		if candidate == id {
			continue
		}
		// Of several, one may call the next: the one that takes most of the waits is
		// what was called.
		p := s.judge(waits, s.requests[candidate])
		p.Group = candidate
		if candidates = append(candidates, p); p.Confidence > 0 && (!ok || p.Proven && !best.Proven || p.Proven == best.Proven && p.RequestNS > best.RequestNS) {
			best, ok = p, true
		}
	}
	if !best.Proven {
		if combined, any := s.combineGroups(waits, candidates); any && (!ok || combined.Proven) {
			return combined, true
		}
	}
	return best, ok
}

// judge is compare for requests of this process: what only fits in time is a hint.
func (s *Sum) judge(waits, requests []answers.Span) Peer {
	p := compare(waits, requests)
	switch share, gapNS, possible := s.provenShare(waits, requests); {
	case share >= scale.NearlyAll:
		p.Proven, p.Confidence, p.gapNS = true, min(0.95, share), gapNS
	case possible:
		p.Confidence = min(p.Confidence, hintConfidence)
	default:
		p.Confidence = 0
	}
	return p
}

// combineGroups returns the groups that serve waits together, where no single one does:
// a gateway passes each request to the method that it names.
func (s *Sum) combineGroups(waits []answers.Span, candidates []Peer) (best Peer, ok bool) {
	slices.SortStableFunc(candidates, func(a, b Peer) int { return cmp.Compare(b.Fitting, a.Fitting) })
	if len(candidates) == 0 || candidates[0].Fitting == 0 {
		return best, false
	}
	best = candidates[0]
	requests := s.requests[best.Group]
	for _, p := range candidates[1:] {
		if len(best.FurtherGroups) == maxFurtherGroups || float64(p.Fitting) < scale.Speck*float64(len(waits)) {
			break
		}
		union := slices.Concat(requests, s.requests[p.Group])
		answers.Sort(union)
		if larger := s.judge(waits, union); float64(larger.Fitting-best.Fitting) >= scale.Speck*float64(len(waits)) {
			larger.Group, larger.FurtherGroups = best.Group, append(best.FurtherGroups, p.Group)
			best, requests = larger, union
		}
	}
	return best, best.Confidence > 0
}

// compare holds waits against requests.
func compare(waits, requests []answers.Span) Peer {
	p := Peer{Waits: len(waits)}
	for _, w := range waits {
		p.WaitNS += w.End - w.Start
	}
	equalLengths := 0
	p.Fitting = answers.Match(waits, requests, 0, func(w, r answers.Span) {
		equalLengths += equalLength(w, r)
		p.RequestNS += min(w.End, r.End) - max(w.Start, r.Start)
		p.ForwardNS += max(0, r.Start-w.Start)
		p.ReturnNS += max(0, w.End-r.End)
		p.UnreadNS += min(max(0, r.Start-w.Start), max(0, r.UnreadNS))
		p.RunDelayNS += min(max(0, w.End-r.End), w.UnreadNS)
	})
	p.Matched = p.Fitting
	matchedShare := float64(p.Fitting) / float64(len(waits))
	if matchedShare < scale.NearlyAll {
		return p
	}
	// How often they are about as far apart as the shifts are from each other is
	// another matter for each of these.
	meanGap := float64(waits[len(waits)-1].Start-waits[0].Start) / float64(len(waits))
	waitCount, shiftedEqualLengths := float64(len(waits)), 0
	for _, factor := range []float64{1.37, -1.91, 2.71, -3.33, 4.19} {
		n := answers.Match(waits, requests, int64(factor*meanGap), func(w, r answers.Span) { shiftedEqualLengths += equalLength(w, r) })
		p.ChanceShare += float64(n) / waitCount / 5
	}
	equalShare, chanceShare := float64(equalLengths)/waitCount, float64(shiftedEqualLengths)/waitCount/5
	switch {
	case p.ChanceShare <= scale.Half:
		p.Confidence = min(0.95, matchedShare*(1-p.ChanceShare*p.ChanceShare))
	// Somebody always waits: most waits must have a request that is as long, and moved ones not.
	case equalShare >= scale.Most && chanceShare <= scale.Much:
		p.Fitting, p.ChanceShare, p.EqualLength = equalLengths, chanceShare, true
		p.Confidence = min(0.95, matchedShare*(1-chanceShare*chanceShare))
	}
	return p
}

// equalLength returns 1 if a request begins and ends nearly with the wait in which it
// lies, else 0.
func equalLength(w, r answers.Span) int {
	if distance := max(w.Start-r.Start, r.Start-w.Start) + max(w.End-r.End, r.End-w.End); float64(distance) <= scale.Some*float64(w.End-w.Start) {
		return 1
	}
	return 0
}
