package cause

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestCall: the innermost operation function shows what a wait is for, otherwise the function that the site called.
func TestCall(t *testing.T) {
	for _, c := range []struct {
		name         string
		stack        []string // innermost first
		call, socket string
	}{
		{"a sleep", []string{"time.Sleep", "main.f"}, "time.Sleep", ""},
		{"a sync, through a library", []string{"syscall.fsync", "syscall.Fsync", "internal/poll.(*FD).Fsync", "os.(*File).Sync", "example.org/log.(*W).flush", "main.f"}, "syscall.Fsync", ""},
		{"a log line", []string{"syscall.write", "internal/poll.(*FD).Write", "os.(*File).Write", "log.(*Logger).output", "log.Println", "main.f"}, "os.(*File).Write", ""},
		{"a pool", []string{"runtime.selectgo", "database/sql.(*DB).conn", "database/sql.(*DB).query", "database/sql.(*DB).QueryContext", "main.f"}, "database/sql.(*DB).conn", ""},
		{"a lock", []string{"sync.runtime_SemacquireMutex", "sync.(*Mutex).lockSlow", "sync.(*Mutex).Lock", "main.f"}, "sync.(*Mutex).Lock", ""},
		{"a lock by a dependency", []string{"sync.(*RWMutex).RLock", "example.org/x.(*T).get", "main.f"}, "sync.(*RWMutex).RLock", ""},
		{"a name", []string{"runtime.cgocall", "net._C2func_getaddrinfo", "net.cgoLookupHostIP", "net.doBlockingWithCtx[...].func1"}, "net.cgoLookupHostIP", ""},
		{"a socket", []string{"syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write", "main.f"}, "net.(*conn).Write", "net.(*netFD).Write"},
		{"a copy that waits for its reader", []string{"internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write", "io.copyBuffer", "io.Copy", "main.f"}, "net.(*conn).Write", "net.(*netFD).Write"},
		{"a copy that waits for its source", []string{"internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read", "io.copyBuffer", "io.Copy", "main.f"}, "io.Copy", "net.(*netFD).Read"},
		{"a raw read", []string{"syscall.read", "example.org/r.sysRead", "internal/poll.(*FD).RawRead", "net.(*rawConn).Read", "example.org/r.read", "main.f"}, "syscall.read", "net.(*rawConn).Read"},
		{"nothing below the site", []string{"main.f", "runtime.goexit"}, "", ""},
	} {
		syms, id := oneStack(c.stack)
		s := NewSites(syms)
		for range 2 { // computed, and cached
			check.Equal(t, syms.String(s.CallOf(id)), c.call, "%s: call", c.name)
			check.Equal(t, syms.String(s.SocketCall(id)), c.socket, "%s: socket", c.name)
		}
	}
}
