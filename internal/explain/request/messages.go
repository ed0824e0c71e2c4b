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
	at := slices.IndexFunc(marks, func(m timeline.Mark) bool { return m.Flags&flagMessage != 0 })
	r := ms.readers[id]
	if at < 0 && r == nil || ms.otherReaders[id] {
		return
	}
	// A connection that was taken over never comes back to HTTP.
	if slices.ContainsFunc(marks[max(at, 0):], func(m timeline.Mark) bool { return m.Flags&(flagPeek|flagFinish) != 0 }) {
		ms.otherReaders[id] = true
		delete(ms.readers, id)
		return
	}
	if r != nil {
		return
	}
	ms.readers[id] = &messageReader{}
	if c := f.connections[id]; c != nil {
		// The request with which it was taken over is done.
		if c.phase == connActive && !c.cutAtStart {
			f.endHTTP1(&f.emitted, id, c, marks[at].Time)
		}
		delete(f.connections, id)
	}
}

// follow hands out the messages of a goroutine.
func (ms *messageFinder) follow(f *Finder, id uint64, r *messageReader) {
	for i := range ms.spans {
		s := &ms.spans[i]
		same := r.phase == readIdle && s.State == timeline.Waiting && s.Start == r.idleSince
		if s.Stack == 0 || s.How == timeline.HowCreated || s.Start < r.followedUntil && !same {
			continue // what lies over a border of generations is seen with both
		}
		r.followedUntil = s.Start + 1
		switch message := f.stackInfo(s.Stack).isMessageWait; {
		case !message:
			if r.nextRead != 0 && s.State != timeline.Runnable {
				if r.phase == readActive && r.callerFrame != 0 {
					entry.In(ms.handlingTimes, r.callerFrame).queuedNS += r.nextRead - r.start
				}
				ms.endMessage(f, id, r, r.nextRead) // the read had data
				r.begin(r.nextRead, false)
			}
			r.hasWorked = true
		case s.State == timeline.Syscall:
			if r.nextRead == 0 && (r.phase == readUnknown || r.phase == readActive && r.hasWorked) {
				r.nextRead = s.Start
			}
		case s.State == timeline.Waiting && f.reasonOf(s.Reason) == reasonNetwork:
			r.waitStack = s.Stack
			if r.callerFrame == 0 {
				r.callerFrame = ms.libraryCaller(f, s.Stack)
			}
			if !same {
				ms.endMessage(f, id, r, s.Start)
				r.openRequest, r.phase, r.idleSince, r.nextRead = openRequest{}, readIdle, s.Start, 0
			}
			if s.Woken {
				r.begin(s.End, true)
			}
		}
	}
}

func (r *messageReader) begin(t int64, ready bool) {
	r.openRequest, r.phase, r.isWoken, r.hasWorked, r.nextRead = openRequest{start: t, pieceStart: t}, readActive, ready, false, 0
}

// endMessage hands out the message that a goroutine has handled by time t.
func (ms *messageFinder) endMessage(f *Finder, id uint64, r *messageReader, t int64) {
	if r.phase != readActive {
		return
	}
	r.count++
	entry.In(ms.handlingTimes, r.callerFrame).totalNS += t - r.start
	m := r.openMessage(id, ms)
	m.End = t
	if r.isWoken {
		m.WokenAt = r.start
	}
	f.emitFromProtocol(&f.emitted, &r.openRequest, m)
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
	at := slices.IndexFunc(frames, func(fr tracefmt.FrameID) bool { return f.namer.frameFunction(fr).hasAny(messageBegin) })
	outer := frames[at+1:]
	if i := slices.IndexFunc(outer, func(fr tracefmt.FrameID) bool { return f.namer.isOwned(f.syms.Frame(fr)) }); i >= 0 {
		return outer[i]
	}
	lib := libraryOf(f.namer.frameFunction(frames[at]).name)
	if i := slices.IndexFunc(outer, func(fr tracefmt.FrameID) bool {
		fn := f.namer.frameFunction(fr)
		return !fn.hasAny(standardLibrary) && libraryOf(fn.name) != lib
	}); i >= 0 {
		return outer[i]
	}
	return frames[at]
}

// addVotes says which function calls both the library and what handles a message:
// the innermost of those that stand on the stacks of both.
func (ms *messageFinder) addVotes(f *Finder, r *messageReader, votes map[tracefmt.FrameID]map[tracefmt.FrameID]int) {
	if r.callerFrame == 0 || ms.nameFrames[r.callerFrame] != 0 {
		return
	}
	if votes[r.callerFrame] == nil {
		votes[r.callerFrame] = make(map[tracefmt.FrameID]int)
	}
	frames := f.syms.Stack(r.waitStack)
	frames = frames[max(slices.Index(frames, r.callerFrame), 0):]
	for i := range ms.spans {
		s := &ms.spans[i]
		if s.Stack == 0 || s.How == timeline.HowCreated || f.stackInfo(s.Stack).isMessageWait {
			continue
		}
		for _, fr := range frames {
			in := f.syms.Frame(fr)
			if f.namer.isOwned(in) && slices.ContainsFunc(f.syms.Stack(s.Stack), func(o tracefmt.FrameID) bool { return f.syms.Frame(o).Func == in.Func }) {
				votes[r.callerFrame][fr]++
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
	for caller, of := range votes {
		best := caller
		for fr, n := range of {
			if n > of[best] || n == of[best] && fr < best && of[best] > 0 {
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
