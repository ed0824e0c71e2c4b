package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestTaskBegin: the worker of a pool first ends another task, in which it waits. When its loop receives the next one, from a dispatcher
// that waits to send it, it begins the task that the request waits for. What the pool's own code waits for is no task. A wait that began before
// the trace has no stack, so it does not show that the worker is idle.
func TestTaskBegin(t *testing.T) {
	const worker, dispatcher, origin = 1, 2, tracetext.Origin
	for earlier, want := range map[string]int64{"main.review": 350, "dep.org/pool.rest": 200, "": 350} {
		win, symbols := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
			m := b.Thread()
			b.Waiting(dispatcher)
			if earlier == "" {
				b.Waiting(worker)
			} else {
				m.HasRun(worker)
				m.Block(100, "sleep", "time.Sleep", earlier, "dep.org/pool.worker")
			}
			b.Thread(4).Unblock(250, worker, "main.other")
			m.Start(300, worker)
			m.Unblock(400, dispatcher, "runtime.chanrecv1", "dep.org/pool.worker")
			m.Block(500, "chan receive", "runtime.chanrecv1", "main.ask", "dep.org/pool.(*Pool).SubmitWait.func1", "dep.org/pool.worker")
		})
		ending := addStack(symbols, "runtime.closechan", "dep.org/pool.(*Pool).SubmitWait.func1", "dep.org/pool.worker")
		syms := symbols.Snapshot()
		p := &workerSum{stage: path.New(win, &syms, path.Options{})}
		begin, otherNS, loop := p.taskBegin(&critpath.FollowedWait{Waker: worker, Start: origin + 50, End: origin + 700, WakerStack: ending})
		check.True(t, begin == origin+400 && otherNS == want && loop == workerLoop{frames: 1}, "%s: task from %d, others for %d, loop of %d frames", earlier, begin-origin, otherNS, loop.frames)
	}
}

// TestIsNewFor: the goroutine that a request starts, before it waits for the result, is no worker with other tasks. One that another
// goroutine started before the wait may be, and so may one that the request's goroutine started for an earlier request.
func TestIsNewFor(t *testing.T) {
	const requester, dispatcher = 3, 4
	wait := &critpath.FollowedWait{G: requester, Waker: 9, Start: 500, End: 900}
	for birth, want := range map[timeline.Birth]bool{
		{Time: 600, Creator: dispatcher}: true,
		{Time: 450, Creator: requester}:  true,
		{Time: 450, Creator: dispatcher}: false,
		{Time: 300, Creator: requester}:  false,
	} {
		check.Equal(t, isNewFor(&birth, wait, 400), want, "born at %d of %d", birth.Time, birth.Creator)
	}
}

// TestListTaskBegin: the worker's loop takes tasks from a list, so it waits between two of them only while the list is empty. A task ends where the
// next one, of another function, waits first, or where the same line ends the wait for it. Several waits that end together are one task.
func TestListTaskBegin(t *testing.T) {
	const worker, other, origin = 1, 2, tracetext.Origin
	ending := []string{"runtime.closechan", "dep.org/pool.resolve", "dep.org/pool.worker"}
	ownEnding := []string{"runtime.closechan", "main.price", "main.worker"}
	for name, test := range map[string]struct {
		review, idle, price, end []string
		endsEarlier              int64 // a wake that ends an earlier task; 0: none
		begin, other             int64
	}{
		"another task":         {[]string{"main.ask", "main.review", "dep.org/pool.worker"}, nil, []string{"main.ask", "main.price", "dep.org/pool.worker"}, ending, 0, 280, 230},
		"the same task":        {[]string{"main.ask", "main.price", "dep.org/pool.worker"}, nil, []string{"main.ask", "main.price", "dep.org/pool.worker"}, ending, 400, 400, 350},
		"perhaps one task":     {[]string{"main.ask", "main.price", "dep.org/pool.worker"}, nil, []string{"main.ask", "main.price", "dep.org/pool.worker"}, ending, 0, 0, 0},
		"several waits at end": {[]string{"main.ask", "main.price", "dep.org/pool.worker"}, nil, []string{"main.ask", "main.price", "dep.org/pool.worker"}, ending, 690, 0, 0},
		"in its own package":   {[]string{"main.ask", "main.review", "main.worker"}, nil, []string{"main.ask", "main.price", "main.worker"}, ownEnding, 0, 280, 230},
		"a reader":             {[]string{"dep.org/frame.read", "dep.org/pool.worker"}, nil, []string{"dep.org/frame.read", "dep.org/pool.worker"}, ending, 400, 0, 0},
		"idle":                 {[]string{"main.ask", "main.review", "main.worker"}, []string{"sync.(*Cond).Wait", "main.next", "main.worker"}, []string{"main.ask", "main.price", "main.worker"}, ownEnding, 0, 400, 250},
	} {
		win, symbols := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
			m := b.Thread(worker)
			b.Waiting(other)
			peer := b.Thread(4)
			m.Block(100, "sleep", append([]string{"time.Sleep"}, test.review...)...)
			peer.Unblock(280, worker, "main.peer")
			m.Start(300, worker)
			if test.idle != nil {
				m.Block(300, "sync", test.idle...)
				peer.Unblock(400, worker, "main.peer")
				m.Start(400, worker)
			}
			if test.endsEarlier != 0 && test.endsEarlier < 500 {
				m.Unblock(test.endsEarlier, other, test.end...)
			}
			m.Block(500, "sleep", append([]string{"time.Sleep"}, test.price...)...)
			peer.Unblock(600, worker, "main.peer")
			m.Start(600, worker)
			if test.endsEarlier >= 500 {
				m.Unblock(test.endsEarlier, other, test.end...)
			}
		})
		stack, waiter := addStack(symbols, test.end...), addStack(symbols, "runtime.chanrecv1", "dep.org/pool.(*Task).Wait", "main.price")
		syms := symbols.Snapshot()
		p := &workerSum{stage: path.New(win, &syms, path.Options{})}
		begin, otherNS, _ := p.taskBegin(&critpath.FollowedWait{Waker: worker, Start: origin + 50, End: origin + 700, Stack: waiter, WakerStack: stack})
		check.True(t, max(0, begin-origin) == test.begin && otherNS == test.other, "%s: task from %d, others for %d", name, begin-origin, otherNS)
	}
}

// TestOwnWork: a worker receives a task just before the request begins to wait for it. No other task is ahead.
func TestOwnWork(t *testing.T) {
	const worker, origin = 1, tracetext.Origin
	win, symbols := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		m, requests := b.Thread(worker), b.Thread(4)
		m.Block(100, "chan receive", "runtime.chanrecv2", "dep.org/pool.run")
		requests.Unblock(990, worker, "main.submit")
		m.Start(1100, worker)
		m.Block(1200, "chan receive", "runtime.chanrecv1", "main.ask", "main.submit.func1", "dep.org/pool.run")
		requests.Unblock(90000, worker, "main.peer")
		m.Start(90100, worker)
	})
	ending := addStack(symbols, "runtime.chansend1", "main.submit.func1", "dep.org/pool.run")
	syms := symbols.Snapshot()
	p := &workerSum{stage: path.New(win, &syms, path.Options{})}
	begin, otherNS, _ := p.taskBegin(&critpath.FollowedWait{Waker: worker, Start: origin + 1000, End: origin + 91000, WakerStack: ending})
	check.True(t, begin == origin+1000 && otherNS == 0, "task from %d, others for %d", begin-origin, otherNS)
	for _, c := range []struct {
		knownNS, beforeNS int64
		want              bool
	}{{95000, 100, true}, {95000, 10000, false}, {20000, 100, false}} {
		waits := TaskWaits{Waits: 20, WaitNS: 100000, KnownNS: c.knownNS, BeforeNS: c.beforeNS}
		check.Equal(t, waits.IsOwnWork(), c.want, "%d ns of %d before the task", c.beforeNS, c.knownNS)
	}
}
