package cause

import (
	"strings"

	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Sites finds the site of a stack, the frame that a reader of the report needs. It caches results; only one goroutine
// may use it at a time.
type Sites struct {
	syms            *tracefmt.Symbols
	sites           memo[tracefmt.StackID, tracefmt.FrameID]
	calls           memo[tracefmt.StackID, tracefmt.StringID]
	socketCalls     memo[tracefmt.StackID, tracefmt.StringID]
	cCalls          memo[tracefmt.StackID, tracefmt.StringID]
	stdlibStacks    memo[tracefmt.StackID, memoBool] // only functions of the standard library
	stdlibFunctions memo[tracefmt.StringID, memoBool]
}

// NewSites returns a Sites for the stacks of syms.
func NewSites(syms *tracefmt.Symbols) *Sites { return &Sites{syms: syms} }

// SiteOf returns the innermost frame of a stack outside the standard library. If there is none, it returns the
// outermost frame that is informative.
func (s *Sites) SiteOf(id tracefmt.StackID) tracefmt.FrameID { return s.sites.get(id, s.findSite) }

func (s *Sites) findSite(id tracefmt.StackID) tracefmt.FrameID {
	if f := s.syms.Place(id); f != 0 {
		return f
	}
	frames := s.syms.Stack(id)
	for _, f := range frames {
		if !s.IsStdlib(s.syms.Frame(f).Func) {
			return f
		}
	}
	// The goroutine of a server's connection: the handshake is the informative part.
	for i := len(frames) - 1; i >= 0; i-- {
		if s.syms.String(s.syms.Frame(frames[i]).Func) == handshake {
			return frames[i]
		}
	}
	handlerIndex := len(frames) // the frame where the server's code ends and a handler begins
	for i := len(frames) - 1; i >= 0; i-- {
		switch fn := s.syms.String(s.syms.Frame(frames[i]).Func); {
		case stdlib.IsPassThroughHandler(fn):
			handlerIndex = i
		case handlerIndex < len(frames) && strings.HasPrefix(fn, "runtime."):
			return frames[handlerIndex] // the handler itself waits
		case handlerIndex < len(frames):
			return frames[i]
		}
	}
	for i := len(frames) - 1; i >= 0; i-- {
		fn := s.syms.String(s.syms.Frame(frames[i]).Func)
		if fn != "runtime.goexit" && fn != "runtime.main" && fn != "runtime.mcall" && fn != "runtime.systemstack" {
			return frames[i]
		}
	}
	if len(frames) > 0 {
		return frames[0]
	}
	return 0
}

const handshake = "crypto/tls.(*Conn).HandshakeContext"

// isAllStdlib reports whether a stack has only functions of the standard library, or no frames.
func (s *Sites) isAllStdlib(id tracefmt.StackID) bool {
	return s.stdlibStacks.get(id, s.findAllStdlib) == 1
}

func (s *Sites) findAllStdlib(id tracefmt.StackID) memoBool {
	f := s.SiteOf(id)
	return memoBoolOf(f == 0 || s.IsStdlib(s.syms.Frame(f).Func))
}

// IsStdlib reports whether a function belongs to the standard library or the runtime.
func (s *Sites) IsStdlib(fn tracefmt.StringID) bool {
	return s.stdlibFunctions.get(fn, s.findStdlib) == 1
}

func (s *Sites) findStdlib(fn tracefmt.StringID) memoBool {
	name := s.syms.String(fn)
	return memoBoolOf(stdlib.Contains(name) && !strings.HasPrefix(name, "main."))
}
