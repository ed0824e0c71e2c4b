package cause

import (
	"strings"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Sites finds the site of a stack: the frame that a reader of the report needs to find the code. It caches results; only one
// goroutine may use it at a time.
type Sites struct {
	syms         *tracefmt.Symbols
	functions    knowledge.Index[tracefmt.StringID]
	sites        memo[tracefmt.StackID, tracefmt.FrameID]
	calls        memo[tracefmt.StackID, tracefmt.StringID]
	socketCalls  memo[tracefmt.StackID, tracefmt.StringID]
	cCalls       memo[tracefmt.StackID, tracefmt.StringID]
	stdlibStacks memo[tracefmt.StackID, memoBool] // only functions of the standard library
	stackRoles   []stackRoles                     // by stack
}

// stackRoles are the roles of all functions on a stack.
type stackRoles struct {
	isKnown bool
	roles   knowledge.Roles
}

// NewSites returns a Sites for the stacks of syms.
func NewSites(syms *tracefmt.Symbols) *Sites {
	return &Sites{syms: syms, functions: knowledge.NewIndex(syms.String)}
}

// RolesOf returns the roles of a frame's function.
func (s *Sites) RolesOf(f tracefmt.FrameID) knowledge.Roles {
	return s.functions.Of(s.syms.Frame(f).Func)
}

// HasRole reports whether a function on a stack has a role.
func (s *Sites) HasRole(id tracefmt.StackID, role knowledge.Role) bool {
	if n := int(id) + 1 - len(s.stackRoles); n > 0 {
		s.stackRoles = append(s.stackRoles, make([]stackRoles, n)...)
	}
	known := &s.stackRoles[id]
	if !known.isKnown {
		known.isKnown = true
		for _, f := range s.syms.Stack(id) {
			known.roles = known.roles.Union(s.RolesOf(f))
		}
	}
	return known.roles.Has(role)
}

// CallerOf returns the frame that calls a library's function with a role, which calls code of the service again; 0 if a stack has none.
func (s *Sites) CallerOf(id tracefmt.StackID, role knowledge.Role) tracefmt.FrameID {
	if !s.HasRole(id, role) {
		return 0
	}
	library := "" // its owner
	for _, f := range s.syms.Stack(id) {
		switch roles := s.RolesOf(f); {
		case roles.Has(role):
			library = s.ownerOf(f)
		case library != "" && roles.Has(knowledge.NonStdlib) && s.ownerOf(f) != library:
			return f
		}
	}
	return 0
}

// FrameWith returns the innermost frame of a stack whose function has a role; 0 if there is none.
func (s *Sites) FrameWith(id tracefmt.StackID, role knowledge.Role) tracefmt.FrameID {
	if !s.HasRole(id, role) { // which is known without a look at the frames
		return 0
	}
	for _, f := range s.syms.Stack(id) {
		if s.RolesOf(f).Has(role) {
			return f
		}
	}
	return 0
}

// CallerOfSite returns the frame outside of the standard library that calls the function of a stack's site; 0 if there is none.
func (s *Sites) CallerOfSite(id tracefmt.StackID) tracefmt.FrameID {
	site, isOutside := s.SiteOf(id), false // of the site's function
	for _, f := range s.syms.Stack(id) {
		if isOutside && s.RolesOf(f).Has(knowledge.NonStdlib) {
			return f
		}
		isOutside = isOutside || f == site
	}
	return 0
}

// ownerOf returns the host and owner of a frame's package, as "github.com/owner"; of a package without a host, its first part.
func (s *Sites) ownerOf(f tracefmt.FrameID) string {
	host, path, hasHost := strings.Cut(s.syms.String(s.syms.Frame(f).Func), "/")
	if !hasHost {
		pkg, _, _ := strings.Cut(host, ".")
		return pkg
	}
	owner, _, _ := strings.Cut(path, "/")
	owner, _, _ = strings.Cut(owner, ".")
	return host + "/" + owner
}

// HasOneOwner reports whether all functions on a stack outside of the standard library have one owner: no library calls the service
// there, and the service calls no library.
func (s *Sites) HasOneOwner(id tracefmt.StackID) bool {
	owner := ""
	for _, f := range s.syms.Stack(id) {
		if !s.RolesOf(f).Has(knowledge.NonStdlib) {
			continue
		}
		if o := s.ownerOf(f); owner == "" {
			owner = o
		} else if o != owner {
			return false
		}
	}
	return owner != ""
}

// SiteOf returns the site of a stack: the innermost frame outside of the standard library. If there is none, it is the
// outermost informative frame, such as a handshake, or the handler that net/http calls.
func (s *Sites) SiteOf(id tracefmt.StackID) tracefmt.FrameID { return s.sites.get(id, s.findSite) }

// findSite computes SiteOf: the frame that a CallerFinder set; else the innermost frame with role NonStdlib; else the outermost TLS
// handshake; else the function that net/http's pass-through handlers call; else the outermost frame that is not the stack's
// base.
func (s *Sites) findSite(id tracefmt.StackID) tracefmt.FrameID {
	if f := s.syms.CallerSite(id); f != 0 {
		return f
	}
	if f := s.FrameWith(id, knowledge.NonStdlib); f != 0 {
		return f
	}
	frames := s.syms.Stack(id)
	// The goroutine of a server's connection: the handshake is the informative part.
	for i := len(frames) - 1; i >= 0; i-- {
		if s.RolesOf(frames[i]).Has(knowledge.TLSHandshake) {
			return frames[i]
		}
	}
	handlerIndex := len(frames) // the frame where the server's code ends and a handler begins
	for i := len(frames) - 1; i >= 0; i-- {
		switch roles := s.RolesOf(frames[i]); {
		case roles.Has(knowledge.PassThroughHandler):
			handlerIndex = i
		case handlerIndex < len(frames) && roles.Has(knowledge.Runtime):
			return frames[handlerIndex] // the handler itself waits
		case handlerIndex < len(frames):
			return frames[i]
		}
	}
	for i := len(frames) - 1; i >= 0; i-- {
		if !s.RolesOf(frames[i]).Has(knowledge.StackBase) {
			return frames[i]
		}
	}
	if len(frames) > 0 {
		return frames[0]
	}
	return 0
}

// isAllStdlib reports whether a stack has only functions of the standard library, or no frames.
func (s *Sites) isAllStdlib(id tracefmt.StackID) bool {
	return s.stdlibStacks.get(id, s.findAllStdlib) == 1
}

// findAllStdlib computes isAllStdlib for the cache.
func (s *Sites) findAllStdlib(id tracefmt.StackID) memoBool {
	f := s.SiteOf(id)
	return memoBoolOf(f == 0 || s.syms.Frame(f).Caller == 0 && s.IsStdlib(s.syms.Frame(f).Func))
}

// IsStdlib reports whether a function belongs to the standard library or the runtime.
func (s *Sites) IsStdlib(fn tracefmt.StringID) bool { return s.functions.Of(fn).Has(knowledge.Stdlib) }
