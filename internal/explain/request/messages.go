package request

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// messageFinder follows goroutines that read message after message from a WebSocket:
// that of the HTTP/1 connection, which its handler has taken over, or one that
// was started for it. A message is a request:
//
//	wait for the next message (NextReader) -> woken: start
//	... reads it, handles it ...
//	wait for the next one: end
//
// A message that is there when the one before it is done is read without a wait:
// that read ends the one and begins the other. One that was read together with
// the one before it leaves no mark, and counts as a part of that.
type messageFinder struct {
	readers map[uint64]*messageReader
	// otherReaders are goroutines of connections that read a WebSocket, and then went
	// on with HTTP: the WebSocket is another one's, their handler's peer.
	otherReaders  map[uint64]bool
	nameFrames    map[tracefmt.FrameID]tracefmt.FrameID // by the caller of the library: what its messages are called by
	spans         []timeline.Span
	handlingTimes map[tracefmt.FrameID]*handlingTime // by the caller of the library
}

// handlingTime is for how long messages were handled, and for how long those at whose end the next one lay there.
type handlingTime struct{ totalNS, queuedNS int64 }

// A reader is a goroutine that reads messages.
type messageReader struct {
	openRequest
	phase         readPhase
	idleSince     int64 // when the wait for a message began
	isWoken       bool  // start is a wake
	hasWorked     bool  // something else than reading was seen since start
	nextRead      int64 // a read that may have begun another message
	followedUntil int64 // what began before it was looked at
	count         int   // messages so far
	callerFrame   tracefmt.FrameID
	waitStack     tracefmt.StackID
}

type readPhase uint8

const (
	readUnknown readPhase = iota
	readIdle
	readActive
)

func newMessageFinder() messageFinder {
	return messageFinder{
		readers: make(map[uint64]*messageReader), otherReaders: make(map[uint64]bool),
		nameFrames: make(map[tracefmt.FrameID]tracefmt.FrameID), handlingTimes: make(map[tracefmt.FrameID]*handlingTime),
	}
}

func (ms *messageFinder) add(f *Finder, g *timeline.Gen) {
	removeUnknown(ms.otherReaders, g)
	g.EachMarked(func(id uint64, marks []timeline.Mark) { ms.addMarks(f, id, marks) })
	if len(ms.readers) == 0 {
		return
	}
	first := len(f.emitted)
	votes := make(map[tracefmt.FrameID]map[tracefmt.FrameID]int)
	for _, id := range slices.Sorted(maps.Keys(ms.readers)) {
		r := ms.readers[id]
		if !f.work.annotated[id] {
			ms.spans = f.window.Spans(id, g.Base, g.End+1, ms.spans[:0])
			ms.follow(f, id, r)
			ms.addVotes(f, r, votes)
		}
	}
	removeEnded(ms.readers, g, nil) // what follows the end of a connection is no message
	ms.resolveNames(votes, f.emitted[first:])
}

// addMarks takes note of a goroutine that waited for a message.
func (ms *messageFinder) addMarks(f *Finder, id uint64, marks []timeline.Mark) {
	index := slices.IndexFunc(marks, func(m timeline.Mark) bool { return m.Flags&flagMessage != 0 })
	reader := ms.readers[id]
	if index < 0 && reader == nil || ms.otherReaders[id] {
		return
	}
	// A connection that was taken over never comes back to HTTP.
	if slices.ContainsFunc(marks[max(index, 0):], func(m timeline.Mark) bool { return m.Flags&(flagPeek|flagFinish) != 0 }) {
		ms.otherReaders[id] = true
		delete(ms.readers, id)
		return
	}
	if reader != nil {
		return
	}
	ms.readers[id] = &messageReader{}
	if conn := f.connections[id]; conn != nil {
		// The request with which it was taken over is done.
		if conn.phase == connActive && !conn.cutAtStart {
			f.endHTTP1(&f.emitted, id, conn, marks[index].Time)
		}
		delete(f.connections, id)
	}
}

// follow hands out the messages of a goroutine.
func (ms *messageFinder) follow(f *Finder, id uint64, reader *messageReader) {
	for i := range ms.spans {
		span := &ms.spans[i]
		isSameWait := reader.phase == readIdle && span.State == timeline.Waiting && span.Start == reader.idleSince
		if span.Stack == 0 || span.How == timeline.HowCreated || span.Start < reader.followedUntil && !isSameWait {
			continue // what lies over a border of generations is seen with both
		}
		reader.followedUntil = span.Start + 1
		switch message := f.stackInfo(span.Stack).isMessageWait; {
		case !message:
			if reader.nextRead != 0 && span.State != timeline.Runnable {
				if reader.phase == readActive && reader.callerFrame != 0 {
					entry.In(ms.handlingTimes, reader.callerFrame).queuedNS += reader.nextRead - reader.start
				}
				ms.endMessage(f, id, reader, reader.nextRead) // the read had data
				reader.begin(reader.nextRead, false)
			}
			reader.hasWorked = true
		case span.State == timeline.Syscall:
			if reader.nextRead == 0 && (reader.phase == readUnknown || reader.phase == readActive && reader.hasWorked) {
				reader.nextRead = span.Start
			}
		case span.State == timeline.Waiting && f.reasonOf(span.Reason) == reasonNetwork:
			reader.waitStack = span.Stack
			if reader.callerFrame == 0 {
				reader.callerFrame = ms.libraryCaller(f, span.Stack)
			}
			if !isSameWait {
				ms.endMessage(f, id, reader, span.Start)
				reader.openRequest, reader.phase, reader.idleSince, reader.nextRead = openRequest{}, readIdle, span.Start, 0
			}
			if span.Woken {
				reader.begin(span.End, true)
			}
		}
	}
}

func (r *messageReader) begin(t int64, ready bool) {
	r.openRequest, r.phase, r.isWoken, r.hasWorked, r.nextRead = openRequest{start: t, pieceStart: t}, readActive, ready, false, 0
}

// endMessage hands out the message that a goroutine has handled by time t.
func (ms *messageFinder) endMessage(f *Finder, id uint64, reader *messageReader, t int64) {
	if reader.phase != readActive {
		return
	}
	reader.count++
	entry.In(ms.handlingTimes, reader.callerFrame).totalNS += t - reader.start
	message := reader.openMessage(id, ms)
	message.End = t
	if reader.isWoken {
		message.WokenAt = reader.start
	}
	f.emitFromProtocol(&f.emitted, &reader.openRequest, message)
}

func (r *messageReader) openMessage(id uint64, ms *messageFinder) Request {
	return Request{Kind: WebSocket, G: id, EntryStack: r.waitStack, RootFrame: ms.nameFrame(r.callerFrame)}
}

func (ms *messageFinder) visitOpen(f *Finder, visit func(*openRequest, Request)) {
	for id, r := range ms.readers {
		// One that has read a single message may have nothing else to read: what it
		// does then is a stream that it writes.
		if r.phase == readActive && r.count > 0 && !f.isMarked(id, &r.openRequest) {
			visit(&r.openRequest, r.openMessage(id, ms))
		}
	}
}

// QueuedMessageShare returns for which part of the time in which messages were handled, which a function of this name reads, the next one lay there at
// the end: it had waited for its turn.
func (f *Finder) QueuedMessageShare(name tracefmt.StringID) float64 {
	var all handlingTime
	for caller, h := range f.messages.handlingTimes {
		if f.syms.Frame(f.messages.nameFrame(caller)).Func == name {
			all.totalNS, all.queuedNS = all.totalNS+h.totalNS, all.queuedNS+h.queuedNS
		}
	}
	return float64(all.queuedNS) / float64(max(all.totalNS, 1))
}

// libraryCaller returns the frame that called the library to read a message: the
// service's own, if there is one.
func (ms *messageFinder) libraryCaller(f *Finder, stack tracefmt.StackID) tracefmt.FrameID {
	frames := f.syms.Stack(stack)
	index := slices.IndexFunc(frames, func(fr tracefmt.FrameID) bool { return f.namer.frameFunction(fr).hasAny(messageBegin) })
	callers := frames[index+1:]
	if i := slices.IndexFunc(callers, func(fr tracefmt.FrameID) bool { return f.namer.isOwned(f.syms.Frame(fr)) }); i >= 0 {
		return callers[i]
	}
	library := libraryOf(f.namer.frameFunction(frames[index]).name)
	if i := slices.IndexFunc(callers, func(fr tracefmt.FrameID) bool {
		fn := f.namer.frameFunction(fr)
		return !fn.hasAny(standardLibrary) && libraryOf(fn.name) != library
	}); i >= 0 {
		return callers[i]
	}
	return frames[index]
}

// addVotes says which function calls both the library and what handles a message:
// the innermost of those that stand on the stacks of both.
func (ms *messageFinder) addVotes(f *Finder, reader *messageReader, votes map[tracefmt.FrameID]map[tracefmt.FrameID]int) {
	if reader.callerFrame == 0 || ms.nameFrames[reader.callerFrame] != 0 {
		return
	}
	if votes[reader.callerFrame] == nil {
		votes[reader.callerFrame] = make(map[tracefmt.FrameID]int)
	}
	frames := f.syms.Stack(reader.waitStack)
	frames = frames[max(slices.Index(frames, reader.callerFrame), 0):]
	for i := range ms.spans {
		span := &ms.spans[i]
		if span.Stack == 0 || span.How == timeline.HowCreated || f.stackInfo(span.Stack).isMessageWait {
			continue
		}
		for _, fr := range frames {
			frame := f.syms.Frame(fr)
			if f.namer.isOwned(frame) && slices.ContainsFunc(f.syms.Stack(span.Stack), func(other tracefmt.FrameID) bool { return f.syms.Frame(other).Func == frame.Func }) {
				votes[reader.callerFrame][fr]++
				break
			}
		}
	}
}

// nameFrame returns what messages are called by that a caller of the library reads, as far as that is known.
func (ms *messageFinder) nameFrame(caller tracefmt.FrameID) tracefmt.FrameID {
	return cmp.Or(ms.nameFrames[caller], caller)
}

// resolveNames settles what messages are called by, for good, and names those that were
// handed out before.
func (ms *messageFinder) resolveNames(votes map[tracefmt.FrameID]map[tracefmt.FrameID]int, out []Request) {
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
