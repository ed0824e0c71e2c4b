package worstcase

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// many are traces that hold very much of one thing. In some of them nobody finds a request.
var many = []shape{
	{"connections", connections},
	{"open-at-once", openAtOnce},
	{"relay", relay},
	{"pingpong", pingpong},
	{"nested-regions", nestedRegions},
	{"nested-tasks", nestedTasks},
	{"open-tasks", openTasks},
	{"groups", manyGroups},
	{"logs", logs},
	{"marks", marks},
	{"strings", distinctStrings},
	{"stacks", deepStacks},
	{"samples", samples},
	{"collections", collections},
	{"procs", procs},
	{"generations", generations},
	{"waiting", waiting},
	{"herd", herd},
}

const (
	serve   = "net/http.(*conn).serve:2074"
	handler = "example.com/shop.(*server).order:12"
)

// connections: n connections with one request each, one after the other.
func connections(b *tracetext.Builder, n int) {
	m, at := begin(b)
	poller := b.ThreadWithoutP()
	for i := range n {
		id := uint64(first + 2*i)
		m.Create(at, id, "net/http.(*conn).serve", "net/http.(*Server).Serve:30")
		m.Block(at+10, "network", "internal/poll.(*FD).Accept", "net/http.(*Server).Serve:20")
		m.Start(at+20, id)
		m.Create(at+30, id+1, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
		m.Block(at+40, "sleep", "time.Sleep", handler, "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
		m.Start(at+50, id+1)
		m.Destroy(at + 60)
		poller.Unblock(at+500, id)
		m.Start(at+510, id)
		m.Destroy(at + 520)
		poller.Unblock(at+530, main)
		m.Start(at+540, main)
		at += 1000
	}
}

// openAtOnce: n pieces of work that begin in the first of ten generations and end in the last.
func openAtOnce(b *tracetext.Builder, n int) {
	m, at := begin(b)
	poller := b.ThreadWithoutP()
	for i := range n {
		m.Create(at, uint64(first+i), "main.work", "main.start:10")
		at += 10
	}
	m.Block(at, "chan receive", "runtime.chanrecv1", "main.start:13")
	for i := range n {
		m.Start(at+10, uint64(first+i))
		m.RegionBegin(at+20, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		m.Block(at+30, "select", "runtime.selectgo", "main.work:9")
		at += 100
	}
	for range 9 {
		at += 1000
		b.NextGeneration(at)
	}
	for i := range n {
		poller.Unblock(at+10, uint64(first+i))
		m.Start(at+20, uint64(first+i))
		m.RegionEnd(at+30, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		m.Destroy(at + 40)
		at += 100
	}
}

// relay: each of n pieces of work begins the next and waits for it; the last one ends, and with it, one after the other, all.
func relay(b *tracetext.Builder, n int) {
	m, at := begin(b)
	m.Create(at, first, "main.work", "main.start:10")
	m.Block(at+10, "chan receive", "runtime.chanrecv1", "main.start:13")
	for i := range n {
		at += 100
		m.Start(at, uint64(first+i))
		m.RegionBegin(at+10, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		if i+1 < n {
			m.Create(at+20, uint64(first+i+1), "main.work", "main.work:8")
			m.Block(at+30, "chan receive", "runtime.chanrecv1", "main.work:9")
		}
	}
	for i := n - 1; i >= 0; i-- {
		m.RegionEnd(at+40, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		if i > 0 {
			m.Unblock(at+50, uint64(first+i-1), "runtime.closechan", "main.work:11")
		}
		m.Destroy(at + 60)
		at += 100
		if i > 0 {
			m.Start(at, uint64(first+i-1))
		}
	}
}

// pingpong: a piece of work waits n times for the same other goroutine, which waits for it.
func pingpong(b *tracetext.Builder, n int) {
	m, at := begin(b)
	o := b.Thread()
	m.Create(at, first, "main.other", "main.start:10")
	o.Start(at+10, first)
	o.Block(at+20, "chan receive", "runtime.chanrecv1", "main.other:20")
	m.RegionBegin(at+30, 0, "order", "runtime/trace.WithRegion", "main.work:7")
	at += 100
	for range n {
		m.Unblock(at, first, "runtime.chansend1", "main.work:8")
		m.Block(at+10, "chan receive", "runtime.chanrecv1", "main.work:9")
		o.Start(at+20, first)
		o.Unblock(at+30, main, "runtime.chansend1", "main.other:21")
		o.Block(at+40, "chan receive", "runtime.chanrecv1", "main.other:20")
		m.Start(at+50, main)
		at += 100
	}
	m.RegionEnd(at, 0, "order", "runtime/trace.WithRegion", "main.work:7")
	m.Block(at+10, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// nestedRegions: n regions, each inside of the one before.
func nestedRegions(b *tracetext.Builder, n int) {
	m, at := begin(b)
	for range n {
		m.RegionBegin(at, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		at += 10
	}
	for range n {
		m.RegionEnd(at, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		at += 10
	}
	m.Block(at, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// nestedTasks: n tasks, each a part of the one before.
func nestedTasks(b *tracetext.Builder, n int) {
	m, at := begin(b)
	for i := range n {
		m.TaskBegin(at, uint64(i+1), uint64(i), "order", "main.begin:7")
		at += 10
	}
	for i := n; i > 0; i-- {
		m.TaskEnd(at, uint64(i), "main.end:9")
		at += 10
	}
	m.Block(at, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// openTasks: n tasks that nobody ends, over a few generations.
func openTasks(b *tracetext.Builder, n int) {
	m, at := begin(b)
	for i := range n {
		m.TaskBegin(at, uint64(i+1), 0, "order", "main.begin:7")
		at += 10
		if i%(n/4) == n/4-1 {
			b.NextGeneration(at)
		}
	}
}

// manyGroups: n pieces of work, each of a name of its own.
func manyGroups(b *tracetext.Builder, n int) {
	m, at := begin(b)
	for i := range n {
		name := fmt.Sprintf("order-%d", i)
		region(m, at, 60, name)
		at += 100
	}
	m.Block(at, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// logs: n words of the user in one run.
func logs(b *tracetext.Builder, n int) {
	m, at := begin(b)
	for range n {
		m.Log(at, 0, "step", "done", "main.work:7")
		at += 10
	}
	m.Block(at, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// marks: n requests of service/mark that begin inside of each other.
func marks(b *tracetext.Builder, n int) {
	m, at := begin(b)
	for i := range n {
		m.Log(at, 0, fmt.Sprintf("whylate.mark/1 begin http GET /%d", i%100), "", "service/mark.begin", "main.work")
		at += 10
	}
	for i := n - 1; i >= 0; i-- {
		m.Log(at, 0, fmt.Sprintf("whylate.mark/1 end http 2xx GET /%d", i%100), "", "service/mark.begin", "main.work")
		at += 10
	}
	m.Block(at, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// distinctStrings: n words of the user, all different.
func distinctStrings(b *tracetext.Builder, n int) {
	m, at := begin(b)
	for i := range n {
		m.Log(at, 0, "key", fmt.Sprintf("value of some length that nobody else has, number %d", i), "main.work:7")
		at += 10
	}
	m.Block(at, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// deepStacks: one goroutine waits at n/16 different places, each 128 calls deep.
func deepStacks(b *tracetext.Builder, n int) {
	m, at := begin(b)
	poller := b.ThreadWithoutP()
	for i := range n / 16 {
		stack := []string{"runtime.chanrecv1"}
		for k := range 127 {
			stack = append(stack, fmt.Sprintf("main.f%d:%d", k, i+1))
		}
		m.RegionBegin(at, 0, "order", append([]string{"runtime/trace.WithRegion"}, stack[1:]...)...)
		m.Block(at+10, "chan receive", stack...)
		poller.Unblock(at+50, main)
		m.Start(at+60, main)
		m.RegionEnd(at+70, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		at += 100
	}
}

// samples: n samples of the CPU in one run, each at a line of its own.
func samples(b *tracetext.Builder, n int) {
	m, at := begin(b)
	m.RegionBegin(at, 0, "order", "runtime/trace.WithRegion", "main.work:7")
	for i := range n {
		at += 100
		b.Sample(at, m, main, fmt.Sprintf("main.sum:%d", i+1), "main.work:7")
	}
	m.RegionEnd(at+10, 0, "order", "runtime/trace.WithRegion", "main.work:7")
	m.Block(at+20, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// collections: n garbage collections, each with two stops of the world, while one request runs after the other.
func collections(b *tracetext.Builder, n int) {
	m, at := begin(b)
	gc := b.Thread(2)
	for range n {
		m.RegionBegin(at, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		gc.StopWorld(at+10, "GC sweep termination", "runtime.gcStart")
		gc.GCBegin(at+20, "runtime.gcStart")
		gc.StartWorld(at + 30)
		gc.StopWorld(at+40, "GC mark termination", "runtime.gcMarkTermination")
		gc.GCEnd(at + 50)
		gc.StartWorld(at + 60)
		m.RegionEnd(at+70, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		at += 100
	}
}

// procs: n/8 Ps, each of which runs one goroutine after the other.
func procs(b *tracetext.Builder, n int) {
	var threads []*tracetext.Thread
	for range n / 8 {
		threads = append(threads, b.Thread())
	}
	threads[0].HasRun(main)
	at := int64(1000)
	for round := range 4 {
		for i := range threads {
			threads[0].Create(at, uint64(first+round*len(threads)+i), "main.work", "main.start:10")
			at += 10
		}
		for i, th := range threads[1:] {
			th.Start(at+10*int64(i), uint64(first+round*len(threads)+i))
			th.Destroy(at + 10*int64(i+len(threads)))
		}
		at += 20 * int64(len(threads))
	}
}

// generations: n/4 of them, each with next to nothing in it.
func generations(b *tracetext.Builder, n int) {
	m, at := begin(b)
	for range n / 4 {
		region(m, at, 60, "order")
		at += 1000
		b.NextGeneration(at)
	}
}

// waiting: n goroutines that wait from before the trace until after it, over four generations, beside a few requests.
func waiting(b *tracetext.Builder, n int) {
	m := b.Thread(main)
	for i := range n {
		b.Waiting(uint64(first + i))
	}
	at := int64(1000)
	for range 4 {
		for range 100 {
			region(m, at, 60, "order")
			at += 100
		}
		b.NextGeneration(at)
	}
}

// herd: n requests sleep until the same instant, are all ready at once, and run one after the other.
func herd(b *tracetext.Builder, n int) {
	m, at := begin(b)
	poller := b.ThreadWithoutP()
	for i := range n {
		m.Create(at, uint64(first+i), "main.work", "main.start:10")
		at += 10
	}
	m.Block(at, "chan receive", "runtime.chanrecv1", "main.start:13")
	for i := range n {
		m.Start(at+10, uint64(first+i))
		m.RegionBegin(at+20, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		m.Block(at+30, "sleep", "time.Sleep", "main.work:9")
		at += 100
	}
	for i := range n {
		poller.Unblock(at+int64(i), uint64(first+i))
	}
	at += int64(n)
	for i := range n {
		m.Start(at+20, uint64(first+i))
		m.RegionEnd(at+30, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		m.Destroy(at + 40)
		at += 100
	}
}

// TestManyAreRead: each of the traces is valid, and explained without a warning that something of it is missing.
func TestManyAreRead(t *testing.T) {
	for _, s := range many {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(build(t, s.make, 160)), explain.Options{}))(t)
			if rep.Input.Truncated {
				t.Error("the trace is cut or damaged")
			}
		})
	}
}
