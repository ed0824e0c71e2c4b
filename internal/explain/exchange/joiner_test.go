package exchange

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

const (
	us = 1000
	ms = 1000 * us
)

// A simulation is the traffic of some connections: each has exchanges one after the other, with a request in each.
type simulation struct {
	rnd      *rand.Rand
	joiner   *Joiner
	server   *Server
	lastG    uint64
	partners map[uint64]uint64 // the server's goroutine by the client's; absent if the client calls another server
}

func newSimulation(seed uint64) *simulation {
	s := &simulation{rnd: rand.New(rand.NewPCG(seed, 1)), joiner: NewJoiner(), server: NewServer("stock"), partners: make(map[uint64]uint64)}
	s.joiner.from, s.joiner.to, s.server.From, s.server.To = 0, 10_000*ms, 0, 10_000*ms
	return s
}

// connect adds a connection with exchanges that begin with a mean interval, if isServed to the server. Requests take between the given
// times.
func (s *simulation) connect(count int, interval, shortest, longest int64, isServed, hasSends bool) uint64 {
	s.lastG += 2
	reader, served := s.lastG, s.lastG+1
	conn := &clientConnection{reader: reader}
	if isServed {
		s.partners[reader] = served
	}
	now := 20*ms + s.rnd.Int64N(interval)
	for range count {
		sent := now
		start := sent + 20*us + s.rnd.Int64N(60*us)
		end := start + shortest + s.rnd.Int64N(longest-shortest+1)
		arrived := end + 20*us + s.rnd.Int64N(100*us)
		x := Exchange{sent, arrived, true}
		if !hasSends {
			x.Sent, x.HasSent = math.MinInt64, false
			if n := len(conn.exchanges); n > 0 {
				x.Sent = conn.exchanges[n-1].Arrived
			}
		}
		conn.exchanges = append(conn.exchanges, x)
		if isServed {
			s.server.Add(Request{G: served, Conn: served, Start: start, End: end, AnswerTime: end, IsWoken: true})
		}
		now = arrived + 50*us + s.rnd.Int64N(interval)
	}
	s.joiner.readers[reader] = conn
	s.joiner.readerOrder = append(s.joiner.readerOrder, reader)
	return reader
}

// join joins the connections, with clocks that differ by offset, and returns the number of connections that are joined, and how many of
// them wrongly.
func (s *simulation) join(offset int64) (joined, wrong int) {
	for g := range s.server.Connections {
		for i := range s.server.Connections[g] {
			s.server.Connections[g][i].Start -= offset
			s.server.Connections[g][i].End -= offset
			s.server.Connections[g][i].AnswerTime -= offset
		}
	}
	s.server.From, s.server.To = s.server.From-offset, s.server.To-offset
	s.server.Sort()
	s.joiner.AddServer(s.server, Link{offset: offset})
	s.joiner.Join()
	for reader, k := range s.joiner.joined {
		if joined++; s.partners[reader] != k.serverG {
			wrong++
		}
	}
	return joined, wrong
}

// TestConnectionsPair: all connections of a client are joined with the right ones of the server, at low and high rates, with and without
// the times at which requests were sent, next to other clients of the server and calls of other servers.
func TestConnectionsPair(t *testing.T) {
	for _, hasSends := range []bool{true, false} {
		for seed := range uint64(5) {
			s := newSimulation(seed)
			for range 16 {
				s.connect(200, 10*ms, ms, 12*ms, true, hasSends)
			}
			for range 4 {
				s.connect(200, 10*ms, ms, 12*ms, false, hasSends) // calls of another server
			}
			other := newSimulation(seed + 100) // another client of this server, which was not recorded
			other.lastG = 1000
			for range 8 {
				other.connect(200, 10*ms, ms, 12*ms, true, hasSends)
			}
			for _, list := range other.server.Connections {
				for _, r := range list {
					s.server.Add(r)
				}
			}
			if joined, wrong := s.join(7_000_000 * us); joined != 16 || wrong != 0 {
				t.Errorf("seed %d, sends %v: %d connections are joined, %d wrongly; want 16", seed, hasSends, joined, wrong)
			}
		}
	}
}

// TestUnrelatedServices: connections of services that do not call each other are never joined, however busy they are, even if one
// client calls both at the same time.
func TestUnrelatedServices(t *testing.T) {
	for seed := range uint64(40) {
		s := newSimulation(seed)
		for range 8 {
			s.connect(3+int(seed)*5, 4*ms, 2*ms, 9*ms, false, seed%2 == 0)
		}
		other := newSimulation(seed + 1000)
		other.lastG = 1000
		for range 8 {
			other.connect(3+int(seed)*5, 4*ms, ms, 5*ms, true, true)
		}
		s.server.Connections = other.server.Connections
		// A page asks for two parts at once. One of them asks a third server. The other part is ready before that.
		caller := s.connect(100, 30*ms, 20*ms, 20*ms, false, true)
		for _, x := range s.joiner.readers[caller].exchanges {
			start := x.Sent + 10*us + s.rnd.Int64N(100*us)
			s.server.Add(Request{G: 2000, Conn: 2000, Start: start, End: start + 8*ms + s.rnd.Int64N(ms), IsWoken: true})
		}
		if joined, _ := s.join(0); joined != 0 {
			t.Errorf("seed %d: %d connections are joined", seed, joined)
		}
	}
}

// TestAmbiguousConnections: two connections that always begin and end together fit both of the server's. None is joined. If another one
// shows that the server is called, their calls are counted.
func TestAmbiguousConnections(t *testing.T) {
	for _, isCalled := range []bool{false, true} {
		s := newSimulation(1)
		a := s.connect(50, 20*ms, 5*ms, 5*ms, true, true)
		b := s.connect(1, 20*ms, 5*ms, 5*ms, true, true)
		s.joiner.readers[b].exchanges = slices.Clone(s.joiner.readers[a].exchanges)
		s.server.Connections[s.partners[b]] = slices.Clone(s.server.Connections[s.partners[a]])
		for i := range s.server.Connections[s.partners[b]] {
			s.server.Connections[s.partners[b]][i].Conn = s.partners[b]
		}
		wantJoined, wantAmbiguous := 0, 0
		if isCalled {
			s.connect(50, 20*ms, 2*ms, 5*ms, true, true)
			wantJoined, wantAmbiguous = 1, 100
		}
		joined, wrong := s.join(0)
		if n := s.joiner.AmbiguousCallees()[s.server]; joined != wantJoined || wrong != 0 || n != wantAmbiguous {
			t.Errorf("%d connections are joined, %d wrongly, %d calls are ambiguous; want %d, 0, %d", joined, wrong, n, wantJoined, wantAmbiguous)
		}
	}
}

// TestBursts: on a busy machine, calls of eight connections begin at once and wait for a CPU on both ends, so that few messages are on
// the way for a short time. The times of the answers show which connection is which, of most.
func TestBursts(t *testing.T) {
	joinedCount := 0
	for seed := range uint64(20) {
		s := newSimulation(seed)
		now := int64(20 * ms)
		for range 20 {
			end := now
			for _, i := range s.rnd.Perm(8) {
				k := uint64(i)
				conn := s.joiner.readers[k]
				if conn == nil {
					conn = &clientConnection{reader: k}
					s.joiner.readers[k], s.joiner.readerOrder, s.partners[k] = conn, append(s.joiner.readerOrder, k), 100+k
				}
				delay := func() int64 { return 20*us + int64(s.rnd.ExpFloat64()*float64(ms)) }
				sent := now + s.rnd.Int64N(100*us)
				start := sent + delay()
				end = max(end, start) + 3*ms // one lock
				arrived := end + delay()
				conn.exchanges = append(conn.exchanges, Exchange{sent, arrived, true})
				s.server.Add(Request{G: 100 + k, Conn: 100 + k, Start: start, End: end, AnswerTime: end - 10*us, IsWoken: true})
			}
			now = end + 30*ms
		}
		joined, wrong := s.join(0)
		if joinedCount += joined; wrong != 0 {
			t.Errorf("seed %d: %d connections are joined, %d wrongly", seed, joined, wrong)
		}
	}
	check.True(t, joinedCount >= 80, "%d of 160 connections are joined", joinedCount)
}

// TestDeadConnection: the last wait of a connection that the server closed is no exchange. Later generations change nothing.
func TestDeadConnection(t *testing.T) {
	conn := &clientConnection{isDead: true, arrivals: []int64{ms, 2 * ms, 3 * ms}}
	for range 3 {
		if conn.buildExchanges(); len(conn.exchanges) != 2 {
			t.Fatalf("%d exchanges, want 2", len(conn.exchanges))
		}
	}
}

// TestLaterAnswers: a connection that was joined in an earlier part of the traces gets the answers of later exchanges, each once, as long as they fit
// the server's requests.
func TestLaterAnswers(t *testing.T) {
	for _, fits := range []bool{true, false} {
		s := newSimulation(1)
		reader := s.connect(100, 10*ms, ms, 12*ms, true, true)
		conn := s.joiner.readers[reader]
		requests := s.server.Connections[s.partners[reader]]
		middle := conn.exchanges[60].Sent - 20*us
		newExchanges := conn.exchanges[60:]
		conn.exchanges, s.server.Connections[s.partners[reader]] = conn.exchanges[:60:60], requests[:60:60]
		s.joiner.to, s.server.To = middle, middle
		joined, wrong := s.join(0)
		must.True(t, joined == 1 && wrong == 0, "%d joined, %d wrongly", joined, wrong)
		if !fits {
			for i := range newExchanges {
				newExchanges[i].Arrived = newExchanges[i].Sent + 100*us // before the answers
			}
		}
		conn.exchanges = append(conn.exchanges, newExchanges...)
		for _, r := range requests[60:] {
			s.server.Add(r)
		}
		s.joiner.to, s.server.To = 10_000*ms, 10_000*ms
		s.joiner.Join()
		want := 60
		if fits {
			want = 100
		}
		check.Equal(t, len(s.joiner.joined[reader].answers), want, "answers, later ones fit: %t", fits)
	}
}

// TestCausesOfSimilar: a request that was not walked has the causes of the walked one with the nearest latency, in proportion, and none if all
// latencies are far from its own.
func TestCausesOfSimilar(t *testing.T) {
	walked := []Request{
		{G: 3, Start: 0, End: 10, Parts: []critpath.RemotePart{{End: 10, G: 3, Cause: 1}}},
		{G: 4, Start: 100, End: 200, Parts: []critpath.RemotePart{{End: 150, G: 4, Cause: 2}, {End: 200, G: 9, Cause: 3}}},
	}
	for latency, want := range map[int64][]critpath.RemotePart{
		12:   {{End: 1012, G: 7, Cause: 1}},
		120:  {{End: 1060, G: 7, Cause: 2}, {End: 1120, Cause: 3}},
		1000: nil,
	} {
		r := walkedRequest{Request: Request{G: 7, Start: 1000, End: 1000 + latency}}
		got := r.withCausesOfSimilar(walked, "g")
		check.True(t, slices.Equal(got.Parts, want) && got.Group == "g", "%d ns: %+v, want %+v", latency, got, want)
	}
}
