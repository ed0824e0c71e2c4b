package request

import (
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// streamSource finds HTTP/2 and gRPC streams: each has a goroutine.
type streamSource struct {
	sourceStubs
	streams map[uint64]*stream // open ones
	// Buffers of one generation.
	newStreams  []newStream
	workerSpans [][]timeline.Span
}

// add emits the streams that ended in a generation: each is the life of the goroutine that serves it.
func (ss *streamSource) add(c *collector, g *timeline.Gen) {
	ss.newStreams = ss.newStreams[:0]
	g.EachBirth(func(start tracefmt.StackID) bool { return c.stackInfo(start).streamKind != 0 }, func(_ uint32, b timeline.Birth) {
		ss.newStreams = append(ss.newStreams, newStream{birth: b, stream: stream{kind: c.stackInfo(b.Start).streamKind}})
	})
	// Most streams begin and end in one generation. They are independent, so workers process them in parallel.
	runParallel(&ss.workerSpans, c.workers, ss.newStreams, streamBatch, func(spans *[]timeline.Span, list []newStream) {
		for i := range list {
			n := &list[i]
			n.setArrival(c, spans)
			n.deathTime, n.dead = g.Death(n.birth.G)
		}
	})
	removeEnded(ss.streams, g, func(id uint64, s *stream, t int64) { s.end(c, id, t) })
	for i := range ss.newStreams {
		if n := &ss.newStreams[i]; n.dead {
			n.end(c, n.birth.G, n.deathTime)
		} else {
			s := n.stream
			ss.streams[n.birth.G] = &s
		}
	}
}

// end emits the stream of goroutine id, which ended at t.
func (s *stream) end(c *collector, id uint64, t int64) {
	c.emitServed(&c.emitted, &s.openRequest, Request{Kind: s.kind, End: t, G: id, WokenAt: s.wokenAt})
}

// streamBatch is how many streams a worker takes at once.
const streamBatch = 64

// A newStream is a goroutine that serves a stream and was created in this generation.
type newStream struct {
	stream
	birth     timeline.Birth
	deathTime int64
	dead      bool
}

// A stream is an open request of HTTP/2 or gRPC, on the goroutine that was created for it.
type stream struct {
	openRequest
	kind    Kind
	wokenAt int64 // equals start if the network woke the reader, else 0
}

// setArrival sets the start of a stream: when the wait for the frame that began it ended. With gRPC, the goroutine that reads the
// connection creates the stream's goroutine. With HTTP/2, the reader passes frames to the connection's goroutine, which creates
// it. If one read returned several frames, the later ones begin when the reader passed them on, which may be slightly late.
func (n *newStream) setArrival(c *collector, spans *[]timeline.Span) {
	n.openRequest = openAt(n.birth.Time)
	wait, ok := lastWait(c, n.birth.Creator, n.birth.Time, spans)
	if !ok {
		return
	}
	// A wait without a reason that no goroutine ended was probably for the network poller: a status event does not say. A
	// timer that woke the creator proves nothing: its earlier work may belong to other streams.
	if !wait.isNetwork && wait.waker == 0 && !wait.isFromStatus {
		return
	}
	if !wait.isNetwork && wait.waker != 0 {
		if readerWait, ok := lastWait(c, wait.waker, wait.end, spans); ok {
			wait = readerWait
		}
	}
	if n.openRequest = openAt(wait.end); wait.isNetwork {
		n.wokenAt = wait.end
	}
}

// An endedWait is a wait that has ended.
type endedWait struct {
	end          int64
	waker        uint64
	isNetwork    bool
	isFromStatus bool // it began before the trace
}

// lookback bounds the search for a goroutine's last wait. No goroutine stays runnable for longer on a working machine.
const lookback = 2e9

// lastWait returns the last wait of goroutine id that ended before t, at most lookback before t; false if there is none. spans is
// a buffer.
func lastWait(c *collector, id uint64, t int64, spans *[]timeline.Span) (wait endedWait, found bool) {
	wake, ok := c.window.LastWake(id, t-lookback, t)
	if !ok || wake.EndsNetworkWait || wake.EndsOtherWait {
		return endedWait{wake.Time, wake.Waker, wake.EndsNetworkWait, false}, ok
	}
	// If a part of the trace is missing, the goroutine may not have waited before this wake.
	from, to := wake.Time-1, min(wake.Time+1, t)
	for back := int64(20e3); ; back *= 10 {
		*spans = c.window.SpansCoarse(id, from, to, (*spans)[:0])
		for _, s := range slices.Backward(*spans) {
			if s.State == timeline.Waiting && s.Woken && s.End <= t {
				return endedWait{s.End, s.Waker, c.reasonOf(s.Reason) == reasonNetwork, s.Origin == timeline.OriginStatus}, true
			}
		}
		if from < wake.Time-1 && (len(*spans) == 0 || (*spans)[0].Start < t-lookback) || back > lookback {
			return endedWait{}, false
		}
		from, to = t-back, t
	}
}

func (ss *streamSource) serves(id uint64) bool { return ss.streams[id] != nil }

// openOn returns the request of a stream's goroutine, nil if there is none.
func (ss *streamSource) openOn(id uint64) *openRequest {
	if s := ss.streams[id]; s != nil {
		return &s.openRequest
	}
	return nil
}

// visitOpen visits the requests of all open streams.
func (ss *streamSource) visitOpen(visit func(*openRequest, Request)) {
	for id, s := range ss.streams {
		visit(&s.openRequest, Request{Kind: s.kind, G: id})
	}
}
