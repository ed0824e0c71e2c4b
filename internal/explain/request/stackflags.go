package request

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Flags of a stack, for timeline.Decoder.Classify. Events with a flagged stack become marks, from which HTTP/1
// connections and gRPC workers are followed. Stacks that may name a request (see Namer) get timeline.FlagTracked too.
const (
	flagPeek    uint8 = 1 << iota // waits for the next request of a connection
	flagHeader                    // reads a request's header
	flagBody                      // starts the background read: the handler follows
	flagFinish                    // finishes a response
	flagFlush                     // writes the last bytes of a response to the kernel
	flagWorker                    // a gRPC stream worker waits for work
	flagMessage                   // reads the beginning of a WebSocket message
)

// A Classifier computes the flags of stacks.
type Classifier struct{ functionTable }

// NewClassifier returns a Classifier for stacks of syms.
func NewClassifier(syms *tracefmt.Symbols) *Classifier { return &Classifier{functionTable{syms: syms}} }

// Flags returns the flags of a stack.
func (c *Classifier) Flags(id tracefmt.StackID) uint8 {
	var flags uint8
	var callee function // of the frame in the loop
	traits, runtimeOnly := trait(0), true
	for _, frame := range c.syms.Stack(id) {
		fn := *c.frameFunction(frame)
		if fn.hasAny(handlerRoot | grpcMethod | observerFunc) {
			flags |= timeline.FlagTracked
		}
		switch {
		case fn.hasAny(http1Connection):
			if callee.hasAny(requestPeek) {
				flags |= flagPeek
			}
		case fn.hasAny(headerRead):
			flags |= flagHeader
		case fn.hasAny(handlerEntry):
			flags |= flagBody
		case fn.hasAny(responseFinish):
			flags |= flagFinish
			if callee.hasAny(bufferFlush) && traits&chunkWrite == 0 {
				flags |= flagFlush
			}
		case fn.hasAny(grpcWorkerFunc):
			if runtimeOnly {
				flags |= flagWorker
			}
		}
		runtimeOnly = runtimeOnly && fn.hasAny(runtimeFunc)
		callee, traits = fn, traits|fn.traits
	}
	if flags&flagPeek != 0 {
		flags &^= flagHeader
	}
	if awaitsMessage(traits) {
		flags |= flagMessage
	}
	return flags
}

// awaitsMessage reports whether a stack with these traits waits for the beginning of a WebSocket message.
func awaitsMessage(traits trait) bool {
	return traits&(connectionRead|messageBegin|messageRest) == connectionRead|messageBegin
}
