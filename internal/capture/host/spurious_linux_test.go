package host

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestSpurious: if acknowledgements are lost, the sender retransmits segments that have arrived. The
// receiver's kernel reports them, and parseTCPInfo must read that counter. A filter on the sender's
// socket discards the acknowledgements for some time.
func TestSpurious(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the kernel to send again")
	}
	l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	c := must.Have(net.Dial("tcp", l.Addr().String()))(t)
	defer c.Close()
	s := must.Have(l.Accept())(t)
	defer s.Close()
	// The receiver sends no data, so the filter discards acknowledgements only.
	filter(t, c, &unix.SockFprog{Len: 1, Filter: &unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}})
	must.Have(io.WriteString(c, "arrives at once"))(t)
	d, err := openSockDiag("")
	if err != nil {
		t.Skip(err)
	}
	defer d.close()
	readCounters := func() (retransmitted, spurious int64) {
		must.Do(t, d.forEachSocket(func(x *diagSocket) {
			if x.Local.String() == c.LocalAddr().String() {
				retransmitted, spurious = x.counters.Retransmitted, x.counters.Spurious
			}
		}))
		return retransmitted, spurious
	}
	deadline := time.Now().Add(20 * time.Second)
	wait := func(description string, done func(retransmitted, spurious int64) bool) {
		for retransmitted, spurious := readCounters(); !done(retransmitted, spurious); retransmitted, spurious = readCounters() {
			must.False(t, time.Now().After(deadline), "%s: sent again %d, needlessly %d", description, retransmitted, spurious)
			time.Sleep(time.Millisecond)
		}
	}
	wait("no acknowledgement came", func(retransmitted, _ int64) bool { return retransmitted > 0 })
	filter(t, c, nil)
	wait("acknowledgements come again", func(retransmitted, spurious int64) bool { return spurious > 0 && spurious <= retransmitted })
}

func filter(t *testing.T, c net.Conn, prog *unix.SockFprog) {
	t.Helper()
	raw := must.Have(c.(*net.TCPConn).SyscallConn())(t)
	var serr error
	if err := raw.Control(func(fd uintptr) {
		if prog == nil {
			serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
			return
		}
		serr = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, prog)
	}); err != nil || serr != nil {
		t.Fatal(err, serr)
	}
}
