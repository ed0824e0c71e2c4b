package explain_test

import (
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestHijackedConnections: a handler hijacks its connection and starts a goroutine for it. What that does from a wait for its client until
// its last write is a request, also if the waits are in several functions (a handshake, then requests). A wait by another library's code is
// a part of the request. If the goroutine writes first, or another one of the handler reads as well, its waits may be for a peer.
func TestHijackedConnections(t *testing.T) {
	type variant struct {
		writesFirst, copiesBack, asksPeer bool
	}
	const loop = "example.com/relay.(*relay).tunnel"
	for _, c := range []struct {
		name string
		variant
		requests int
	}{
		{"a protocol of its own", variant{}, 30},
		{"a library asks a peer", variant{asksPeer: true}, 30},
		{"a client of a peer", variant{writesFirst: true}, 0},
		{"two copies", variant{copiesBack: true}, 0},
	} {
		b := tracetext.New(26)
		th, poller := b.Thread(), b.ThreadWithoutP()
		serve := []string{"example.com/relay.(*relay).ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve:2074"}
		read := func(caller ...string) []string { return append(append([]string{}, fdRead...), append(caller, loop)...) }
		write := func(clock int64) {
			th.Syscall(clock, "syscall.write", "net.(*conn).Write", loop)
			th.SyscallEnd(clock + 10*us)
		}
		clock := int64(ms)
		for i := range uint64(10) {
			conn, own, back := 10+i, 100+i, 200+i
			b.Waiting(conn)
			poller.Unblock(clock, conn)
			th.Start(clock+us, conn)
			th.Create(clock+2*us, 300+i, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", "net/http.(*conn).serve:2074")
			th.Create(clock+3*us, own, loop, serve...)
			if c.copiesBack {
				th.Create(clock+4*us, back, loop, serve...)
			}
			th.Destroy(clock + 5*us)
			th.Start(clock+6*us, 300+i)
			th.Destroy(clock + 7*us)
			if c.copiesBack {
				th.Start(clock+8*us, back)
				th.Block(clock+9*us, "network", read("example.com/relay.copy")...)
			}
			th.Start(clock+10*us, own)
			if c.writesFirst {
				write(clock + 20*us)
			}
			th.Block(clock+40*us, "network", read("crypto/tls.(*Conn).Handshake", "example.com/relay.shake")...)
			for range 3 {
				clock += ms
				poller.Unblock(clock, own)
				th.Start(clock+us, own)
				if c.asksPeer {
					write(clock + 10*us)
					th.Block(clock+30*us, "network", read("github.com/gomodule/redigo/redis.(*conn).readLine", "github.com/gomodule/redigo/redis.(*conn).Do")...)
					poller.Unblock(clock+1*ms, own)
					th.Start(clock+1*ms+us, own)
				}
				write(clock + 2*ms - 10*us) // for 10 us
				th.Block(clock+2*ms+5*us, "network", read("example.com/relay.readRequest")...)
				clock += 3 * ms
			}
		}
		rep := explainBuilt(t, b, whylate.Options{})
		if group := groupNamed(rep, loop); c.requests == 0 {
			check.True(t, group == nil, "%s: %q", c.name, groupTexts(rep))
		} else {
			must.True(t, group != nil, "%s: %q", c.name, groupTexts(rep))
			check.True(t, group.Count == c.requests && group.TotalNS == int64(c.requests)*2*ms, "%s: %d requests of %d ns", c.name, group.Count, group.TotalNS)
		}
	}
}
