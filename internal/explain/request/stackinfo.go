package request

import (
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A startRole classifies a goroutine by its start function.
type startRole uint8

const (
	roleUnknown   startRole = iota
	roleServer              // serves a connection or stream: its requests are found by protocol
	roleMachinery           // code of the standard library, gRPC or HTTP/2
	roleUnclaimed           // any other function
)

// stackInfo describes the goroutine that has a stack, and a wait at that stack.
type stackInfo struct {
	isKnown bool // it was computed
	role    startRole
	// startFunc is the goroutine's start function. streamKind is the kind of the stream that it serves, 0 for none.
	startFunc  tracefmt.StringID
	streamKind Kind
	// The outermost and the innermost service frame, 0 for none, and the index of the latter, -1 for none.
	outerServiceFrame, innerServiceFrame tracefmt.FrameID
	innerServiceIndex                    int
	// innermost is the innermost function outside of the standard library, and innermostIndex the index of its frame,
	// -1 for none. isInnermostService says that it is service code.
	innermost          tracefmt.StringID
	innermostIndex     int
	isInnermostService bool
	// isFetch says that service code calls a library for the next item of work.
	isFetch       bool
	isMessageWait bool // waits for the beginning of a WebSocket message
	isWebSocket   bool // calls a WebSocket connection
	isStreamRead  bool // waits for a message of a gRPC stream
	isPacketRead  bool // reads the next packet of a socket
	isRead        bool // reads from a connection
	// isReadinessWait says that it waits until one of many connections is ready; waitCaller is the frame that calls it then.
	isReadinessWait bool
	waitCaller      tracefmt.FrameID
	// isReceive says that the goroutine receives from a channel, isSelect that it is in a select.
	isReceive, isSelect bool

	// For waits.
	canonical    tracefmt.StackID // see stackReader.canonicalStack
	depth        int              // frames outside of the runtime
	serviceDepth int              // service frames; the fewer, the nearer the wait is to the loop
	isClientCall bool             // a client's request
	isWrite      bool             // to a connection
	// isInLibrary says that service code called a library, which waits. isLibraryDelay says that the call fetches no
	// work.
	isInLibrary, isLibraryDelay bool
	isMutexWait                 bool
	awaitsGoroutines            bool // other goroutines may end the wait: it is at a channel, in a select or for a WaitGroup
	isFDReadLock                bool // for a socket that another goroutine reads
	isLibraryLoop               bool // a library's loop called the service code
	isLoopPause                 bool // a sleep here is the pause between iterations
	isWorkSleep                 bool // a sleep here is part of the work

	// comparedStacks are the last stacks for which isOutsideWaitCall was computed, with its result.
	comparedStacks [4]comparedStack
}

type comparedStack struct {
	id        tracefmt.StackID
	isOutside bool
}

// workSleepDepth is from how many service frames on a sleep is part of the work and no pause between iterations.
const workSleepDepth = 4

// A stackReader describes stacks and the reasons of waits. It caches the results.
type stackReader struct {
	syms            *tracefmt.Symbols
	namer           *Namer
	stackInfos      []stackInfo
	canonicalStacks map[string]tracefmt.StackID // by the key that canonicalStack builds
	reasonIDs       [len(reasonTexts)]tracefmt.StringID
}

// stackInfo returns the description of a stack, which it computes once. The pointer is valid until the next call. It is small enough
// for the compiler to inline.
func (sr *stackReader) stackInfo(id tracefmt.StackID) *stackInfo {
	if int(id) >= len(sr.stackInfos) || !sr.stackInfos[id].isKnown {
		sr.addStackInfo(id)
	}
	return &sr.stackInfos[id]
}

func (sr *stackReader) addStackInfo(id tracefmt.StackID) {
	if size := len(sr.stackInfos); int(id) >= size {
		sr.stackInfos = append(sr.stackInfos, make([]stackInfo, max(int(id)+1, sr.syms.Stacks())-size)...)
	}
	sr.stackInfos[id] = sr.describeStack(sr.syms.Stack(id))
}

// describeStack derives from a stack, whose frames are innermost first: the frames of the service itself, the
// kind of call that they made further inside, and, by the outermost function, the kind of goroutine.
func (sr *stackReader) describeStack(frames []tracefmt.FrameID) stackInfo {
	info := stackInfo{isKnown: true, role: roleMachinery, innerServiceIndex: -1, innermostIndex: -1}
	if len(frames) == 0 {
		return info
	}
	callee, roles := new(function), knowledge.Roles{} // the function that service code called
	for i, fr := range frames {                       // from the innermost frame outwards
		fn, isService := sr.namer.frameFunction(fr), sr.namer.isServiceCode(sr.syms.Frame(fr))
		roles = roles.Union(fn.Roles)
		if !fn.Has(knowledge.Runtime) {
			info.depth++
		}
		if info.innermostIndex < 0 && !fn.Has(knowledge.Stdlib) {
			info.innermostIndex, info.isInnermostService, info.innermost = i, isService, sr.syms.Frame(fr).Func
		}
		if isService {
			if info.outerServiceFrame == 0 {
				info.innerServiceFrame, info.innerServiceIndex = fr, i
			}
			info.outerServiceFrame = fr
			info.serviceDepth++
		}
		if info.outerServiceFrame == 0 {
			callee = fn
			info.isClientCall = info.isClientCall || fn.Has(knowledge.ClientCall)
			info.isWrite = info.isWrite || fn.Has(knowledge.ConnectionWrite)
			info.isInLibrary = info.isInLibrary || !fn.Has(knowledge.Stdlib)
			info.awaitsGoroutines = info.awaitsGoroutines || fn.Has(knowledge.ReceiveWait) || fn.Has(knowledge.SelectWait) || fn.Has(knowledge.WaitGroup)
		}
	}
	outer := sr.syms.Frame(frames[len(frames)-1])
	start := sr.namer.function(outer.Func)
	info.startFunc = outer.Func
	switch info.role = roleUnclaimed; {
	case start.servedKind() != 0:
		info.role = roleServer
	case start.Has(knowledge.GenericStarter):
	case start.Has(knowledge.Stdlib) || start.Has(knowledge.ProtocolLibrary):
		info.role = roleMachinery
	}
	if start.Has(knowledge.HTTP2Stream) || start.Has(knowledge.GRPCStream) {
		info.streamKind = start.servedKind()
	}
	info.isMessageWait, info.isWebSocket = awaitsMessage(roles), roles.Has(knowledge.WebSocketConnection)
	info.isStreamRead = roles.Has(knowledge.GRPCMessageRead)
	info.isFDReadLock, info.isPacketRead = roles.Has(knowledge.FDReadLock), roles.Has(knowledge.PacketRead)
	for i, fr := range frames[:min(info.innermostIndex+1, len(frames)-1)] {
		if sr.namer.frameFunction(fr).Has(knowledge.ReadinessWait) {
			info.isReadinessWait, info.waitCaller = true, frames[i+1]
		}
	}
	info.isRead = roles.Has(knowledge.ConnectionRead) && !roles.Has(knowledge.File)
	inner := sr.namer.frameFunction(frames[0])
	info.isMutexWait, info.isReceive, info.isSelect = inner.Has(knowledge.Mutex), inner.Has(knowledge.ReceiveWait), inner.Has(knowledge.SelectWait)
	if info.outerServiceFrame != 0 {
		next := callee.Has(knowledge.Fetch)
		info.isFetch = next && !callee.Has(knowledge.Stdlib)
		info.isLibraryDelay = info.isInLibrary && !next
		info.isLoopPause = info.serviceDepth == 1 && !info.isInLibrary
		// The service code that a library's loop calls is work.
		info.isLibraryLoop = !start.Has(knowledge.Stdlib) && !sr.namer.isServiceCode(outer)
	}
	info.isWorkSleep = info.isLibraryLoop || info.serviceDepth >= workSleepDepth
	return info
}

// canonicalStack returns one stack for all stacks that are equal without the innermost frames of the runtime and the poller.
// Waits that were under way when the trace began show more of these frames than later ones. Also, a goroutine that reads a socket
// waits for data, or for another reader of the socket.
func (sr *stackReader) canonicalStack(id tracefmt.StackID) tracefmt.StackID {
	info := sr.stackInfo(id)
	if info.canonical == 0 {
		info.canonical = sr.findCanonicalStack(id)
	}
	return info.canonical
}

func (sr *stackReader) findCanonicalStack(id tracefmt.StackID) tracefmt.StackID {
	frames := sr.syms.Stack(id)
	for len(frames) > 1 && (sr.namer.frameFunction(frames[0]).Has(knowledge.Runtime) || sr.namer.frameFunction(frames[0]).Has(knowledge.Poller)) {
		frames = frames[1:]
	}
	key := make([]byte, 0, 8*len(frames))
	for _, fr := range frames {
		frame := sr.syms.Frame(fr)
		key = appendID(appendID(key, uint32(frame.Func)), frame.Line)
	}
	if _, ok := sr.canonicalStacks[string(key)]; !ok {
		sr.canonicalStacks[string(key)] = id
	}
	return sr.canonicalStacks[string(key)]
}

// findMainModule learns which code is the service's (Namer.FindMainModule), and discards the descriptions of stacks if that
// changed.
func (sr *stackReader) findMainModule() {
	home := sr.namer.mainModuleDir
	if sr.namer.FindMainModule(); sr.namer.mainModuleDir != home {
		sr.stackInfos = nil
	}
}
