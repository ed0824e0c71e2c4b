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
type keeper int

const (
	asksForEveryFourth keeper = iota // it owns a state, and asks a peer after every fourth command
	asksForAll                       // it asks once for all that lies there, and answers all
	atTicks                          // the same when a ticker fires, who came before that
	newsAtTicks                      // it asks when a ticker fires, and tells all who wait then
)

// keeperTrace writes requests that come every 3 ms on connections of their own and wait for a keeper. What they leave with it is not seen
// unless it waits for that. Its peer answers after 12 ms, or 4; its ticker fires each 50 ms.
func keeperTrace(t *testing.T, is keeper) []byte {
	t.Helper()
	const (
		ms, us = 1_000_000, 1_000
		serve  = "net/http.(*conn).serve:2074"
		owner  = 9
		conns  = 24
	)
	b := tracetext.New(26)
	th, poller := b.Thread(), b.ThreadWithoutP()
	takes := int64(12 * ms)
	if is == atTicks || is == newsAtTicks {
		takes = 4 * ms
	}
	var events []event
	at := func(t int64, f func(at int64)) { events = append(events, event{t, f}) }
	var queue, taken []uint64
	commands, resting := 0, false
	rest := func(t int64) {
		resting = true
		if is == atTicks || is == newsAtTicks {
			th.Block(t, "chan receive", "runtime.chanrecv1", "main.(*keeper).run")
			return
		}
		th.Block(t, "chan receive", "runtime.chanrecv2", "main.(*keeper).run")
	}
	answer := func(t int64) int64 {
		for _, g := range taken {
			th.Unblock(t, g, "runtime.chansend1", "main.(*keeper).run")
			at(t+20*us, func(t int64) {
				th.Start(t, g)
				th.Syscall(t+2*us, "syscall.write", "bufio.(*Writer).Flush", "net/http.(*response).finishRequest", serve)
				th.SyscallEnd(t + 5*us)
				th.Block(t+6*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
			})
			t += 500
		}
		taken = nil
		return t
	}
	var work func(t int64)
	ask := func(t int64) {
		th.Syscall(t, "syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write", "main.(*keeper).save", "main.(*keeper).run")
		th.SyscallEnd(t + 2*us)
		th.Block(t+3*us, "network", "internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read", "main.(*keeper).save", "main.(*keeper).run")
		at(t+takes, func(t int64) {
			poller.Unblock(t, owner)
			th.Start(t+us, owner)
			if is == newsAtTicks {
				taken, queue = queue, nil
			}
			work(answer(t + 2*us))
		})
	}
	work = func(t int64) {
		resting = false
		for is == asksForEveryFourth && len(queue) > 0 {
			taken, queue = queue[:1:1], queue[1:]
			if commands++; commands%4 == 0 {
				ask(t)
				return
			}
			t = answer(t)
		}
		if is == asksForAll && len(queue) > 0 {
			taken, queue = queue, nil
			ask(t)
			return
		}
		rest(t + us)
	}
	began := uint64(10_000)
	b.Waiting(owner)
	at(50*us, func(t int64) { poller.Unblock(t, owner); th.Start(t+us, owner); rest(t + 2*us) })
	for c := range conns {
		g := uint64(100 + c)
		b.Waiting(g)
		at(int64(c+2)*100*us, func(t int64) {
			poller.Unblock(t, g)
			th.Start(t+us, g)
			th.Block(t+2*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
		})
	}
	for i := range int64(400) {
		g := uint64(100 + i%conns)
		at(20*ms+i*3*ms+i%5*300*us, func(t int64) {
			poller.Unblock(t, g)
			th.Start(t+us, g)
			th.Create(t+2*us, began, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
			began++
			queue = append(queue, g)
			reason, inside := "chan receive", []string{"runtime.chanrecv1", "main.(*keeper).hold", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve}
			if is == atTicks || is == newsAtTicks {
				reason, inside[0] = "select", "runtime.selectgo"
			}
			wakes := resting && (is == asksForEveryFourth || is == asksForAll)
			if wakes {
				resting = false
				th.Unblock(t+3*us, owner, append([]string{"runtime.chansend1"}, inside[1:]...)...)
			}
			th.Block(t+5*us, reason, inside...)
			if wakes {
				th.Start(t+6*us, owner)
				work(t + 7*us)
			}
		})
	}
	for i := range int64(24) {
		if is != atTicks && is != newsAtTicks {
			break
		}
		at(30*ms+i*50*ms, func(t int64) {
			poller.Unblock(t, owner)
			th.Start(t+us, owner)
			if is == atTicks {
				taken, queue = queue, nil
			}
			ask(t + 2*us)
		})
	}
	play(th, &events)
	return must.Have(b.Bytes())(t)
}

// TestKeeper: whom requests wait for who leave something with one goroutine. An owner of state that asks a peer for some of its commands has
// all others wait in a queue meanwhile, however many it answers at once afterwards; who asks once for all that lies there has none. What a ticker
// has done for those who came before it fired is a batch; what is told to all who wait then may be news.
func TestKeeper(t *testing.T) {
	for _, c := range []struct {
		name string
		is   keeper
		code report.RuleCode
		loud bool
		says string
	}{
		{"an owner of state", asksForEveryFourth, report.RulePoolTooSmall, true, "requests queue for the only goroutine that serves"},
		{"one question for all", asksForAll, report.RuleSlowPeer, false, "peer's answer"},
		{"a batch at ticks", atTicks, report.RuleFlushInterval, true, "next tick of a 50ms interval"},
		{"news at ticks", newsAtTicks, report.RuleSleep, false, "a long poll, or a batch"},
	} {
		rep := explainBytes(t, keeperTrace(t, c.is), whylate.Options{})
		if len(rep.Findings) == 0 {
			t.Errorf("%s: nothing is found", c.name)
			continue
		}
		f := &rep.Findings[0]
		if f.Code != c.code || f.Severity.IsMajor() != c.loud || !strings.Contains(f.Title, c.says) {
			t.Errorf("%s: %s", c.name, describeFinding(f))
		}
	}
}
