package exchange

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestCallsOnNewConnections: of calls that begin at once, each on a new connection, most are joined by when the connections were
// opened and closed, next to connections of the client to another server, and of another client to the server. If all are such, none is.
// Half of the requests are there before their connection's goroutine waits for them: they begin before they were sent.
func TestCallsOnNewConnections(t *testing.T) {
	const bursts, clientConns = 20, 8
	for _, calls := range []int{6, 0} { // of a burst
		joinedCount := 0
		for seed := range uint64(20) {
			s := newSimulation(seed)
			if calls > 0 {
				s.connect(200, 30*ms, ms, 5*ms, true, true) // shows that the server is called
			}
			burstStart := int64(20 * ms)
			for range bursts {
				end := burstStart
				for i := range clientConns + 4 {
					s.lastG += 2
					reader, serverG := s.lastG, s.lastG+1
					delay := func() int64 { return 20*us + int64(s.rnd.ExpFloat64()*200*us) }
					opened := burstStart + s.rnd.Int64N(200*us)
					accepted, sent := opened+delay(), opened+delay()
					start := max(accepted, sent) + delay()
					isWoken := i%2 == 0
					if !isWoken {
						start = accepted
					}
					end = max(end, sent, start) + 2*ms // one lock
					arrived := end + delay()
					closed := arrived + s.rnd.Int64N(50*us)
					if i < clientConns {
						s.joiner.readers[reader] = &clientConnection{reader: reader, exchanges: []Exchange{{sent, arrived, true}}, life: lifetime{opened, closed}}
						s.joiner.readerOrder = append(s.joiner.readerOrder, reader)
					}
					if i < calls {
						s.partners[reader] = serverG
					}
					if i < calls || i >= clientConns {
						s.server.Add(Request{G: serverG, Conn: serverG, Start: start, End: end, AnswerTime: end - 10*us, IsWoken: isWoken, life: lifetime{accepted, closed + delay()}})
					}
				}
				burstStart = end + 30*ms
			}
			joined, wrong := s.join(0)
			if joinedCount += joined; wrong != 0 {
				t.Errorf("seed %d, %d calls: %d connections are joined, %d wrongly", seed, calls, joined, wrong)
			}
		}
		if minJoined := 20 * bursts * calls * 9 / 10; joinedCount < minJoined || calls == 0 && joinedCount > 0 {
			t.Errorf("%d calls: %d connections are joined, want at least %d", calls, joinedCount, minJoined)
		}
	}
}

// TestLifetimes: a connection was opened when its dialer called the kernel, and closed when its reader did so after an answer; the server's
// end was accepted when its goroutine was created, and closed when that no longer waits for a request.
func TestLifetimes(t *testing.T) {
	const httpPath = "net/http."
	win, syms := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		m := b.Thread(2)
		m.Create(10, 1, "main.get", "main.main")
		m.Create(20, 5, httpPath+"(*conn).serve", httpPath+"(*Server).Serve")
		m.Block(30, "forever", "main.main")
		m.Start(40, 1)
		m.Create(50, 7, httpPath+"(*Transport).startDialConnForLocked.func1", httpPath+"(*Transport).getConn")
		m.Block(60, "select", httpPath+"(*persistConn).roundTrip", "main.get")
		m.Start(70, 7)
		m.Syscall(80, "syscall.connect", "net.(*netFD).connect", httpPath+"(*Transport).startDialConnForLocked.func1")
		m.SyscallEnd(90)
		m.Create(100, 3, httpPath+"(*persistConn).readLoop", httpPath+"(*Transport).dialConn")
		m.Create(110, 4, httpPath+"(*persistConn).writeLoop", httpPath+"(*Transport).dialConn")
		m.Destroy(120)
		m.Start(130, 3)
		m.Block(140, "network", "internal/poll.runtime_pollWait", "bufio.(*Reader).Peek", httpPath+"(*persistConn).readLoop")
		m.Start(150, 4)
		m.Block(160, "select", httpPath+"(*persistConn).writeLoop")
		m.Start(170, 5)
		m.Block(180, "network", "internal/poll.runtime_pollWait", "bufio.(*Reader).Peek", httpPath+"(*conn).serve")
		poller := b.ThreadWithoutP()
		poller.Unblock(200, 3)
		poller.Unblock(210, 5)
		m.Start(230, 3)
		m.Unblock(240, 1, "runtime.chansend1", httpPath+"(*persistConn).readLoop")
		m.Syscall(250, "syscall.Close", "internal/poll.(*FD).destroy", "net.(*netFD).Close", httpPath+"(*persistConn).readLoop")
		m.SyscallEnd(260)
		m.Unblock(270, 4, "runtime.closechan", httpPath+"(*persistConn).readLoop")
		m.Destroy(280)
		m.Start(290, 5)
		m.Destroy(300)
	})
	c := NewClients()
	c.SetWindow(win)
	for _, g := range win.Gens {
		c.AddGeneration(g, syms, false)
	}
	if got, want := c.readers[3].life, (lifetime{tracetext.Origin + 80, tracetext.Origin + 250}); got != want {
		t.Errorf("the client's end is %+v, want %+v", got, want)
	}
	answered := request.Request{G: 5, Kind: request.HTTP1, Start: tracetext.Origin + 20, End: tracetext.Origin + 175}
	if got, want := NewAnswerFinder(win, syms).lifetimeOf(&answered), (lifetime{tracetext.Origin + 20, tracetext.Origin + 210}); got != want {
		t.Errorf("the server's end is %+v, want %+v", got, want)
	}
}
