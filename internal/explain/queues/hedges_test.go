package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestHedges: a goroutine starts another call each time a timer ends its select, or a goroutine that itself waits for short ticks, and continues
// with the first answer. It is no hedge if another goroutine ends the select, if the other calls have ended, or if another function starts them.
func TestHedges(t *testing.T) {
	for _, c := range []struct {
		name       string
		waker      uint64 // of the first select; 0: a timer
		tick       int64  // for how long that goroutine waits for a ticker before; 0: for none
		start      string // the statement of the second call
		firstEnded bool
		want       Hedges
	}{
		{"after a delay", 0, 0, "main.ask:7", false, Hedges{Requests: 1, Calls: 1, DelayNS: 8000, AnswerNS: 19800}},
		{"after some ticks", 4, 1000, "main.ask:7", false, Hedges{Requests: 1, Calls: 1, DelayNS: 8000, AnswerNS: 19800}},
		{"after a tick", 4, 4000, "main.ask:7", false, Hedges{}},
		{"after a result", 4, 0, "main.ask:7", false, Hedges{}},
		{"another statement", 0, 0, "main.ask:9", false, Hedges{Requests: 1, Calls: 1, DelayNS: 8000, AnswerNS: 19800}},
		{"another function", 0, 0, "main.other:9", false, Hedges{}},
		{"for the last answer", 0, 0, "main.ask:7", true, Hedges{}},
	} {
		win, symbols := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
			asker, timer := b.Thread(1), b.Thread()
			if c.waker != 0 {
				timer = b.Thread(c.waker)
			}
			idle := b.Thread()
			asker.Create(1000, 2, "main.call", "main.ask:7")
			asker.Block(2000, "select", "runtime.selectgo", "main.ask:8")
			idle.Start(2000, 2)
			idle.Block(3000, "select", "runtime.selectgo", "main.call:3")
			if c.tick != 0 {
				timer.Block(7900-c.tick, "chan receive", "runtime.chanrecv1", "main.wheel")
				b.Thread().Unblock(7900, c.waker)
				timer.Start(7950, c.waker)
			}
			timer.Unblock(8000, 1)
			asker.Start(8500, 1)
			asker.Create(9000, 3, "main.call", c.start)
			asker.Block(10000, "select", "runtime.selectgo", "main.ask:8")
			idle.Start(11000, 3)
			if c.firstEnded {
				idle.Block(12000, "select", "runtime.selectgo", "main.call:3")
				idle.Unblock(13000, 2)
				idle.Start(14000, 2)
				idle.Destroy(15000)
				idle.Unblock(16000, 3)
				idle.Start(17000, 3)
			}
			idle.Unblock(20800, 1, "runtime.chansend1", "main.call:4")
			idle.Destroy(21000)
			asker.Start(22000, 1)
			asker.Block(23000, "select", "runtime.selectgo", "main.idle")
		})
		ending := addStack(symbols, "runtime.chansend1", "main.call")
		syms := symbols.Snapshot()
		p := New().NewAdder(path.New(win, &syms, path.Options{})).(*workerSum)
		p.stage.Sites = cause.NewSites(&syms)
		const origin = tracetext.Origin
		got, pausesAt := p.findHedges(&path.WalkResult{Req: &request.Request{G: 1, Start: origin}}, &critpath.FollowedWait{G: 1, Waker: 3, Start: origin + 10000, End: origin + 20800, WakerStack: ending})
		check.Equal(t, pausesAt != 0, c.want.Calls > 0, "%s: where it waits", c.name)
		check.Equal(t, got, c.want, "%s", c.name)
	}
}

// TestFanOutCalls: two goroutines that a request has started make two calls each, one of them with an answer in two parts. Their waits at
// another line do not count. If the request's path has one call, each goroutine makes one.
func TestFanOutCalls(t *testing.T) {
	read := []string{"internal/poll.(*FD).Read", "net.(*conn).Read", "main.ask"}
	write := []string{"syscall.write", "net.(*netFD).Write", "net.(*conn).Write", "main.ask"}
	win, symbols := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		request, poller := b.Thread(1), b.Thread()
		request.Create(100, 2, "main.worker", "main.gather")
		request.Create(200, 3, "main.worker", "main.gather")
		for i, g := range []uint64{2, 3} {
			worker, time := b.Thread(), int64(1000*(i+1))
			worker.Start(time, g)
			wait := func(ns int64, stack ...string) {
				worker.Block(time+30, "network", stack...)
				poller.Unblock(time+30+ns, g)
				time += 40 + ns
				worker.Start(time, g)
			}
			call := func() {
				worker.Syscall(time+10, write...)
				worker.SyscallEnd(time + 20)
			}
			call()
			wait(100, read...)
			if g == 2 {
				wait(150, read...)
			}
			wait(500, "runtime.chanrecv1", "main.idle")
			call()
			wait(200, read...)
			worker.Destroy(time + 100)
		}
		request.Block(9000, "select", "runtime.selectgo", "main.idle")
	})
	syms := symbols.Snapshot()
	p := New().NewAdder(path.New(win, &syms, path.Options{})).(*workerSum)
	p.stage.Sites = cause.NewSites(&syms)
	stack := tracefmt.StackID(0) // of the first wait
	for _, span := range win.SpansCoarse(2, tracetext.Origin, tracetext.Origin+9000, nil) {
		if span.State == timeline.Waiting && stack == 0 {
			stack = span.Stack
		}
	}
	for _, c := range []struct{ calls, wantCalls, wantNS, wantLongestNS int64 }{{2, 4, 100 + 150 + 200 + 100 + 200, 250}, {1, 2, 1300, 0}} {
		calls := requestCalls{stack: stack}
		calls.Calls, calls.FanOut, calls.FanOutLastNS, calls.FanOutOthersNS = c.calls, 2, 700, 600
		p.addFanOutCalls(&path.WalkResult{Req: &request.Request{G: 1, Start: tracetext.Origin, End: tracetext.Origin + 9000}}, &calls)
		check.True(t, calls.FanOutCalls == c.wantCalls && calls.FanOutNS == c.wantNS && calls.LongestNS == c.wantLongestNS, "%d on the path: %+v", c.calls, calls.PeerCalls)
	}
}
