package queues

import (
	"github.com/whylate/whylate/internal/explain/threshold"
)

// DelaysAcks reports whether the answers come in two parts, and the sender's kernel keeps the second part back until the first
// one is acknowledged (Nagle's algorithm with delayed acknowledgements). A pause in the sender's program would not have this
// length in nearly all answers, and not only before the second part.
func (c *PeerCalls) DelaysAcks() bool {
	return c.AckDelays >= threshold.MedianSample && float64(c.AckDelays) >= threshold.MostShare*float64(c.LaterParts) &&
		float64(c.ShortAckDelays) >= threshold.NoticeableShare*float64(c.AckDelays)
}

// A laterPartSum adds up the waits for later parts of answers. The fields are those of PeerCalls.
type laterPartSum struct{ waits, ackDelays, shortAckDelays, ackDelayNS int64 }

// Linux acknowledges a segment at the latest 40 ms after it arrived (TCP_DELACK_MIN in net/tcp.h), at the next tick of its
// clock: 10 ms later at 100 ticks a second. Nagle's algorithm in the sender keeps the next small segment until then. The
// goroutine begins to wait somewhat after the segment arrived. UsualAckDelayNS is for 250 to 1000 ticks a second.
const (
	UsualAckDelayNS    = 42e6
	minAckDelayNS      = 38e6
	maxShortAckDelayNS = UsualAckDelayNS
	maxAckDelayNS      = 52e6
)

// add adds a wait of ns for a later part of an answer. isSecond: the wait before was for the first part. A wait far shorter
// than an acknowledgement delay is ignored: the part arrived together with the first one.
func (s *laterPartSum) add(ns int64, isSecond bool) {
	if threshold.FarFactor*ns < minAckDelayNS {
		return
	}
	if s.waits++; isSecond && ns >= minAckDelayNS && ns <= maxAckDelayNS {
		s.ackDelays, s.ackDelayNS = s.ackDelays+1, s.ackDelayNS+ns
		if ns <= maxShortAckDelayNS {
			s.shortAckDelays++
		}
	}
}

// merge adds another sum, multiplied by a weight.
func (s *laterPartSum) merge(addend *laterPartSum, weight int64) {
	s.waits, s.ackDelays = s.waits+addend.waits*weight, s.ackDelays+addend.ackDelays*weight
	s.shortAckDelays, s.ackDelayNS = s.shortAckDelays+addend.shortAckDelays*weight, s.ackDelayNS+addend.ackDelayNS*weight
}

// SplitsRequests reports whether the service writes each request in two parts, and nearly all answers take as long as the peer's kernel
// delays an acknowledgement. Without TCP_NODELAY, the service's own kernel keeps the second part until then.
func (c *PeerCalls) SplitsRequests() bool {
	return c.SplitDelays >= threshold.MedianSample && float64(c.SplitDelays) >= threshold.MostShare*float64(max(c.SplitCalls, c.Calls))
}

// A splitCallSum adds up the calls whose request a goroutine writes at two lines. The fields are those of PeerCalls.
type splitCallSum struct{ calls, delays, delayNS int64 }

// add adds the wait for the first part of an answer. The peer's own time follows the delay.
func (s *splitCallSum) add(ns int64) {
	if s.calls++; ns >= minAckDelayNS && ns <= maxAckDelayNS {
		s.delays, s.delayNS = s.delays+1, s.delayNS+ns
	}
}

// merge adds another sum, multiplied by a weight.
func (s *splitCallSum) merge(addend *splitCallSum, weight int64) {
	s.calls, s.delays, s.delayNS = s.calls+addend.calls*weight, s.delays+addend.delays*weight, s.delayNS+addend.delayNS*weight
}
