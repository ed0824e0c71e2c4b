// Package worstcase has traces with extreme shapes, and tests that the cost of explaining them grows
// linearly with their length: one goroutine that releases or creates all others, a million regions in
// one run, all requests waiting for one run.
package worstcase

import (
	"fmt"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// A shape is a worst case of any size.
type shape struct {
	name string
	make func(b *tracetext.Builder, n int)
}

// requestShapes are shapes with at least n requests.
var requestShapes = []shape{
	{"release", func(b *tracetext.Builder, n int) {
		release(b, n, func(int) string { return "main.open:12" })
	}},
	{"release-two-places", func(b *tracetext.Builder, n int) {
		release(b, n, func(i int) string { return fmt.Sprintf("main.open:%d", 12+i%2) })
	}},
	{"release-everywhere", func(b *tracetext.Builder, n int) {
		release(b, n, func(i int) string { return fmt.Sprintf("main.open:%d", 12+i) })
	}},
	{"create", create},
	{"regions", regions},
	{"tasks", tasks},
	{"syscalls", syscalls},
	{"one-place", onePlace},
}

// build returns the trace of a shape.
func build(t testing.TB, f func(*tracetext.Builder, int), n int) []byte {
	t.Helper()
	b := tracetext.New(26)
	f(b, n)
	return must.Have(b.Bytes())(t)
}

const (
	mainG  = 900  // not the main goroutine, whose run would be the only request
	firstG = 1000 // number of the first of n goroutines
)

// startMain adds a thread on which mainG has run since before the trace, and returns the time of the
// first event.
func startMain(b *tracetext.Builder) (m *tracetext.Thread, clock int64) {
	m = b.Thread()
	m.HasRun(mainG)
	return m, 1000
}

// region adds a region of the given length.
func region(m *tracetext.Thread, clock, length int64, name string) {
	m.RegionBegin(clock, 0, name, "runtime/trace.WithRegion", "main.work:7")
	m.RegionEnd(clock+length, 0, name, "runtime/trace.WithRegion", "main.work:7")
}

// finish lets each of n runnable goroutines run to its end, one after the other.
func finish(th *tracetext.Thread, n int, clock int64) {
	for i := range n {
		th.Start(clock, uint64(firstG+i))
		th.Destroy(clock + 50)
		clock += 100
	}
}

// release: n goroutines wait for a channel, and one run releases all of them, one after the other.
func release(b *tracetext.Builder, n int, place func(int) string) {
	m, clock := startMain(b)
	otherThread := b.Thread()
	for i := range n {
		m.Create(clock, uint64(firstG+i), "main.wait", "main.start:10")
		otherThread.Start(clock+10, uint64(firstG+i))
		otherThread.Block(clock+20, "chan receive", "runtime.chanrecv1", "main.wait:20")
		clock += 100
	}
	m.Block(clock, "sleep", "time.Sleep", "main.start:11")
	otherThread.Unblock(clock+1000, mainG)
	m.Start(clock+1100, mainG)
	clock += 2000
	for i := range n {
		m.Unblock(clock, uint64(firstG+i), "runtime.closechan", place(i))
		clock += 100
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
	finish(otherThread, n, clock+100)
}

// create: one run starts n goroutines, which wait until that run ends.
func create(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	otherThread := b.Thread()
	for i := range n {
		m.Create(clock, uint64(firstG+i), "main.work", "main.start:10")
		clock += 100
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
	finish(otherThread, n, clock+100)
}

// onePlace: n goroutines queue for one slot, and each hands it to the next: the last one waits for all
// others.
func onePlace(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	otherThread := b.Thread()
	for i := range n {
		m.Create(clock, uint64(firstG+i), "main.work", "main.start:10")
		otherThread.Start(clock+10, uint64(firstG+i))
		otherThread.Block(clock+20, "select", "runtime.selectgo", "main.(*pool).Acquire:20", "main.work:7")
		clock += 100
	}
	m.Unblock(clock, firstG, "main.(*pool).Release:30", "main.start:11")
	for i := range n {
		otherThread.Start(clock+10, uint64(firstG+i))
		if i+1 < n {
			otherThread.Unblock(clock+60, uint64(firstG+i+1), "main.(*pool).Release:30", "main.work:9")
		}
		otherThread.Destroy(clock + 70)
		clock += 100
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// regions: n regions in one run.
func regions(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for i := range n {
		name := fmt.Sprintf("region-%d", i%10)
		region(m, clock, 60, name)
		clock += 100
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// tasks: in one run n tasks begin one after the other, and then end one after the other.
func tasks(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	for i := range n {
		m.TaskBegin(clock, uint64(i+1), 0, "order", "main.begin:7")
		clock += 100
	}
	for i := range n {
		m.TaskEnd(clock, uint64(i+1), "main.end:9")
		clock += 100
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
}

// syscalls: n goroutines wait for one goroutine that makes a system call for each of them, in one run.
func syscalls(b *tracetext.Builder, n int) {
	m, clock := startMain(b)
	otherThread := b.Thread()
	for i := range n {
		m.Create(clock, uint64(firstG+i), "main.ask", "main.start:10")
		otherThread.Start(clock+10, uint64(firstG+i))
		otherThread.Block(clock+20, "sync", "sync.(*Mutex).Lock", "main.ask:20")
		clock += 100
	}
	for i := range n {
		m.Syscall(clock, "syscall.write", "main.log:30")
		m.SyscallEnd(clock + 60)
		m.Unblock(clock+70, uint64(firstG+i), "sync.(*Mutex).Unlock", "main.serve:31")
		clock += 100
	}
	m.Block(clock, "chan receive", "runtime.chanrecv1", "main.start:13")
	finish(otherThread, n, clock+100)
}
