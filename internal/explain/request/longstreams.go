package request

import (
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// longStreamSource finds the messages of gRPC streams that began before the trace: such a stream is no request whose end a client
// waits for, but each of its messages is one. A message lasts from the wake of the connection's reader, which passes it to the
// stream's goroutine, to that goroutine's wait for the next message. A message that is there when the goroutine asks for it leaves no
// event, and counts as a part of the one before.
type longStreamSource struct {
	sourceStubs
	hasStarted bool // the streams of the first generation are known
	streams    map[uint64]*longStream
	spans      []timeline.Span
	waits      []timeline.Span
}

// A longStream is the goroutine of a stream.
type longStream struct {
	openRequest
	idleSince int64 // when the last wait for a message began; 0 before the first
	wokenAt   int64 // as of a stream
	isActive  bool  // it handles a message
	hasServed bool  // it has handled one
}

// add emits the messages that ended in a generation.
func (ls *longStreamSource) add(c *collector, g *timeline.Gen) {
	if !ls.hasStarted {
		ls.hasStarted = true
		g.EachStart(func(id uint64, start tracefmt.StackID, _ int) {
			if start == 0 && c.stackInfo(g.AnyStack(id)).streamKind == GRPC {
				ls.streams[id] = &longStream{}
			}
		})
	}
	removeEnded(ls.streams, g, nil)
	for _, id := range slices.Sorted(maps.Keys(ls.streams)) {
		s := ls.streams[id]
		ls.spans = c.window.Spans(id, g.Base, g.End+1, ls.spans[:0])
		for i := range ls.spans {
			wait := &ls.spans[i]
			if wait.State != timeline.Waiting || !c.stackInfo(wait.Stack).isStreamRead {
				continue
			}
			if wait.Start != s.idleSince { // else the generation before had its beginning
				if s.isActive {
					c.emitServed(&c.emitted, &s.openRequest, Request{Kind: GRPC, G: id, End: wait.Start, WokenAt: s.wokenAt})
				}
				s.isActive, s.hasServed, s.idleSince = false, s.hasServed || s.isActive, wait.Start
			}
			if wait.Woken && wait.Waker != 0 {
				ls.begin(c, s, wait)
			}
		}
	}
}

// begin begins the message that ended a stream's wait. If the connection's reader had it before that wait, it may have come at any
// time since the message before.
func (ls *longStreamSource) begin(c *collector, s *longStream, wait *timeline.Span) {
	s.isActive, s.openRequest, s.wokenAt = true, openAt(wait.End), wait.End
	if arrival, ok := lastWait(c, wait.Waker, wait.End, &ls.waits); ok && arrival.isNetwork {
		s.openRequest, s.wokenAt = openAt(max(arrival.end, wait.Start)), 0
		if arrival.end >= wait.Start {
			s.wokenAt = arrival.end
		}
	}
}

// serves reports whether a goroutine has handled a message of a stream.
func (ls *longStreamSource) serves(id uint64) bool {
	return ls.streams[id] != nil && ls.streams[id].hasServed
}

// openOn returns the message that a stream's goroutine handles, nil if there is none.
func (ls *longStreamSource) openOn(id uint64) *openRequest {
	if s := ls.streams[id]; s != nil && s.isActive {
		return &s.openRequest
	}
	return nil
}

// visitOpen visits the messages that are being handled.
func (ls *longStreamSource) visitOpen(visit func(*openRequest, Request)) {
	for id, s := range ls.streams {
		if s.isActive && s.hasServed {
			visit(&s.openRequest, Request{Kind: GRPC, G: id})
		}
	}
}
