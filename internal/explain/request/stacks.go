package request

import "github.com/whylate/whylate/internal/trace/tracefmt"

// A startRole is what a goroutine is by the function that it was started with.
type startRole uint8

const (
	roleUnknown   startRole = iota
	roleServer              // a connection's or stream's goroutine: its requests are found otherwise
	roleMachinery           // of the standard library, or of gRPC's and HTTP/2's machinery
	roleUnclaimed           // anybody's
)

// stackInfo holds what a stack says about its goroutine, and about a wait at it.
type stackInfo struct {
	role startRole
	// startFunc is the function that the goroutine was started with, stream the kind of the one stream that it serves then, 0 for none.
	startFunc  tracefmt.StringID
	streamKind Kind
	// outerOwned is the outermost frame of the service's own code, caller the innermost one, 0 for none; at is the number of that, -1 for none.
	outerOwned, innerOwned tracefmt.FrameID
	innerOwnedIndex        int
	// innermost is the innermost function that is not the standard library's, call the number of its frame, -1 for none; isInnermostOwned says that it is the
	// service's own.
	innermost        tracefmt.StringID
	innermostIndex   int
	isInnermostOwned bool
	// isFetch says that the service asks a library for the next thing to do.
	isFetch       bool
	isMessageWait bool // it waits for the beginning of a message of a WebSocket

	// Of a wait.
	canonical    tracefmt.StackID // see Finder.bare
	depth        int              // frames that are not the runtime's
	ownedDepth   int              // how many frames of the service's own lie around it: the fewer, the nearer is it to the loop
	isClientCall bool             // somebody is asked for something
	isWrite      bool             // to a connection
	// isInLibrary says that one lets it wait, called by the service, delays that this is not asked for the next thing to do.
	isInLibrary, isLibraryDelay bool
	isMutexWait                 bool // a Mutex
	isLibraryLoop               bool // by a library's loop
	isLoopPause                 bool // a sleep here is the loop's own pause
	isWorkSleep                 bool // ... is no pause between two turns
}

// workSleepDepth is how many functions of the service's own lie around a sleep that
// is a part of the work, not the pause between two turns.
const workSleepDepth = 4

// stackInfo returns what a stack says. It is valid until the next call.
func (f *Finder) stackInfo(id tracefmt.StackID) *stackInfo {
	if size := len(f.stackInfos); int(id) >= size {
		f.stackInfos = append(f.stackInfos, make([]stackInfo, max(int(id)+1, f.syms.Stacks())-size)...)
	}
	s := &f.stackInfos[id]
	if s.role == roleUnknown {
		*s = f.readStack(f.syms.Stack(id))
	}
	return s
}

func (f *Finder) readStack(frames []tracefmt.FrameID) stackInfo {
	info := stackInfo{role: roleMachinery, innerOwnedIndex: -1, innermostIndex: -1}
	if len(frames) == 0 {
		return info
	}
	callee, traits := new(function), trait(0) // called by the service's own code
	for i, fr := range frames {               // from the innermost call outwards
		fn, owned := f.namer.frameFunction(fr), f.namer.isOwned(f.syms.Frame(fr))
		traits |= fn.traits
		if !fn.hasAny(runtimeFunc) {
			info.depth++
		}
		if info.innermostIndex < 0 && !fn.hasAny(standardLibrary) {
			info.innermostIndex, info.isInnermostOwned, info.innermost = i, owned, f.syms.Frame(fr).Func
		}
		if owned {
			if info.outerOwned == 0 {
				info.innerOwned, info.innerOwnedIndex = fr, i
			}
			info.outerOwned = fr
			info.ownedDepth++
		}
		if info.outerOwned == 0 {
			callee = fn
			info.isClientCall = info.isClientCall || fn.hasAny(clientCall)
			info.isWrite = info.isWrite || fn.hasAny(connectionWrite)
			info.isInLibrary = info.isInLibrary || !fn.hasAny(standardLibrary)
		}
	}
	outer := f.syms.Frame(frames[len(frames)-1])
	start := f.namer.function(outer.Func)
	info.startFunc = outer.Func
	switch info.role = roleUnclaimed; {
	case start.servedKind() != 0:
		info.role = roleServer
	case start.hasAny(genericStarter):
	case start.hasAny(standardLibrary | protocolLibrary):
		info.role = roleMachinery
	}
	if start.hasAny(http2Stream | grpcStream) {
		info.streamKind = start.servedKind()
	}
	info.isMessageWait = awaitsMessage(traits)
	info.isMutexWait = f.namer.frameFunction(frames[0]).hasAny(mutexMethod)
	if info.outerOwned != 0 {
		next := IsFetchCall(callee.name)
		info.isFetch = next && !callee.hasAny(standardLibrary)
		info.isLibraryDelay = info.isInLibrary && !next
		info.isLoopPause = info.ownedDepth == 1 && !info.isInLibrary
		// Where a library's loop calls the service, what that does is work.
		info.isLibraryLoop = !start.hasAny(standardLibrary) && !f.namer.isOwned(outer)
	}
	info.isWorkSleep = info.isLibraryLoop || info.ownedDepth >= workSleepDepth
	return info
}

// canonicalStack returns a stack that stands for all that differ from a wait's one in the
// runtime's own frames alone: those of a goroutine that waited when the trace
// began show more of these.
func (f *Finder) canonicalStack(id tracefmt.StackID) tracefmt.StackID {
	info := f.stackInfo(id)
	if info.canonical != 0 {
		return info.canonical
	}
	frames := f.syms.Stack(id)
	for len(frames) > 1 && f.namer.frameFunction(frames[0]).hasAny(runtimeFunc) {
		frames = frames[1:]
	}
	key := make([]byte, 0, 8*len(frames))
	for _, fr := range frames {
		frame := f.syms.Frame(fr)
		key = appendID(appendID(key, uint32(frame.Func)), frame.Line)
	}
	if _, ok := f.canonicalStacks[string(key)]; !ok {
		f.canonicalStacks[string(key)] = id
	}
	info.canonical = f.canonicalStacks[string(key)]
	return info.canonical
}

// findMainModule looks for what is the service's own, as far as that is not known.
func (f *Finder) findMainModule() {
	home := f.namer.mainModuleDir
	if f.namer.FindMainModule(); f.namer.mainModuleDir != home {
		f.stackInfos = nil
	}
}
