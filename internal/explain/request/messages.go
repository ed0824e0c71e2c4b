package request

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// messages follows goroutines that read message after message from a WebSocket:
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
type messages struct {
	readers map[uint64]*reader
	// ordinary are goroutines of connections that read a WebSocket, and then went
	// on with HTTP: the WebSocket is another one's, their handler's peer.
	ordinary map[uint64]bool
	names    map[tracefmt.FrameID]tracefmt.FrameID // by the caller of the library: what its messages are called by
	spans    []timeline.Span
	handled  map[tracefmt.FrameID]*handled // by the caller of the library
}

// handled is for how long messages were handled, and for how long those at whose end the next one lay there.
type handled struct{ ns, queued int64 }

// A reader is a goroutine that reads messages.
type reader struct {
	open
	phase  readPhase
	idle   int64 // when the wait for a message began
	ready  bool  // start is a wake
	worked bool  // something else than reading was seen since start
	read   int64 // a read that may have begun another message
	seen   int64 // what began before it was looked at
	count  int   // messages so far
	caller tracefmt.FrameID
	stack  tracefmt.StackID
}

type readPhase uint8

const (
	readUnknown readPhase = iota
	readIdle
	readActive
)

func newMessages() messages {
	return messages{
		readers: make(map[uint64]*reader), ordinary: make(map[uint64]bool),
		names: make(map[tracefmt.FrameID]tracefmt.FrameID), handled: make(map[tracefmt.FrameID]*handled),
	}
}

func (ms *messages) add(f *Finder, g *timeline.Gen) {
	forgetGone(ms.ordinary, g)
	g.EachMarked(func(id uint64, marks []timeline.Mark) { ms.marks(f, id, marks) })
	if len(ms.readers) == 0 {
		return
	}
	first := len(f.out)
	votes := make(map[tracefmt.FrameID]map[tracefmt.FrameID]int)
	for _, id := range slices.Sorted(maps.Keys(ms.readers)) {
		r := ms.readers[id]
		if !f.work.annotated[id] {
			ms.spans = f.win.Spans(id, g.Base, g.End+1, ms.spans[:0])
			ms.follow(f, id, r)
			ms.vote(f, r, votes)
		}
	}
	gone(ms.readers, g, nil) // what follows the end of a connection is no message
	ms.call(votes, f.out[first:])
}

// marks takes note of a goroutine that waited for a message.
func (ms *messages) marks(f *Finder, id uint64, marks []timeline.Mark) {
	at := slices.IndexFunc(marks, func(m timeline.Mark) bool { return m.Flags&flagMessage != 0 })
	r := ms.readers[id]
	if at < 0 && r == nil || ms.ordinary[id] {
		return
	}
	// A connection that was taken over never comes back to HTTP.
	if slices.ContainsFunc(marks[max(at, 0):], func(m timeline.Mark) bool { return m.Flags&(flagPeek|flagFinish) != 0 }) {
		ms.ordinary[id] = true
		delete(ms.readers, id)
		return
	}
	if r != nil {
		return
	}
	ms.readers[id] = &reader{}
	if c := f.conns[id]; c != nil {
		// The request with which it was taken over is done.
		if c.phase == connActive && !c.cut {
			f.connEnd(&f.out, id, c, marks[at].Time)
		}
		delete(f.conns, id)
	}
}

// follow hands out the messages of a goroutine.
func (ms *messages) follow(f *Finder, id uint64, r *reader) {
	for i := range ms.spans {
		s := &ms.spans[i]
		same := r.phase == readIdle && s.State == timeline.Waiting && s.Start == r.idle
		if s.Stack == 0 || s.How == timeline.HowCreated || s.Start < r.seen && !same {
			continue // what lies over a border of generations is seen with both
		}
		r.seen = s.Start + 1
		switch message := f.stackInfo(s.Stack).message; {
		case !message:
			if r.read != 0 && s.State != timeline.Runnable {
				if r.phase == readActive && r.caller != 0 {
					entry.In(ms.handled, r.caller).queued += r.read - r.start
				}
				ms.end(f, id, r, r.read) // the read had data
				r.begin(r.read, false)
			}
			r.worked = true
		case s.State == timeline.Syscall:
			if r.read == 0 && (r.phase == readUnknown || r.phase == readActive && r.worked) {
				r.read = s.Start
			}
		case s.State == timeline.Waiting && f.reason(s.Reason) == reasonNetwork:
			r.stack = s.Stack
			if r.caller == 0 {
				r.caller = ms.caller(f, s.Stack)
			}
			if !same {
				ms.end(f, id, r, s.Start)
				r.open, r.phase, r.idle, r.read = open{}, readIdle, s.Start, 0
			}
			if s.Woken {
				r.begin(s.End, true)
			}
		}
	}
}

func (r *reader) begin(t int64, ready bool) {
	r.open, r.phase, r.ready, r.worked, r.read = open{start: t, from: t}, readActive, ready, false, 0
}

// end hands out the message that a goroutine has handled by time t.
func (ms *messages) end(f *Finder, id uint64, r *reader, t int64) {
	if r.phase != readActive {
		return
	}
	r.count++
	entry.In(ms.handled, r.caller).ns += t - r.start
	m := r.request(id, ms)
	m.End = t
	if r.ready {
		m.Ready = r.start
	}
	f.ended(&f.out, &r.open, m)
}

func (r *reader) request(id uint64, ms *messages) Request {
	return Request{Kind: WebSocket, G: id, Entry: r.stack, Root: ms.called(r.caller)}
}

func (ms *messages) eachOpen(f *Finder, visit func(*open, Request)) {
	for id, r := range ms.readers {
		// One that has read a single message may have nothing else to read: what it
		// does then is a stream that it writes.
		if r.phase == readActive && r.count > 0 && !f.inMark(id, &r.open) {
			visit(&r.open, r.request(id, ms))
		}
	}
}

// QueuedMessages returns for which part of the time in which messages were handled, which a function of this name reads, the next one lay there at
// the end: it had waited for its turn.
func (f *Finder) QueuedMessages(name tracefmt.StringID) float64 {
	var all handled
	for caller, h := range f.messages.handled {
		if f.syms.Frame(f.messages.called(caller)).Func == name {
			all.ns, all.queued = all.ns+h.ns, all.queued+h.queued
		}
	}
	return float64(all.queued) / float64(max(all.ns, 1))
}

// caller returns the frame that called the library to read a message: the
// service's own, if there is one.
func (ms *messages) caller(f *Finder, stack tracefmt.StackID) tracefmt.FrameID {
	frames := f.syms.Stack(stack)
	at := slices.IndexFunc(frames, func(fr tracefmt.FrameID) bool { return f.namer.of(fr).is(nextMessage) })
	outer := frames[at+1:]
	if i := slices.IndexFunc(outer, func(fr tracefmt.FrameID) bool { return f.namer.owned(f.syms.Frame(fr)) }); i >= 0 {
		return outer[i]
	}
	lib := library(f.namer.of(frames[at]).name)
	if i := slices.IndexFunc(outer, func(fr tracefmt.FrameID) bool {
		fn := f.namer.of(fr)
		return !fn.is(std) && library(fn.name) != lib
	}); i >= 0 {
		return outer[i]
	}
	return frames[at]
}

// vote says which function calls both the library and what handles a message:
// the innermost of those that stand on the stacks of both.
func (ms *messages) vote(f *Finder, r *reader, votes map[tracefmt.FrameID]map[tracefmt.FrameID]int) {
	if r.caller == 0 || ms.names[r.caller] != 0 {
		return
	}
	if votes[r.caller] == nil {
		votes[r.caller] = make(map[tracefmt.FrameID]int)
	}
	frames := f.syms.Stack(r.stack)
	frames = frames[max(slices.Index(frames, r.caller), 0):]
	for i := range ms.spans {
		s := &ms.spans[i]
		if s.Stack == 0 || s.How == timeline.HowCreated || f.stackInfo(s.Stack).message {
			continue
		}
		for _, fr := range frames {
			in := f.syms.Frame(fr)
			if f.namer.owned(in) && slices.ContainsFunc(f.syms.Stack(s.Stack), func(o tracefmt.FrameID) bool { return f.syms.Frame(o).Func == in.Func }) {
				votes[r.caller][fr]++
				break
			}
		}
	}
}

// called returns what messages are called by that a caller of the library reads, as far as that is known.
func (ms *messages) called(caller tracefmt.FrameID) tracefmt.FrameID {
	return cmp.Or(ms.names[caller], caller)
}

// call settles what messages are called by, for good, and names those that were
// handed out before.
func (ms *messages) call(votes map[tracefmt.FrameID]map[tracefmt.FrameID]int, out []Request) {
	for caller, of := range votes {
		best := caller
		for fr, n := range of {
			if n > of[best] || n == of[best] && fr < best && of[best] > 0 {
				best = fr
			}
		}
		if slices.ContainsFunc(out, func(r Request) bool { return r.Kind == WebSocket && r.Root == caller }) {
			ms.names[caller] = best
		}
	}
	for i := range out {
		if r := &out[i]; r.Kind == WebSocket {
			r.Root = ms.called(r.Root)
		}
	}
}
