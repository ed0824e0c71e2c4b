package peers

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline"
)

const us, ms = int64(1e3), int64(1e6)

// TestCompare checks, with synthetic waits and requests, that unrelated requests are not answers although a wait is
// always in progress, and that answers far shorter than their wait are recognised.
func TestCompare(t *testing.T) {
	// answeredWaits returns n waits and the requests that answer them.
	answeredWaits := func(n int, gap, wait, takes int64) (waits, requests []answers.Span) {
		rnd := rand.New(rand.NewPCG(1, 2))
		start := int64(0)
		for range n {
			start += gap + rnd.Int64N(gap)
			lead := rnd.Int64N(max(1, (wait-takes)/2))
			waits = append(waits, answers.Span{Start: start, End: start + wait})
			requests = append(requests, answers.Span{Start: start + lead, End: start + lead + takes})
		}
		return waits, requests
	}
	otherRequests := func(n int, gap, takes int64) (requests []answers.Span) {
		rnd := rand.New(rand.NewPCG(3, 4))
		start := int64(0)
		for range n {
			start += rnd.Int64N(2 * gap)
			requests = append(requests, answers.Span{Start: start, End: start + takes})
		}
		return requests
	}
	waits, requests := answeredWaits(200, 4*ms, ms, 700*us)
	_, quick := answeredWaits(200, 4*ms, ms, 3*us)
	busy, crowd := answeredWaits(400, 100*us, 2*ms, ms)
	for _, c := range []struct {
		name                         string
		waits, requests              []answers.Span
		minConfidence, maxConfidence float64
	}{
		{"each wait has its answer in it", waits, requests, 0.9, 0.95},
		{"answers are far shorter than the waits", waits, quick, 0.85, 0.95},
		{"other requests come at random", waits, otherRequests(200, 5*ms, 700*us), 0, 0},
		{"other requests come all the time", waits, otherRequests(5000, 200*us, 100*us), 0, 0},
		{"half of the waits are for another server", waits, requests[:100], 0, 0},
		{"a wait is always in progress, and there are as many requests as waits", busy, crowd, 0, 0},
		{"a wait is always in progress, and there are more requests than waits", busy, append(otherRequests(60, 900*us, ms), crowd...), 0, 0.95},
		{"a wait is always in progress, and other requests come at random", busy, otherRequests(300, 200*us, 100*us), 0, 0},
		{"too few", waits[:10], requests[:10], 0, 0},
	} {
		if len(c.waits) < threshold.MedianSample {
			if _, ok := (&Sum{waits: nil}).PeerOf(1); ok {
				t.Errorf("%s: there is a peer", c.name)
			}
			continue
		}
		if p := matchByTime(c.waits, c.requests); p.Confidence < c.minConfidence || p.Confidence > c.maxConfidence {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}

// TestEqualLength checks sequential calls with regular gaps, one of which is nearly always in progress: a peer is
// found by the length of its requests, but requests that merely have the lengths of the waits are no peer.
func TestEqualLength(t *testing.T) {
	var waits, requests, laterRequests []answers.Span
	for i := range int64(90) {
		start, duration := i*11*ms+i*i%7*300*us, 12*ms+i%5*200*us
		waits = append(waits, answers.Span{Start: start, End: start + duration})
		requests = append(requests, answers.Span{Start: start + 60*us, End: start + duration - 80*us})
		laterRequests = append(laterRequests, answers.Span{Start: start + 4*ms, End: start + 4*ms + duration})
	}
	if p := matchByTime(waits, requests); !p.EqualLength || p.Fitting != 90 || p.Confidence < 0.8 {
		t.Errorf("each wait has its answer: %+v", p)
	}
	if p := matchByTime(waits, laterRequests); p.Confidence > 0 {
		t.Errorf("other requests come all the time: %+v", p)
	}
}

// TestCombineGroups checks a gateway that passes each request to one of two methods, and sometimes to a third: it has
// a peer although no method answers nearly all waits, and an unrelated method is no part of it.
func TestCombineGroups(t *testing.T) {
	sum := &Sum{waits: map[path.GroupID][]answers.Span{}, requests: map[path.GroupID][]answers.Span{}}
	rnd := rand.New(rand.NewPCG(5, 6))
	start := int64(0)
	for i := range uint64(100) {
		start += 3*ms + rnd.Int64N(6*ms)
		sum.waits[1] = append(sum.waits[1], answers.Span{Start: start, End: start + ms, Request: answers.RequestKey{G: i, Start: start}, Parts: []answers.WaitPart{{Start: start, Wake: start + 950*us, G: i}}})
		to := path.GroupID(2 + i%2)
		if i%10 == 0 {
			to = 4
		}
		sum.requests[to] = append(sum.requests[to], answers.Span{Start: start + 100*us, End: start + 900*us, Request: answers.RequestKey{G: 1000 + i, Start: start}})
		sum.requests[5] = append(sum.requests[5], answers.Span{Start: start + 2*ms, End: start + 2*ms + 500*us, Request: answers.RequestKey{G: 2000 + i, Start: start}})
	}
	p, ok := sum.PeerOf(1)
	slices.Sort(p.FurtherGroups)
	if all := append(p.FurtherGroups, p.Group); !ok || len(all) != 3 || slices.Contains(all, 5) || p.Fitting < 98 || p.Confidence < 0.8 {
		t.Errorf("%+v, %v", p, ok)
	}
}

// TestWorkerCountChangesNothing checks that the spans kept of very many do not depend on their distribution over
// workers.
func TestWorkerCountChangesNothing(t *testing.T) {
	keptSpans := func(workers int) (list []int64, keptUntil int64) {
		rnd := rand.New(rand.NewPCG(5, uint64(workers)))
		sum := New()
		var parts []*collector
		for range workers {
			parts = append(parts, sum.NewAdder(nil).(*collector))
		}
		for i := range int64(5 * maxSpans) {
			p := parts[rnd.IntN(workers)]
			p.waits = p.appendSpan(p.waits, groupSpan{Span: answers.Span{Start: i * us, End: i*us + 1}})
			p.requests = p.appendSpan(p.requests, groupSpan{Span: answers.Span{Start: i * us, End: i*us + 1}})
			if i%1000 == 999 {
				sum.EndGeneration()
			}
		}
		ts := make([]path.Translation, workers)
		for i := range ts {
			ts[i].Groups = []path.GroupID{0}
		}
		sum.Merge(ts)
		for _, w := range sum.waits[0] {
			list = append(list, w.Start)
		}
		return list, sum.keptUntil
	}
	one, keptUntil := keptSpans(1)
	check.True(t, len(one) >= maxSpans && len(one) <= 2*maxSpans && keptUntil > one[len(one)-1],
		"%d spans are kept, until %d", len(one), keptUntil)
	for workers := 2; workers < 5; workers++ {
		if list, to := keptSpans(workers); !slices.Equal(list, one) || to != keptUntil {
			t.Errorf("%d workers keep %d until %d, one keeps %d until %d", workers, len(list), to, len(one), keptUntil)
		}
	}
}

// TestProven checks, with synthetic exchanges, that fitting times alone prove nothing: two parallel requests of a
// page, a call whose answer another goroutine waits for, and answers that come back too late.
func TestProven(t *testing.T) {
	const waitingGroup, servingGroup, furtherGroup = 1, 2, 3
	type exchange struct {
		forwardTime, returnTime int64 // from the start of the wait to the request, and from its end to the wake-up
		sendTimes               []int64
		otherWake               int64 // when another goroutine is woken, after the request's end; 0: none
		otherIsServer           bool  // the other goroutine serves requests
	}
	sum := func(n int, exchangeAt func(i int64) exchange) *Sum {
		result := &Sum{waits: map[path.GroupID][]answers.Span{}, requests: map[path.GroupID][]answers.Span{}}
		rnd := rand.New(rand.NewPCG(7, 8))
		start := int64(0)
		for i := range int64(n) {
			start += 30*ms + rnd.Int64N(20*ms)
			current := exchangeAt(i)
			begin, end := start+current.forwardTime, start+20*ms+rnd.Int64N(ms)
			w := answers.Span{Start: start, End: end + current.returnTime + 10*us, Request: answers.RequestKey{G: 10, Start: start - 50*us}, Parts: []answers.WaitPart{{Start: start, Wake: end + current.returnTime, G: 11}}}
			for _, delay := range current.sendTimes {
				w.SendTimes = append(w.SendTimes, start+delay)
			}
			r := answers.Span{Start: begin, End: end, Request: answers.RequestKey{G: 20, Start: begin}}
			if r.PollerWakes = []timeline.PollerWake{{Time: end + current.returnTime, G: 11}}; current.otherWake != 0 {
				g := uint64(30)
				if current.otherIsServer {
					g = 20
				}
				r.PollerWakes = append(r.PollerWakes, timeline.PollerWake{Time: end + current.otherWake, G: g})
			}
			result.waits[waitingGroup], result.requests[servingGroup] = append(result.waits[waitingGroup], w), append(result.requests[servingGroup], r)
		}
		return result
	}
	for _, c := range []struct {
		name       string
		exchangeAt func(i int64) exchange
		peer, sure bool
	}{
		{"an exchange", func(int64) exchange { return exchange{forwardTime: 20 * us, returnTime: 40 * us} }, true, true},
		{"the request began before it can have been sent", func(int64) exchange { return exchange{forwardTime: -60 * us, returnTime: 40 * us} }, false, false},
		{"another goroutine sent it before the waiting goroutine blocked", func(int64) exchange {
			return exchange{forwardTime: -60 * us, returnTime: 40 * us, sendTimes: []int64{-80 * us}}
		}, true, true},
		{"sometimes the wait ended before the answer", func(i int64) exchange { return exchange{forwardTime: 20 * us, returnTime: 60*us - i%4*30*us} }, true, false},
		{"the answer comes far too late", func(int64) exchange { return exchange{forwardTime: 20 * us, returnTime: ms} }, true, false},
		{"the answer woke another goroutine", func(int64) exchange { return exchange{forwardTime: 20 * us, returnTime: 90 * us, otherWake: 30 * us} }, true, false},
		{"another goroutine is woken as often before the answer", func(i int64) exchange {
			return exchange{forwardTime: 20 * us, returnTime: 90 * us, otherWake: 30*us - i%2*60*us}
		}, true, true},
		{"the next request wakes its server before the answer arrives", func(int64) exchange {
			return exchange{forwardTime: 20 * us, returnTime: 90 * us, otherWake: 30 * us, otherIsServer: true}
		}, true, true},
	} {
		if p, ok := sum(100, c.exchangeAt).PeerOf(waitingGroup); ok != c.peer || p.Proven != c.sure || !p.Proven && p.Confidence > hintConfidence {
			t.Errorf("%s: %+v, %v", c.name, p, ok)
		}
	}

	good := func(int64) exchange { return exchange{forwardTime: 20 * us, returnTime: 40 * us} }
	s := sum(100, good)
	if s.RefuteBySockets(3); s.isRefuted {
		if p, ok := s.PeerOf(waitingGroup); ok {
			t.Errorf("no socket is connected to the process itself: %+v", p)
		}
	} else {
		t.Error("3 unseen connections carry 100 exchanges")
	}
	// Each group waits for the other: both are impossible.
	s = sum(100, good)
	s.waits[servingGroup], s.requests[waitingGroup] = s.waits[waitingGroup], s.requests[servingGroup]
	for _, id := range []path.GroupID{waitingGroup, servingGroup} {
		if p, ok := s.PeerOf(id); ok {
			t.Errorf("a cycle: %+v", p)
		}
	}
	// A request answers one wait only: the group whose waits end a little later has no peer.
	s = sum(100, good)
	for _, w := range s.waits[waitingGroup] {
		w.Request.G, w.End = 12, w.End+50*us
		w.Parts = []answers.WaitPart{{Start: w.Start, Wake: w.Parts[0].Wake + 50*us, G: 13}}
		s.waits[furtherGroup] = append(s.waits[furtherGroup], w)
	}
	if p, _ := s.PeerOf(waitingGroup); !p.Proven {
		t.Errorf("one of two: %+v", p)
	}
	if p, ok := s.PeerOf(furtherGroup); ok {
		t.Errorf("the other of two: %+v", p)
	}
}
