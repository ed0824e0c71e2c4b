package request

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// messageSource follows goroutines that read messages from a WebSocket: the goroutine of an HTTP/1 connection whose
// handler has hijacked it, or one that was started for it. A message is a request:
//
//	wait for the next message (NextReader) -> woken: start
//	... reads and handles the message ...
//	wait for the next message: end
//
// If the next message is available at once, it is read without a wait; then that read ends the one and begins the
// other. A message that one read returned together with the one before leaves no event and counts as a part of it.
type messageSource struct {
	sourceStubs
	connections *http1Source // loses the connections that become WebSockets
	readers     map[uint64]*messageReader
	// otherReaders are connections' goroutines that read a WebSocket and continued with HTTP: the WebSocket belongs to
	// a connection from their handler to another server.
	otherReaders  map[uint64]bool
	peerStacks    map[tracefmt.StackID]bool             // of otherReaders, where they call a WebSocket connection
	nameFrames    map[tracefmt.FrameID]tracefmt.FrameID // what names the messages, by the library's caller
	handlingTimes map[tracefmt.FrameID]*handlingTime    // by the library's caller
}

// handlingTime is the total time in which messages were handled. queuedNS is the time of those messages at whose end
// the next one was available.
type handlingTime struct{ totalNS, queuedNS int64 }

// A messageReader is a goroutine that reads messages.
type messageReader struct {
	openRequest
	phase         readPhase
	idleSince     int64 // when the wait for a message began
	isWoken       bool  // a wake began the message
	hasWorked     bool  // the goroutine did something else than reading since start
	nextRead      int64 // when a read began that may have returned the next message
	followedUntil int64 // spans that began before it were processed
	count         int   // messages so far
	callerFrame   tracefmt.FrameID
	waitStack     tracefmt.StackID
}

// A readPhase is what a goroutine that reads messages does: waiting for a message, or handling one.
type readPhase uint8

const (
	readUnknown readPhase = iota
	readIdle
	readActive
)

// newMessageSource returns an empty messageSource that takes over connections from connections.
func newMessageSource(connections *http1Source) *messageSource {
	return &messageSource{
		connections: connections,
		readers:     make(map[uint64]*messageReader), otherReaders: make(map[uint64]bool), peerStacks: make(map[tracefmt.StackID]bool),
		nameFrames: make(map[tracefmt.FrameID]tracefmt.FrameID), handlingTimes: make(map[tracefmt.FrameID]*handlingTime),
	}
}

// add emits the messages that ended in a generation, and names them by the function that handles them.
func (ms *messageSource) add(c *collector, g *timeline.Gen) {
	removeUnknown(ms.otherReaders, g)
	g.EachMarked(func(id uint64, marks []timeline.Mark) { ms.addMarks(c, id, marks) })
	for id := range ms.otherReaders {
		for _, span := range c.spans(id, g.Base, g.End+1) {
			if c.stackInfo(span.Stack).isWebSocket {
				ms.peerStacks[span.Stack] = true
			}
		}
	}
	if len(ms.readers) == 0 {
		return
	}
	first := len(c.emitted)
	votes := make(map[tracefmt.FrameID]map[tracefmt.FrameID]int)
	for _, id := range slices.Sorted(maps.Keys(ms.readers)) {
		r := ms.readers[id]
		if !c.annotated[id] {
			spans := c.spans(id, g.Base, g.End+1)
			ms.emitMessages(c, id, r, spans)
			ms.addVotes(c, r, spans, votes)
		}
	}
	removeEnded(ms.readers, g, nil) // events after the end of a connection are no message
	ms.resolveNames(votes, c.emitted[first:])
}

// addMarks begins to follow a goroutine that waited for a WebSocket message. A goroutine that returns to HTTP/1 afterwards only
// called another server by WebSocket, and is no longer followed.
func (ms *messageSource) addMarks(c *collector, id uint64, marks []timeline.Mark) {
	index := slices.IndexFunc(marks, func(m timeline.Mark) bool { return m.Flags&flagMessage != 0 })
	reader := ms.readers[id]
	if index < 0 && reader == nil || ms.otherReaders[id] {
		return
	}
	// A hijacked connection never returns to HTTP.
	if slices.ContainsFunc(marks[max(index, 0):], func(m timeline.Mark) bool { return m.Flags&(flagPeek|flagFinish) != 0 }) {
		ms.otherReaders[id] = true
		delete(ms.readers, id)
		return
	}
	if reader != nil {
		return
	}
	ms.readers[id] = &messageReader{}
	ms.connections.removeHijacked(c, id, marks[index].Time)
}

// emitMessages follows a goroutine through its spans and emits the messages that ended: each lasts from the wake of a wait for a
// message, or from a read that returned data without a wait, to the next of these.
func (ms *messageSource) emitMessages(c *collector, id uint64, reader *messageReader, spans []timeline.Span) {
	for span := range entry.Each(spans) {
		isSameWait := reader.phase == readIdle && span.State == timeline.Waiting && span.Start == reader.idleSince
		if span.Stack == 0 || span.Origin == timeline.OriginCreated || span.Start < reader.followedUntil && !isSameWait {
			continue // both generations report a span that crosses their border
		}
		reader.followedUntil = span.Start + 1
		switch message := c.stackInfo(span.Stack).isMessageWait; {
		case !message:
			if reader.nextRead != 0 && span.State != timeline.Runnable {
				if reader.phase == readActive && reader.callerFrame != 0 {
					entry.GetOrAdd(ms.handlingTimes, reader.callerFrame).queuedNS += reader.nextRead - reader.start
				}
				ms.endMessage(c, id, reader, reader.nextRead) // the read returned data
				reader.begin(reader.nextRead, false)
			}
			reader.hasWorked = true
		case span.State == timeline.Syscall:
			if reader.nextRead == 0 && (reader.phase == readUnknown || reader.phase == readActive && reader.hasWorked) {
				reader.nextRead = span.Start
			}
		case span.State == timeline.Waiting && c.reasonOf(span.Reason) == reasonNetwork:
			reader.waitStack = span.Stack
			if reader.callerFrame == 0 {
				reader.callerFrame = ms.libraryCaller(c, span.Stack)
			}
			if !isSameWait {
				ms.endMessage(c, id, reader, span.Start)
				reader.openRequest, reader.phase, reader.idleSince, reader.nextRead = openRequest{}, readIdle, span.Start, 0
			}
			if span.Woken {
				reader.begin(span.End, true)
			}
		}
	}
}

// begin begins a message at t. ready says that a wake began it.
func (r *messageReader) begin(t int64, ready bool) {
	r.openRequest, r.phase, r.isWoken, r.hasWorked, r.nextRead = openAt(t), readActive, ready, false, 0
}

// endMessage emits the message that a goroutine handled until t, if it handled one.
func (ms *messageSource) endMessage(c *collector, id uint64, reader *messageReader, t int64) {
	if reader.phase != readActive {
		return
	}
	reader.count++
	entry.GetOrAdd(ms.handlingTimes, reader.callerFrame).totalNS += t - reader.start
	message := reader.openMessage(id, ms)
	message.End = t
	if reader.isWoken {
		message.WokenAt = reader.start
	}
	c.emitServed(&c.emitted, &reader.openRequest, message)
}

// openMessage returns the message that the goroutine id handles, as a request without bounds.
func (r *messageReader) openMessage(id uint64, ms *messageSource) Request {
	return Request{Kind: WebSocket, G: id, EntryStack: r.waitStack, RootFrame: ms.nameFrame(r.callerFrame)}
}

func (ms *messageSource) serves(id uint64) bool { return ms.readers[id] != nil }

// openOn returns nil: annotations within a message are emitted when they end, and represent it.
func (ms *messageSource) openOn(uint64) *openRequest { return nil }

// visitOpen visits the messages that are being handled.
func (ms *messageSource) visitOpen(visit func(*openRequest, Request)) {
	for id, r := range ms.readers {
		// A goroutine that has read one message may only write from then on. That is a stream, and no message.
		if r.phase == readActive && r.count > 0 {
			visit(&r.openRequest, r.openMessage(id, ms))
		}
	}
}

// QueuedMessageShare returns the share of the handling time of messages with this name at whose end the next message was already
// available, and so had been queued; 0 if there are no such messages.
func (f *Finder) QueuedMessageShare(name tracefmt.StringID) float64 {
	var all handlingTime
	for caller, h := range f.messages.handlingTimes {
		if f.syms.Frame(f.messages.nameFrame(caller)).Func == name {
			all.totalNS, all.queuedNS = all.totalNS+h.totalNS, all.queuedNS+h.queuedNS
		}
	}
	return float64(all.queuedNS) / float64(max(all.totalNS, 1))
}

// libraryCaller returns the frame that called the WebSocket library to read a message: the innermost service frame, else one of
// another library, else the library's own.
func (ms *messageSource) libraryCaller(c *collector, stack tracefmt.StackID) tracefmt.FrameID {
	frames := c.syms.Stack(stack)
	index := slices.IndexFunc(frames, func(fr tracefmt.FrameID) bool { return c.namer.frameFunction(fr).Has(knowledge.MessageBegin) })
	callers := frames[index+1:]
	if i := slices.IndexFunc(callers, func(fr tracefmt.FrameID) bool { return c.namer.isServiceCode(c.syms.Frame(fr)) }); i >= 0 {
		return callers[i]
	}
	library := libraryOf(c.namer.frameFunction(frames[index]).name)
	if i := slices.IndexFunc(callers, func(fr tracefmt.FrameID) bool {
		fn := c.namer.frameFunction(fr)
		return !fn.Has(knowledge.Stdlib) && libraryOf(fn.name) != library
	}); i >= 0 {
		return callers[i]
	}
	return frames[index]
}

// addVotes counts, for each span in which a message is handled, the innermost service function that this span's stack shares
// with the stack of the wait. votes has the counts by the frame that called the library, and by that function's frame. The
// function with the most votes both reads and handles messages, and names them (resolveNames).
func (ms *messageSource) addVotes(c *collector, reader *messageReader, spans []timeline.Span, votes map[tracefmt.FrameID]map[tracefmt.FrameID]int) {
	if reader.callerFrame == 0 || ms.nameFrames[reader.callerFrame] != 0 {
		return
	}
	if votes[reader.callerFrame] == nil {
		votes[reader.callerFrame] = make(map[tracefmt.FrameID]int)
	}
	frames := c.syms.Stack(reader.waitStack)
	frames = frames[max(slices.Index(frames, reader.callerFrame), 0):]
	for span := range entry.Each(spans) {
		if span.Stack == 0 || span.Origin == timeline.OriginCreated || c.stackInfo(span.Stack).isMessageWait {
			continue
		}
		for _, fr := range frames {
			frame := c.syms.Frame(fr)
			isSameFunc := func(handlerFrame tracefmt.FrameID) bool { return c.syms.Frame(handlerFrame).Func == frame.Func }
			if c.namer.isServiceCode(frame) && slices.ContainsFunc(c.syms.Stack(span.Stack), isSameFunc) {
				votes[reader.callerFrame][fr]++
				break
			}
		}
	}
}

// nameFrame returns the frame that names the messages of a library's caller: the caller until resolveNames has chosen.
func (ms *messageSource) nameFrame(caller tracefmt.FrameID) tracefmt.FrameID {
	return cmp.Or(ms.nameFrames[caller], caller)
}

// resolveNames chooses, for each caller of the library that has messages, the frame with the most votes, and renames the messages
// in out.
func (ms *messageSource) resolveNames(votes map[tracefmt.FrameID]map[tracefmt.FrameID]int, out []Request) {
	for caller, counts := range votes {
		best := caller
		for fr, n := range counts {
			if n > counts[best] || n == counts[best] && fr < best && counts[best] > 0 {
				best = fr
			}
		}
		if slices.ContainsFunc(out, func(r Request) bool { return r.Kind == WebSocket && r.RootFrame == caller }) {
			ms.nameFrames[caller] = best
		}
	}
	for i := range out {
		if r := &out[i]; r.Kind == WebSocket {
			r.RootFrame = ms.nameFrame(r.RootFrame)
		}
	}
}
