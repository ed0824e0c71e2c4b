package worstcase

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// volumeShapes are traces with a large number of one kind of event. Some of them have no request.
var volumeShapes = []shape{
	{"connections", connections},
	{"open-at-once", openAtOnce},
	{"relay", relay},
	{"pingpong", pingpong},
	{"batch", batch},
	{"clients", clients},
	{"awaited", awaited},
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
	{"started", started},
	{"pipeline", pipeline},
	{"timers", timers},
}

const (
	serveFrame   = "net/http.(*conn).serve:2074"
	handlerFrame = "example.com/shop.(*server).order:12"
)

// connections: n connections, one after the other, with one request each.
func connections(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	poller := b.ThreadWithoutP()
	for i := range n {
		id := uint64(firstG + 2*i)
		m.Create(clock, id, "net/http.(*conn).serve", "net/http.(*Server).Serve:30")
		m.Block(clock+10, "network", "internal/poll.(*FD).Accept", "net/http.(*Server).Serve:20")
		m.Start(clock+20, id)
		m.Create(clock+30, id+1, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serveFrame)
		m.Block(clock+40, "sleep", "time.Sleep", handlerFrame, "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serveFrame)
		m.Start(clock+50, id+1)
		m.Destroy(clock + 60)
		poller.Unblock(clock+500, id)
		m.Start(clock+510, id)
		m.Destroy(clock + 520)
		poller.Unblock(clock+530, mainG)
		m.Start(clock+540, mainG)
		clock += 1000
	}
}

// startRegions starts n goroutines, each of which begins a region and waits in it.
func startRegions(b *tracetext.Builder, n int, reason string, stack ...string) (m, poller *tracetext.Thread, clock int64) {
	m, clock = startMain(b)
	poller = b.ThreadWithoutP()
	for i := range n {
		m.Create(clock, uint64(firstG+i), "main.work", "main.start:10")
		clock += 10
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
	for i := range n {
		m.Start(clock+10, uint64(firstG+i))
		m.RegionBegin(clock+20, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		m.Block(clock+30, reason, stack...)
		clock += 100
	}
	return m, poller, clock
}

// openAtOnce: n regions that begin in the first of ten generations and end in the last.
func openAtOnce(b *tracetext.Builder, n int) {
	m, poller, clock := startRegions(b, n, "select", "runtime.selectgo", "main.work:9")
	for range 9 {
		clock += 1000
		b.NextGeneration(clock)
	}
	for i := range n {
		poller.Unblock(clock+10, uint64(firstG+i))
		m.Start(clock+20, uint64(firstG+i))
		m.RegionEnd(clock+30, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		m.Destroy(clock + 40)
		clock += 100
	}
}

// relay: each of n requests starts the next and waits for it. The last one ends first, and then all
// others in turn.
func relay(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	m.Create(clock, firstG, "main.work", "main.start:10")
	m.Block(clock+10, "chan receive", "runtime.chanrecv1", "main.start:13")
	for i := range n {
		clock += 100
		m.Start(clock, uint64(firstG+i))
		m.RegionBegin(clock+10, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		if i+1 < n {
			m.Create(clock+20, uint64(firstG+i+1), "main.work", "main.work:8")
			m.Block(clock+30, "chan receive", "runtime.chanrecv1", "main.work:9")
		}
	}
	for i := n - 1; i >= 0; i-- {
		m.RegionEnd(clock+40, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		if i > 0 {
			m.Unblock(clock+50, uint64(firstG+i-1), "runtime.closechan", "main.work:11")
		}
		m.Destroy(clock + 60)
		clock += 100
		if i > 0 {
			m.Start(clock, uint64(firstG+i-1))
		}
	}
}

// pingpong: a request waits n times for the same goroutine, which waits for it.
func pingpong(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	m.RegionBegin(clock, 0, "order", "runtime/trace.WithRegion", "main.work:7")
	clock = exchange(b, m, mainG, clock+10, n)
	m.RegionEnd(clock, 0, "order", "runtime/trace.WithRegion", "main.work:7")
	m.Block(clock+10, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// batch: the main goroutine of a program without requests waits n times for the same goroutine, which waits for it.
func batch(b *tracetext.Builder, n int) {
	m := b.Thread()
	m.HasRun(1)
	exchange(b, m, 1, 1000, n)
}

// awaited: the main goroutine of a program without requests is in one wait for the whole trace, for a goroutine that waits n times
// for another one, which waits for it. The trace has four generations.
func awaited(b *tracetext.Builder, n int) {
	m := b.Thread()
	m.HasRun(1)
	m.Create(900, mainG, "main.work", "main.main:10")
	m.Block(910, "sync", "sync.runtime_SemacquireWaitGroup", "sync.(*WaitGroup).Wait", "main.main:11")
	m.Start(920, mainG)
	otherThread, clock := startOther(b, m, 1000)
	for i := range n {
		if clock = exchangeOnce(m, otherThread, mainG, clock); i%(n/4) == n/4-1 {
			b.NextGeneration(clock)
		}
	}
}

// exchange lets goroutine id, which runs on m, and another one wait for each other n times, and returns the time after that.
func exchange(b *tracetext.Builder, m *tracetext.Thread, id uint64, clock int64, n int) int64 {
	otherThread, clock := startOther(b, m, clock)
	for range n {
		clock = exchangeOnce(m, otherThread, id, clock)
	}
	return clock
}

// startOther starts a goroutine that waits, and returns its thread and the time after that.
func startOther(b *tracetext.Builder, m *tracetext.Thread, clock int64) (otherThread *tracetext.Thread, after int64) {
	otherThread = b.Thread()
	m.Create(clock, firstG, "main.other", "main.start:10")
	otherThread.Start(clock+10, firstG)
	otherThread.Block(clock+20, "chan receive", "runtime.chanrecv1", "main.other:20")
	return otherThread, clock + 100
}

// exchangeOnce lets goroutine id wake the other one and wait for it, and returns the time after that.
func exchangeOnce(m, otherThread *tracetext.Thread, id uint64, clock int64) int64 {
	m.Unblock(clock, firstG, "runtime.chansend1", "main.work:8")
	m.Block(clock+10, "chan receive", "runtime.chanrecv1", "main.work:9")
	otherThread.Start(clock+20, firstG)
	otherThread.Unblock(clock+30, id, "runtime.chansend1", "main.other:21")
	otherThread.Block(clock+40, "chan receive", "runtime.chanrecv1", "main.other:20")
	m.Start(clock+50, id)
	return clock + 100
}

// clients is batch, and another goroutine of the program reads n messages from the network.
func clients(b *tracetext.Builder, n int) {
	const reader = firstG + 1
	thread, poller := b.Thread(), b.ThreadWithoutP()
	batch(b, n)
	thread.HasRun(reader)
	for i := range int64(n) {
		thread.Block(1000+100*i, "network", "internal/poll.(*FD).Read", "main.read:30")
		poller.Unblock(1050+100*i, reader)
		thread.Start(1060+100*i, reader)
	}
}

// nestedRegions: n regions, each inside the previous one.
func nestedRegions(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for range n {
		m.RegionBegin(clock, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		clock += 10
	}
	for range n {
		m.RegionEnd(clock, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		clock += 10
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// nestedTasks: n tasks, each a subtask of the previous one.
func nestedTasks(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for i := range n {
		m.TaskBegin(clock, uint64(i+1), uint64(i), "order", "main.begin:7")
		clock += 10
	}
	for i := n; i > 0; i-- {
		m.TaskEnd(clock, uint64(i), "main.end:9")
		clock += 10
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// openTasks: n tasks that never end, over some generations.
func openTasks(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for i := range n {
		m.TaskBegin(clock, uint64(i+1), 0, "order", "main.begin:7")
		clock += 10
		if i%(n/4) == n/4-1 {
			b.NextGeneration(clock)
		}
	}
}

// manyGroups: n regions, each with another name.
func manyGroups(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for i := range n {
		name := fmt.Sprintf("order-%d", i)
		region(m, clock, 60, name)
		clock += 100
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// logs: n log events in one run.
func logs(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for range n {
		m.Log(clock, 0, "step", "done", "main.work:7")
		clock += 10
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// marks: n nested requests of service/mark.
func marks(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for i := range n {
		m.Log(clock, 0, fmt.Sprintf("whylate.mark/1 begin http GET /%d", i%100), "", "service/mark.begin", "main.work")
		clock += 10
	}
	for i := n - 1; i >= 0; i-- {
		m.Log(clock, 0, fmt.Sprintf("whylate.mark/1 end http 2xx GET /%d", i%100), "", "service/mark.begin", "main.work")
		clock += 10
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// distinctStrings: n log events with distinct texts.
func distinctStrings(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for i := range n {
		m.Log(clock, 0, "key", fmt.Sprintf("distinct value of some length, with its number %d", i), "main.work:7")
		clock += 10
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// deepStacks: one goroutine waits at n/16 different sites, each 128 calls deep.
func deepStacks(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	poller := b.ThreadWithoutP()
	for i := range n / 16 {
		stack := []string{"runtime.chanrecv1"}
		for k := range 127 {
			stack = append(stack, fmt.Sprintf("main.f%d:%d", k, i+1))
		}
		m.RegionBegin(clock, 0, "order", append([]string{"runtime/trace.WithRegion"}, stack[1:]...)...)
		m.Block(clock+10, "chan receive", stack...)
		poller.Unblock(clock+50, mainG)
		m.Start(clock+60, mainG)
		m.RegionEnd(clock+70, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		clock += 100
	}
}

// samples: n CPU samples in one run, each at another line.
func samples(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	m.RegionBegin(clock, 0, "order", "runtime/trace.WithRegion", "main.work:7")
	for i := range n {
		clock += 100
		b.Sample(clock, m, mainG, fmt.Sprintf("main.sum:%d", i+1), "main.work:7")
	}
	m.RegionEnd(clock+10, 0, "order", "runtime/trace.WithRegion", "main.work:7")
	m.Block(clock+20, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// collections: n garbage collections, each with two stops of the world, while requests run one after
// the other.
func collections(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	gc := b.Thread(2)
	for range n {
		m.RegionBegin(clock, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		gc.StopWorld(clock+10, "GC sweep termination", "runtime.gcStart")
		gc.GCBegin(clock+20, "runtime.gcStart")
		gc.StartWorld(clock + 30)
		gc.StopWorld(clock+40, "GC mark termination", "runtime.gcMarkTermination")
		gc.GCEnd(clock + 50)
		gc.StartWorld(clock + 60)
		m.RegionEnd(clock+70, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		clock += 100
	}
}

// procs: n/8 Ps, each of which runs one goroutine after the other.
func procs(b *tracetext.Builder, n int) {
	var threads []*tracetext.Thread
	for range n / 8 {
		threads = append(threads, b.Thread())
	}
	threads[0].HasRun(mainG)
	clock := int64(1000)
	for round := range 4 {
		for i := range threads {
			threads[0].Create(clock, uint64(firstG+round*len(threads)+i), "main.work", "main.start:10")
			clock += 10
		}
		for i, th := range threads[1:] {
			th.Start(clock+10*int64(i), uint64(firstG+round*len(threads)+i))
			th.Destroy(clock + 10*int64(i+len(threads)))
		}
		clock += 20 * int64(len(threads))
	}
}

// generations: n/4 generations, each with one region.
func generations(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for range n / 4 {
		region(m, clock, 60, "order")
		clock += 1000
		b.NextGeneration(clock)
	}
}

// waiting: n goroutines that wait from before the trace to its end, over four generations, and some
// requests.
func waiting(b *tracetext.Builder, n int) {
	m := b.Thread(mainG)
	for i := range n {
		b.Waiting(uint64(firstG + i))
	}
	clock := int64(1000)
	for range 4 {
		for range 100 {
			region(m, clock, 60, "order")
			clock += 100
		}
		b.NextGeneration(clock)
	}
}

// herd: n requests sleep until the same time, become runnable at once, and run one after the other.
func herd(b *tracetext.Builder, n int) {
	m, poller, clock := startRegions(b, n, "sleep", "time.Sleep", "main.work:9")
	for i := range n {
		poller.Unblock(clock+int64(i), uint64(firstG+i))
	}
	clock += int64(n)
	for i := range n {
		m.Start(clock+20, uint64(firstG+i))
		m.RegionEnd(clock+30, 0, "order", "runtime/trace.WithRegion", "main.work:7")
		m.Destroy(clock + 40)
		clock += 100
	}
}

// started: n goroutines, one after the other, that each wait for a lock once and end.
func started(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for i := range n {
		id := uint64(firstG + i)
		m.Create(clock, id, "main.work", "main.start:10")
		m.Block(clock+10, "chan send", "runtime.chansend1", "main.start:11")
		m.Start(clock+20, id)
		m.Unblock(clock+30, mainG, "runtime.chanrecv1", "main.work:5")
		m.Block(clock+40, "sync", "sync.(*Mutex).Lock", "main.work:6")
		m.Start(clock+50, mainG)
		m.Unblock(clock+60, id, "sync.(*Mutex).Unlock", "main.start:12")
		m.Block(clock+70, "sync", "sync.(*WaitGroup).Wait", "main.start:13")
		m.Start(clock+80, id)
		m.Unblock(clock+90, mainG, "sync.(*WaitGroup).Done", "main.work:7")
		m.Destroy(clock + 100)
		m.Start(clock+110, mainG)
		clock += 200
	}
}

// pipeline: n messages go through six goroutines.
func pipeline(b *tracetext.Builder, n int) {
	const stages = 6
	m, clock := startMain(b)
	poller := b.ThreadWithoutP()
	for i := range uint64(stages) {
		m.Create(clock+int64(i), firstG+i, "main.stage", "main.start:10")
	}
	m.Block(clock+10, "chan receive", "runtime.chanrecv1", "main.start:13")
	for i := range uint64(stages) {
		clock += 20
		m.Start(clock, firstG+i)
		m.Block(clock+10, "chan receive", "runtime.chanrecv2", "main.stage:20")
	}
	for range n {
		clock += 20
		poller.Unblock(clock, firstG)
		for i := range uint64(stages) {
			clock += 40
			m.Start(clock, firstG+i)
			if i+1 < stages {
				m.Unblock(clock+10, firstG+i+1, "runtime.chansend1", "main.stage:21")
			}
			m.Block(clock+20, "chan receive", "runtime.chanrecv2", "main.stage:20")
		}
	}
}

// timers: a hundred goroutines wait for timers, n times together.
func timers(b *tracetext.Builder, n int) {
	const goroutines = 100
	m, clock := startMain(b)
	poller := b.ThreadWithoutP()
	for i := range uint64(goroutines) {
		m.Create(clock+int64(i), firstG+i, "main.tick", "main.start:10")
	}
	m.Block(clock+goroutines, "chan receive", "runtime.chanrecv1", "main.start:13")
	clock += goroutines
	for i := range n + goroutines {
		clock += 40
		id := uint64(firstG + i%goroutines)
		if i >= goroutines {
			poller.Unblock(clock, id)
		}
		m.Start(clock+10, id)
		m.Block(clock+20, "select", "runtime.selectgo", "main.tick:20")
	}
}

// TestVolumeShapesAreRead: each trace is valid, and its report is not marked as truncated.
func TestVolumeShapesAreRead(t *testing.T) {
	for _, s := range volumeShapes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(build(t, s.make, 160)), explain.Options{}))(t)
			check.False(t, rep.Input.Truncated, "the trace is cut or damaged")
		})
	}
}

// TestAwaitedRun: a program whose main goroutine waits for the others during the whole trace is explained as one run, however long
// the trace is. Twice as much costs at most maxGrowth times the work, and no part of the run is emitted.
func TestAwaitedRun(t *testing.T) {
	const n = 20_000
	var works [2]int64
	var causes [2]string
	for i := range works {
		data := build(t, awaited, (i+1)*n)
		rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{}))(t)
		must.True(t, len(rep.Groups) == 1 && rep.Groups[0].Kind == report.KindRun, "there are %d groups, want one run", len(rep.Groups))
		first := rep.Groups[0].All().Causes[0]
		causes[i] = fmt.Sprint(first.Cause, " ", first.Site)
		var requests int
		requests, works[i] = countWork(t, data)
		check.Equal(t, requests, 0, "requests next to the run")
	}
	check.Equal(t, causes[1], causes[0], "the first cause of twice as much")
	check.True(t, float64(works[1]) <= maxGrowth*float64(works[0]), "%d and %d exchanges take %d and %d units of work", n, 2*n, works[0], works[1])
}

// TestRunByWorkers: the report about the run of a batch program, whose pieces all workers walk, does not depend on their number.
// Iterations of its goroutines are estimated if there are many. If the network begins some of them, all are found.
func TestRunByWorkers(t *testing.T) {
	const n = 40_000
	data := build(t, batch, n)
	var want []byte
	for _, workers := range []int{1, 2, 3, 8} {
		rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Workers: workers}))(t)
		must.True(t, len(rep.Groups) == 1 && rep.Groups[0].Kind == report.KindRun, "the groups are %+v, want one run", rep.Groups)
		if parts := rep.Input.LeftOut; len(parts) == 0 || parts[0].Count == n || parts[0].Count < n*99/100 || parts[0].Count > n*101/100 {
			t.Errorf("the parts are %+v, want about %d iterations", parts, n)
		}
		if got := must.Have(json.Marshal(rep))(t); want == nil {
			want = got
		} else if !bytes.Equal(got, want) {
			t.Errorf("the report with %d workers differs from that with one", workers)
		}
	}
	rep := must.Have(explain.Explain(context.Background(), bytes.NewReader(build(t, clients, n)), explain.Options{}))(t)
	i := slices.IndexFunc(rep.Groups, func(g report.Group) bool { return g.Name == "main.read" })
	check.True(t, i >= 0 && rep.Groups[i].Count == n-1, "the groups are %+v, want %d iterations of main.read", rep.Groups, n-1)
}
