package request

import (
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A function is the name of a function with its roles.
type function struct {
	name string
	knowledge.Roles
}

// servedKind returns the kind of request that a goroutine serves if it was started with this function; 0 if the function serves
// no known protocol.
func (f *function) servedKind() Kind {
	switch {
	case f.Has(knowledge.HTTP1Connection):
		return HTTP1
	case f.Has(knowledge.HTTP2Stream):
		return HTTP2
	case f.Has(knowledge.GRPCStream), f.Has(knowledge.GRPCWorker):
		return GRPC
	}
	return 0
}

// IsServerStart reports whether goroutines with this start function belong to a server of a known protocol, so that all their
// work is for requests.
func IsServerStart(fn string) bool {
	f := function{fn, knowledge.Of(fn)}
	return f.servedKind() != 0
}

// functionTable caches the functions of a trace by the id of their name.
type functionTable struct {
	syms      *tracefmt.Symbols
	functions []function
}

// function returns the function with a name's id, with its roles. It looks the roles up once.
func (fs *functionTable) function(id tracefmt.StringID) *function {
	f := entry.GetOrGrow(&fs.functions, id)
	if f.Roles == (knowledge.Roles{}) {
		name := fs.syms.String(id)
		*f = function{name, knowledge.Of(name)}
	}
	return f
}

// frameFunction returns the function of a frame.
func (fs *functionTable) frameFunction(id tracefmt.FrameID) *function {
	return fs.function(fs.syms.Frame(id).Func)
}
