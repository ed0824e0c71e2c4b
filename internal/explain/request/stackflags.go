package request

import (
	"github.com/whylate/whylate/internal/knowledge"
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

// Flags returns the flags of a stack, by the roles of its functions.
func (c *Classifier) Flags(id tracefmt.StackID) (flags uint8) {
	var callee function // of the frame in the loop
	roles, runtimeOnly := knowledge.Roles{}, true
	for _, frame := range c.syms.Stack(id) {
		fn := *c.frameFunction(frame)
		if fn.Has(knowledge.HandlerRoot) || fn.Has(knowledge.GRPCMethod) || fn.Has(knowledge.Observer) {
			flags |= timeline.FlagTracked
		}
		switch {
		case fn.Has(knowledge.HTTP1Connection):
			if callee.Has(knowledge.RequestPeek) {
				flags |= flagPeek
			}
		case fn.Has(knowledge.HeaderRead):
			flags |= flagHeader
		case fn.Has(knowledge.HandlerEntry):
			flags |= flagBody
		case fn.Has(knowledge.ResponseFinish):
			flags |= flagFinish
			if callee.Has(knowledge.BufferFlush) && !roles.Has(knowledge.ChunkWrite) {
				flags |= flagFlush
			}
		case fn.Has(knowledge.GRPCWorker):
			if runtimeOnly {
				flags |= flagWorker
			}
		}
		runtimeOnly = runtimeOnly && fn.Has(knowledge.Runtime)
		callee, roles = fn, roles.Union(fn.Roles)
	}
	if flags&flagPeek != 0 {
		flags &^= flagHeader
	}
	if !roles.Has(knowledge.HTTP1Connection) {
		flags &^= flagBody // another goroutine read the request's body to its end: a proxy's client, http.TimeoutHandler
	}
	if awaitsMessage(roles) {
		flags |= flagMessage
	}
	return flags
}

// awaitsMessage reports whether a stack with functions of these roles waits for the beginning of a WebSocket message.
func awaitsMessage(roles knowledge.Roles) bool {
	return roles.Has(knowledge.ConnectionRead) && roles.Has(knowledge.MessageBegin) && !roles.Has(knowledge.MessageRest)
}
