package peers

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// provenShare returns the share of the waits that are an exchange with a request of the process by the order of their
// events: the request began after it was sent, the event that ended the wait came after the response was sent, both
// within the delay of loopback, and the response woke no other goroutine. The share is 0 if the delays are too long;
// gapNS is the sum of the two median delays.
//
// The reason for the last condition: a handler may start a call to its own process and not wait for it. Then the
// response always wakes another goroutine, which no request waits for. Goroutines that wake near the response by
// chance wake equally often just before it.
//
// possible is false if the order of most exchanges excludes the request as an answer.
func (s *Sum) provenShare(waits, requests []answers.Span) (share float64, gapNS int64, possible bool) {
	var forwardTimes, returnTimes []int64
	orderedWaits, wakesAfter, wakesBefore := 0, 0, 0
	answers.Match(waits, requests, 0, func(w, r answers.Span) {
		if len(w.Parts) == 0 {
			return
		}
		sendTime, hasSendTime := latestUpTo(r.Start, append(w.SendTimes, w.Parts[0].Start-threshold.ThreadWakeNS))
		for i := range w.Parts {
			if from := w.Parts[i].Start; i > 0 && from <= r.Start {
				sendTime = from
			}
		}
		k := slices.IndexFunc(w.Parts, func(p answers.WaitPart) bool { return p.Wake >= r.End })
		if k < 0 {
			k = len(w.Parts) - 1
		}
		end := &w.Parts[k]
		answerTime, hasAnswerTime := latestUpTo(end.Wake, append(r.SendTimes, r.End))
		if !hasSendTime || !hasAnswerTime {
			return
		}
		orderedWaits++
		returnTime := end.Wake - answerTime
		forwardTimes, returnTimes = append(forwardTimes, r.Start-sendTime-r.UnreadNS), append(returnTimes, returnTime-end.UnreadNS)
		for _, wake := range r.PollerWakes {
			switch delay := wake.Time - answerTime; {
			case s.isParticipant(wake.G):
			case delay > 0 && delay < returnTime:
				wakesAfter++
			case delay <= 0 && delay > -returnTime:
				wakesBefore++
			}
		}
	})
	waitCount := float64(len(waits))
	possible = float64(orderedWaits) > threshold.HalfShare*waitCount
	if orderedWaits == 0 || sample.Median(forwardTimes) > threshold.LoopbackNS || sample.Median(returnTimes) > threshold.LoopbackNS {
		return 0, 0, possible
	}
	return float64(orderedWaits-max(0, wakesAfter-wakesBefore)) / waitCount, sample.Median(forwardTimes) + sample.Median(returnTimes), possible
}

// latestUpTo returns the latest of the times that is not after t; ok is false if there is none.
func latestUpTo(t int64, times []int64) (last int64, ok bool) {
	for _, x := range times {
		if x <= t && (!ok || x > last) {
			last, ok = x, true
		}
	}
	return last, ok
}

// isParticipant reports whether a goroutine serves requests or is one that requests wait for. A wake-up of such a goroutine near
// a response is explained, and no evidence against a peer.
func (s *Sum) isParticipant(g uint64) bool {
	if s.participants == nil {
		s.participants = make(map[uint64]bool)
		for _, list := range s.requests {
			for i := range list {
				s.participants[list[i].Request.G] = true
			}
		}
		for _, list := range s.waits {
			for i := range list {
				for _, p := range list[i].Parts {
					s.participants[p.G] = true
				}
			}
		}
	}
	return s.participants[g]
}

// resolveConflicts demotes or removes peers that claim more answers of one group than it gave, because a request answers only one
// wait. Proven peers with the shortest delays keep their claim; the other proven ones become hints, and hints that lack requests
// are removed.
func (s *Sum) resolveConflicts() {
	callersOf := make(map[path.GroupID][]path.GroupID)
	for id, p := range s.peerByGroup {
		if p.Proven {
			callersOf[p.Group] = append(callersOf[p.Group], id)
		}
	}
	for group, callers := range callersOf {
		remaining := len(s.requests[group])
		slices.SortFunc(callers, func(a, b path.GroupID) int { return cmp.Compare(s.peerByGroup[a].gapNS, s.peerByGroup[b].gapNS) })
		for i, id := range callers {
			p := s.peerByGroup[id]
			if i > 0 && len(p.FurtherGroups) == 0 && remaining < p.minRequests() {
				p.Proven, p.Confidence = false, hintConfidence
				s.peerByGroup[id] = p
				continue
			}
			remaining -= p.Fitting
		}
		for id, p := range s.peerByGroup {
			if !p.Proven && p.Group == group && len(p.FurtherGroups) == 0 && remaining < p.minRequests() {
				delete(s.peerByGroup, id)
			}
		}
	}
}

// minRequests returns the number of requests that a peer needs for its Fitting waits.
func (p *Peer) minRequests() int { return int(threshold.NearlyAllShare * float64(p.Fitting)) }

// collectEvidence adds to this generation's spans the events that provenShare needs, as long as the window contains them. It does
// nothing if there is no wait or no request.
func (s *Sum) collectEvidence() {
	var starts, wakes []int64
	for _, p := range s.collectors {
		if p.stage == nil {
			return
		}
		from := p.stage.Win.Start()
		for i := range p.requests {
			if r := &p.requests[i]; r.PollerWakes == nil && r.End >= from {
				starts = append(starts, r.Start)
			}
		}
		for i := range p.waits {
			for _, x := range p.waits[i].Parts {
				if x.Wake >= from {
					wakes = append(wakes, x.Wake)
				}
			}
		}
	}
	if len(starts) == 0 || len(wakes) == 0 {
		return
	}
	slices.Sort(starts)
	slices.Sort(wakes)
	var collectors sync.WaitGroup
	for _, p := range s.collectors {
		collectors.Go(func() { p.addEvidence(starts, wakes) })
	}
	collectors.Wait()
}

// maxNearbyEvents bounds the events kept before, and after, one time.
const maxNearbyEvents = 8

// addEvidence adds to each request the goroutines that were woken near its end, and to requests and waits the writes to the
// network before them. starts and wakes, sorted, are the starts of all requests and the ends of all waits: sends are read only
// for spans with one of them nearby.
func (p *collector) addEvidence(starts, wakes []int64) {
	win := p.stage.Win
	for r := range entry.Each(p.requests) {
		if r.PollerWakes != nil || r.End < win.Start() {
			continue
		}
		r.PollerWakes = win.Gens[win.GenIndex(r.End)].PollerWakesNear(r.End, threshold.LoopbackNS, maxNearbyEvents)
		if hasTimeIn(wakes, r.End-threshold.LoopbackNS, r.End) {
			r.SendTimes = p.sendTimes(r.End)
		}
	}
	for w := range entry.Each(p.waits) {
		if from := w.Parts[0].Start; w.SendTimes == nil && from >= win.Start() && hasTimeIn(starts, from-threshold.LoopbackNS, from-threshold.ThreadWakeNS) {
			w.SendTimes = p.sendTimes(from)
		}
	}
}

// hasTimeIn reports whether one of some times, in ascending order, is in [from, to).
func hasTimeIn(times []int64, from, to int64) bool {
	i, _ := slices.BinarySearch(times, from)
	return i < len(times) && times[i] < to
}

// sendTimes returns the last maxNearbyEvents times in the threshold.LoopbackNS before t at which goroutines of the process began
// to write to the network, in order.
func (p *collector) sendTimes(t int64) []int64 {
	times := make([]int64, 0, 2)
	p.stage.Win.Gens[p.stage.Win.GenIndex(t)].EachRun(t-threshold.LoopbackNS, t, func(r timeline.Run) {
		if r.Ended && p.isSend(r.Stack) {
			times = append(times, r.To)
		}
	})
	slices.Sort(times)
	return times[max(0, len(times)-maxNearbyEvents):]
}

// isSend reports whether a stack is in a write to a socket. It caches the result.
func (p *collector) isSend(id tracefmt.StackID) bool {
	send, isCached := p.isSendStack[id]
	if !isCached {
		send = p.stage.Sites.HasRole(id, knowledge.SocketWrite)
		p.isSendStack[id] = send
	}
	return send
}
