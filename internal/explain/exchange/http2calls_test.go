package exchange

import (
	"cmp"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// connectStream adds a connection of HTTP/2 with overlapping calls that begin with a mean interval, and returns the request of each.
// A client that knows when each was sent has no gap between the earliest and the latest such time.
func (s *simulation) connectStream(count int, interval, gap int64, isServed bool) (reader uint64, requests map[uint64]uint64) {
	s.lastG += 2
	reader, conn := s.lastG, s.lastG+1
	client := &clientConnection{reader: reader, isMultiplexed: true, callsByWaiter: make(map[uint64][]*call)}
	requests = make(map[uint64]uint64)
	now, born := int64(20*ms), int64(0)
	for i := range uint64(count) {
		now += int64(s.rnd.ExpFloat64() * float64(interval))
		born = max(born+1, now+20*us+s.rnd.Int64N(20*us)) // the connection keeps the order
		end := born + ms + s.rnd.Int64N(11*ms)
		waiter, served := reader<<20+i, conn<<20+i
		client.calls = append(client.calls, &call{waiter: waiter, firstSent: now - s.rnd.Int64N(gap+1), lastSent: now, arrived: end + 20*us + s.rnd.Int64N(100*us)})
		requests[waiter] = served
		if isServed {
			s.server.Add(Request{G: served, Conn: conn, Birth: born, Start: born, End: end, IsStream: true})
		}
	}
	slices.SortFunc(client.calls, func(a, b *call) int { return cmp.Compare(a.arrived, b.arrived) })
	s.joiner.readers[reader] = client
	s.joiner.readerOrder = append(s.joiner.readerOrder, reader)
	return reader, requests
}

// TestStreamsPair: overlapping calls on connections of HTTP/2 are joined with the right requests, next to a connection to another server.
// Of calls whose order of sending is unknown, some stay ambiguous, and none is wrong.
func TestStreamsPair(t *testing.T) {
	for _, gap := range []int64{0, 3 * ms} {
		for seed := range uint64(10) {
			s := newSimulation(seed)
			reader, requests := s.connectStream(400, 6*ms, gap, true)
			other, _ := s.connectStream(400, 6*ms, gap, false)
			s.server.Sort()
			s.joiner.AddServer(s.server, Link{})
			s.joiner.Join()
			check.True(t, s.joiner.joined[other] == nil, "seed %d: the connection to another server is joined", seed)
			joined := 0
			for _, k := range s.joiner.readers[reader].calls {
				if k.answer == nil {
					continue
				}
				if joined++; k.answer.G != requests[k.waiter] {
					t.Errorf("seed %d, gap %d: call %d is joined with %d, want %d", seed, gap, k.waiter, k.answer.G, requests[k.waiter])
				}
			}
			ambiguous := s.joiner.AmbiguousCallees()[s.server]
			if joined+ambiguous != 400 || gap == 0 && joined != 400 || joined < 100 {
				t.Errorf("seed %d, gap %d: %d calls are joined, %d ambiguous", seed, gap, joined, ambiguous)
			}
		}
	}
}

// TestUnrelatedStreams: connections of HTTP/2 of services that do not call each other are never joined.
func TestUnrelatedStreams(t *testing.T) {
	for seed := range uint64(20) {
		s, other := newSimulation(seed), newSimulation(seed+1000)
		reader, _ := s.connectStream(int(20+seed*20), 6*ms, 0, false)
		other.connectStream(int(20+seed*20), 6*ms, 0, true)
		other.server.Sort()
		s.joiner.AddServer(other.server, Link{})
		if s.joiner.Join(); s.joiner.joined[reader] != nil {
			t.Errorf("seed %d: the connection is joined", seed)
		}
	}
}

// TestManyStreamsAtOnce: calls that overlap with a hundred others are joined with the right requests.
func TestManyStreamsAtOnce(t *testing.T) {
	s := newSimulation(1)
	reader, requests := s.connectStream(2000, ms/10, 0, true)
	s.server.Sort()
	s.joiner.AddServer(s.server, Link{})
	s.joiner.Join()
	for _, k := range s.joiner.readers[reader].calls {
		must.True(t, k.answer != nil && k.answer.G == requests[k.waiter], "call %d is not joined with %d", k.waiter, requests[k.waiter])
	}
}

// TestStreamsOfLaterRecording: the server's recording begins later than the client's, and lacks requests whose calls are in both.
func TestStreamsOfLaterRecording(t *testing.T) {
	for seed := range uint64(30) {
		s := newSimulation(seed)
		reader, requests := s.connectStream(100, 6*ms, 0, true)
		s.server.From = 100 * ms
		for conn, list := range s.server.Connections {
			s.server.Connections[conn] = slices.DeleteFunc(list, func(r Request) bool { return r.Birth < s.server.From })
		}
		s.server.Sort()
		s.joiner.AddServer(s.server, Link{})
		s.joiner.Join()
		s.checkCalls(t, seed, reader, requests, 60)
	}
}

// TestSentWithP: a goroutine that was made runnable together with others sends its call when it has a P, not before.
func TestSentWithP(t *testing.T) {
	win, syms := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		const grpc = "google.golang.org/grpc/internal/transport."
		m := b.Thread(2)
		m.Create(10, 3, grpc+"(*http2Client).reader", grpc+"NewHTTP2Client")
		m.Create(20, 1, "main.handle", "main.serve")
		m.Block(30, "forever", "main.serve")
		m.Start(40, 3)
		m.Block(50, "network", "internal/poll.(*FD).Read", grpc+"(*http2Client).reader")
		m.Start(100, 1)
		m.Block(150, "select", grpc+"(*ClientStream).waitOnHeader", "google.golang.org/grpc.(*ClientConn).Invoke", "main.handle")
		m.Unblock(200, 3)
		m.Start(210, 3)
		m.Unblock(220, 1, grpc+"(*http2Client).reader")
		m.Block(230, "network", "internal/poll.(*FD).Read", grpc+"(*http2Client).reader")
		m.Start(240, 1)
		m.Block(250, "forever", "main.handle")
	})
	c := NewClients()
	c.SetWindow(win)
	for _, g := range win.Gens {
		c.AddGeneration(g, syms, false)
	}
	calls := c.readers[3].calls
	if len(calls) != 1 || calls[0].firstSent != tracetext.Origin+100 || calls[0].lastSent != tracetext.Origin+150 || calls[0].arrived != tracetext.Origin+220 {
		t.Fatalf("%+v", calls)
	}
}
