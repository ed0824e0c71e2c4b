package cause

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// CallOf returns the standard library's function that tells what a wait or a
// system call is for: one of the telling ones wherever it stands on the stack,
// else the one that the site called. It is 0 where the stack shows none.
func (s *Sites) CallOf(id tracefmt.StackID) tracefmt.StringID { return s.calls.get(id, s.findCall) }

func (s *Sites) findCall(id tracefmt.StackID) tracefmt.StringID {
	frames := s.syms.Stack(id)
	for _, f := range frames {
		if fn := s.syms.Frame(f).Func; namesOperation(s.syms.String(fn)) {
			return fn
		}
	}
	site := s.syms.Frame(s.SiteOf(id))
	site.Caller = 0
	siteIndex := slices.IndexFunc(frames, func(f tracefmt.FrameID) bool { return s.syms.Frame(f) == site })
	if siteIndex <= 0 {
		return 0
	}
	fn := s.syms.Frame(frames[siteIndex-1]).Func
	if !stdlib.Is(s.syms.String(fn)) {
		return 0
	}
	return fn
}

// isPoolWait reports whether a call waits for a free place of a pool: that says more than which timer's function ends the wait.
func (s *Sites) isPoolWait(call tracefmt.StringID) bool {
	return s.syms.String(call) == "database/sql.(*DB).conn"
}

// SocketCall returns the function in which a stack reads or writes a socket, 0 if
// it does not. Such a system call never blocks: the poller waits for it.
func (s *Sites) SocketCall(id tracefmt.StackID) tracefmt.StringID {
	return s.socketCalls.get(id, s.findSocket)
}

func (s *Sites) findSocket(id tracefmt.StackID) tracefmt.StringID {
	for _, f := range s.syms.Stack(id) {
		fn := s.syms.Frame(f).Func
		if IsSocket(s.syms.String(fn)) {
			return fn
		}
	}
	return 0
}

// IsSocket reports whether a function of the standard library reads or writes a socket.
func IsSocket(fn string) bool {
	return strings.HasPrefix(fn, "net.(*netFD).") || strings.HasPrefix(fn, "net.(*rawConn).")
}

// CCall returns the function through which a stack is in C code, 0 if it is not: a trace shows calls of C as system calls.
func (s *Sites) CCall(id tracefmt.StackID) tracefmt.StringID { return s.cCalls.get(id, s.findCCall) }

func (s *Sites) findCCall(id tracefmt.StackID) tracefmt.StringID {
	for _, f := range s.syms.Stack(id) {
		f := s.syms.Frame(f)
		name, file := s.syms.String(f.Func), s.syms.String(f.File)
		switch {
		case name == "runtime.cgocall", isCgoGlue(file):
			return f.Func
		case !strings.HasPrefix(name, "runtime."), name == "runtime.cgocallbackg":
			return 0 // Go code, perhaps called by C
		}
	}
	return 0
}

// isCgoGlue reports whether a file is the one that cgo makes, of functions that call C: nobody can change it. Most traces show no frame
// of the runtime's below them.
func isCgoGlue(file string) bool { return strings.HasSuffix(file, "_cgo_gotypes.go") }

// startFunction returns the function that a goroutine starts with.
func (s *Sites) startFunction(id tracefmt.StackID) tracefmt.StringID {
	if frames := s.syms.Stack(id); len(frames) > 0 {
		return s.syms.Frame(frames[len(frames)-1]).Func
	}
	return 0
}

// namesOperation reports whether a function alone says what is waited for, whatever
// it was called through: the innermost such one counts. Names as in the
// standard library of Go 1.22 to 1.26.
func namesOperation(fn string) bool {
	if operationFunctions[fn] {
		return true
	}
	return strings.HasPrefix(fn, "net.cgoLookup") || strings.HasPrefix(fn, "net.(*Resolver).")
}

var operationFunctions = map[string]bool{
	"time.Sleep":                          true,
	"os.(*File).Sync":                     true,
	"syscall.Fsync":                       true,
	"syscall.Fdatasync":                   true,
	"os.(*File).Write":                    true,
	"os.(*File).WriteString":              true,
	"os.(*File).Read":                     true,
	"os.(*Process).Wait":                  true,
	"os/exec.(*Cmd).Wait":                 true,
	"os/exec.(*Cmd).Start":                true,
	"database/sql.(*DB).conn":             true, // the pool
	"net/http.(*Transport).getConn":       true, // a connection to a peer, a new one or a free one
	"net/http.(*persistConn).roundTrip":   true,
	handshake:                             true,
	"net.(*Dialer).DialContext":           true,
	"net/http.(*body).Read":               true,
	"net/http.checkConnErrorWriter.Write": true,
}
