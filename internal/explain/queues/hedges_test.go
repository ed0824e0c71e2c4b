package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
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
