package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestTaskBegin: the worker of a pool first ends another task, in which it waits. When its loop receives the next one, from a dispatcher
// that waits to send it, it begins the task that the request waits for. What the pool's own code waits for is no task.
func TestTaskBegin(t *testing.T) {
	const worker, dispatcher, origin = 1, 2, tracetext.Origin
	for earlier, want := range map[string]int64{"main.review": 350, "dep.org/pool.rest": 200} {
		win, symbols := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
			m := b.Thread(worker)
			b.Waiting(dispatcher)
			m.Block(100, "sleep", "time.Sleep", earlier, "dep.org/pool.worker")
			b.Thread(4).Unblock(250, worker, "main.other")
			m.Start(300, worker)
			m.Unblock(400, dispatcher, "runtime.chanrecv1", "dep.org/pool.worker")
			m.Block(500, "chan receive", "runtime.chanrecv1", "main.ask", "dep.org/pool.(*Pool).SubmitWait.func1", "dep.org/pool.worker")
		})
		ending := addStack(symbols, "runtime.closechan", "dep.org/pool.(*Pool).SubmitWait.func1", "dep.org/pool.worker")
		syms := symbols.Snapshot()
		p := &workerSum{stage: path.New(win, &syms, path.Options{})}
		begin, otherNS, depth := p.taskBegin(&critpath.FollowedWait{Waker: worker, Start: origin + 50, End: origin + 700, WakerStack: ending})
		check.True(t, begin == origin+400 && otherNS == want && depth == 1, "%s: task from %d, others for %d, loop of %d frames", earlier, begin-origin, otherNS, depth)
	}
}
