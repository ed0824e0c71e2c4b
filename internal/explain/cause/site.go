package cause

import (
	"strings"

	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Sites finds the frame of a stack that a person wants to see. It remembers
// what it found; not safe for concurrent use.
type Sites struct {
	syms            *tracefmt.Symbols
	sites           memo[tracefmt.StackID, tracefmt.FrameID]
	calls           memo[tracefmt.StackID, tracefmt.StringID]
	socketCalls     memo[tracefmt.StackID, tracefmt.StringID]
	cCalls          memo[tracefmt.StackID, tracefmt.StringID]
	stdlibStacks    memo[tracefmt.StackID, memoBool] // whether it is all the standard library's
	stdlibFunctions memo[tracefmt.StringID, memoBool]
}

// NewSites returns a Sites for stacks of syms.
func NewSites(syms *tracefmt.Symbols) *Sites { return &Sites{syms: syms} }

// SiteOf returns the innermost frame of a stack that is not the standard
// library's; if all are, the outermost one that means something.
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
	// A connection's own goroutine shows no more than the server's machinery: of a handshake the part that tells.
	for i := len(frames) - 1; i >= 0; i-- {
		if s.syms.String(s.syms.Frame(frames[i]).Func) == handshake {
			return frames[i]
		}
	}
	handlerIndex := len(frames) // where the server's machinery ends and a handler begins
	for i := len(frames) - 1; i >= 0; i-- {
		switch fn := s.syms.String(s.syms.Frame(frames[i]).Func); {
		case stdlib.PassesOn(fn):
			handlerIndex = i
		case handlerIndex < len(frames) && strings.HasPrefix(fn, "runtime."):
			return frames[handlerIndex] // it waits itself
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

// isAllStdlib reports whether a stack shows nothing but the standard library, or
// nothing at all.
func (s *Sites) isAllStdlib(id tracefmt.StackID) bool {
	return s.stdlibStacks.get(id, s.findAllStdlib) == 1
}

func (s *Sites) findAllStdlib(id tracefmt.StackID) memoBool {
	f := s.SiteOf(id)
	return memoBoolOf(f == 0 || s.IsStdlib(s.syms.Frame(f).Func))
}

// IsStdlib reports whether a function is the standard library's or the runtime's.
func (s *Sites) IsStdlib(fn tracefmt.StringID) bool {
	return s.stdlibFunctions.get(fn, s.findStdlib) == 1
}

func (s *Sites) findStdlib(fn tracefmt.StringID) memoBool {
	name := s.syms.String(fn)
	return memoBoolOf(stdlib.Is(name) && !strings.HasPrefix(name, "main."))
}
