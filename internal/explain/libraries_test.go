package explain_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// A server writes the trace of an HTTP server with two connections.
type server struct {
	builder        *tracetext.Builder
	thread, poller *tracetext.Thread
}

const (
	firstConn, otherConn = uint64(7), uint64(8) // the connections' goroutines
	connFunc             = "net/http.(*conn).serve:2074"
)

func newServer() *server {
	builder := tracetext.New(26)
	s := &server{builder, builder.Thread(), builder.ThreadWithoutP()}
	builder.IdleProc() // polls the network at any time
	builder.Waiting(firstConn)
	builder.Waiting(otherConn)
	for i, g := range []uint64{firstConn, otherConn} {
		s.wake(int64(i+1)*100*us, g)
		s.awaitRequest(int64(i+1)*100*us+2*us, g)
	}
	return s
}

func (s *server) wake(clock int64, g uint64) {
	s.poller.Unblock(clock, g)
	s.thread.Start(clock+us, g)
}

// awaitRequest lets a connection wait for its next request.
func (s *server) awaitRequest(clock int64, g uint64) {
	s.thread.Block(clock, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", connFunc)
}

// begin begins a request, whose handler's stack begins with frames, and lets it wait.
func (s *server) begin(clock int64, g uint64, reason string, frames ...string) {
	s.wake(clock, g)
	s.thread.Create(clock+2*us, uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
	s.thread.Block(clock+3*us, reason, append(frames, "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc)...)
}

// serve writes requests of the first connection, one each 10 ms until a time, whose handlers wait for 5 ms.
func (s *server) serve(until int64, reason string, frames ...string) {
	for clock := int64(10 * ms); clock < until; clock += 10 * ms {
		s.begin(clock, firstConn, reason, frames...)
		s.wake(clock+5*ms, firstConn)
		s.awaitRequest(clock+5*ms+10*us, firstConn)
	}
}

func (s *server) explain(t *testing.T) *report.Report {
	t.Helper()
	return explainBuilt(t, s.builder, whylate.Options{})
}

// TestFetchOfLibrary: a request streams events that it takes from a list of Redis, from a queue of beanstalkd or from
// notifications of PostgreSQL. It may wait for the next one for as long as it wants. It fails if the request counts as hung
// because the library's call has another name than such calls usually have.
func TestFetchOfLibrary(t *testing.T) {
	for _, fetch := range []string{
		"github.com/redis/go-redis/v9.cmdable.BRPop@/mod/github.com/redis/go-redis/v9@v9.23.0/list_commands.go:73",
		"github.com/beanstalkd/go-beanstalk.(*TubeSet).Reserve@/mod/github.com/beanstalkd/go-beanstalk@v0.2.0/tubeset.go:29",
		"github.com/jackc/pgx/v5.(*Conn).WaitForNotification@/mod/github.com/jackc/pgx/v5@v5.13.0/conn.go:421",
	} {
		s := newServer()
		s.begin(5*ms, otherConn, "network", "internal/poll.runtime_pollWait", "net.(*conn).Read", fetch, "main.events@/src/main.go:30")
		s.serve(3000*ms, "sleep", "time.Sleep", "main.get@/src/main.go:20")
		for _, f := range s.explain(t).Findings {
			check.False(t, f.Code == report.RuleHung && f.Severity != report.SeverityInfo, "%s: %s: %s", fetch, f.Severity, f.Title)
		}
	}
}

// TestLimiterOfLibrary: a rate limiter delays requests on purpose. It fails if a library's pause counts as any sleep.
func TestLimiterOfLibrary(t *testing.T) {
	s := newServer()
	s.serve(400*ms, "sleep", "time.Sleep", "github.com/juju/ratelimit.realClock.Sleep@/mod/github.com/juju/ratelimit@v1.0.2/ratelimit.go:344",
		"github.com/juju/ratelimit.(*Bucket).Wait@/mod/github.com/juju/ratelimit@v1.0.2/ratelimit.go:171", "main.get@/src/main.go:20")
	rep := s.explain(t)
	check.True(t, len(rep.Verdict) != 0 && len(rep.Verdict[0].Causes) != 0 && rep.Verdict[0].Causes[0].Kind == "limiter",
		"verdict %+v", rep.Verdict)
}

// TestContinueOfServer: a client of HTTP waits for a 100 Continue before it sends a body on a new connection. It fails if the report shows
// any time-out, or if the answer's reader seems to wait for it before the body is sent: then the fix would win nothing.
func TestContinueOfServer(t *testing.T) {
	s := newServer()
	const dialer, reader, writer = uint64(1e9), uint64(2e9), uint64(3e9)
	write := []string{"runtime.selectgo", "net/http.(*persistConn).writeLoop.(*persistConn).waitForContinue.func1", "net/http.(*Request).write", "net/http.(*persistConn).writeLoop:2655"}
	for clock := int64(10 * ms); clock < 400*ms; clock += 10 * ms {
		g := uint64(clock)
		handler := []string{"main.store@/src/main.go:20", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc}
		s.wake(clock, firstConn)
		s.thread.Create(clock+2*us, g, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
		s.thread.Create(clock+3*us, dialer+g, "net/http.(*Transport).startDialConnForLocked.func1", append([]string{"net/http.(*Transport).startDialConnForLocked", "net/http.(*Transport).getConn"}, handler...)...)
		s.thread.Block(clock+4*us, "select", append([]string{"runtime.selectgo", "net/http.(*Transport).getConn"}, handler...)...)
		s.thread.Start(clock+5*us, dialer+g)
		s.thread.Create(clock+6*us, reader+g, "net/http.(*Transport).dialConn.gowrap2", "net/http.(*Transport).dialConn")
		s.thread.Create(clock+7*us, writer+g, "net/http.(*Transport).dialConn.gowrap3", "net/http.(*Transport).dialConn")
		s.thread.Unblock(clock+8*us, firstConn)
		s.thread.Destroy(clock + 9*us)
		s.thread.Start(clock+10*us, reader+g)
		s.thread.Block(clock+11*us, "network", "internal/poll.(*FD).Read", "net/http.(*persistConn).Read", "bufio.(*Reader).Peek", "net/http.(*persistConn).readLoop:2330")
		s.thread.Start(clock+12*us, writer+g)
		s.thread.Block(clock+13*us, "select", "runtime.selectgo", "net/http.(*persistConn).writeLoop:2652")
		s.thread.Start(clock+14*us, firstConn)
		s.thread.Unblock(clock+15*us, writer+g)
		await := append([]string{"runtime.selectgo", "net/http.(*persistConn).roundTrip"}, handler...)
		s.thread.Block(clock+16*us, "select", await...)
		s.thread.Start(clock+17*us, writer+g)
		s.thread.Block(clock+18*us, "select", write...)
		s.wake(clock+5*ms, writer+g)
		s.thread.Unblock(clock+5*ms+5*us, firstConn, "net/http.(*persistConn).writeLoop:2676")
		s.thread.Block(clock+5*ms+6*us, "select", "runtime.selectgo", "net/http.(*persistConn).writeLoop:2652")
		s.thread.Start(clock+5*ms+7*us, firstConn)
		s.thread.Block(clock+5*ms+8*us, "select", await...)
		s.wake(clock+6*ms, reader+g)
		s.thread.Unblock(clock+6*ms+5*us, firstConn)
		s.thread.Block(clock+6*ms+6*us, "select", "runtime.selectgo", "net/http.(*persistConn).readLoop:2410")
		s.thread.Start(clock+6*ms+7*us, firstConn)
		s.awaitRequest(clock+6*ms+10*us, firstConn)
	}
	rep := s.explain(t)
	must.True(t, len(rep.Findings) != 0, "no findings")
	check.True(t, strings.Contains(rep.Findings[0].Title, "100 Continue that does not come") && strings.HasPrefix(rep.Findings[0].Fix, "in net/http: do not send Expect: 100-continue") && strings.HasSuffix(rep.Findings[0].Fix, "or lower that time-out"), "%+v", rep.Findings[0])
	p := rep.Findings[0].Predicted
	check.True(t, p != nil && p.P50NS.Est > int64(ms) && p.P50NS.Est < int64(2*ms), "without the pause: %+v", p)
}

// TestFallbackOfDialer: a dialer waits for an address that does not answer before it dials the next one. It fails if the report shows any
// timer, or a retry.
func TestFallbackOfDialer(t *testing.T) {
	s := newServer()
	s.serve(400*ms, "select", "runtime.selectgo", "net.(*sysDialer).dialParallel", "net.(*Dialer).DialContext", "main.lookup@/src/main.go:20")
	rep := s.explain(t)
	must.True(t, len(rep.Findings) != 0, "no findings")
	check.True(t, strings.Contains(rep.Findings[0].Title, "address that does not answer") && strings.Contains(rep.Findings[0].Fix, `dial "tcp4"`) && strings.Contains(rep.Findings[0].Fix, "FallbackDelay"), "%+v", rep.Findings[0])
}

// TestSharedLockOfLibrary: requests try repeatedly to take a lock that other processes share. It fails if the report advises shorter
// pauses and names no holder.
func TestSharedLockOfLibrary(t *testing.T) {
	s := newServer()
	lock := []string{"github.com/go-redsync/redsync/v4.(*Mutex).lockContext@/mod/github.com/go-redsync/redsync/v4@v4.18.1/mutex.go:94", "main.reserve@/src/main.go:20", "main.get@/src/main.go:9"}
	for clock := int64(10 * ms); clock < 400*ms; clock += 10 * ms {
		s.begin(clock, firstConn, "select", append([]string{"runtime.selectgo"}, lock...)...)
		s.wake(clock+5*ms, firstConn)
		s.thread.Block(clock+5*ms+5*us, "sleep", "time.Sleep", "main.book@/src/main.go:40", "main.reserve@/src/main.go:22", "main.get@/src/main.go:9", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc)
		s.wake(clock+8*ms, firstConn)
		s.awaitRequest(clock+8*ms+10*us, firstConn)
	}
	rep := s.explain(t)
	must.True(t, len(rep.Findings) != 0, "no findings")
	check.True(t, strings.Contains(rep.Findings[0].Title, "queue for a lock of redsync, at main.reserve (main.go:20), while its holder sleeps at main.book (main.go:40)"), "%+v", rep.Findings[0])
}

// TestWebSocketOfLibrary: a handler reads from a WebSocket, whose other end is its client. It fails if the client is taken
// for a server that is slow to answer.
func TestWebSocketOfLibrary(t *testing.T) {
	s := newServer()
	s.serve(400*ms, "network", "internal/poll.runtime_pollWait", "internal/poll.(*FD).Read", "net.(*conn).Read",
		"github.com/lxzan/gws.(*Conn).readMessage@/mod/github.com/lxzan/gws@v1.8.9/reader.go:50", "main.get@/src/main.go:20")
	rep := s.explain(t)
	must.True(t, len(rep.Groups) != 0, "no requests")
	if c := rep.Groups[0].All().Causes[0]; c.Cause != report.CauseNetwork || c.Kind != "inbound" {
		t.Errorf("the first cause is %+v", c)
	}
}

// TestHealthCheckOfLibrary: health checks are for the process's monitoring, whatever a library calls their handler. It fails
// if they are listed with the requests of clients.
func TestHealthCheckOfLibrary(t *testing.T) {
	for _, handler := range []string{
		"github.com/alexliesenfeld/health.NewHandler.func1@/mod/github.com/alexliesenfeld/health@v0.8.0/handler.go:69",
		"github.com/hellofresh/health-go/v5.(*Health).HandlerFunc@/mod/github.com/hellofresh/health-go/v5@v5.5.4/health.go:141",
	} {
		s := newServer()
		s.begin(5*ms, otherConn, "sleep", "time.Sleep", "main.get@/src/main.go:20")
		s.serve(400*ms, "sleep", "time.Sleep", handler)
		rep := s.explain(t)
		check.True(t, len(rep.Groups) == 2 && rep.Groups[1].Role == report.RoleMonitoring,
			"%s: %d groups, the last with the role %q", handler, len(rep.Groups), rep.Groups[len(rep.Groups)-1].Role)
	}
}

// TestCacheLoads: every request waits for a peer in the loader of a cache, or every third one does and the others compute for a moment. It
// fails if the peer is the fault of a cache that holds nothing, or the cache if it holds most.
func TestCacheLoads(t *testing.T) {
	for _, load := range []string{
		"github.com/maypok86/otter/v2.(*cache[...]).wrapLoad@/mod/github.com/maypok86/otter/v2@v2.4.0/cache_impl.go:1452",
		"github.com/golang/groupcache.(*Group).load@/mod/github.com/golang/groupcache@v0.0.0/groupcache.go:230",
		"github.com/karlseguin/ccache/v2.(*Cache).Fetch@/mod/github.com/karlseguin/ccache/v2@v2.0.8/cache.go:133",
	} {
		for _, hits := range []int64{0, 2} {
			s := newServer()
			for clock := int64(10 * ms); clock < 3000*ms; clock += 10 * ms {
				if clock/(10*ms)%(hits+1) != 0 { // the cache holds it
					s.wake(clock, firstConn)
					s.thread.Create(clock+2*us, uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
					s.awaitRequest(clock+20*us, firstConn)
					continue
				}
				s.begin(clock, firstConn, "network", "internal/poll.runtime_pollWait", "net.(*conn).Read", "main.load@/src/main.go:30", load, "main.tariff@/src/main.go:20")
				s.wake(clock+5*ms, firstConn)
				s.awaitRequest(clock+5*ms+10*us, firstConn)
			}
			found := s.explain(t).Findings
			must.True(t, len(found) > 0, "%s, %d hits for each load: no finding", load, hits)
			check.Equal(t, found[0].InService, hits == 0, "%s, %d hits for each load: %s; %s", load, hits, found[0].Title, found[0].Fix)
		}
	}
}

// TestRepeatedCalls: each fourth request calls a peer, pauses and calls it again, in a transaction or not. It fails if the peer is the fault.
func TestRepeatedCalls(t *testing.T) {
	const transaction = "github.com/dgraph-io/badger/v4.(*DB).Update@/mod/github.com/dgraph-io/badger/v4@v4.9.6/txn.go:779"
	for fix, callers := range map[string][]string{
		"find out why the first call does not suffice":                                   {"main.ask@/src/main.go:30", "main.retry@/src/main.go:20"},
		"make this call before the transaction begins that main.retry (main.go:20) runs": {"main.ask@/src/main.go:30", transaction, "main.retry@/src/main.go:20"},
	} {
		s := newServer()
		server := []string{"net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc}
		callers = append(callers, server...)
		ask := func(clock int64) {
			s.thread.Syscall(clock, append([]string{"syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write"}, callers...)...)
			s.thread.SyscallEnd(clock + 5*us)
			s.thread.Block(clock+10*us, "network", append([]string{"internal/poll.runtime_pollWait", "internal/poll.(*FD).Read", "net.(*conn).Read"}, callers...)...)
			s.wake(clock+5*ms, firstConn)
		}
		for clock := int64(20 * ms); clock < 3000*ms; clock += 20 * ms {
			s.wake(clock, firstConn)
			s.thread.Create(clock+2*us, uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
			ask(clock + 5*us)
			end := clock + 5*ms + 10*us
			if clock/(20*ms)%4 == 0 {
				s.thread.Block(end, "sleep", append([]string{"time.Sleep", "main.retry@/src/main.go:22"}, server...)...)
				s.wake(end+2*ms, firstConn)
				ask(end + 2*ms + 10*us)
				end += 7*ms + 20*us
			}
			s.awaitRequest(end, firstConn)
		}
		found := s.explain(t).Findings
		must.True(t, len(found) > 0, "no finding")
		check.Equal(t, found[0].Remedy, fix, "%s", found[0].Title)
		p := found[0].Predicted
		must.True(t, p != nil, "no prediction")
		check.True(t, p.P99NS.Est < 6*ms && p.P50NS.Est > 4*ms, "p50 %d, p99 %d", p.P50NS.Est, p.P99NS.Est)
	}
}

// TestSubscription: requests subscribe at a goroutine that passes the events of a third one on, which waits for a timer. If that goroutine
// waits elsewhere when it has been woken, it works for the request.
func TestSubscription(t *testing.T) {
	const hub, source = uint64(9), uint64(10)
	idle := []string{"runtime.chanrecv2", "example.com/bus.(*Bus).loop"}
	for _, c := range []struct {
		name  string
		wait  []string
		isJob bool
	}{
		{"subscription", idle, false},
		{"job", []string{"runtime.chanrecv2", "example.com/bus.(*Bus).do", "example.com/bus.(*Bus).loop"}, true},
	} {
		s := newServer()
		hubThread, sourceThread := s.builder.Thread(), s.builder.Thread()
		s.builder.Waiting(hub)
		s.builder.Waiting(source)
		s.poller.Unblock(205*us, hub)
		hubThread.Start(206*us, hub)
		hubThread.Block(207*us, "chan receive", idle...)
		s.poller.Unblock(205*us, source)
		sourceThread.Start(206*us, source)
		sourceThread.Block(207*us, "select", "runtime.selectgo", "main.(*desk).work")
		handler := []string{"main.(*desk).next", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc}
		for i := range int64(60) {
			clock := (10 + 30*i) * ms
			s.wake(clock, firstConn)
			s.thread.Create(clock+2*us, uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
			s.thread.Unblock(clock+3*us, hub, append([]string{"runtime.chansend1", "example.com/bus.(*Bus).Sub"}, handler...)...)
			hubThread.Start(clock+4*us, hub)
			hubThread.Block(clock+6*us, "chan receive", c.wait...)
			s.thread.Block(clock+8*us, "select", append([]string{"runtime.selectgo"}, handler...)...)
			clock += 15*ms + i*i%7*ms
			s.poller.Unblock(clock, source)
			sourceThread.Start(clock+1*us, source)
			sourceThread.Unblock(clock+5*us, hub, "runtime.chansend1", "example.com/bus.(*Bus).Pub", "main.(*desk).work")
			sourceThread.Block(clock+6*us, "select", "runtime.selectgo", "main.(*desk).work")
			hubThread.Start(clock+8*us, hub)
			hubThread.Unblock(clock+9*us, firstConn, "runtime.chansend1", idle[1])
			hubThread.Block(clock+10*us, "chan receive", idle...)
			s.thread.Start(clock+12*us, firstConn)
			s.awaitRequest(clock+20*us, firstConn)
		}
		found := s.explain(t).Findings
		isLoud := slices.ContainsFunc(found, func(f report.Finding) bool { return f.Severity.IsMajor() })
		check.Equal(t, isLoud, c.isJob, "%s: %+v", c.name, found)
	}
}

// TestGathering: requests receive three answers in the first 3 ms, and wait 100 ms for a library's time limit.
func TestGathering(t *testing.T) {
	const reader = uint64(9)
	s := newServer()
	readerThread := s.builder.Thread()
	s.builder.Waiting(reader)
	read := []string{"internal/poll.(*FD).Read", "net.(*conn).Read", "example.com/survey.(*pipe).loop"}
	rest := func(clock int64) { readerThread.Block(clock, "network", read...) }
	s.poller.Unblock(205*us, reader)
	readerThread.Start(206*us, reader)
	rest(207 * us)
	gather := []string{"runtime.selectgo", "main.(*area).ask@/src/main.go:20", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc}
	for i := range int64(20) {
		clock := (10 + 120*i) * ms
		s.begin(clock, firstConn, "select", gather...)
		for range 3 {
			clock += ms
			s.poller.Unblock(clock, reader)
			readerThread.Start(clock+us, reader)
			readerThread.Unblock(clock+2*us, firstConn, "runtime.chansend1", "example.com/survey.(*pipe).loop")
			rest(clock + 3*us)
			s.thread.Start(clock+4*us, firstConn)
			s.thread.Block(clock+10*us, "select", gather...)
		}
		clock += 100 * ms
		limit := uint64(clock)
		readerThread.Create(clock, limit, "example.com/survey.start.func1@/mod/example.com/survey@v1.0.0/survey.go:9")
		readerThread.Start(clock+us, limit)
		readerThread.Unblock(clock+2*us, firstConn, "runtime.closechan", "example.com/survey.start.func1@/mod/example.com/survey@v1.0.0/survey.go:9")
		readerThread.Destroy(clock + 3*us)
		s.thread.Start(clock+4*us, firstConn)
		s.awaitRequest(clock+10*us, firstConn)
	}
	found := s.explain(t).Findings
	must.True(t, len(found) > 0, "no finding")
	check.True(t, strings.Contains(found[0].Title, "until a time limit of 103ms") && strings.Contains(found[0].Fix, "as many have answered"), "%s; %s", found[0].Title, found[0].Fix)
	check.True(t, found[0].Predicted != nil && found[0].Predicted.P50NS.Est < 10*ms, "%+v", found[0].Predicted)
}

// TestConnectionQueue: two requests call a peer on one connection, whose answers one goroutine reads. The second one sends its call when
// the first is answered, and so queues, or at once.
func TestConnectionQueue(t *testing.T) {
	const reader = uint64(9)
	read := []string{"internal/poll.(*FD).Read", "net.(*conn).Read", "example.com/rpc.(*conn).loop@/mod/example.com/rpc@v1.0.0/rpc.go:9"}
	callers := []string{"example.com/rpc.(*conn).Call@/mod/example.com/rpc@v1.0.0/rpc.go:30", "main.ask@/src/main.go:20", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc}
	answer := append([]string{"runtime.selectgo"}, callers...)
	turn := append([]string{"runtime.selectgo", "example.com/rpc.(*conn).acquire@/mod/example.com/rpc@v1.0.0/rpc.go:20"}, callers...)
	for _, isQueue := range []bool{true, false} {
		s := newServer()
		readerThread := s.builder.Thread()
		s.builder.Waiting(reader)
		s.poller.Unblock(205*us, reader)
		readerThread.Start(206*us, reader)
		readerThread.Block(207*us, "network", read...)
		begin := func(clock int64, g uint64) {
			s.wake(clock, g)
			s.thread.Create(clock+2*us, uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
		}
		send := func(clock int64) {
			s.thread.Syscall(clock+5*us, append([]string{"syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write"}, callers...)...)
			s.thread.SyscallEnd(clock + 8*us)
			s.thread.Block(clock+10*us, "select", answer...)
		}
		receive := func(clock int64, woken ...uint64) {
			s.poller.Unblock(clock, reader)
			readerThread.Start(clock+us, reader)
			for i, g := range woken {
				readerThread.Unblock(clock+us+int64(i+1)*100, g, "runtime.chansend1", "example.com/rpc.(*conn).loop")
			}
			readerThread.Block(clock+2*us, "network", read...)
		}
		for i := range int64(60) {
			clock := (10 + 30*i) * ms
			begin(clock, firstConn)
			send(clock)
			begin(clock+ms, otherConn)
			if isQueue {
				s.thread.Block(clock+ms+10*us, "select", turn...)
				receive(clock+8*ms, firstConn, otherConn)
			} else {
				send(clock + ms)
				receive(clock+8*ms, firstConn)
			}
			s.thread.Start(clock+8*ms+5*us, firstConn)
			s.awaitRequest(clock+8*ms+20*us, firstConn)
			if isQueue {
				s.thread.Start(clock+8*ms+22*us, otherConn)
				send(clock + 8*ms + 30*us)
			}
			receive(clock+16*ms, otherConn)
			s.thread.Start(clock+16*ms+5*us, otherConn)
			s.awaitRequest(clock+16*ms+20*us, otherConn)
		}
		found := s.explain(t).Findings
		check.Equal(t, slices.ContainsFunc(found, func(f report.Finding) bool {
			return f.Severity == report.SeverityHigh && strings.HasPrefix(f.Title, "requests queue for a connection that has one call at a time, held by main.ask (main.go:20)") && strings.HasPrefix(f.Fix, "raise the number of connections from 1 to ")
		}), isQueue, "%+v", found)
	}
}

// TestLimitInsideGoroutines: the goroutines of requests take one of two slots before they call a peer, on a connection that another goroutine reads.
// If each request has its own slots, it cannot run all at once; else requests queue for the slots of all. Connections that several goroutines of a
// request use one after the other do not make their calls wait for each other.
func TestLimitInsideGoroutines(t *testing.T) {
	const slots = 2
	goroutine := []string{"main.gather.func1@/src/main.go:21"}
	for _, c := range []struct {
		perRequest int // calls
		conns      []uint64
		title, fix string
		atMost     int64 // predicted p50, in ns
	}{
		{6, []uint64{firstConn}, "requests cannot run all their goroutines at once: their limiter admits too few", "raise the limit from 2 to the number that a request starts", 12 * ms},
		{3, []uint64{firstConn, otherConn}, "requests queue for one of 2 slots at main.gather.func1 (main.go:20)", "raise the capacity (main.go:20) from 2 to ", 15 * ms},
	} {
		s := newServer()
		peer, readers := s.builder.Thread(), []uint64{9, 10}
		for i, g := range readers {
			s.builder.Waiting(g)
			s.poller.Unblock(int64(210+10*i)*us, g)
			peer.Start(int64(211+10*i)*us, g)
			peer.Block(int64(212+10*i)*us, "network", "internal/poll.(*FD).Read", "net.(*conn).Read", "example.com/rpc.(*conn).loop@/mod/example.com/rpc@v1.0.0/rpc.go:9")
		}
		ask := func(clock int64) {
			s.thread.Syscall(clock, append([]string{"syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write", "main.ask@/src/main.go:30"}, goroutine...)...)
			s.thread.SyscallEnd(clock + 3*us)
			s.thread.Block(clock+4*us, "select", append([]string{"runtime.selectgo", "main.ask@/src/main.go:31"}, goroutine...)...)
		}
		for clock := int64(10 * ms); clock < 3000*ms; clock += 50 * ms {
			type call struct{ g, conn uint64 }
			var calls []call
			for k, conn := range c.conns {
				began := clock + int64(k)*ms
				s.wake(began, conn)
				s.thread.Create(began+2*us, uint64(began), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
				for i := range uint64(c.perRequest) {
					calls = append(calls, call{uint64(began) + 1 + i, conn})
					s.thread.Create(began+int64(3+i)*us, uint64(began)+1+i, "main.gather.func1@/src/main.go:18", "main.gather@/src/main.go:17", "net/http.HandlerFunc.ServeHTTP", connFunc)
				}
				s.thread.Block(began+20*us, "sync", "sync.(*WaitGroup).Wait", "main.gather@/src/main.go:25", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc)
				for i := range c.perRequest {
					n := k*c.perRequest + i
					s.thread.Start(began+int64(30+10*i)*us, calls[n].g)
					if n < slots {
						ask(began + int64(31+10*i)*us)
					} else {
						s.thread.Block(began+int64(31+10*i)*us, "chan send", "runtime.chansend1", "main.gather.func1@/src/main.go:20")
					}
				}
			}
			for n, done := range calls {
				end, reader := clock+int64(n/slots+1)*10*ms+int64(n%slots)*2*ms, readers[n%slots]
				s.poller.Unblock(end, reader)
				peer.Start(end+us, reader)
				peer.Unblock(end+2*us, done.g, "runtime.chansend1", "example.com/rpc.(*conn).loop@/mod/example.com/rpc@v1.0.0/rpc.go:12")
				peer.Block(end+3*us, "select", "runtime.selectgo", "example.com/rpc.(*conn).loop@/mod/example.com/rpc@v1.0.0/rpc.go:13")
				s.thread.Start(end+4*us, done.g)
				s.thread.Unblock(end+4*us+100, reader, "runtime.chansend1", "main.ask@/src/main.go:32", "main.gather.func1@/src/main.go:21")
				peer.Start(end+4*us+200, reader)
				peer.Block(end+5*us, "network", "internal/poll.(*FD).Read", "net.(*conn).Read", "example.com/rpc.(*conn).loop@/mod/example.com/rpc@v1.0.0/rpc.go:9")
				if n+slots < len(calls) {
					s.thread.Unblock(end+6*us, calls[n+slots].g, "runtime.chanrecv1", "main.gather.func1@/src/main.go:19")
				}
				isLast := !slices.ContainsFunc(calls[n+1:], func(o call) bool { return o.conn == done.conn })
				if isLast {
					s.thread.Unblock(end+7*us, done.conn, "sync.(*WaitGroup).Done", "main.gather.func1@/src/main.go:19")
				}
				s.thread.Destroy(end + 8*us)
				if isLast {
					s.thread.Start(end+10*us, done.conn)
					s.awaitRequest(end+30*us, done.conn)
				}
				if n+slots < len(calls) {
					s.thread.Start(end+40*us, calls[n+slots].g)
					ask(end + 41*us)
				}
			}
		}
		found := s.explain(t).Findings
		must.True(t, len(found) > 0, "no finding")
		check.True(t, strings.HasPrefix(found[0].Title, c.title) && strings.Contains(found[0].Fix, c.fix), "%s; %s", found[0].Title, found[0].Fix)
		check.True(t, found[0].Predicted != nil && found[0].Predicted.P50NS.Est <= c.atMost, "%+v", found[0].Predicted)
	}
}

// TestHubAsksPeer: a library's only goroutine calls the service for each message, and the service asks a peer there. Who sends a message waits for
// those before it, although the goroutine does something else at each instant.
func TestHubAsksPeer(t *testing.T) {
	const hub = uint64(9)
	loop := "example.com/rooms.(*hub).run@/mod/example.com/rooms@v1.0.0/hub.go:9"
	member := []string{"example.com/store.(*Client).Has@/mod/example.com/store@v1.0.0/store.go:5", "main.member@/src/main.go:30", loop}
	s := newServer()
	th := s.builder.Thread()
	s.builder.Waiting(hub)
	rest := func(clock int64) { th.Block(clock, "select", "runtime.selectgo", loop) }
	s.poller.Unblock(210*us, hub)
	th.Start(211*us, hub)
	rest(212 * us)
	say := func(clock int64, g uint64) {
		s.wake(clock, g)
		s.thread.Create(clock+2*us, uint64(clock), "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", connFunc)
	}
	filter := func(clock int64) { // two calls
		for range 2 {
			th.Syscall(clock, append([]string{"syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write"}, member...)...)
			th.SyscallEnd(clock + 40*us)
			th.Block(clock+41*us, "network", append([]string{"internal/poll.(*FD).Read", "net.(*conn).Read"}, member...)...)
			clock += 5 * ms
			s.poller.Unblock(clock, hub)
			th.Start(clock+us, hub)
			clock += 2 * us
		}
	}
	for clock := int64(10 * ms); clock < 3000*ms; clock += 40 * ms {
		say(clock, firstConn)
		s.thread.Unblock(clock+3*us, hub, "runtime.chansend1", "example.com/rooms.(*Rooms).Broadcast@/mod/example.com/rooms@v1.0.0/rooms.go:20", "main.say@/src/main.go:20", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc)
		th.Start(clock+4*us, hub)
		s.awaitRequest(clock+6*us, firstConn)
		say(clock+10*us, otherConn)
		filterStart := clock + 5*us
		filter(filterStart)
		s.thread.Block(clock+25*us, "chan send", "runtime.chansend1", "example.com/rooms.(*Rooms).Broadcast@/mod/example.com/rooms@v1.0.0/rooms.go:20", "main.say@/src/main.go:20", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", connFunc)
		th.Unblock(filterStart+10*ms+10*us, otherConn, "runtime.selectgo", loop)
		s.thread.Start(filterStart+10*ms+11*us, otherConn)
		s.awaitRequest(filterStart+10*ms+20*us, otherConn)
		filter(filterStart + 10*ms + 30*us)
		rest(filterStart + 20*ms + 50*us)
	}
	found := s.explain(t).Findings
	must.True(t, len(found) > 0, "no finding")
	check.True(t, strings.HasPrefix(found[0].Title, "requests queue for the one goroutine that serves them") && strings.HasPrefix(found[0].Fix, "make the work at ") && strings.Contains(found[0].Fix, "main.member (main.go:30) shorter, or do it on another goroutine"), "%s; %s", found[0].Title, found[0].Fix)
	check.True(t, found[0].Predicted != nil && found[0].Predicted.MaxNS.Est < ms, "%+v", found[0].Predicted)
}
