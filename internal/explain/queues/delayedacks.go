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

// Linux acknowledges a segment at the latest 40 ms after it arrived (TCP_DELACK_MIN in net/tcp.h), at the next tick of its
// clock: 10 ms later at 100 ticks a second. Nagle's algorithm in the sender keeps the next small segment until then. The
// goroutine begins to wait somewhat after the segment arrived. UsualAckDelayNS is for 250 to 1000 ticks a second.
const (
	UsualAckDelayNS    = 42e6
	minAckDelayNS      = 38e6
	maxShortAckDelayNS = UsualAckDelayNS
	maxAckDelayNS      = 52e6
)

// addLaterPart adds a wait of ns for a later part of an answer. isSecond: the wait before was for the first part. A wait far shorter
// than an acknowledgement delay is ignored: the part arrived together with the first one.
func (c *PeerCalls) addLaterPart(ns int64, isSecond bool) {
	if threshold.FarFactor*ns < minAckDelayNS {
		return
	}
	if c.LaterParts++; isSecond && ns >= minAckDelayNS && ns <= maxAckDelayNS {
		c.AckDelays, c.AckDelayNS = c.AckDelays+1, c.AckDelayNS+ns
		if ns <= maxShortAckDelayNS {
			c.ShortAckDelays++
		}
	}
}

// SplitsRequests reports whether the service writes each request in two parts, and nearly all answers take as long as the peer's kernel
// delays an acknowledgement. Without TCP_NODELAY, the service's own kernel keeps the second part until then.
func (c *PeerCalls) SplitsRequests() bool {
	return c.SplitDelays >= threshold.MedianSample && float64(c.SplitDelays) >= threshold.MostShare*float64(max(c.SplitCalls, c.Calls))
}

// addSplitCall adds a call whose request a goroutine writes at two lines, with the wait for the first part of its answer. The peer's own
// time follows the delay.
func (c *PeerCalls) addSplitCall(ns int64) {
	if c.SplitCalls++; ns >= minAckDelayNS && ns <= maxAckDelayNS {
		c.SplitDelays, c.SplitDelayNS = c.SplitDelays+1, c.SplitDelayNS+ns
	}
}
