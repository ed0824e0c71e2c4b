package request

import "github.com/whylate/whylate/internal/trace/tracefmt"

// A startRole is what a goroutine is by the function that it was started with.
type startRole uint8

const (
	roleUnknown startRole = iota
	roleServes            // a connection's or stream's goroutine: its requests are found otherwise
	roleRuntime           // of the standard library, or of gRPC's and HTTP/2's machinery
	roleFree              // anybody's
)

// stackInfo holds what a stack says about its goroutine, and about a wait at it.
type stackInfo struct {
	role startRole
	// root is the function that the goroutine was started with, stream the kind of the one stream that it serves then, 0 for none.
	root   tracefmt.StringID
	stream Kind
	// own is the outermost frame of the service's own code, caller the innermost one, 0 for none; at is the number of that, -1 for none.
	own, caller tracefmt.FrameID
	at          int
	// acting is the innermost function that is not the standard library's, call the number of its frame, -1 for none; callOwned says that it is the
	// service's own.
	acting    tracefmt.StringID
	call      int
	callOwned bool
	// next says that the service asks a library for the next thing to do.
	next    bool
	message bool // it waits for the beginning of a message of a WebSocket

	// Of a wait.
	bare   tracefmt.StackID // see Finder.bare
	depth  int              // frames that are not the runtime's
	around int              // how many frames of the service's own lie around it: the fewer, the nearer is it to the loop
	asks   bool             // somebody is asked for something
	writes bool             // to a connection
	// library says that one lets it wait, called by the service, delays that this is not asked for the next thing to do.
	library, delays bool
	lock            bool // a Mutex
	called          bool // by a library's loop
	pauses          bool // a sleep here is the loop's own pause
	sleeps          bool // ... is no pause between two turns
}

// deepSleep is how many functions of the service's own lie around a sleep that
// is a part of the work, not the pause between two turns.
const deepSleep = 4

// stackInfo returns what a stack says. It is valid until the next call.
func (f *Finder) stackInfo(id tracefmt.StackID) *stackInfo {
	if have := len(f.stacks); int(id) >= have {
		f.stacks = append(f.stacks, make([]stackInfo, max(int(id)+1, f.syms.Stacks())-have)...)
	}
	s := &f.stacks[id]
	if s.role == roleUnknown {
		*s = f.readStack(f.syms.Stack(id))
	}
	return s
}

func (f *Finder) readStack(frames []tracefmt.FrameID) stackInfo {
	s := stackInfo{role: roleRuntime, at: -1, call: -1}
	if len(frames) == 0 {
		return s
	}
	called, seen := new(function), trait(0) // called by the service's own code
	for i, fr := range frames {             // from the innermost call outwards
		fn, owned := f.namer.of(fr), f.namer.owned(f.syms.Frame(fr))
		seen |= fn.traits
		if !fn.is(inRuntime) {
			s.depth++
		}
		if s.call < 0 && !fn.is(std) {
			s.call, s.callOwned, s.acting = i, owned, f.syms.Frame(fr).Func
		}
		if owned {
			if s.own == 0 {
				s.caller, s.at = fr, i
			}
			s.own = fr
			s.around++
		}
		if s.own == 0 {
			called = fn
			s.asks = s.asks || fn.is(asks)
			s.writes = s.writes || fn.is(writes)
			s.library = s.library || !fn.is(std)
		}
	}
	outer := f.syms.Frame(frames[len(frames)-1])
	start := f.namer.fn(outer.Func)
	s.root = outer.Func
	switch s.role = roleFree; {
	case start.serves() != 0:
		s.role = roleServes
	case start.is(anybodys):
	case start.is(std | machinery):
		s.role = roleRuntime
	}
	if start.is(streamHTTP2 | streamGRPC) {
		s.stream = start.serves()
	}
	s.message = awaitsMessage(seen)
	s.lock = f.namer.of(frames[0]).is(mutex)
	if s.own != 0 {
		next := AsksForNext(called.name)
		s.next = next && !called.is(std)
		s.delays = s.library && !next
		s.pauses = s.around == 1 && !s.library
		// Where a library's loop calls the service, what that does is work.
		s.called = !start.is(std) && !f.namer.owned(outer)
	}
	s.sleeps = s.called || s.around >= deepSleep
	return s
}

// bare returns a stack that stands for all that differ from a wait's one in the
// runtime's own frames alone: those of a goroutine that waited when the trace
// began show more of these.
func (f *Finder) bare(id tracefmt.StackID) tracefmt.StackID {
	s := f.stackInfo(id)
	if s.bare != 0 {
		return s.bare
	}
	frames := f.syms.Stack(id)
	for len(frames) > 1 && f.namer.of(frames[0]).is(inRuntime) {
		frames = frames[1:]
	}
	key := make([]byte, 0, 8*len(frames))
	for _, fr := range frames {
		frame := f.syms.Frame(fr)
		key = appendID(appendID(key, uint32(frame.Func)), frame.Line)
	}
	if _, ok := f.byBare[string(key)]; !ok {
		f.byBare[string(key)] = id
	}
	s.bare = f.byBare[string(key)]
	return s.bare
}

// findHome looks for what is the service's own, as far as that is not known.
func (f *Finder) findHome() {
	home := f.namer.home
	if f.namer.FindHome(); f.namer.home != home {
		f.stacks = nil
	}
}
