package acceptance_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// A keeper is a goroutine that others leave something with and wait for.
type workerKind int

const (
	peerForEveryFourth workerKind = iota // it owns a state, and asks a peer after every fourth command
	peerForBatch                         // it asks once for all that lies there, and answers all
	batchAtTicks                         // the same when a ticker fires, who came before that
	broadcastAtTicks                     // it asks when a ticker fires, and tells all who wait then
)

// workerTrace writes requests that come every 3 ms on connections of their own and wait for a keeper. What they leave with it is not seen
// unless it waits for that. Its peer answers after 12 ms, or 4; its ticker fires each 50 ms.
func workerTrace(t *testing.T, kind workerKind) []byte {
	t.Helper()
	const (
		ms, us = 1_000_000, 1_000
		serve  = "net/http.(*conn).serve:2074"
		owner  = 9
		conns  = 24
	)
	b := tracetext.New(26)
	th, poller := b.Thread(), b.ThreadWithoutP()
	peerLatency := int64(12 * ms)
	if kind == batchAtTicks || kind == broadcastAtTicks {
		peerLatency = 4 * ms
	}
	var events []event
	schedule := func(t int64, f func(schedule int64)) { events = append(events, event{t, f}) }
	var queued, batch []uint64
	commands, idle := 0, false
	waitForWork := func(t int64) {
		idle = true
		if kind == batchAtTicks || kind == broadcastAtTicks {
			th.Block(t, "chan receive", "runtime.chanrecv1", "main.(*keeper).run")
			return
		}
		th.Block(t, "chan receive", "runtime.chanrecv2", "main.(*keeper).run")
	}
	answer := func(t int64) int64 {
		for _, g := range batch {
			th.Unblock(t, g, "runtime.chansend1", "main.(*keeper).run")
			schedule(t+20*us, func(t int64) {
				th.Start(t, g)
				th.Syscall(t+2*us, "syscall.write", "bufio.(*Writer).Flush", "net/http.(*response).finishRequest", serve)
				th.SyscallEnd(t + 5*us)
				th.Block(t+6*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
			})
			t += 500
		}
		batch = nil
		return t
	}
	var work func(t int64)
	askPeer := func(t int64) {
		th.Syscall(t, "syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write", "main.(*keeper).save", "main.(*keeper).run")
		th.SyscallEnd(t + 2*us)
		th.Block(t+3*us, "network", "internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read", "main.(*keeper).save", "main.(*keeper).run")
		schedule(t+peerLatency, func(t int64) {
			poller.Unblock(t, owner)
			th.Start(t+us, owner)
			if kind == broadcastAtTicks {
				batch, queued = queued, nil
			}
			work(answer(t + 2*us))
		})
	}
	work = func(t int64) {
		idle = false
		for kind == peerForEveryFourth && len(queued) > 0 {
			batch, queued = queued[:1:1], queued[1:]
			if commands++; commands%4 == 0 {
				askPeer(t)
				return
			}
			t = answer(t)
		}
		if kind == peerForBatch && len(queued) > 0 {
			batch, queued = queued, nil
			askPeer(t)
			return
		}
		waitForWork(t + us)
	}
	readerID := uint64(10_000)
	b.Waiting(owner)
	schedule(50*us, func(t int64) { poller.Unblock(t, owner); th.Start(t+us, owner); waitForWork(t + 2*us) })
	for c := range conns {
		g := uint64(100 + c)
		b.Waiting(g)
		schedule(int64(c+2)*100*us, func(t int64) {
			poller.Unblock(t, g)
			th.Start(t+us, g)
			th.Block(t+2*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
		})
	}
	for i := range int64(400) {
		g := uint64(100 + i%conns)
		schedule(20*ms+i*3*ms+i%5*300*us, func(t int64) {
			poller.Unblock(t, g)
			th.Start(t+us, g)
			th.Create(t+2*us, readerID, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
			readerID++
			queued = append(queued, g)
			reason, stack := "chan receive", []string{"runtime.chanrecv1", "main.(*keeper).hold", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve}
			if kind == batchAtTicks || kind == broadcastAtTicks {
				reason, stack[0] = "select", "runtime.selectgo"
			}
			wakesOwner := idle && (kind == peerForEveryFourth || kind == peerForBatch)
			if wakesOwner {
				idle = false
				th.Unblock(t+3*us, owner, append([]string{"runtime.chansend1"}, stack[1:]...)...)
			}
			th.Block(t+5*us, reason, stack...)
			if wakesOwner {
				th.Start(t+6*us, owner)
				work(t + 7*us)
			}
		})
	}
	for i := range int64(24) {
		if kind != batchAtTicks && kind != broadcastAtTicks {
			break
		}
		schedule(30*ms+i*50*ms, func(t int64) {
			poller.Unblock(t, owner)
			th.Start(t+us, owner)
			if kind == batchAtTicks {
				batch, queued = queued, nil
			}
			askPeer(t + 2*us)
		})
	}
	emitInOrder(th, &events)
	return must.Have(b.Bytes())(t)
}

// TestGoroutineThatServesMany: whom requests wait for who leave something with one goroutine. An owner of state that asks a peer for some of its commands has
// all others wait in a queue meanwhile, however many it answers at once afterwards; who asks once for all that lies there has none. What a ticker
// has done for those who came before it fired is a batch; what is told to all who wait then may be news.
func TestGoroutineThatServesMany(t *testing.T) {
	for _, c := range []struct {
		name  string
		kind  workerKind
		code  report.RuleCode
		major bool
		title string
	}{
		{"an owner of state", peerForEveryFourth, report.RulePoolTooSmall, true, "requests queue for the only goroutine that serves"},
		{"one question for all", peerForBatch, report.RuleSlowPeer, false, "peer's answer"},
		{"a batch at ticks", batchAtTicks, report.RuleFlushInterval, true, "next tick of a 50ms interval"},
		{"news at ticks", broadcastAtTicks, report.RuleSleep, false, "a long poll, or a batch"},
	} {
		rep := explainBytes(t, workerTrace(t, c.kind), whylate.Options{})
		if len(rep.Findings) == 0 {
			t.Errorf("%s: nothing is found", c.name)
			continue
		}
		f := &rep.Findings[0]
		if f.Code != c.code || f.Severity.IsMajor() != c.major || !strings.Contains(f.Title, c.title) {
			t.Errorf("%s: %s", c.name, describeFinding(f))
		}
	}
}
