package exchange

import (
	"cmp"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// A long stream of gRPC is like a connection of HTTP/1 if its client sends the next message only after it has the answer to the one
// before: then messages and answers alternate. The client's end is the goroutine that receives the answers; the server's end is the
// stream's goroutine, whose messages package request finds. Nothing shows which write has a message, because one goroutine writes
// everything on the connection: the last write before the server has the message is its own or a later one.

// addStreams begins to follow goroutines that receive the messages of a stream of gRPC, in the first generation: the server's end of a
// stream that began later is one request.
func (c *Clients) addStreams(g *timeline.Gen) {
	for id := range g.WithStack(c.messageWaits) {
		if _, isBorn := g.BirthOf(id); !isBorn && c.readers[id] == nil {
			c.readers[id] = &clientConnection{reader: id, isStream: true}
			c.readerOrder = append(c.readerOrder, id)
		}
	}
}

// awaitsMessage reports whether a stack with functions of these roles waits for a message of a stream.
func awaitsMessage(roles knowledge.Roles) bool {
	return roles.Has(knowledge.GRPCAnswerRead) && !roles.Has(knowledge.ClientCall) && !roles.Has(knowledge.HTTP2ClientWait)
}

// endsMessageWait reports whether wait s was for a message of a stream, which a reader of an HTTP/2 connection passed on.
func (c *Clients) endsMessageWait(s *timeline.Span) bool {
	transport := c.readers[s.Waker]
	return transport != nil && transport.isMultiplexed && int(s.Stack) < len(c.messageWaits) && c.messageWaits[s.Stack]
}

// maxUnreadNS is how long an answer may be unread at most.
const maxUnreadNS = 2e9

// readableSince returns since when the answer that ended wait s for a message may have been there to be read, but not from when on: when
// the connection's reader was woken or, if no P polled the network before, the last poll. That is only used if it is late in the time
// since from, when the answer before arrived: else any request would fit.
func (c *Clients) readableSince(s *timeline.Span, from int64) int64 {
	wake, ok := c.window.LastWake(s.Waker, from, s.End)
	if !ok {
		return s.End
	}
	pollTime, ok := c.window.Gens[c.window.GenIndex(wake.Time)].LastPoll(wake.Time)
	if !ok || float64(wake.Time-pollTime) > threshold.NoticeableShare*float64(wake.Time-from) {
		return wake.Time
	}
	return pollTime
}

// setTimes sets when the messages of a stream were written at the latest, and since when the answers may have been there.
func (conn *clientConnection) setTimes(f *fit, requests []Request, l *Link) {
	for i := range f.pairs {
		p := &f.pairs[i]
		n, _ := slices.BinarySearchFunc(conn.exchanges, p.exchange.Arrived, func(x Exchange, t int64) int { return cmp.Compare(x.Arrived, t) })
		p.readable = conn.readable[n]
		k, found := slices.BinarySearch(conn.writer.sends, l.ToClient(requests[p.request].Start)+l.slack)
		if !found {
			k--
		}
		if k >= 0 && conn.writer.sends[k] > p.exchange.Sent {
			p.lastSend = conn.writer.sends[k]
		}
	}
}

// isCloseStream reports whether messages were on the way for as long as on a network, both there and back. That a message was sent
// only after the answer to the one before is not enough: calls of other services that follow each other alternate as well.
func (c *candidate) isCloseStream() bool {
	forwardTimes, returnTimes := c.wayTimes()
	return len(forwardTimes) > 0 && isClose(forwardTimes, returnTimes, c.peer.slack, 1)
}

// answerTo returns the message of another service that answers a wait, from start to end, of the reader of a stream's connection; nil
// if none is known.
func (k *joinedConnection) answerTo(start, end int64) *critpath.RemoteAnswer {
	i := sort.Search(len(k.waits), func(i int) bool { return k.waits[i].Arrived >= end })
	if i == len(k.waits) || k.waits[i].Sent >= end || k.answers[i].Start >= end || k.answers[i].End <= start || len(k.answers[i].Parts) == 0 {
		return nil
	}
	return &k.answers[i]
}
