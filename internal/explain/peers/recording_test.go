package peers

import (
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// TestFurtherGroups checks the bound of the groups that serve one group's waits: with one method more than that the waits of the
// last one have no answer, and there is no peer.
func TestFurtherGroups(t *testing.T) {
	for methods := 2; methods <= maxFurtherGroups+3; methods++ {
		sum := &Sum{waits: map[path.GroupID][]answers.Span{}, requests: map[path.GroupID][]answers.Span{}}
		rnd := rand.New(rand.NewPCG(5, 6))
		now := int64(0)
		for i := range uint64(120) {
			now += 3*ms + rnd.Int64N(6*ms)
			sum.waits[1] = append(sum.waits[1], answers.Span{Start: now, End: now + ms, Request: answers.RequestKey{G: i, Start: now}, Parts: []answers.WaitPart{{Start: now, Wake: now + 950*us, G: i}}})
			method := path.GroupID(2 + i%uint64(methods))
			sum.requests[method] = append(sum.requests[method], answers.Span{Start: now + 100*us, End: now + 900*us, Request: answers.RequestKey{G: 1000 + i, Start: now}})
		}
		p, ok := sum.PeerOf(1)
		if want := methods <= maxFurtherGroups+1; ok != want || ok && len(p.FurtherGroups) != methods-1 {
			t.Errorf("%d methods: %+v, %v", methods, p, ok)
		}
	}
}

// TestPeerIn checks which waits are compared with another process's recording: those within the time of both recordings, of which
// no span was dropped.
func TestPeerIn(t *testing.T) {
	const waitingGroup, count = 1, 200
	const offset = 7_000_000 * us // from the other trace's clock to this one's
	var waits, requests []answers.Span
	rnd := rand.New(rand.NewPCG(9, 10))
	now := int64(0)
	for range count {
		now += 4*ms + rnd.Int64N(4*ms)
		waits = append(waits, answers.Span{Start: now, End: now + ms})
		requests = append(requests, answers.Span{Start: now + 100*us - offset, End: now + 900*us - offset})
	}
	from, to := int64(0), now+10*ms
	half := waits[count/2].Start
	here := Clock{IsKnown: true, Mono: offset, Wall: offset + 5}
	there := Clock{IsKnown: true, Mono: 2 * offset, Wall: 2*offset + 5}
	// peer compares with the first n requests.
	peer := func(keptUntil, from, to, otherFrom, otherTo int64, n int) (Peer, bool) {
		s := &Sum{waits: map[path.GroupID][]answers.Span{waitingGroup: waits}, keptUntil: keptUntil}
		r := &Recording{Clock: there, From: otherFrom - offset, To: otherTo - offset, Groups: []Group{{ID: "other", requests: requests[count/2:][:10]}, {ID: "server", requests: requests[:n]}}}
		p, group, exact := s.PeerIn(waitingGroup, here, from, to, r)
		if !exact || group != nil && group.ID != "server" {
			t.Errorf("the group is %+v, exact %v", group, exact)
		}
		return p, group != nil
	}
	for _, c := range []struct {
		name                                    string
		keptUntil, from, to, otherFrom, otherTo int64
		requests                                int
		waits                                   int // 0: there is no peer
	}{
		{"all of both", to, from, to, from, to, count, count},
		{"the server lacks the second half", to, from, to, from, to, count / 2, 0},
		{"its recording ends after the first half", to, from, to, from, half, count / 2, count / 2},
		{"this one does", to, from, half, from, to, count / 2, count / 2},
		{"waits of the second half were dropped, some of them", half, from, to, from, to, count / 2, count / 2},
		{"its recording begins with the second half", to, from, to, half, to, count, count / 2},
		{"this one does", to, half, to, from, to, count, count / 2},
		{"too few waits", waits[threshold.MedianSample-1].Start, from, to, from, to, count, 0},
	} {
		p, ok := peer(c.keptUntil, c.from, c.to, c.otherFrom, c.otherTo, c.requests)
		if ok != (c.waits > 0) || ok && p.Waits != c.waits {
			t.Errorf("%s: %+v, %v; want %d waits", c.name, p, ok, c.waits)
		}
	}
	// Of two machines only the wall clocks can be compared.
	if ns, exact := here.Offset(Clock{Mono: 3, Wall: 2*offset + 5}); ns != offset || exact {
		t.Errorf("two machines: %d, %v", ns, exact)
	}
	r := &Recording{Clock: there, From: half - offset, To: to + ms - offset}
	if got := Overlap(here, from, to, r); got != to-half {
		t.Errorf("both have %d ns in common, want %d", got, to-half)
	}
	if got := Overlap(here, from, half-1, r); got != 0 {
		t.Errorf("both have %d ns in common, want none", got)
	}
}
