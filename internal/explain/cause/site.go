package cause

import (
	"strings"

	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Sites finds the frame of a stack that a person wants to see. It remembers
// what it found; not safe for concurrent use.
type Sites struct {
	syms *tracefmt.Symbols
	site memo[tracefmt.StackID, tracefmt.FrameID]
	call memo[tracefmt.StackID, tracefmt.StringID]
	sock memo[tracefmt.StackID, tracefmt.StringID]
	c    memo[tracefmt.StackID, tracefmt.StringID]
	all  memo[tracefmt.StackID, truth] // whether it is all the standard library's
	std  memo[tracefmt.StringID, truth]
}

// NewSites returns a Sites for stacks of syms.
func NewSites(syms *tracefmt.Symbols) *Sites { return &Sites{syms: syms} }

// Of returns the innermost frame of a stack that is not the standard
// library's; if all are, the outermost one that means something.
func (s *Sites) Of(id tracefmt.StackID) tracefmt.FrameID { return s.site.of(id, s.find) }

func (s *Sites) find(id tracefmt.StackID) tracefmt.FrameID {
	if f := s.syms.Place(id); f != 0 {
		return f
	}
	frames := s.syms.Stack(id)
	for _, f := range frames {
		if !s.Std(s.syms.Frame(f).Func) {
			return f
		}
	}
	// A connection's own goroutine shows no more than the server's machinery: of a handshake the part that tells.
	for i := len(frames) - 1; i >= 0; i-- {
		if s.syms.String(s.syms.Frame(frames[i]).Func) == handshake {
			return frames[i]
		}
	}
	served := len(frames) // where the server's machinery ends and a handler begins
	for i := len(frames) - 1; i >= 0; i-- {
		switch fn := s.syms.String(s.syms.Frame(frames[i]).Func); {
		case stdlib.PassesOn(fn):
			served = i
		case served < len(frames) && strings.HasPrefix(fn, "runtime."):
			return frames[served] // it waits itself
		case served < len(frames):
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

// allStd reports whether a stack shows nothing but the standard library, or
// nothing at all.
func (s *Sites) allStd(id tracefmt.StackID) bool { return s.all.of(id, s.findAllStd) == 1 }

func (s *Sites) findAllStd(id tracefmt.StackID) truth {
	f := s.Of(id)
	return truthOf(f == 0 || s.Std(s.syms.Frame(f).Func))
}

// Std reports whether a function is the standard library's or the runtime's.
func (s *Sites) Std(fn tracefmt.StringID) bool { return s.std.of(fn, s.findStd) == 1 }

func (s *Sites) findStd(fn tracefmt.StringID) truth {
	name := s.syms.String(fn)
	return truthOf(stdlib.Is(name) && !strings.HasPrefix(name, "main."))
}
