package acceptance_test

import (
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// A workerKind says how the only goroutine that serves requests does its work.
type workerKind int

const (
	peerForEveryFourth workerKind = iota // it handles one command at a time and calls a peer after every fourth
	peerForBatch                         // it calls the peer once for all queued requests, then answers them
	batchAtTicks                         // on each tick it calls the peer once for the requests queued before
	broadcastAtTicks                     // on each tick it calls the peer, then answers all requests waiting by then
)

// workerTrace writes requests that arrive every 3 ms, each on its own connection, and wait for one worker goroutine. A request
// that only leaves its work in a queue causes no event unless the worker waits for it. The peer answers after 12 ms (4 ms with
// a ticker); the ticker fires every 50 ms.
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
			th.Block(t, "chan receive", "runtime.chanrecv1", "main.(*worker).run")
			return
		}
		th.Block(t, "chan receive", "runtime.chanrecv2", "main.(*worker).run")
	}
	answer := func(t int64) int64 {
		for _, g := range batch {
			th.Unblock(t, g, "runtime.chansend1", "main.(*worker).run")
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
		th.Syscall(t, "syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write", "main.(*worker).save", "main.(*worker).run")
		th.SyscallEnd(t + 2*us)
		th.Block(t+3*us, "network", "internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read", "main.(*worker).save", "main.(*worker).run")
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
			reason, stack := "chan receive", []string{"runtime.chanrecv1", "main.(*worker).hold", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve}
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

// TestGoroutineThatServesMany: requests wait for a goroutine that serves many. If it calls a peer for some commands of its
// state, all others queue behind the call, however many it answers together afterwards. If it calls once for everything that
// is queued, there is no queue. If a ticker starts the call for the requests that arrived before the tick, they are a batch.
// If it answers all goroutines that wait at that time, it may publish news.
func TestGoroutineThatServesMany(t *testing.T) {
	for _, c := range []struct {
		name  string
		kind  workerKind
		code  report.RuleCode
		major bool
		title string
	}{
		{"a worker that owns the state", peerForEveryFourth, report.RulePoolTooSmall, true, "requests queue for the one goroutine that serves"},
		{"one peer call for all queued requests", peerForBatch, report.RuleSlowPeer, false, "peer's answer"},
		{"a batch per tick", batchAtTicks, report.RuleFlushInterval, true, "next tick of a 50ms interval"},
		{"news per tick", broadcastAtTicks, report.RuleSleep, false, "a long poll, or a batch"},
	} {
		rep := explainBytes(t, workerTrace(t, c.kind), whylate.Options{})
		if len(rep.Findings) == 0 {
			t.Errorf("%s: there is no finding", c.name)
			continue
		}
		f := &rep.Findings[0]
		check.True(t, f.Code == c.code && f.Severity.IsMajor() == c.major && strings.Contains(f.Title, c.title), "%s: %s", c.name, describeFinding(f))
	}
}
