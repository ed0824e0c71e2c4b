package exchange

import (
	"math"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/testing/check"
)

// receive makes a connection of the simulation a stream of messages. Its writer also answers the reader after each arrival, and pings
// at any time. A client that does not wait for answers sends each message before the answer to the one before has arrived.
func (s *simulation) receive(reader, transport uint64) *clientConnection {
	conn := s.joiner.readers[reader]
	conn.isStream, conn.transport, conn.writer = true, transport, new(writer)
	arrived := int64(math.MinInt64)
	exchanges := conn.exchanges
	conn.exchanges = nil
	for i, x := range exchanges {
		conn.writer.sends = append(conn.writer.sends, x.Sent, x.Arrived+5*us, x.Sent+s.rnd.Int64N(x.Arrived-x.Sent))
		if i%20 != 10 { // else the client took the answer without a wait
			conn.exchanges, conn.readable = append(conn.exchanges, Exchange{Sent: arrived, Arrived: x.Arrived}), append(conn.readable, x.Arrived)
			arrived = x.Arrived
		}
	}
	slices.Sort(conn.writer.sends)
	for k := range s.server.Connections[s.partners[reader]] {
		s.server.Connections[s.partners[reader]][k].Parts = []critpath.RemotePart{{End: s.server.Connections[s.partners[reader]][k].End}}
	}
	return conn
}

// TestMessageStreams: each message of a stream whose client waits for the answers is joined with its own request, next to other streams of
// one connection and connections of HTTP/1.
func TestMessageStreams(t *testing.T) {
	for seed := range uint64(10) {
		s := newSimulation(seed)
		const transport = 9000
		var streams []uint64
		for i := range 6 {
			reader := s.connect(200, 10*ms, 100*us, 4*ms, i < 4, true)
			s.receive(reader, transport)
			streams = append(streams, reader)
			s.connect(200, 10*ms, 100*us, 4*ms, true, true)
		}
		if joined, wrong := s.join(0); joined != 10 || wrong != 0 {
			t.Fatalf("seed %d: %d connections are joined, %d wrongly; want 10", seed, joined, wrong)
		}
		for i, reader := range streams {
			for k, x := range s.joiner.readers[reader].exchanges {
				k += (k + 9) / 19
				answer := s.joiner.RemoteAnswerTo(transport, reader, x.Arrived-200*us, x.Arrived-10*us)
				if i >= 4 && answer != nil || i < 4 && (answer == nil || answer.End != s.server.Connections[s.partners[reader]][k].End) {
					t.Errorf("seed %d: message %d of stream %d is joined with %+v", seed, k, i, answer)
				}
			}
			check.True(t, s.joiner.RemoteAnswerTo(transport+1, reader, 0, 10_000*ms) == nil, "seed %d: a wait for another connection is joined", seed)
		}
	}
}

// TestStarvedReader: the goroutine that reads the answers of a stream always waits long for a P, so that only the time of its wake shows
// which request was answered.
func TestStarvedReader(t *testing.T) {
	s := newSimulation(1)
	reader := s.connect(12, 10*ms, 100*us, 4*ms, true, true)
	conn := s.joiner.readers[reader]
	requests := s.server.Connections[s.partners[reader]]
	for i := range conn.exchanges { // 300 ms each, of which the answer lies there for 80
		d := int64(i) * 300 * ms
		x := &conn.exchanges[i]
		requests[i].Start, requests[i].End = requests[i].Start+d, requests[i].End+d
		x.Sent, x.Arrived = x.Sent+d, x.Arrived+d+80*ms
	}
	s.receive(reader, 9000)
	for i := range conn.readable {
		conn.readable[i] -= 90 * ms
	}
	if joined, wrong := s.join(0); joined != 1 || wrong != 0 {
		t.Errorf("%d streams are joined, %d wrongly; want 1", joined, wrong)
	}
}

// TestStreamsInTurn: a client calls two servers one after the other, so that the messages of each stream alternate with both servers'
// requests.
func TestStreamsInTurn(t *testing.T) {
	s := newSimulation(1)
	readers := []uint64{s.connect(0, ms, ms, ms, true, true), s.connect(0, ms, ms, ms, true, true)}
	now := int64(20 * ms)
	for range 100 {
		for _, reader := range readers {
			start := now + 20*us + s.rnd.Int64N(60*us)
			end := start + ms + s.rnd.Int64N(3*ms)
			arrived := end + 20*us + s.rnd.Int64N(100*us)
			s.joiner.readers[reader].exchanges = append(s.joiner.readers[reader].exchanges, Exchange{now, arrived, true})
			s.server.Add(Request{G: s.partners[reader], Conn: s.partners[reader], Start: start, End: end, IsWoken: true})
			now = arrived + 50*us
		}
		now += s.rnd.Int64N(10 * ms)
	}
	for _, reader := range readers {
		s.receive(reader, 9000+reader)
	}
	if joined, wrong := s.join(0); joined != 2 || wrong != 0 {
		t.Errorf("%d streams are joined, %d wrongly; want 2", joined, wrong)
	}
}

// TestUnrelatedMessageStreams: streams that alternate with the messages of a stream of another service by chance, because both have the
// same period, are not joined. Neither is a stream whose client sends more before it has an answer.
func TestUnrelatedMessageStreams(t *testing.T) {
	for seed := range uint64(20) {
		s := newSimulation(seed)
		periodic := s.connect(0, ms, ms, ms, true, true)
		phase := ms + s.rnd.Int64N(5*ms)
		for i := range int64(300) {
			sent := 20*ms + i*20*ms
			s.joiner.readers[periodic].exchanges = append(s.joiner.readers[periodic].exchanges, Exchange{sent, sent + 10*ms, true})
			s.server.Add(Request{G: 1, Conn: 1, Start: sent + phase, End: sent + phase + 2*ms, IsWoken: true})
		}
		s.partners[periodic] = 1
		s.receive(periodic, 9000)
		flying := s.connect(300, 10*ms, ms, 4*ms, true, true)
		conn := s.receive(flying, 9001)
		for i := range conn.exchanges[1:] { // every message is there before the answer to the one before arrives
			r := &s.server.Connections[s.partners[flying]][i+1]
			r.Start = min(r.Start, conn.exchanges[i].Arrived-50*us)
		}
		if joined, _ := s.join(0); joined != 0 {
			t.Errorf("seed %d: %d streams are joined", seed, joined)
		}
	}
}
