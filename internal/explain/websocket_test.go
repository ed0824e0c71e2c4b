package explain_test

import (
	"slices"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// Stacks of WebSocket libraries, innermost frame first, without the service code: where each waits for a message, and
// where it reads the rest after the header. From the sources of gorilla/websocket 1.5.3, coder/websocket 1.8 and
// nhooyr.io/websocket 1.8, x/net 0.62, gobwas/ws 1.4.0 and gws 1.8.
var webSockets = []struct {
	name       string
	next, rest []string
}{
	{"gorilla", []string{"github.com/gorilla/websocket.(*Conn).read", "github.com/gorilla/websocket.(*Conn).advanceFrame", "github.com/gorilla/websocket.(*Conn).NextReader", "github.com/gorilla/websocket.(*Conn).ReadMessage"},
		[]string{"github.com/gorilla/websocket.(*Conn).advanceFrame", "github.com/gorilla/websocket.(*messageReader).Read", "io.ReadAll", "github.com/gorilla/websocket.(*Conn).ReadMessage"}},
	{"gorilla, JSON", []string{"github.com/gorilla/websocket.(*Conn).advanceFrame", "github.com/gorilla/websocket.(*Conn).NextReader", "github.com/gorilla/websocket.(*Conn).ReadJSON"},
		[]string{"github.com/gorilla/websocket.(*messageReader).Read", "encoding/json.(*Decoder).Decode", "github.com/gorilla/websocket.(*Conn).ReadJSON"}},
	{"coder", []string{"github.com/coder/websocket.(*Conn).readFrameHeader", "github.com/coder/websocket.(*Conn).readLoop", "github.com/coder/websocket.(*Conn).reader", "github.com/coder/websocket.(*Conn).Read"},
		[]string{"github.com/coder/websocket.(*Conn).readLoop", "github.com/coder/websocket.(*msgReader).Read", "io.ReadAll", "github.com/coder/websocket.(*Conn).Read"}},
	{"nhooyr", []string{"nhooyr.io/websocket.(*Conn).readLoop", "nhooyr.io/websocket.(*Conn).reader", "nhooyr.io/websocket.(*Conn).Reader"},
		[]string{"nhooyr.io/websocket.(*msgReader).Read", "io.ReadAll"}},
	{"x/net", []string{"golang.org/x/net/websocket.hybiFrameReaderFactory.NewFrameReader", "golang.org/x/net/websocket.Codec.Receive"},
		[]string{"golang.org/x/net/websocket.(*hybiFrameReader).Read", "io.ReadAll", "golang.org/x/net/websocket.Codec.Receive"}},
	{"gobwas", []string{"io.ReadFull", "github.com/gobwas/ws.ReadHeader", "github.com/gobwas/ws.ReadFrame"},
		[]string{"io.ReadFull", "github.com/gobwas/ws.ReadFrame"}},
	{"gobwas, wsutil", []string{"github.com/gobwas/ws/wsutil.(*Reader).readHeader", "github.com/gobwas/ws/wsutil.(*Reader).NextFrame", "github.com/gobwas/ws/wsutil.readData", "github.com/gobwas/ws/wsutil.ReadClientData"},
		[]string{"github.com/gobwas/ws/wsutil.(*Reader).readHeader", "github.com/gobwas/ws/wsutil.(*Reader).NextFrame", "github.com/gobwas/ws/wsutil.(*Reader).Read", "io.ReadAll", "github.com/gobwas/ws/wsutil.readData"}},
	{"gws", []string{"github.com/lxzan/gws.(*frameHeader).Parse", "github.com/lxzan/gws.(*Conn).readMessage", "github.com/lxzan/gws.(*Conn).ReadLoop"},
		[]string{"github.com/lxzan/gws.(*Conn).readMessage", "github.com/lxzan/gws.(*Conn).ReadLoop"}},
}

const upgraded = "example.com/chat.(*room).ServeHTTP"

// inHandler returns the stack of a hijacked connection in its handler.
func inHandler(frames ...[]string) []string {
	return append(slices.Concat(frames...), upgraded, "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve:2074")
}

var fdRead = []string{"internal/poll.(*FD).Read", "net.(*conn).Read"}

// TestMessages: a message on a WebSocket begins when it can be read. It ends when the goroutine waits for the next one,
// or reads it if it is available. A message that is read in several parts is one request, a connection without messages
// is no request that hangs, and a message that is being handled at the end of the trace is open.
func TestMessages(t *testing.T) {
	for _, lib := range webSockets {
		builder := tracetext.New(26)
		th, poller := builder.Thread(), builder.ThreadWithoutP()
		for g := uint64(5); g <= 7; g++ { // 6 has no message
			builder.Waiting(g)
			poller.Unblock(int64(g)*10*us, g)
			th.Start(int64(g)*10*us+us, g)
			th.Block(int64(g)*10*us+2*us, "network", inHandler(fdRead, lib.next)...)
		}
		clock := int64(1 * ms)
		const n = 20
		handle := func() {
			th.Syscall(clock+10*us, inHandler([]string{"syscall.write", "net.(*conn).Write"}, []string{"example.com/chat.(*room).broadcast"})...)
			th.SyscallEnd(clock + 90*us)
		}
		read := func(d int64, stack []string) {
			th.Syscall(clock+d, inHandler([]string{"syscall.read"}, fdRead, stack)...)
			th.SyscallEnd(clock + d + 2*us)
		}
		for i := range n {
			poller.Unblock(clock, 5)
			th.Start(clock+us, 5)
			read(2*us, lib.next)
			if i%2 == 0 { // the rest arrives later
				th.Block(clock+5*us, "network", inHandler(fdRead, lib.rest)...)
				poller.Unblock(clock+6*us, 5)
				th.Start(clock+7*us, 5)
				read(8*us, lib.rest)
			}
			handle()
			if i%4 == 0 { // the next message is available
				clock += 100 * us
				read(0, lib.next)
				handle()
			}
			read(95*us, lib.next)
			th.Block(clock+100*us, "network", inHandler(fdRead, lib.next)...)
			clock += 1 * ms
		}
		for range 2 {
			poller.Unblock(clock, 7)
			th.Start(clock+us, 7)
			handle()
			th.Block(clock+100*us, "network", inHandler(fdRead, lib.next)...)
			clock += 1 * ms
		}
		poller.Unblock(clock, 7)
		th.Start(clock+us, 7)
		th.Block(clock+5*us, "sync", inHandler([]string{"sync.(*Mutex).Lock", "example.com/chat.(*room).broadcast"})...)
		builder.NextGeneration(clock + 100*ms)
		th.ProcStop(clock + 200*ms)
		rep := explainBuilt(t, builder, whylate.Options{})
		must.True(t, len(rep.Groups) == 1, "%s: %q", lib.name, groupTexts(rep))
		g := &rep.Groups[0]
		check.True(t, g.Kind == report.KindWebSocket && g.Name == upgraded && g.Count == n+n/4+2 && g.Open.Count == 1,
			"%s: %q, %d open; want %d messages", lib.name, groupTexts(rep), g.Open.Count, n+n/4+2)
		check.Equal(t, g.TotalNS, int64((n+n/4+2)*100*us), "%s: ns in all", lib.name)
		check.True(t, g.Open.Site != nil && g.Open.Site.Func == "example.com/chat.(*room).broadcast",
			"%s: open at %+v", lib.name, g.Open.Site)
	}
}

// TestReadPump: messages are named by the function that reads and handles them, and not by a helper that only reads.
// They are no iterations and no part of the request that started the goroutine. The request that opened the WebSocket
// ends with the first wait for a message.
func TestReadPump(t *testing.T) {
	builder := tracetext.New(26)
	th, poller := builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(3)
	const serve = "net/http.(*conn).serve:2074"
	lib := webSockets[0].next
	poller.Unblock(1*ms, 3)
	th.Start(1*ms+us, 3)
	th.Create(1*ms+5*us, 5, serve, "net/http.(*Server).Serve:3454")
	th.Block(1*ms+6*us, "network", "internal/poll.(*FD).Accept", "net/http.(*Server).Serve:3450")
	th.Start(1*ms+10*us, 5)
	th.Create(1*ms+20*us, 6, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
	th.Create(1*ms+30*us, 7, "example.com/chat.(*member).pump", inHandler()...)
	th.Block(1*ms+50*us, "network", inHandler(fdRead, lib)...)
	pump := func(frames ...[]string) []string {
		return append(slices.Concat(frames...), "example.com/chat.(*member).pump")
	}
	next := pump(fdRead, lib, []string{"example.com/chat.(*member).receive"})
	th.Start(1*ms+60*us, 7)
	th.Block(1*ms+70*us, "network", next...)
	clock := int64(2 * ms)
	for range 10 {
		poller.Unblock(clock, 7)
		th.Start(clock+us, 7)
		th.Block(clock+10*us, "sleep", pump([]string{"time.Sleep", "example.com/chat.(*member).answer"})...)
		poller.Unblock(clock+50*us, 7)
		th.Start(clock+51*us, 7)
		th.Block(clock+60*us, "network", next...)
		clock += 1 * ms
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	if g := groupNamed(rep, "example.com/chat.(*member).pump"); g == nil || g.Kind != report.KindWebSocket || g.Count != 10 || g.TotalNS != 10*60*us {
		t.Errorf("groups: %q", groupTexts(rep))
	}
	if g := groupNamed(rep, upgraded); g == nil || g.Kind != report.KindHTTP1 || g.Count != 1 || g.Open.Count != 0 || g.TotalNS > 50*us {
		t.Errorf("groups: %q", groupTexts(rep))
	}
	check.Equal(t, len(rep.Groups), 2, "groups: %q", groupTexts(rep))
}

// TestWebSocketToAnotherServer: a handler that calls another server over a WebSocket has not hijacked its own
// connection, so its request continues.
func TestWebSocketToAnotherServer(t *testing.T) {
	builder := tracetext.New(26)
	th, idle, poller := builder.Thread(), builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(7)
	idle.ProcStop(10) // an idle P polls the network
	writeIdleWait(th, poller, 1*ms, 7)
	const serve = "net/http.(*conn).serve:2074"
	clock := int64(2 * ms)
	for i := range 12 {
		poller.Unblock(clock, 7)
		th.Start(clock+us, 7)
		th.Create(clock+2*us, uint64(1000+i), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
		for k := range int64(3) {
			th.Block(clock+10*us+k*20*us, "network", inHandler(fdRead, webSockets[0].next)...)
			poller.Unblock(clock+20*us+k*20*us, 7)
			th.Start(clock+21*us+k*20*us, 7)
		}
		th.Block(clock+100*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
		clock += 1 * ms
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	must.True(t, len(rep.Groups) == 1 && rep.Groups[0].Kind == report.KindHTTP1 && rep.Groups[0].Count == 12, "groups: %q", groupTexts(rep))
	if !slices.ContainsFunc(rep.Groups[0].All().Causes, func(c report.Cause) bool { return c.Cause == report.CauseNetwork && c.Kind == "outbound" }) {
		t.Errorf("it does not wait for the other server: %+v", rep.Groups[0].All().Causes)
	}
}

// TestQueuedMessagesOfWebSocket: if the next message is available when one ends, it was queued in the connection, and
// the report names the call that each message makes. If the goroutine rests between messages, the report may only call
// the peer slow.
func TestQueuedMessagesOfWebSocket(t *testing.T) {
	lib := webSockets[0]
	for _, tc := range []struct {
		name    string
		backlog int // of four messages, how many are available when the one before ends
		queue   bool
	}{
		{"three of four", 3, true}, {"none", 0, false},
	} {
		builder := tracetext.New(26)
		th, poller := builder.Thread(), builder.ThreadWithoutP()
		p := th.Proc()
		rest := func(clock int64, stack []string) { // nothing else runs, so that the network is polled
			th.Block(clock, "network", inHandler(fdRead, stack)...)
			th.ProcStop(clock + us)
		}
		wake := func(clock int64) {
			th.ProcStart(clock, p)
			poller.Unblock(clock+us, 5)
			th.Start(clock+2*us, 5)
		}
		builder.Waiting(5)
		poller.Unblock(10*us, 5)
		th.Start(11*us, 5)
		rest(12*us, lib.next)
		clock := int64(1 * ms)
		read := func() {
			th.Syscall(clock, inHandler([]string{"syscall.read"}, fdRead, lib.next)...)
			th.SyscallEnd(clock + 2*us)
		}
		for i := range 80 {
			if i%4 == 0 || i%4 > tc.backlog {
				wake(clock - 10*us)
			}
			read()
			rest(clock+5*us, []string{"example.com/chat.(*room).ask"})
			clock += 20 * ms
			wake(clock)
			th.Syscall(clock+10*us, inHandler([]string{"syscall.write", "net.(*conn).Write"}, []string{"example.com/chat.(*room).broadcast"})...)
			th.SyscallEnd(clock + 20*us)
			clock += 30 * us
			if next := (i + 1) % 4; next == 0 || next > tc.backlog {
				rest(clock, lib.next)
				clock += 10 * ms
			}
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		queue := slices.ContainsFunc(rep.Findings, func(f report.Finding) bool {
			return f.Code == report.RulePoolTooSmall && f.Severity.IsMajor() && f.Site != nil && f.Site.Func == "example.com/chat.(*room).ask"
		})
		check.True(t, queue == tc.queue, "%s: it queues: %t; found: %+v", tc.name, queue, rep.Findings)
	}
}
