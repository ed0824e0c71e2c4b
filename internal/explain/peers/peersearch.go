package peers

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// A Peer is the group that serves the requests that another group waits for.
type Peer struct {
	Group path.GroupID
	// FurtherGroups are further groups with requests inside the waits.
	FurtherGroups []path.GroupID
	// Waits is the number of waits, Matched the number with one request of the group inside, and Fitting the number
	// that count as evidence. ChanceShare is the share of waits that would count if the waits were shifted in time.
	Waits, Fitting, Matched int
	ChanceShare             float64
	// EqualLength reports that Fitting and ChanceShare count only requests about as long as their wait: shorter ones
	// are inside a wait by chance.
	EqualLength bool
	// WaitNS is the time of all waits. The others are sums over the Matched waits: RequestNS is the time of the
	// request inside, ForwardNS the time before it and ReturnNS the time after it. During ForwardNS a message may have
	// been unread for UnreadNS, and during ReturnNS the waiting goroutine was ready but did not run for RunDelayNS.
	WaitNS, RequestNS, ForwardNS, ReturnNS, UnreadNS, RunDelayNS int64
	Confidence                                                   float64
	// Proven reports that the order of events excludes another explanation. If it is false, only the times fit.
	Proven bool

	gapNS int64 // see provenShare
}

// RefuteBySockets records that no socket of the process was connected to the process itself whenever the sockets were
// sampled, and how many connections to itself may have existed between samples. If these are fewer than the waits that
// a peer needs, the process has no peer in itself.
func (s *Sum) RefuteBySockets(possibleSelfConnections int) {
	s.isRefuted = possibleSelfConnections < threshold.MedianSample
}

// IsRefuted reports whether the process's sockets show that it sends no requests to itself.
func (s *Sum) IsRefuted() bool { return s.isRefuted }

// PeerOf returns the group that serves the network waits of group id; ok is false if no group of this process does, or if there
// is too little evidence. The first call decides the peers of all groups.
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

// removeCycles removes peers by which requests would wait for themselves in a cycle of groups: the peers that are not proven
// first, then the proven ones that are still in a cycle.
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

// waitsFor reports whether requests of group from wait for those of group to, directly or through other groups. visited has the
// groups that were followed already.
func (s *Sum) waitsFor(from, to path.GroupID, visited map[path.GroupID]bool) bool {
	p, ok := s.peerByGroup[from]
	if !ok || visited[from] {
		return false
	}
	visited[from] = true
	return slices.ContainsFunc(append([]path.GroupID{p.Group}, p.FurtherGroups...), func(next path.GroupID) bool { return next == to || s.waitsFor(next, to, visited) })
}

// bestPeer returns the most likely peer of a group by its own waits, false if there is none; conflicts with peers of other
// groups are resolved later. A proven peer is better than one that fits by time only; of equals, the one with the most time
// inside the waits is, because the others may be called by it.
func (s *Sum) bestPeer(id path.GroupID) (best Peer, ok bool) {
	waits := s.waits[id]
	if len(waits) < threshold.MedianSample {
		return best, false
	}
	// Ids depend on the distribution of requests over workers; the order of first requests does not.
	ids := slices.SortedFunc(maps.Keys(s.requests), func(a, b path.GroupID) int {
		x, y := &s.requests[a][0], &s.requests[b][0]
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.Request.G, y.Request.G))
	})
	var candidates []Peer
	for _, candidate := range ids {
		if candidate == id {
			continue
		}
		// One candidate may call another: the one with the most time inside the waits is the one that the
		// group calls.
		p := s.evaluate(waits, s.requests[candidate])
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

// evaluate returns how well requests of this process fit a group's waits, as a Peer without its group. It is proven by the order
// of events (provenShare). If that order proves nothing, the times are only a hint; if it excludes the requests, the confidence
// is 0.
func (s *Sum) evaluate(waits, requests []answers.Span) Peer {
	p := matchByTime(waits, requests)
	switch share, gapNS, possible := s.provenShare(waits, requests); {
	case share >= threshold.NearlyAllShare:
		p.Proven, p.Confidence, p.gapNS = true, min(0.95, share), gapNS
	case possible:
		p.Confidence = min(p.Confidence, hintConfidence)
	default:
		p.Confidence = 0
	}
	return p
}

// combineGroups returns several groups as one peer, and true if together they may serve the waits and no single group does: a
// gateway passes each request on to the method that the request names. It adds groups as long as each explains
// threshold.NoiseShare more of the waits. It sorts candidates.
func (s *Sum) combineGroups(waits []answers.Span, candidates []Peer) (best Peer, ok bool) {
	slices.SortStableFunc(candidates, func(a, b Peer) int { return cmp.Compare(b.Fitting, a.Fitting) })
	if len(candidates) == 0 || candidates[0].Fitting == 0 {
		return best, false
	}
	best = candidates[0]
	requests := s.requests[best.Group]
	for _, p := range candidates[1:] {
		if len(best.FurtherGroups) == maxFurtherGroups || float64(p.Fitting) < threshold.NoiseShare*float64(len(waits)) {
			break
		}
		union := slices.Concat(requests, s.requests[p.Group])
		answers.Sort(union)
		if larger := s.evaluate(waits, union); float64(larger.Fitting-best.Fitting) >= threshold.NoiseShare*float64(len(waits)) {
			larger.Group, larger.FurtherGroups = best.Group, append(best.FurtherGroups, p.Group)
			best, requests = larger, union
		}
	}
	return best, best.Confidence > 0
}

// matchByTime returns a peer with the number of waits that have a request inside, and the confidence that this is no chance: the
// same waits, shifted in time, must match far less often. If they also match when shifted, only requests about as long as their
// wait count.
func matchByTime(waits, requests []answers.Span) Peer {
	peer := Peer{Waits: len(waits)}
	for _, w := range waits {
		peer.WaitNS += w.End - w.Start
	}
	equalLengths := 0
	peer.Fitting = answers.Match(waits, requests, 0, func(w, r answers.Span) {
		equalLengths += equalLength(w, r)
		peer.RequestNS += min(w.End, r.End) - max(w.Start, r.Start)
		peer.ForwardNS += max(0, r.Start-w.Start)
		peer.ReturnNS += max(0, w.End-r.End)
		peer.UnreadNS += min(max(0, r.Start-w.Start), max(0, r.UnreadNS))
		peer.RunDelayNS += min(max(0, w.End-r.End), w.UnreadNS)
	})
	peer.Matched = peer.Fitting
	matchedShare := float64(peer.Fitting) / float64(len(waits))
	if matchedShare < threshold.NearlyAllShare {
		return peer
	}
	// The shifts are no multiples of each other, so that periodic requests do not match at all of them.
	meanGap := float64(waits[len(waits)-1].Start-waits[0].Start) / float64(len(waits))
	waitCount, shiftedEqualLengths := float64(len(waits)), 0
	for _, factor := range []float64{1.37, -1.91, 2.71, -3.33, 4.19} {
		n := answers.Match(waits, requests, int64(factor*meanGap), func(w, r answers.Span) { shiftedEqualLengths += equalLength(w, r) })
		peer.ChanceShare += float64(n) / waitCount / 5
	}
	equalShare, chanceShare := float64(equalLengths)/waitCount, float64(shiftedEqualLengths)/waitCount/5
	switch {
	case peer.ChanceShare <= threshold.HalfShare:
		peer.Confidence = min(0.95, matchedShare*(1-peer.ChanceShare*peer.ChanceShare))
	// If a wait is nearly always in progress, most waits must have a request of equal length, and few shifted waits.
	case equalShare >= threshold.MostShare && chanceShare <= threshold.MajorShare:
		peer.Fitting, peer.ChanceShare, peer.EqualLength = equalLengths, chanceShare, true
		peer.Confidence = min(0.95, matchedShare*(1-chanceShare*chanceShare))
	}
	return peer
}

// equalLength returns 1 if a request begins and ends at nearly the same times as its wait, else 0.
func equalLength(w, r answers.Span) int {
	if distance := max(w.Start-r.Start, r.Start-w.Start) + max(w.End-r.End, r.End-w.End); float64(distance) <= threshold.NoticeableShare*float64(w.End-w.Start) {
		return 1
	}
	return 0
}
