package cause

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Call returns the standard library's function that tells what a wait or a
// system call is for: one of the telling ones wherever it stands on the stack,
// else the one that the site called. It is 0 where the stack shows none.
func (s *Sites) Call(id tracefmt.StackID) tracefmt.StringID { return s.call.of(id, s.findCall) }

func (s *Sites) findCall(id tracefmt.StackID) tracefmt.StringID {
	frames := s.syms.Stack(id)
	for _, f := range frames {
		if fn := s.syms.Frame(f).Func; telling(s.syms.String(fn)) {
			return fn
		}
	}
	of := s.syms.Frame(s.Of(id))
	of.Caller = 0
	site := slices.IndexFunc(frames, func(f tracefmt.FrameID) bool { return s.syms.Frame(f) == of })
	if site <= 0 {
		return 0
	}
	fn := s.syms.Frame(frames[site-1]).Func
	if !stdlib.Is(s.syms.String(fn)) {
		return 0
	}
	return fn
}

// isPool reports whether a call waits for a free place of a pool: that says more than which timer's function ends the wait.
func (s *Sites) isPool(call tracefmt.StringID) bool {
	return s.syms.String(call) == "database/sql.(*DB).conn"
}

// Socket returns the function in which a stack reads or writes a socket, 0 if
// it does not. Such a system call never blocks: the poller waits for it.
func (s *Sites) Socket(id tracefmt.StackID) tracefmt.StringID { return s.sock.of(id, s.findSocket) }

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

// C returns the function through which a stack is in C code, 0 if it is not: a trace shows calls of C as system calls.
func (s *Sites) C(id tracefmt.StackID) tracefmt.StringID { return s.c.of(id, s.findC) }

func (s *Sites) findC(id tracefmt.StackID) tracefmt.StringID {
	for _, f := range s.syms.Stack(id) {
		f := s.syms.Frame(f)
		name, file := s.syms.String(f.Func), s.syms.String(f.File)
		switch {
		case name == "runtime.cgocall", isGlue(file):
			return f.Func
		case !strings.HasPrefix(name, "runtime."), name == "runtime.cgocallbackg":
			return 0 // Go code, perhaps called by C
		}
	}
	return 0
}

// isGlue reports whether a file is the one that cgo makes, of functions that call C: nobody can change it. Most traces show no frame
// of the runtime's below them.
func isGlue(file string) bool { return strings.HasSuffix(file, "_cgo_gotypes.go") }

// entry returns the function that a goroutine starts with.
func (s *Sites) entry(id tracefmt.StackID) tracefmt.StringID {
	if frames := s.syms.Stack(id); len(frames) > 0 {
		return s.syms.Frame(frames[len(frames)-1]).Func
	}
	return 0
}

// telling reports whether a function alone says what is waited for, whatever
// it was called through: the innermost such one counts. Names as in the
// standard library of Go 1.22 to 1.26.
func telling(fn string) bool {
	if tellingNames[fn] {
		return true
	}
	return strings.HasPrefix(fn, "net.cgoLookup") || strings.HasPrefix(fn, "net.(*Resolver).")
}

var tellingNames = map[string]bool{
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
