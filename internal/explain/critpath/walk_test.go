package critpath

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

var kindNames = [...]string{"unknown", "cpu", "runnable", "syscall", "sleep", "network", "pollgap", "lock", "chan", "assist", "gcwait", "stopworld"}

// spellSteps writes a walk as text, one step a line: from-to, goroutine, kind, the innermost function of the stack,
// and the followed waits that led to the step, the last one first. Times count from the builder's origin.
func spellSteps(w *Walker, syms *tracefmt.Symbols, steps []Step) string {
	fn := func(id tracefmt.StackID) string {
		frames := syms.Stack(id)
		if len(frames) == 0 {
			return "-"
		}
		return syms.String(syms.Frame(frames[0]).Func)
	}
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "%d-%d g%d %s %s", s.Start-tracetext.Origin, s.End-tracetext.Origin, s.G, kindNames[s.Kind], fn(s.Stack))
		if s.Inbound {
			b.WriteString(" inbound")
		}
		if s.WokenByPoller {
			b.WriteString(" bypoll")
		}
		for v := s.FollowedWait; v >= 0; v = w.FollowedWaits[v].Parent {
			fmt.Fprintf(&b, " <%s %s", w.FollowedWaits[v].Kind, fn(w.FollowedWaits[v].Stack))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Stacks of the runtime and the standard library, as traces have them.
var (
	lockStack      = []string{"sync.(*Mutex).Lock", "main.lock"}
	unlockStack    = []string{"sync.(*Mutex).Unlock", "main.unlock"}
	condStack      = []string{"sync.(*Cond).Wait", "main.await"}
	broadcastStack = []string{"sync.(*Cond).Broadcast", "main.tell"}
	pollReadStack  = []string{"internal/poll.(*FD).Read", "net.(*conn).Read", "main.read"}
	deadlineStack  = []string{"internal/poll.setDeadlineImpl", "net.(*conn).SetReadDeadline", "main.cancel"}
	restartStack   = []string{"runtime.systemstack_switch", "runtime.startTheWorld.func1", "runtime.gcStart", "main.alloc"}
	recvStack      = []string{"runtime.chanrecv1", "main.receive"}
	sendStack      = []string{"runtime.chansend1", "main.send"}
	waitGroupStack = []string{"sync.(*WaitGroup).Wait", "main.join"}
	doneStack      = []string{"sync.(*WaitGroup).Done", "main.part"}
)

// walkCases are the smallest traces in which a walk can go wrong, each in another way. The request is goroutine 1 in
// [from, to). The expected steps were worked out by hand.
var walkCases = []struct {
	name     string
	from, to int64
	build    func(b *tracetext.Builder)
	want     string
}{
	{"basic", 100, 400, func(b *tracetext.Builder) {
		// Runs, sleeps, waits for a P, runs, makes a system call, runs.
		m, n := b.Thread(1), b.Thread()
		m.Block(150, "sleep", "time.Sleep", "main.work")
		n.Unblock(200, 1)
		m.Start(210, 1)
		m.Syscall(250, "syscall.write", "main.write")
		m.SyscallEnd(300)
		m.Block(400, "forever", "main.end")
	}, `
100-150 g1 cpu time.Sleep
150-200 g1 sleep time.Sleep
200-210 g1 runnable time.Sleep
210-250 g1 cpu syscall.write
250-300 g1 syscall syscall.write
300-400 g1 cpu main.end
`},
	{"waker followed only within the wait", 100, 400, func(b *tracetext.Builder) {
		// The holder sleeps since long before the request waits for the lock.
		m, n := b.Thread(1), b.Thread(2)
		n.Block(20, "sleep", "time.Sleep", "main.hold")
		m.Block(200, "sync", lockStack...)
		m.Unblock(300, 2)
		n.Start(310, 2)
		n.Unblock(350, 1, unlockStack...)
		n.Block(500, "forever", "main.after")
		m.Start(360, 1)
		m.Block(400, "forever", "main.end")
	}, `
100-200 g1 cpu sync.(*Mutex).Lock
200-300 g2 sleep time.Sleep <lock sync.(*Mutex).Lock
300-310 g2 runnable time.Sleep <lock sync.(*Mutex).Lock
310-350 g2 cpu sync.(*Mutex).Unlock <lock sync.(*Mutex).Lock
350-360 g1 runnable sync.(*Mutex).Lock
360-400 g1 cpu main.end
`},
	{"an unordered slot: the last holder's time before its own wait is not on the path", 100, 600, func(b *tracetext.Builder) {
		// Goroutine 3 has the only connection. 1 waits for it, then 2, whose client has just sent its request. 3 releases
		// it to 2, and 2 releases it to 1. Before 2's wait, the connection was with 3: the wait for 2's client is not on the path.
		want := []string{"runtime.selectgo", "database/sql.(*DB).conn", "database/sql.(*DB).QueryContext", "main.query"}
		give := []string{"runtime.chansend", "database/sql.(*DB).putConnDBLocked", "database/sql.(*Rows).Close", "main.query"}
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		n.Block(20, "network", pollReadStack...)
		o.Block(50, "network", pollReadStack...)
		m.Block(110, "select", want...)
		m.Unblock(250, 2)
		n.Start(260, 2)
		n.Block(270, "select", want...)
		m.Unblock(300, 3)
		o.Start(310, 3)
		o.Unblock(350, 2, give...)
		o.Block(400, "forever", "main.after")
		n.Start(360, 2)
		n.Unblock(500, 1, give...)
		n.Block(520, "forever", "main.after")
		m.Start(510, 1)
		m.Block(600, "forever", "main.end")
	}, `
100-110 g1 cpu runtime.selectgo
110-300 g3 network internal/poll.(*FD).Read <select runtime.selectgo <select runtime.selectgo
300-310 g3 runnable internal/poll.(*FD).Read <select runtime.selectgo <select runtime.selectgo
310-350 g3 cpu runtime.chansend <select runtime.selectgo <select runtime.selectgo
350-360 g2 runnable runtime.selectgo <select runtime.selectgo
360-500 g2 cpu runtime.chansend <select runtime.selectgo
500-510 g1 runnable runtime.selectgo
510-600 g1 cpu main.end
`},
	{"news: what the waker did before the request that brought it is not on the path", 100, 400, func(b *tracetext.Builder) {
		// 2 is the goroutine of a connection, whose earlier request slept.
		m, n, poller := b.Thread(1), b.Thread(2), b.ThreadWithoutP()
		n.Block(20, "sleep", "time.Sleep", "main.handle", "net/http.(*conn).serve")
		m.Block(110, "chan receive", recvStack...)
		poller.Unblock(200, 2)
		n.Start(210, 2)
		n.Block(220, "network", "internal/poll.(*FD).Read", "bufio.(*Reader).Peek", "net/http.(*conn).serve")
		poller.Unblock(300, 2)
		n.Start(310, 2)
		n.Unblock(350, 1, "runtime.chansend1", "main.publish", "net/http.(*conn).serve")
		n.Block(380, "forever", "main.after")
		m.Start(360, 1)
		m.Block(400, "forever", "main.end")
	}, `
100-110 g1 cpu runtime.chanrecv1
110-300 g2 network internal/poll.(*FD).Read inbound <chan runtime.chanrecv1
300-310 g2 runnable internal/poll.(*FD).Read <chan runtime.chanrecv1
310-350 g2 cpu runtime.chansend1 <chan runtime.chanrecv1
350-360 g1 runnable runtime.chanrecv1
360-400 g1 cpu main.end
`},
	{"self wake: its own thread runs the timer", 100, 300, func(b *tracetext.Builder) {
		// The wake follows the goroutine's own events on the thread, but no goroutine made it.
		m := b.Thread(2)
		b.Waiting(1)
		m.Block(90, "sync", lockStack...)
		m.Unblock(95, 1)
		m.Start(96, 1)
		m.Block(150, "chan receive", recvStack...)
		m.Unblock(250, 1)
		m.Start(260, 1)
		m.Block(300, "forever", "main.end")
	}, `
100-150 g1 cpu runtime.chanrecv1
150-250 g1 sleep runtime.chanrecv1
250-260 g1 runnable runtime.chanrecv1
260-300 g1 cpu main.end
`},
	{"a handler's WebSocket waits for its client, a client's WebSocket for a peer", 100, 500, func(b *tracetext.Builder) {
		read := []string{"internal/poll.(*FD).Read", "bufio.(*Reader).Peek", "github.com/gorilla/websocket.(*Conn).read", "github.com/gorilla/websocket.(*Conn).ReadMessage"}
		m, n := b.Thread(1), b.Thread()
		m.Block(150, "network", slices.Concat(read, []string{"main.chat", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve"})...)
		n.Unblock(250, 1)
		m.Start(260, 1)
		m.Block(300, "network", slices.Concat(read, []string{"main.follow"})...)
		n.Unblock(400, 1)
		m.Start(410, 1)
		m.Block(500, "forever", "main.end")
	}, `
100-150 g1 cpu internal/poll.(*FD).Read
150-250 g1 network internal/poll.(*FD).Read inbound
250-260 g1 runnable internal/poll.(*FD).Read
260-300 g1 cpu internal/poll.(*FD).Read
300-400 g1 network internal/poll.(*FD).Read
400-410 g1 runnable internal/poll.(*FD).Read
410-500 g1 cpu main.end
`},
	{"a handler that sends a file waits for its client, one that copies a response for its source", 100, 500, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread()
		m.Block(150, "network", "internal/poll.(*FD).RawRead", "net.sendFile", "net.(*TCPConn).ReadFrom", "net/http.(*response).ReadFrom", "main.get", "net/http.serverHandler.ServeHTTP")
		n.Unblock(250, 1)
		m.Start(260, 1)
		m.Block(300, "network", "internal/poll.(*FD).Read", "net.(*conn).Read", "net/http.(*response).ReadFrom", "main.pass", "net/http.serverHandler.ServeHTTP")
		n.Unblock(400, 1)
		m.Start(410, 1)
		m.Block(500, "forever", "main.end")
	}, `
100-150 g1 cpu internal/poll.(*FD).RawRead
150-250 g1 network internal/poll.(*FD).RawRead inbound
250-260 g1 runnable internal/poll.(*FD).RawRead
260-300 g1 cpu internal/poll.(*FD).Read
300-400 g1 network internal/poll.(*FD).Read
400-410 g1 runnable internal/poll.(*FD).Read
410-500 g1 cpu main.end
`},
	{"a handler that copies writes to its client; the body of an answer comes from a peer, that of a request from the client", 100, 700, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread()
		for i, wait := range [][]string{
			{"internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write", "io.copyBuffer", "net.(*TCPConn).ReadFrom", "net/http.(*response).ReadFrom", "io.Copy", "main.get", "net/http.serverHandler.ServeHTTP"},
			{"internal/poll.(*FD).Read", "net.(*conn).Read", "net/http.(*persistConn).Read", "net/http.(*body).Read", "net/http.(*bodyEOFSignal).Read", "main.get", "net/http.serverHandler.ServeHTTP"},
			{"internal/poll.(*FD).Read", "net.(*conn).Read", "net/http.(*connReader).Read", "net/http.(*body).Read", "main.get", "net/http.serverHandler.ServeHTTP"},
		} {
			start := 150 + 200*int64(i)
			m.Block(start, "network", wait...)
			n.Unblock(start+50, 1)
			m.Start(start+60, 1)
		}
		m.Block(700, "forever", "main.end")
	}, `
100-150 g1 cpu internal/poll.(*FD).Write
150-200 g1 network internal/poll.(*FD).Write inbound
200-210 g1 runnable internal/poll.(*FD).Write
210-350 g1 cpu internal/poll.(*FD).Read
350-400 g1 network internal/poll.(*FD).Read
400-410 g1 runnable internal/poll.(*FD).Read
410-550 g1 cpu internal/poll.(*FD).Read
550-600 g1 network internal/poll.(*FD).Read inbound
600-610 g1 runnable internal/poll.(*FD).Read
610-700 g1 cpu main.end
`},
	{"a wait for new connections is inbound", 100, 300, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread()
		m.Block(150, "network", "internal/poll.(*FD).Accept", "net.(*netFD).accept", "net/http.(*Server).Serve")
		n.Unblock(250, 1)
		m.Start(260, 1)
		m.Block(300, "forever", "main.end")
	}, `
100-150 g1 cpu internal/poll.(*FD).Accept
150-250 g1 network internal/poll.(*FD).Accept inbound
250-260 g1 runnable internal/poll.(*FD).Accept
260-300 g1 cpu main.end
`},
	{"missing waker of a lock", 100, 300, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread()
		m.Block(150, "sync", lockStack...)
		n.Unblock(250, 1)
		m.Start(260, 1)
		m.Block(300, "forever", "main.end")
	}, `
100-150 g1 cpu sync.(*Mutex).Lock
150-250 g1 lock sync.(*Mutex).Lock
250-260 g1 runnable sync.(*Mutex).Lock
260-300 g1 cpu main.end
`},
	{"false waker: the world restarts and the network is polled", 100, 300, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread(2)
		m.Block(150, "network", pollReadStack...)
		n.Unblock(250, 1, restartStack...)
		m.Start(260, 1)
		m.Block(300, "forever", "main.end")
	}, `
100-150 g1 cpu internal/poll.(*FD).Read
150-250 g1 network internal/poll.(*FD).Read
250-260 g1 runnable internal/poll.(*FD).Read
260-300 g1 cpu main.end
`},
	{"true waker of a network wait: another goroutine moves the deadline", 100, 300, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread(2)
		m.Block(150, "network", pollReadStack...)
		n.Unblock(250, 1, deadlineStack...)
		m.Start(260, 1)
		m.Block(300, "forever", "main.end")
	}, `
100-150 g1 cpu internal/poll.(*FD).Read
150-250 g2 cpu internal/poll.setDeadlineImpl <network internal/poll.(*FD).Read
250-260 g1 runnable internal/poll.(*FD).Read
260-300 g1 cpu main.end
`},
	{"nested: the holder waits for a lock itself", 100, 500, func(b *tracetext.Builder) {
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		m.Block(150, "sync", "sync.(*Mutex).Lock", "main.a")
		n.Block(200, "sync", "sync.(*Mutex).Lock", "main.b")
		o.Syscall(210, "syscall.fsync", "main.sync")
		o.SyscallEnd(300)
		o.Unblock(310, 2, unlockStack...)
		n.Start(320, 2)
		n.Unblock(400, 1, unlockStack...)
		m.Start(410, 1)
		m.Block(500, "forever", "main.end")
	}, `
100-150 g1 cpu sync.(*Mutex).Lock
150-200 g2 cpu sync.(*Mutex).Lock <lock sync.(*Mutex).Lock
200-210 g3 cpu syscall.fsync <lock sync.(*Mutex).Lock <lock sync.(*Mutex).Lock
210-300 g3 syscall syscall.fsync <lock sync.(*Mutex).Lock <lock sync.(*Mutex).Lock
300-310 g3 cpu sync.(*Mutex).Unlock <lock sync.(*Mutex).Lock <lock sync.(*Mutex).Lock
310-320 g2 runnable sync.(*Mutex).Lock <lock sync.(*Mutex).Lock
320-400 g2 cpu sync.(*Mutex).Unlock <lock sync.(*Mutex).Lock
400-410 g1 runnable sync.(*Mutex).Lock
410-500 g1 cpu main.end
`},
	{"embedded: the waker's own wait is within the wait", 100, 500, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread(2)
		m.Block(150, "chan receive", recvStack...)
		n.Block(200, "network", pollReadStack...)
		n.Unblock(300, 2)
		n.Start(300, 2)
		n.Unblock(400, 1, sendStack...)
		m.Start(400, 1)
		m.Block(500, "forever", "main.end")
	}, `
100-150 g1 cpu runtime.chanrecv1
150-200 g2 cpu internal/poll.(*FD).Read <chan runtime.chanrecv1
200-300 g2 network internal/poll.(*FD).Read <chan runtime.chanrecv1
300-400 g2 cpu runtime.chansend1 <chan runtime.chanrecv1
400-500 g1 cpu main.end
`},
	{"mutual: each waits for the other in turn", 100, 500, func(b *tracetext.Builder) {
		// Ping-pong over two channels, on one thread.
		m := b.Thread(1)
		b.Waiting(2)
		m.Unblock(120, 2, sendStack...)
		m.Block(150, "chan receive", recvStack...)
		m.Start(160, 2)
		m.Unblock(200, 1, sendStack...)
		m.Block(220, "chan receive", recvStack...)
		m.Start(230, 1)
		m.Unblock(250, 2, sendStack...)
		m.Block(260, "chan receive", recvStack...)
		m.Start(270, 2)
		m.Unblock(300, 1, sendStack...)
		m.Block(310, "chan receive", recvStack...)
		m.Start(320, 1)
		m.Block(500, "forever", "main.end")
	}, `
100-120 g1 cpu runtime.chansend1
120-150 g1 cpu runtime.chanrecv1
150-160 g2 runnable - <chan runtime.chanrecv1
160-200 g2 cpu runtime.chansend1 <chan runtime.chanrecv1
200-230 g1 runnable runtime.chanrecv1
230-250 g1 cpu runtime.chansend1
250-260 g1 cpu runtime.chanrecv1
260-270 g2 runnable runtime.chanrecv1 <chan runtime.chanrecv1
270-300 g2 cpu runtime.chansend1 <chan runtime.chanrecv1
300-320 g1 runnable runtime.chanrecv1
320-500 g1 cpu main.end
`},
	{"barging: woken, lost, blocked again", 100, 500, func(b *tracetext.Builder) {
		// Goroutine 2 unlocks at 200, goroutine 3 takes the lock before 1 runs.
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		m.Block(150, "sync", lockStack...)
		n.Unblock(200, 1, unlockStack...)
		m.Start(205, 1)
		m.Block(210, "sync", lockStack...)
		o.Unblock(400, 1, "sync.(*Mutex).Unlock", "main.thief")
		m.Start(410, 1)
		m.Block(500, "forever", "main.end")
	}, `
100-150 g1 cpu sync.(*Mutex).Lock
150-200 g2 cpu sync.(*Mutex).Unlock <lock sync.(*Mutex).Lock
200-205 g1 runnable sync.(*Mutex).Lock
205-210 g1 cpu sync.(*Mutex).Lock
210-400 g3 cpu sync.(*Mutex).Unlock <lock sync.(*Mutex).Lock
400-410 g1 runnable sync.(*Mutex).Lock
410-500 g1 cpu main.end
`},
	{"hand-off of a starving lock", 100, 400, func(b *tracetext.Builder) {
		// In starvation mode Unlock yields to the waiter: the unlocker stops with the reason "preempted". Its time
		// afterwards is not on the path.
		m, n := b.Thread(1), b.Thread(2)
		m.Block(150, "sync", lockStack...)
		m.ProcStop(160)
		n.Unblock(250, 1, unlockStack...)
		n.Stop(252, "preempted", "sync.runtime_Semrelease", "sync.(*Mutex).Unlock", "main.unlock")
		n.Start(253, 1)
		n.Block(300, "sleep", "time.Sleep", "main.nap")
		n.Start(310, 2)
		n.Block(320, "forever", "main.after")
		n.Unblock(380, 1)
		n.Start(390, 1)
		n.Block(400, "forever", "main.end")
	}, `
100-150 g1 cpu sync.(*Mutex).Lock
150-250 g2 cpu sync.(*Mutex).Unlock <lock sync.(*Mutex).Lock
250-253 g1 runnable sync.(*Mutex).Lock
253-300 g1 cpu time.Sleep
300-380 g1 sleep time.Sleep
380-390 g1 runnable time.Sleep
390-400 g1 cpu main.end
`},
	{"fan-in: only the last Done counts", 100, 500, func(b *tracetext.Builder) {
		m, n, o := b.Thread(1), b.Thread(), b.Thread()
		m.Create(110, 2, "main.part", "main.fan")
		m.Create(120, 3, "main.part", "main.fan")
		m.Block(130, "sync", waitGroupStack...)
		n.Start(140, 2)
		n.Block(150, "sleep", "time.Sleep", "main.short")
		o.Start(145, 3)
		o.Block(160, "sleep", "time.Sleep", "main.long")
		n.Unblock(200, 2)
		n.Start(200, 2)
		n.Destroy(210)
		o.Unblock(400, 3)
		o.Start(405, 3)
		o.Unblock(410, 1, doneStack...)
		o.Destroy(415)
		m.Start(420, 1)
		m.Block(500, "forever", "main.end")
	}, `
100-110 g1 cpu main.fan
110-120 g1 cpu main.fan
120-130 g1 cpu sync.(*WaitGroup).Wait
130-145 g3 runnable main.fan <waitgroup sync.(*WaitGroup).Wait
145-160 g3 cpu time.Sleep <waitgroup sync.(*WaitGroup).Wait
160-400 g3 sleep time.Sleep <waitgroup sync.(*WaitGroup).Wait
400-405 g3 runnable time.Sleep <waitgroup sync.(*WaitGroup).Wait
405-410 g3 cpu sync.(*WaitGroup).Done <waitgroup sync.(*WaitGroup).Wait
410-420 g1 runnable sync.(*WaitGroup).Wait
420-500 g1 cpu main.end
`},
	{"creator: a third goroutine creates the waker within the wait", 100, 400, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread(2)
		m.Block(150, "chan receive", recvStack...)
		n.Create(250, 3, "main.born", "main.mother")
		n.Block(260, "forever", "main.after")
		n.Start(270, 3)
		n.Unblock(300, 1, sendStack...)
		n.Destroy(310)
		m.Start(300, 1)
		m.Block(400, "forever", "main.end")
	}, `
100-150 g1 cpu runtime.chanrecv1
150-250 g2 cpu main.mother <chan runtime.chanrecv1
250-270 g3 runnable main.mother <chan runtime.chanrecv1
270-300 g3 cpu runtime.chansend1 <chan runtime.chanrecv1
300-400 g1 cpu main.end
`},
	{"AfterFunc: the waker has no creator", 100, 400, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread()
		m.Block(150, "chan receive", recvStack...)
		n.Create(250, 3, "main.alarm")
		n.Start(270, 3)
		n.Unblock(300, 1, "runtime.closechan", "main.alarm")
		n.Destroy(310)
		m.Start(300, 1)
		m.Block(400, "forever", "main.end")
	}, `
100-150 g1 cpu runtime.chanrecv1
150-250 g3 sleep main.alarm <chan runtime.chanrecv1
250-270 g3 runnable - <chan runtime.chanrecv1
270-300 g3 cpu runtime.closechan <chan runtime.chanrecv1
300-400 g1 cpu main.end
`},
	{"AfterFunc of the standard library: the place is that of the wait", 100, 400, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread()
		m.Block(150, "select", "runtime.selectgo", "main.await")
		n.Create(250, 3, "context.WithDeadlineCause.func2")
		n.Start(270, 3)
		n.Unblock(300, 1, "runtime.closechan", "context.(*cancelCtx).cancel", "context.WithDeadlineCause.func2")
		n.Destroy(310)
		m.Start(300, 1)
		m.Block(400, "forever", "main.end")
	}, `
100-150 g1 cpu runtime.selectgo
150-250 g1 sleep runtime.selectgo
250-270 g3 runnable - <select runtime.selectgo
270-300 g3 cpu runtime.closechan <select runtime.selectgo
300-400 g1 cpu main.end
`},
	{"singleflight: the follower waits for what the leader waits for", 100, 500, func(b *tracetext.Builder) {
		// The leader began before the request.
		m, n := b.Thread(1), b.Thread(2)
		n.Block(50, "network", pollReadStack...)
		m.Block(200, "sync", "sync.(*WaitGroup).Wait", "golang.org/x/sync/singleflight.(*Group).Do", "main.get")
		n.Unblock(300, 2)
		n.Start(310, 2)
		n.Unblock(400, 1, "sync.(*WaitGroup).Done", "golang.org/x/sync/singleflight.(*Group).doCall", "main.get")
		m.Start(420, 1)
		m.Block(500, "forever", "main.end")
	}, `
100-200 g1 cpu sync.(*WaitGroup).Wait
200-300 g2 network internal/poll.(*FD).Read <waitgroup sync.(*WaitGroup).Wait
300-310 g2 runnable internal/poll.(*FD).Read <waitgroup sync.(*WaitGroup).Wait
310-400 g2 cpu sync.(*WaitGroup).Done <waitgroup sync.(*WaitGroup).Wait
400-420 g1 runnable sync.(*WaitGroup).Wait
420-500 g1 cpu main.end
`},
	{"generation border: within the wait and within the waker's wait", 100, 2000, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread(2)
		m.Block(200, "sync", lockStack...)
		n.Block(300, "sleep", "time.Sleep", "main.hold")
		b.NextGeneration(1000)
		n.Unblock(1500, 2)
		n.Start(1510, 2)
		n.Unblock(1600, 1, unlockStack...)
		m.Start(1610, 1)
		m.Block(2000, "forever", "main.end")
	}, `
100-200 g1 cpu sync.(*Mutex).Lock
200-300 g2 cpu time.Sleep <lock sync.(*Mutex).Lock
300-1500 g2 sleep time.Sleep <lock sync.(*Mutex).Lock
1500-1510 g2 runnable time.Sleep <lock sync.(*Mutex).Lock
1510-1600 g2 cpu sync.(*Mutex).Unlock <lock sync.(*Mutex).Lock
1600-1610 g1 runnable sync.(*Mutex).Lock
1610-2000 g1 cpu main.end
`},
	{"poll gap: all Ps busy, sysmon finds the data", 100, 1000, func(b *tracetext.Builder) {
		// The last idle P took work at 300: the data may have arrived at any time since then.
		m, n, mon := b.Thread(), b.Thread(), b.ThreadWithoutP()
		m.HasRun(1)
		n.ProcStop(10)
		b.Runnable(7)
		b.Runnable(8)
		m.Block(200, "network", pollReadStack...)
		m.Start(210, 7)
		n.ProcStart(300, 1)
		n.Start(300, 8)
		mon.Unblock(800, 1)
		m.Stop(900, "preempted", "main.hog")
		m.Start(900, 1)
		m.Block(1000, "forever", "main.end")
	}, `
100-200 g1 cpu internal/poll.(*FD).Read
200-300 g1 network internal/poll.(*FD).Read
300-800 g1 pollgap internal/poll.(*FD).Read
800-900 g1 runnable internal/poll.(*FD).Read bypoll
900-1000 g1 cpu main.end
`},
	{"poll gap: all Ps busy, the first P without work polls", 100, 100_000, func(b *tracetext.Builder) {
		// As above, but a P polls before sysmon does. The wake at 90,500 follows so short a gap that it shows nothing: a P
		// that steals work has polled before.
		m, n := b.Thread(1), b.Thread()
		n.ProcStop(10)
		b.Runnable(7)
		b.Runnable(8)
		m.Block(200, "network", pollReadStack...)
		m.Start(210, 7)
		n.ProcStart(300, 1)
		n.Start(300, 8)
		n.Block(70_000, "select", "main.tick")
		n.Unblock(80_000, 1)
		n.Start(80_100, 1)
		n.Block(80_500, "network", pollReadStack...)
		n.Unblock(90_500, 1)
		n.Start(90_600, 1)
		m.Stop(95_000, "preempted", "main.hog")
		n.Block(100_000, "forever", "main.end")
	}, `
100-200 g1 cpu internal/poll.(*FD).Read
200-300 g1 network internal/poll.(*FD).Read
300-80000 g1 pollgap internal/poll.(*FD).Read
80000-80100 g1 runnable internal/poll.(*FD).Read bypoll
80100-80500 g1 cpu internal/poll.(*FD).Read
80500-90500 g1 network internal/poll.(*FD).Read
90500-90600 g1 runnable internal/poll.(*FD).Read
90600-100000 g1 cpu main.end
`},
	{"poll gap: more is ready than one poll returns", 1_000_000, 20_000_000, func(b *tracetext.Builder) {
		// Of 300 readable connections, sysmon finds 128 at a time. Goroutine 1 is in the third poll, although a P was
		// idle for a moment after the second. The gap begins at 1,500,000, when the last idle P took work.
		m, n, mon := b.Thread(), b.Thread(), b.ThreadWithoutP()
		const first = 1000
		for g := range uint64(300) {
			b.Runnable(first + g)
		}
		b.Runnable(7)
		b.Runnable(8)
		m.HasRun(1)
		clock := int64(1000)
		for g := range uint64(300) {
			n.Start(clock, first+g)
			n.Block(clock+500, "network", pollReadStack...)
			clock += 1000
		}
		n.ProcStop(clock)
		m.Block(1_200_000, "network", pollReadStack...)
		m.Start(1_200_100, 7)
		n.ProcStart(1_500_000, 1)
		n.Start(1_500_000, 8)
		g := uint64(first)
		for _, wakeTime := range []int64{5_000_000, 15_000_000} {
			for range 128 {
				mon.Unblock(wakeTime, g)
				wakeTime, g = wakeTime+150, g+1
			}
		}
		n.Block(15_100_000, "select", "main.tick")
		n.ProcStop(15_100_100)
		n.ProcStart(15_200_000, 1)
		n.Start(15_200_000, first)
		mon.Unblock(18_000_000, g)
		mon.Unblock(18_000_100, 1)
		m.Stop(19_000_000, "preempted", "main.hog")
		m.Start(19_000_000, 1)
		m.Block(20_000_000, "forever", "main.end")
	}, `
1000000-1200000 g1 cpu internal/poll.(*FD).Read
1200000-1500000 g1 network internal/poll.(*FD).Read
1500000-18000100 g1 pollgap internal/poll.(*FD).Read
18000100-19000000 g1 runnable internal/poll.(*FD).Read bypoll
19000000-20000000 g1 cpu main.end
`},
	{"coroutine switch", 100, 400, func(b *tracetext.Builder) {
		m := b.Thread(1)
		m.CreateBlocked(120, 2, "main.seq", "iter.Pull", "main.pull")
		m.Switch(150, 2)
		m.Block(200, "sleep", "time.Sleep", "main.seq")
		m.Unblock(300, 2)
		m.Start(310, 2)
		m.Switch(350, 1)
		m.Block(400, "forever", "main.end")
	}, `
100-120 g1 cpu iter.Pull
120-150 g1 cpu -
150-200 g2 cpu time.Sleep
200-300 g2 sleep time.Sleep
300-310 g2 runnable time.Sleep
310-350 g2 cpu -
350-400 g1 cpu main.end
`},
	{"assist with waits inside: each instant once", 100, 500, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread(2)
		m.AssistBegin(150, "runtime.mallocgc", "main.alloc")
		m.Block(200, "GC mark assist wait for work", "runtime.gcAssistAlloc", "runtime.mallocgc", "main.alloc")
		n.Unblock(300, 1, "runtime.gcFlushBgCredit", "runtime.gcBgMarkWorker")
		m.Start(310, 1)
		m.Block(350, "sync", "runtime.semacquire", "runtime.gcMarkDone", "runtime.gcAssistAlloc", "runtime.mallocgc", "main.alloc")
		n.Unblock(400, 1, "runtime.gcMarkDone", "runtime.gcBgMarkWorker")
		m.Start(410, 1)
		m.AssistEnd(450)
		m.Block(500, "forever", "main.end")
	}, `
100-150 g1 cpu runtime.mallocgc
150-200 g1 assist runtime.gcAssistAlloc
200-300 g1 assist runtime.gcAssistAlloc
300-310 g1 assist runtime.gcAssistAlloc
310-350 g1 assist runtime.semacquire
350-400 g1 assist runtime.semacquire
400-410 g1 assist runtime.semacquire
410-450 g1 assist runtime.mallocgc
450-500 g1 cpu main.end
`},
	{"sweeping before an allocation", 100, 500, func(b *tracetext.Builder) {
		m := b.Thread(1)
		m.Sweep(150, 250, 1<<20, 1<<16, "runtime.mallocgc", "main.alloc")
		m.Block(300, "sleep", "time.Sleep", "main.rest")
		m.Unblock(400, 1)
		m.Start(410, 1)
		m.Block(500, "forever", "main.end")
	}, `
100-150 g1 cpu runtime.mallocgc
150-250 g1 assist runtime.mallocgc
250-300 g1 cpu time.Sleep
300-400 g1 sleep time.Sleep
400-410 g1 runnable time.Sleep
410-500 g1 cpu main.end
`},
	{"semaphores of the runtime are not locks", 100, 500, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread(2)
		m.Block(150, "sync", "runtime.semacquire", "runtime.gcStart", "runtime.mallocgc", "main.alloc")
		n.Unblock(250, 1, "runtime.gcStart", "main.other")
		m.Start(250, 1)
		m.Block(300, "sync", "runtime.semacquire", "runtime.stopTheWorld", "runtime.ReadMemStats", "main.stats")
		n.Unblock(400, 1, "runtime.startTheWorld", "main.other")
		m.Start(400, 1)
		m.Block(500, "forever", "main.end")
	}, `
100-150 g1 cpu runtime.semacquire
150-250 g1 gcwait runtime.semacquire
250-300 g1 cpu runtime.semacquire
300-400 g1 stopworld runtime.semacquire
400-500 g1 cpu main.end
`},
	{"a wait that is open at the window's end", 100, 900, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread(2)
		m.Block(200, "chan receive", recvStack...)
		n.Block(900, "forever", "main.end")
	}, `
100-200 g1 cpu runtime.chanrecv1
200-900 g1 chan runtime.chanrecv1
`},
	{"a wait that began before the trace, ended by the poller", 0, 300, func(b *tracetext.Builder) {
		m := b.Thread()
		b.Waiting(1)
		m.Unblock(100, 1)
		m.Start(110, 1)
		m.Syscall(150, "syscall.read", "internal/poll.(*FD).Read", "main.read")
		m.SyscallEnd(200)
		m.Block(300, "forever", "main.end")
	}, `
0-100 g1 network syscall.read
100-110 g1 runnable -
110-150 g1 cpu syscall.read
150-200 g1 syscall syscall.read
200-300 g1 cpu main.end
`},
	{"a wait that began before the trace, ended by a timer or the poller, before a write", 0, 300, func(b *tracetext.Builder) {
		m := b.Thread()
		b.Waiting(1)
		m.Unblock(100, 1)
		m.Start(110, 1)
		m.Syscall(150, "syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "main.ask")
		m.SyscallEnd(200)
		m.Block(300, "forever", "main.end")
	}, `
0-100 g1 unknown -
100-110 g1 runnable -
110-150 g1 cpu syscall.write
150-200 g1 syscall syscall.write
200-300 g1 cpu main.end
`},
	{"a futile Broadcast", 100, 600, func(b *tracetext.Builder) {
		// Goroutine 2 is another request that arrives at 300 and wakes the workers. Goroutine 3 is the worker.
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		n.Block(10, "network", pollReadStack...)
		o.Syscall(20, "syscall.wait4", "main.child")
		m.Block(200, "sync.(*Cond).Wait", condStack...)
		n.Unblock(300, 2)
		n.Start(300, 2)
		n.Unblock(310, 1, broadcastStack...)
		m.Start(320, 1)
		m.Block(330, "sync.(*Cond).Wait", condStack...)
		o.SyscallEnd(500)
		o.Unblock(510, 1, broadcastStack...)
		m.Start(520, 1)
		m.Block(600, "forever", "main.end")
	}, `
100-200 g1 cpu sync.(*Cond).Wait
200-500 g3 syscall syscall.wait4 <cond sync.(*Cond).Wait
500-510 g3 cpu sync.(*Cond).Broadcast <cond sync.(*Cond).Wait
510-520 g1 runnable sync.(*Cond).Wait
520-600 g1 cpu main.end
`},
	{"a batch: a timer delays the request, not later arrivals", 100, 600, func(b *tracetext.Builder) {
		// Goroutine 1 is the request, 3 the batcher, 2 another request that arrives at 300 and joins the batch.
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		n.Block(10, "network", pollReadStack...)
		o.Block(90, "select", "runtime.selectgo", "main.flush")
		m.Block(200, "chan receive", "runtime.chanrecv1", "main.add")
		n.Unblock(300, 2)
		n.Start(300, 2)
		n.Unblock(310, 3, "runtime.chansend1", "main.add")
		o.Start(315, 3)
		o.Block(320, "select", "runtime.selectgo", "main.flush")
		o.Unblock(500, 3)
		o.Start(505, 3)
		o.Unblock(510, 1, "runtime.closechan", "main.flush")
		m.Start(520, 1)
		m.Block(600, "forever", "main.end")
	}, `
100-200 g1 cpu runtime.chanrecv1
200-500 g3 sleep runtime.selectgo <chan runtime.chanrecv1
500-505 g3 runnable runtime.selectgo <chan runtime.chanrecv1
505-510 g3 cpu runtime.closechan <chan runtime.chanrecv1
510-520 g1 runnable runtime.chanrecv1
520-600 g1 cpu main.end
`},
	{"a batch whose result comes to the select of the timer", 100, 600, func(b *tracetext.Builder) {
		// Like the one before, but 3 passes the batch on to 4, and gets the result where it waits for the timer.
		m, n, o, s := b.Thread(1), b.Thread(2), b.Thread(3), b.Thread(4)
		wait := []string{"runtime.selectgo", "main.gather"}
		n.Block(10, "network", pollReadStack...)
		o.Block(90, "select", wait...)
		s.Block(95, "chan receive", recvStack...)
		m.Block(200, "chan receive", "runtime.chanrecv1", "main.add")
		n.Unblock(300, 2)
		n.Start(300, 2)
		n.Unblock(310, 3, "runtime.chansend1", "main.add")
		o.Start(315, 3)
		o.Block(320, "select", wait...)
		o.Unblock(500, 3)
		o.Start(505, 3)
		o.Unblock(510, 4, sendStack...)
		o.Block(515, "select", wait...)
		s.Start(515, 4)
		s.Block(520, "network", pollReadStack...)
		s.Unblock(560, 4)
		s.Start(560, 4)
		s.Unblock(565, 3, sendStack...)
		o.Start(570, 3)
		o.Unblock(575, 1, "runtime.closechan", "main.gather")
		m.Start(580, 1)
		m.Block(600, "forever", "main.end")
	}, `
100-200 g1 cpu runtime.chanrecv1
200-500 g3 sleep runtime.selectgo <chan runtime.chanrecv1
500-505 g3 runnable runtime.selectgo <chan runtime.chanrecv1
505-510 g3 cpu runtime.chansend1 <chan runtime.chanrecv1
510-515 g3 cpu runtime.selectgo <chan runtime.chanrecv1
515-520 g4 cpu internal/poll.(*FD).Read <select runtime.selectgo <chan runtime.chanrecv1
520-560 g4 network internal/poll.(*FD).Read <select runtime.selectgo <chan runtime.chanrecv1
560-565 g4 cpu runtime.chansend1 <select runtime.selectgo <chan runtime.chanrecv1
565-570 g3 runnable runtime.selectgo <chan runtime.chanrecv1
570-575 g3 cpu runtime.closechan <chan runtime.chanrecv1
575-580 g1 runnable runtime.chanrecv1
580-600 g1 cpu main.end
`},
	{"an event loop of a connection: only what brought the last event delayed the request", 100, 600, func(b *tracetext.Builder) {
		// Goroutine 1 is the request, 3 the event loop, 2 reads packets for it. A timer of the connection ends the loop's first wait.
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		loop := []string{"runtime.selectgo", "github.com/quic-go/quic-go.(*Conn).run"}
		n.Block(10, "network", pollReadStack...)
		o.Block(90, "select", loop...)
		m.Block(200, "chan receive", "runtime.chanrecv1", "main.read")
		o.Unblock(300, 3)
		o.Start(305, 3)
		o.Block(310, "select", loop...)
		n.Unblock(480, 2)
		n.Start(485, 2)
		n.Unblock(490, 3, "runtime.chansend1", "main.packet")
		o.Start(500, 3)
		o.Unblock(510, 1, "runtime.chansend1", "main.frame")
		m.Start(520, 1)
		m.Block(600, "forever", "main.end")
	}, `
100-200 g1 cpu runtime.chanrecv1
200-480 g2 network internal/poll.(*FD).Read <select runtime.selectgo <chan runtime.chanrecv1
480-485 g2 runnable internal/poll.(*FD).Read <select runtime.selectgo <chan runtime.chanrecv1
485-490 g2 cpu runtime.chansend1 <select runtime.selectgo <chan runtime.chanrecv1
490-500 g3 runnable runtime.selectgo <chan runtime.chanrecv1
500-510 g3 cpu runtime.chansend1 <chan runtime.chanrecv1
510-520 g1 runnable runtime.chanrecv1
520-600 g1 cpu main.end
`},
	{"a Signal wakes one chosen waiter", 100, 600, func(b *tracetext.Builder) {
		m, n, o := b.Thread(1), b.Thread(2), b.Thread(3)
		n.Syscall(20, "syscall.read", "main.first")
		m.Block(200, "sync.(*Cond).Wait", condStack...)
		n.SyscallEnd(300)
		n.Unblock(310, 1, "sync.(*Cond).Signal", "main.first")
		m.Start(320, 1)
		m.Block(330, "sync.(*Cond).Wait", condStack...)
		o.Unblock(510, 1, "sync.(*Cond).Signal", "main.second")
		m.Start(520, 1)
		m.Block(600, "forever", "main.end")
	}, `
100-200 g1 cpu sync.(*Cond).Wait
200-300 g2 syscall syscall.read <cond sync.(*Cond).Wait
300-310 g2 cpu sync.(*Cond).Signal <cond sync.(*Cond).Wait
310-320 g1 runnable sync.(*Cond).Wait
320-330 g1 cpu sync.(*Cond).Wait
330-510 g3 cpu sync.(*Cond).Signal <cond sync.(*Cond).Wait
510-520 g1 runnable sync.(*Cond).Wait
520-600 g1 cpu main.end
`},
}

func TestWalk(t *testing.T) {
	for _, c := range walkCases {
		t.Run(c.name, func(t *testing.T) {
			win, syms := timelinetest.BuildWindow(t, c.build)
			w := New(win, syms)
			steps := w.Walk(1, c.from+tracetext.Origin, c.to+tracetext.Origin)
			checkPartition(t, steps, c.from+tracetext.Origin, c.to+tracetext.Origin)
			check.Equal(t, "\n"+spellSteps(w, syms, steps), c.want, "the walk")
		})
	}
}

// checkPartition checks that steps cover the interval without gap or overlap.
func checkPartition(t testing.TB, steps []Step, from, to int64) {
	t.Helper()
	next := from
	for _, s := range steps {
		if s.Start != next || s.End <= s.Start {
			t.Errorf("a step from %d to %d follows %d", s.Start, s.End, next)
			return
		}
		next = s.End
	}
	check.Equal(t, next, to, "the steps end at")
}

// TestCyclesOfWakers walks traces that no scheduler produces: goroutines that wake each other at one instant,
// repeatedly. The walk must end and still cover the interval.
func TestCyclesOfWakers(t *testing.T) {
	b := tracetext.New(26)
	const n = 40
	m := b.Thread()
	for g := uint64(1); g <= n; g++ {
		b.Waiting(g)
	}
	// At each instant every goroutine is woken by its predecessor, runs, and waits for its predecessor again, in no time.
	m.Unblock(10, 1)
	m.Start(10, 1)
	for clock := int64(10); clock < 2000; clock += 10 {
		for g := uint64(1); g <= n; g++ {
			next := g%n + 1
			if next == 1 {
				break
			}
			m.Unblock(clock, next, sendStack...)
			m.Block(clock, "chan receive", recvStack...)
			m.Start(clock, next)
		}
		m.Unblock(clock+10, 1, sendStack...)
		m.Block(clock+10, "chan receive", recvStack...)
		m.Start(clock+10, 1)
	}
	data := must.Have(b.Bytes())(t)
	win, syms := timelinetest.DecodeWindow(t, data)
	w := New(win, syms)
	for g := uint64(1); g <= n; g++ {
		from, to := int64(15+tracetext.Origin), int64(1995+tracetext.Origin)
		checkPartition(t, w.Walk(g, from, to), from, to)
		check.False(t, w.Truncated, "goroutine %d: truncated", g)
	}
}

// TestSenderOfCall: a reader waits for the answer to a call that another goroutine sends late. The time before the call was sent is the
// sender's.
func TestSenderOfCall(t *testing.T) {
	win, syms := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		m, m2, poller := b.Thread(1), b.Thread(2), b.ThreadWithoutP()
		b.Runnable(3)
		m2.Block(5, "network", "internal/poll.(*FD).Read", "main.read")
		m.Block(10, "chan receive", "main.ask")
		m.Start(50, 3)
		m.Syscall(60, "syscall.write", "main.send")
		m.SyscallEnd(62)
		m.Block(65, "select", "main.send")
		poller.Unblock(90, 2)
		m.Start(95, 2)
		m.Unblock(100, 1, "main.read")
		m.Block(102, "network", "internal/poll.(*FD).Read", "main.read")
		m.Start(105, 1)
		m.Block(110, "forever", "main.ask")
	})
	w := New(win, syms)
	answer := &RemoteAnswer{Start: tracetext.Origin + 70, End: tracetext.Origin + 80, Sender: 3, Sent: tracetext.Origin + 60}
	w.RemoteAnswerTo = func(g, waiter uint64, _, _ int64) *RemoteAnswer {
		check.True(t, g == 2 && waiter == 1, "the wait of %d for %d is asked for", g, waiter)
		return answer
	}
	check.Equal(t, spellSteps(w, syms, WithoutRemotes(w.Walk(1, tracetext.Origin, tracetext.Origin+110))), `0-10 g1 cpu main.ask
10-50 g3 runnable - <chan main.ask
50-60 g3 cpu syscall.write <chan main.ask
60-90 g2 network internal/poll.(*FD).Read <chan main.ask
90-95 g2 runnable internal/poll.(*FD).Read <chan main.ask
95-100 g2 cpu main.read <chan main.ask
100-105 g1 runnable main.ask
105-110 g1 cpu main.ask
`, "steps")
}
