package explain_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// A goroutine of the standard library that returns to a wait repeatedly is no worker.
func TestLoopOfTheStandardLibrary(t *testing.T) {
	builder := tracetext.New(26)
	th := builder.Thread()
	const root = "net/http.(*persistConn).writeLoop:2590"
	th.Create(1000, 7, root)
	clock := int64(1000)
	for range 40 {
		th.Start(clock+1000, 7)
		th.Block(clock+2000, "select", root)
		th.Unblock(clock+9000, 7)
		clock += 10000
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	for _, g := range rep.Groups {
		check.True(t, g.Kind != "loop", "group %q of %d requests", g.Name, g.Count)
	}
}

// A client sends its next request when it has its answer. Its data ends the iteration, even if the iteration waited for
// many answers of other servers, and whichever package reads the data.
func TestServerIteration(t *testing.T) {
	const turns, calls = 12, 18
	for name, read := range map[string][]string{
		"library": {"net.(*conn).Read", "bufio.(*Reader).Peek", "github.com/valyala/fasthttp.(*Server).serveConn:9"},
		"own":     {"net.(*conn).Read", "bufio.(*Reader).ReadString", "main.(*server).serve:9"},
	} {
		t.Run(name, func(t *testing.T) {
			builder := tracetext.New(26)
			th, helper := builder.Thread(), builder.Thread()
			loop := read[len(read)-1]
			helper.Create(500, 99, "main.main")
			helper.Start(600, 99)
			helper.Block(700, "network", "net.(*TCPListener).Accept", "main.main")
			th.Create(1000, 7, loop)
			clock := int64(1000)
			wait := func(reason string, stack ...string) {
				th.Start(clock+10e3, 7)
				th.Block(clock+20e3, reason, stack...)
				th.Unblock(clock+1000e3, 7)
				clock += 1000e3
			}
			for range turns {
				wait("network", read...)
				for range calls {
					wait("chan receive", "net/rpc.(*Client).Call", "main.(*server).price", "main.(*server).answer", loop)
				}
			}
			wait("network", read...)
			rep := explainBuilt(t, builder, whylate.Options{})
			check.True(t, len(rep.Groups) != 0 && rep.Groups[0].Kind == "loop" && rep.Groups[0].Count == turns, "%+v", rep.Groups)
		})
	}
}

// An iteration waits for another connection's goroutine, which waited for its own client before. So the iteration waits
// for that client and for no peer. It fails if the idle wait of an unknown protocol is reported as a wait for an
// answer.
func TestIterationAwaitsAnotherClient(t *testing.T) {
	const us = 1000
	builder := tracetext.New(26)
	th, helper := builder.Thread(), builder.Thread()
	const loop = "main.(*server).serve:9"
	read := []string{"net.(*conn).Read", "bufio.(*Reader).ReadString", loop}
	helper.Create(500, 99, "main.main")
	helper.Start(600, 99)
	helper.Block(700, "network", "net.(*TCPListener).Accept", "main.main")
	th.Create(1*us, 7, loop)
	th.Create(2*us, 8, loop)
	wakes := func(clock, g int64) {
		th.Unblock(clock, uint64(g))
		th.Start(clock+10*us, uint64(g))
	}
	answers := func(clock int64) {
		th.Syscall(clock, "syscall.write", "net.(*conn).Write", "main.(*server).answer", loop)
		th.SyscallEnd(clock + 10*us)
		th.Block(clock+20*us, "network", read...)
	}
	for g := range int64(2) {
		th.Start(10*us+g*40*us, uint64(7+g))
		th.Block(30*us+g*40*us, "network", read...)
	}
	for k := range int64(12) {
		clock := 1000*us + k*20_000*us
		wakes(clock, 7) // its client sends a request, and the goroutine waits for a second client
		th.Block(clock+100*us, "chan receive", "main.(*server).join", loop)
		helper.Unblock(clock+9_970*us, 99) // the network is polled
		helper.Start(clock+9_980*us, 99)
		helper.Block(clock+9_990*us, "network", "net.(*TCPListener).Accept", "main.main")
		wakes(clock+10_000*us, 8)
		th.Unblock(clock+10_050*us, 7, "main.(*server).join", loop)
		answers(clock + 10_100*us)
		th.Start(clock+10_200*us, 7)
		answers(clock + 10_300*us)
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	for i := range rep.Groups {
		for _, row := range rep.Groups[i].Bands[0].Causes {
			for _, c := range row.Works() {
				if c.Cause == "network" && c.Share > 0.1 {
					check.True(t, c.Kind == "inbound" && len(c.Via) != 0, "%+v", c)
					return
				}
			}
		}
	}
	t.Errorf("no wait for the network: %+v", rep.Groups)
}

// A goroutine that always has work begins its iterations with a wait within the work. When it rests for the first time,
// the rest ends the iteration and is no part of it.
func TestLateRestOfBusyLoop(t *testing.T) {
	builder := tracetext.New(26)
	th := builder.Thread()
	const loop = "github.com/nats-io/nats%2ego.(*Conn).waitForMsgs@/mod/github.com/nats-io/nats.go@v1.48.0/nats.go:3819"
	ask := []string{"runtime.chanrecv1", "net/http.(*Client).Get", "main.(*ledger).post", "main.(*ledger).charge", loop}
	th.Create(1000, 7, loop)
	clock := int64(1000)
	wait := func(ns int64, reason string, stack ...string) {
		th.Start(clock+1e3, 7)
		th.Block(clock+2e3, reason, stack...)
		clock += ns
		th.Unblock(clock, 7)
	}
	const turns, ms = 20, int64(1e6)
	for range turns {
		wait(10*ms, "chan receive", ask...)
	}
	builder.NextGeneration(clock)
	for range turns {
		wait(10*ms, "chan receive", ask...)
		wait(500*ms, "sync.(*Cond).Wait", "sync.(*Cond).Wait", loop)
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	check.True(t, len(rep.Groups) == 1 && rep.Groups[0].Count >= 2*turns-2 && *rep.Groups[0].LatencyNS.Max <= 11*ms, "%+v", rep.Groups)
}

// Messages queue if a library's loop has the next one as soon as it finishes one, however many calls it makes for each. If it
// seldom waits for one, there must be as many iterations as messages.
func TestQueuedMessages(t *testing.T) {
	const loop = "github.com/nats-io/nats%2ego.(*Conn).waitForMsgs@/mod/github.com/nats-io/nats.go@v1.48.0/nats.go:3819"
	ask := []string{"net.(*conn).Read", "github.com/redis/go-redis/v9.(*Client).Process@/mod/github.com/redis/go-redis/v9@v9.7.0/redis.go:9", "main.(*ledger).charge", loop}
	read := []string{"net.(*conn).Read", "github.com/nats-io/nats%2ego.(*natsReader).Read@/mod/github.com/nats-io/nats.go@v1.48.0/nats.go:2451"}
	const ms = int64(1e6)
	for name, tc := range map[string]struct {
		asks, bursts, messages int // calls for each message, bursts of messages
		count                  int // the messages of the first burst began before the loop was known
		want                   bool
	}{"one": {1, 8, 5, 35, true}, "several": {5, 8, 5, 35, true}, "busy": {1, 3, 14, 42, true}, "busy, several": {5, 3, 14, 210, false}} {
		t.Run(name, func(t *testing.T) {
			builder := tracetext.New(26)
			th, in := builder.Thread(), builder.Thread()
			th.Create(1000, 7, loop)
			in.Create(1100, 8, read[1])
			builder.IdleProc() // the idle P polls the network
			clock := int64(2000)
			for burst := range tc.bursts {
				for message := range tc.messages {
					in.Start(clock+1e3, 8)
					if message == 0 && burst > 0 {
						in.Unblock(clock+2e3, 7)
					}
					in.Block(clock+3e3, "network", read...)
					in.Unblock(clock+4e3, 8)
					clock += 10e3
				}
				for range tc.messages * tc.asks {
					th.Start(clock+1e3, 7)
					th.Block(clock+2e3, "network", ask...)
					clock += 10 * ms
					th.Unblock(clock, 7)
				}
				th.Start(clock+1e3, 7)
				th.Block(clock+2e3, "sync.(*Cond).Wait", "sync.(*Cond).Wait", loop)
				clock += 50 * ms
			}
			rep := explainBuilt(t, builder, whylate.Options{})
			queued := slices.ContainsFunc(rep.Findings, func(f report.Finding) bool {
				return f.Code == report.RulePoolTooSmall && f.Severity == report.SeverityHigh && strings.HasPrefix(f.Title, "messages queue") && strings.Contains(f.Title, "main.(*ledger).charge")
			})
			check.True(t, len(rep.Groups) == 1 && rep.Groups[0].Count == tc.count && queued == tc.want,
				"queued: %t, groups %+v, findings %+v", queued, rep.Groups, rep.Findings)
		})
	}
}

// A library's worker runs different functions. Each iteration belongs to the function that ran in it, and not to the
// first function that ran in the goroutine.
func TestWorkerOfSeveralFunctions(t *testing.T) {
	const loop = "github.com/pkg/sftp.(*RequestServer).packetWorker@/mod/github.com/pkg/sftp@v1.13.9/request-server.go:120"
	builder := tracetext.New(26)
	th := builder.Thread()
	th.Create(1000, 7, loop)
	clock := int64(1000)
	wait := func(ns int64, reason string, stack ...string) {
		th.Start(clock+1e3, 7)
		th.Block(clock+2e3, reason, stack...)
		clock += ns
		th.Unblock(clock, 7)
	}
	const turns, ms = 20, int64(1e6)
	for i := range turns {
		wait(ms, "chan receive", "runtime.chanrecv1", loop)
		serve := []string{"main.(*vault).write", loop}
		if i%2 == 0 {
			serve = []string{"main.(*vault).read", loop}
		}
		wait(5*ms, "sync", append([]string{"sync.(*Mutex).Lock"}, serve...)...)
	}
	wait(ms, "chan receive", "runtime.chanrecv1", loop)
	got := map[string]int{}
	for _, g := range explainBuilt(t, builder, whylate.Options{}).Groups {
		got[g.Name] = g.Count
	}
	if want := map[string]int{"main.(*vault).read": turns / 2, "main.(*vault).write": turns / 2}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestStreamOfUnknownServer: a connection's goroutine writes each part that a goroutine with pauses passes to it, so the pauses pace a
// stream. If it calls a peer's library between its waits instead, the pauses delay the answer.
func TestStreamOfUnknownServer(t *testing.T) {
	const ms, us = int64(1e6), int64(1e3)
	loop := []string{"example.com/web/server.serveConn"}
	read := append([]string{"net.(*netFD).Read"}, loop...)
	for name, writes := range map[string][]string{
		"stream": {"net.(*netFD).Write", "example.com/web/server.writeChunk"},
		"peer":   {"net.(*netFD).Write", "example.net/stats.(*Client).Count", "main.(*scores).play"},
	} {
		builder := tracetext.New(26)
		th, poller := builder.Thread(), builder.Thread()
		poller.Create(500, 99, "main.main")
		poller.Start(600, 99)
		poller.Block(700, "network", "net.(*TCPListener).Accept", "main.main")
		th.Create(1*us, 7, loop[0])
		th.Create(2*us, 8, "main.(*scores).play.func1", "main.(*scores).play")
		th.Start(10*us, 7)
		th.Block(20*us, "network", read...)
		th.Start(30*us, 8)
		th.Block(40*us, "sleep", "time.Sleep", "main.(*scores).play.func1")
		clock := ms
		for range 20 {
			poller.Unblock(clock, 7)
			th.Start(clock+10*us, 7)
			for range 6 {
				th.Block(clock+20*us, "select", append([]string{"example.com/web/pipe.(*Conn).Read"}, loop...)...)
				clock += 20 * ms
				poller.Unblock(clock, 8)
				th.Start(clock+10*us, 8)
				th.Unblock(clock+20*us, 7, "example.com/web/pipe.(*Conn).Write", "main.(*scores).play.func1")
				th.Block(clock+30*us, "sleep", "time.Sleep", "main.(*scores).play.func1")
				th.Start(clock+40*us, 7)
				clock += 50 * us
				th.Syscall(clock, append(append([]string{"syscall.write"}, writes...), loop...)...)
				th.SyscallEnd(clock + 10*us)
			}
			th.Syscall(clock+20*us, append([]string{"syscall.write", "net.(*netFD).Write"}, loop...)...)
			th.SyscallEnd(clock + 30*us)
			th.Block(clock+40*us, "network", read...)
			clock += ms
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		isLoud := slices.ContainsFunc(rep.Findings, func(f report.Finding) bool { return f.Severity.IsMajor() })
		check.Equal(t, isLoud, name == "peer", "%s: %+v", name, rep.Findings)
	}
}
