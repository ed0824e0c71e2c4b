package peers

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/timeline"
)

const us, ms = int64(1e3), int64(1e6)

// TestCompare makes waits and requests by hand. It would catch requests of others taken for answers because somebody always
// waits, and answers that are not believed because they are short beside the wait.
func TestCompare(t *testing.T) {
	// asked makes n waits, each with the request that answers it.
	asked := func(n int, apart, wait, takes int64) (waits, served []answers.Span) {
		rnd := rand.New(rand.NewPCG(1, 2))
		at := int64(0)
		for range n {
			at += apart + rnd.Int64N(apart)
			lead := rnd.Int64N(max(1, (wait-takes)/2))
			waits = append(waits, answers.Span{Start: at, End: at + wait})
			served = append(served, answers.Span{Start: at + lead, End: at + lead + takes})
		}
		return waits, served
	}
	others := func(n int, apart, takes int64) (served []answers.Span) {
		rnd := rand.New(rand.NewPCG(3, 4))
		at := int64(0)
		for range n {
			at += rnd.Int64N(2 * apart)
			served = append(served, answers.Span{Start: at, End: at + takes})
		}
		return served
	}
	waits, served := asked(200, 4*ms, ms, 700*us)
	_, quick := asked(200, 4*ms, ms, 3*us)
	busy, crowd := asked(400, 100*us, 2*ms, ms)
	for _, c := range []struct {
		name          string
		waits, served []answers.Span
		least, most   float64
	}{
		{"each wait has its answer in it", waits, served, 0.9, 0.95},
		{"answers are far shorter than the waits", waits, quick, 0.85, 0.95},
		{"others come at random", waits, others(200, 5*ms, 700*us), 0, 0},
		{"others come all the time", waits, others(5000, 200*us, 100*us), 0, 0},
		{"half of the waits are for somebody else", waits, served[:100], 0, 0},
		{"somebody always waits, and the numbers are the same", busy, crowd, 0, 0},
		{"somebody always waits, and there are more requests", busy, append(others(60, 900*us, ms), crowd...), 0, 0.95},
		{"somebody always waits, and others come at random", busy, others(300, 200*us, 100*us), 0, 0},
		{"too few", waits[:10], served[:10], 0, 0},
	} {
		if len(c.waits) < scale.Enough {
			if _, ok := (&Sum{waits: nil}).Of(1); ok {
				t.Errorf("%s: there is a peer", c.name)
			}
			continue
		}
		if p := compare(c.waits, c.served); p.Confidence < c.least || p.Confidence > c.most {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}

// TestAsLong: calls one after the other, evenly spaced, of which one is nearly always under way. It would catch a peer that is not
// found because somebody always waits, and one that is because requests are as long as each other.
func TestAsLong(t *testing.T) {
	var waits, served, later []answers.Span
	for i := range int64(90) {
		at, took := i*11*ms+i*i%7*300*us, 12*ms+i%5*200*us
		waits = append(waits, answers.Span{Start: at, End: at + took})
		served = append(served, answers.Span{Start: at + 60*us, End: at + took - 80*us})
		later = append(later, answers.Span{Start: at + 4*ms, End: at + 4*ms + took})
	}
	if p := compare(waits, served); !p.AsLong || p.Held != 90 || p.Confidence < 0.8 {
		t.Errorf("each wait has its answer: %+v", p)
	}
	if p := compare(waits, later); p.Confidence > 0 {
		t.Errorf("others come all the time: %+v", p)
	}
}

// TestSeveral: a gateway passes each request to one of two methods, and to a third now and then. It would catch one that has no
// peer because no method answers nearly all, and a method that has nothing to do with it.
func TestSeveral(t *testing.T) {
	s := &Sum{waits: map[path.GroupID][]answers.Span{}, served: map[path.GroupID][]answers.Span{}}
	rnd := rand.New(rand.NewPCG(5, 6))
	at := int64(0)
	for i := range uint64(100) {
		at += 3*ms + rnd.Int64N(6*ms)
		s.waits[1] = append(s.waits[1], answers.Span{Start: at, End: at + ms, Request: answers.RequestKey{G: i, Start: at}, Parts: []answers.WaitPart{{Start: at, Wake: at + 950*us, G: i}}})
		to := path.GroupID(2 + i%2)
		if i%10 == 0 {
			to = 4
		}
		s.served[to] = append(s.served[to], answers.Span{Start: at + 100*us, End: at + 900*us, Request: answers.RequestKey{G: 1000 + i, Start: at}})
		s.served[5] = append(s.served[5], answers.Span{Start: at + 2*ms, End: at + 2*ms + 500*us, Request: answers.RequestKey{G: 2000 + i, Start: at}})
	}
	p, ok := s.Of(1)
	slices.Sort(p.Also)
	if all := append(p.Also, p.Group); !ok || len(all) != 3 || slices.Contains(all, 5) || p.Held < 98 || p.Confidence < 0.8 {
		t.Errorf("%+v, %v", p, ok)
	}
}

// TestWorkers: what is kept of very many waits and requests does not depend on which worker saw which. It would catch a worker
// that forgets by its own count alone.
func TestWorkers(t *testing.T) {
	kept := func(workers int) (list []int64, until int64) {
		rnd := rand.New(rand.NewPCG(5, uint64(workers)))
		s := New()
		var parts []*part
		for range workers {
			parts = append(parts, s.Part(nil).(*part))
		}
		for i := range int64(5 * maxKept) {
			p := parts[rnd.IntN(workers)]
			p.waits = p.keep(p.waits, grouped{Span: answers.Span{Start: i * us, End: i*us + 1}})
			p.served = p.keep(p.served, grouped{Span: answers.Span{Start: i * us, End: i*us + 1}})
			if i%1000 == 999 {
				s.End()
			}
		}
		ts := make([]path.Translation, workers)
		for i := range ts {
			ts[i].Groups = []path.GroupID{0}
		}
		s.Merge(ts)
		for _, w := range s.waits[0] {
			list = append(list, w.Start)
		}
		return list, s.until
	}
	one, until := kept(1)
	if len(one) < maxKept || len(one) > 2*maxKept || until <= one[len(one)-1] {
		t.Errorf("%d are kept, until %d", len(one), until)
	}
	for workers := 2; workers < 5; workers++ {
		if list, to := kept(workers); !slices.Equal(list, one) || to != until {
			t.Errorf("%d workers keep %d until %d, one keeps %d until %d", workers, len(list), to, len(one), until)
		}
	}
}

// TestProven makes exchanges by hand, and what only looks like one: two things that a page asks for at once, a call for whose answer
// another goroutine waits, answers that come back too late. It would catch a peer that is believed because times fit.
func TestProven(t *testing.T) {
	const asks, serves, further = 1, 2, 3
	type exchange struct {
		there, back int64 // from what the wait began with to the request, from its end to the wake
		sent        []int64
		other       int64 // when another goroutine is woken, after the request's end; 0: none
		known       bool  // that one serves requests
	}
	sum := func(n int, of func(i int64) exchange) *Sum {
		s := &Sum{waits: map[path.GroupID][]answers.Span{}, served: map[path.GroupID][]answers.Span{}}
		rnd := rand.New(rand.NewPCG(7, 8))
		at := int64(0)
		for i := range int64(n) {
			at += 30*ms + rnd.Int64N(20*ms)
			x := of(i)
			begin, end := at+x.there, at+20*ms+rnd.Int64N(ms)
			w := answers.Span{Start: at, End: end + x.back + 10*us, Request: answers.RequestKey{G: 10, Start: at - 50*us}, Parts: []answers.WaitPart{{Start: at, Wake: end + x.back, G: 11}}}
			for _, by := range x.sent {
				w.SendTimes = append(w.SendTimes, at+by)
			}
			r := answers.Span{Start: begin, End: end, Request: answers.RequestKey{G: 20, Start: begin}}
			if r.PollerWakes = []timeline.PollerWake{{Time: end + x.back, G: 11}}; x.other != 0 {
				g := uint64(30)
				if x.known {
					g = 20
				}
				r.PollerWakes = append(r.PollerWakes, timeline.PollerWake{Time: end + x.other, G: g})
			}
			s.waits[asks], s.served[serves] = append(s.waits[asks], w), append(s.served[serves], r)
		}
		return s
	}
	for _, c := range []struct {
		name       string
		of         func(i int64) exchange
		peer, sure bool
	}{
		{"an exchange", func(int64) exchange { return exchange{there: 20 * us, back: 40 * us} }, true, true},
		{"the request began before it can have been asked for", func(int64) exchange { return exchange{there: -60 * us, back: 40 * us} }, false, false},
		{"another goroutine sent it before who asks fell asleep", func(int64) exchange { return exchange{there: -60 * us, back: 40 * us, sent: []int64{-80 * us}} }, true, true},
		{"the wait ended before the answer, now and then", func(i int64) exchange { return exchange{there: 20 * us, back: 60*us - i%4*30*us} }, true, false},
		{"the answer comes far too late", func(int64) exchange { return exchange{there: 20 * us, back: ms} }, true, false},
		{"the answer woke another goroutine", func(int64) exchange { return exchange{there: 20 * us, back: 90 * us, other: 30 * us} }, true, false},
		{"somebody else is woken as often before it", func(i int64) exchange { return exchange{there: 20 * us, back: 90 * us, other: 30*us - i%2*60*us} }, true, true},
		{"meanwhile a server is woken by its next request", func(int64) exchange { return exchange{there: 20 * us, back: 90 * us, other: 30 * us, known: true} }, true, true},
	} {
		if p, ok := sum(100, c.of).Of(asks); ok != c.peer || p.Sure != c.sure || !p.Sure && p.Confidence > hinted {
			t.Errorf("%s: %+v, %v", c.name, p, ok)
		}
	}

	good := func(int64) exchange { return exchange{there: 20 * us, back: 40 * us} }
	s := sum(100, good)
	if s.Elsewhere(3); s.refuted {
		if p, ok := s.Of(asks); ok {
			t.Errorf("no socket leads to the process itself: %+v", p)
		}
	} else {
		t.Error("3 connections that nobody saw carry 100 exchanges")
	}
	// Each waits for the other: neither can be.
	s = sum(100, good)
	s.waits[serves], s.served[asks] = s.waits[asks], s.served[serves]
	for _, id := range []path.GroupID{asks, serves} {
		if p, ok := s.Of(id); ok {
			t.Errorf("a circle: %+v", p)
		}
	}
	// The same requests cannot answer others as well: those whose waits end a little later are not believed.
	s = sum(100, good)
	for _, w := range s.waits[asks] {
		w.Request.G, w.End = 12, w.End+50*us
		w.Parts = []answers.WaitPart{{Start: w.Start, Wake: w.Parts[0].Wake + 50*us, G: 13}}
		s.waits[further] = append(s.waits[further], w)
	}
	if p, _ := s.Of(asks); !p.Sure {
		t.Errorf("one of two: %+v", p)
	}
	if p, ok := s.Of(further); ok {
		t.Errorf("the other of two: %+v", p)
	}
}
