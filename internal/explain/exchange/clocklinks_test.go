package exchange

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// moveClock makes the server's clock differ from the client's by some ns at time 0, and run faster.
func (s *simulation) moveClock(ns int64, ppm float64) (toServer func(int64) int64) {
	toServer = func(t int64) int64 { return t - ns + int64(float64(t)*ppm/1e6) }
	for _, list := range s.server.Connections {
		for i := range list {
			r := &list[i]
			r.AnswerTime = r.End
			if r.IsStream {
				r.AnswerTime = max(r.Start, r.End-20*us)
			}
			for _, t := range []*int64{&r.Start, &r.End, &r.Birth, &r.AnswerTime} {
				*t = toServer(*t)
			}
		}
	}
	s.server.From, s.server.To = toServer(s.server.From), toServer(s.server.To)
	s.server.Sort()
	return toServer
}

// synchronise joins the connections of a server whose clock is known badly.
func (s *simulation) synchronise() {
	s.joiner.AddServer(s.server, Clock{}.To(Clock{Mono: 1e12}))
	s.joiner.Synchronise()
	s.joiner.Join()
}

// TestClocksApart: with clocks that differ by unknown amounts and rates, the right connections and calls are joined, and the interval
// of the offset contains the true one during the whole recording.
func TestClocksApart(t *testing.T) {
	for seed := range uint64(6) {
		for _, isStream := range []bool{false, true} {
			rnd := rand.New(rand.NewPCG(seed, 2))
			s := newSimulation(seed)
			var streamReader uint64
			requests := map[uint64]uint64{}
			if isStream {
				streamReader, requests = s.connectStream(1500, 6*ms, 20*us, true)
				s.connectStream(1500, 6*ms, 20*us, false)
			} else {
				for range 8 {
					s.connect(600, 10*ms, ms, 8*ms, true, seed%2 == 0)
				}
				for range 4 {
					s.connect(600, 10*ms, ms, 8*ms, false, seed%2 == 0) // calls of another server
				}
			}
			ns, ppm := rnd.Int64N(180*ms)-90*ms, rnd.Float64()*400-200
			toServer := s.moveClock(ns, ppm)
			s.synchronise()
			link, ok := s.joiner.Links()[s.server]
			if !ok {
				t.Errorf("seed %d, streams %v: nothing is joined", seed, isStream)
				continue
			}
			for _, at := range []int64{0, 5_000 * ms, 10_000 * ms} {
				_, slack := link.OffsetAt(toServer(at))
				if d := link.ToClient(toServer(at)) - at; max(d, -d) > slack || slack > 300*us {
					t.Errorf("seed %d, streams %v: at %d the offset is wrong by %d ns, want at most %d", seed, isStream, at, d, slack)
				}
			}
			if isStream {
				s.checkCalls(t, seed, streamReader, requests, 1200)
				continue
			}
			check.True(t, len(s.joiner.joined) == 8, "seed %d: %d connections are joined, want 8", seed, len(s.joiner.joined))
			for reader, k := range s.joiner.joined {
				check.True(t, s.partners[reader] == k.serverG, "seed %d: connection %d is joined with %d, want %d", seed, reader, k.serverG, s.partners[reader])
			}
			if wrong := s.wrongPairs(); wrong > 0 {
				t.Errorf("seed %d: %d exchanges are joined with the request of another one", seed, wrong)
			}
		}
	}
}

// checkCalls checks that at least minJoined calls of a stream's reader are joined, each with its own request.
func (s *simulation) checkCalls(t *testing.T, seed, reader uint64, requests map[uint64]uint64, minJoined int) {
	t.Helper()
	joined := 0
	for _, k := range s.joiner.readers[reader].calls {
		if k.answer == nil {
			continue
		}
		if joined++; k.answer.G != requests[k.waiter] {
			t.Errorf("seed %d: call %d is joined with %d, want %d", seed, k.waiter, k.answer.G, requests[k.waiter])
		}
	}
	check.True(t, joined >= minJoined, "seed %d: only %d calls are joined", seed, joined)
}

// wrongPairs returns how many exchanges are joined with the request of another one.
func (s *simulation) wrongPairs() (wrong int) {
	for reader, k := range s.joiner.joined {
		for i := range k.answers {
			n := slices.Index(s.joiner.readers[reader].exchanges, k.waits[i])
			if r := &s.server.Connections[k.serverG][n]; k.answers[i].End-k.answers[i].Offset != r.End {
				wrong++
			}
		}
	}
	return wrong
}

// TestFastCalls: calls that follow each other at once, and that are as short as the way to the server, are not joined with the request
// of another call, whether the clocks are equal or not.
func TestFastCalls(t *testing.T) {
	for seed := range uint64(6) {
		for _, apart := range []bool{false, true} {
			s := newSimulation(seed)
			for range 3 {
				s.connect(2000, 30*us+int64(seed)*300*us, 20*us, 200*us, true, seed%2 == 0)
			}
			s.joiner.from, s.joiner.to = 100*ms, 500*ms
			if apart {
				s.moveClock(-20*ms, 50)
				s.synchronise()
			} else {
				s.join(7_000 * ms)
			}
			if wrong := s.wrongPairs(); wrong > 0 {
				t.Errorf("seed %d, clocks apart %v: %d exchanges are joined with the request of another one", seed, apart, wrong)
			}
		}
	}
}

// TestUnrelatedClocksApart: connections of services that do not call each other are not joined at any offset of their clocks. Neither
// are those that repeat equal calls at equal intervals: several offsets fit.
func TestUnrelatedClocksApart(t *testing.T) {
	for seed := range uint64(5) {
		s, second := newSimulation(seed), newSimulation(seed+1000)
		for range 8 {
			s.connect(30+int(seed)*20, 8*ms, 2*ms, 9*ms, false, true)
			second.connect(30+int(seed)*20, 8*ms, ms, 5*ms, true, true)
		}
		s.connectStream(int(20+seed*200), 6*ms, 0, false)
		second.lastG += 100
		second.connectStream(int(20+seed*200), 6*ms, 0, true)
		s.server = second.server
		s.moveClock(30*ms, 100)
		if s.synchronise(); len(s.joiner.joined) != 0 {
			t.Errorf("seed %d: %d connections are joined", seed, len(s.joiner.joined))
		}
	}
	s := newSimulation(1)
	reader := s.connect(0, ms, ms, ms, true, true)
	for i := range int64(400) {
		sent := 20*ms + i*20*ms
		s.joiner.readers[reader].exchanges = append(s.joiner.readers[reader].exchanges, Exchange{sent, sent + 5*ms + 200*us, true})
		s.server.Add(Request{G: 1, Conn: 1, Start: sent + 100*us, End: sent + 5*ms + 100*us, IsWoken: true})
	}
	s.moveClock(30*ms, 0)
	if s.synchronise(); len(s.joiner.joined) != 0 {
		t.Error("a periodic connection is joined")
	}
}
