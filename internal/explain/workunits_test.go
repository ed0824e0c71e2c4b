package explain_test

import (
	"slices"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestSeveralUnitsInIteration: a worker that finds its next unit of work when it finishes one does not wait in between.
// If all units have the same waits, the waits separate them. They do not if a unit has a single wait, which may be a
// loop within it, or if a callee has the loop.
func TestSeveralUnitsInIteration(t *testing.T) {
	const consume = "example.com/events.(*queue).consume"
	collect := []string{"time.Sleep", "example.com/events.linger", consume + ":50"}
	write := []string{"time.Sleep", "example.com/events.write", consume + ":56"}
	inside := func(stack []string) []string {
		return slices.Insert(slices.Clone(stack), len(stack)-1, "example.com/events.all")
	}
	for _, tc := range []struct {
		name   string
		waits  [][]string
		border bool // a generation ends in the first wait of each of the last iterations
		want   int
	}{
		{"two waits in the function that takes pieces", [][]string{collect, write}, false, 10 + 3*4},
		{"two waits, one of them over a border", [][]string{collect, write}, true, 10 + 3*4},
		{"one wait", [][]string{write}, false, 10 + 4},
		{"a loop in another function", [][]string{inside(collect), inside(write)}, false, 10 + 4},
	} {
		builder := tracetext.New(26)
		th, helper := builder.Thread(), builder.Thread()
		builder.Waiting(3)
		builder.Waiting(4)
		next := []string{"runtime.chanrecv2", consume + ":43"}
		wait := func(start int64, stack []string, border bool) {
			th.Block(start, "sleep", stack...)
			if border {
				builder.NextGeneration(start + 4*us)
			}
			helper.Unblock(start+8*us, 4)
			th.Start(start+9*us, 4)
		}
		helper.Unblock(500*us, 4)
		th.Start(501*us, 4)
		th.Block(502*us, "chan receive", next...)
		start := int64(1 * ms)
		total := int64(0)
		for i := range 14 {
			helper.Unblock(start, 3)
			helper.Start(start+us, 3)
			helper.Unblock(start+2*us, 4, "runtime.chansend1", "example.com/events.(*queue).listen")
			helper.Block(start+3*us, "network", "internal/poll.(*FD).ReadFrom", "example.com/events.(*queue).listen")
			th.Start(start+4*us, 4)
			began, clock := start+2*us, start+5*us
			for range 1 + i/10*2 {
				for _, w := range tc.waits {
					wait(clock, w, tc.border && i >= 10 && clock == start+5*us)
					clock += 10 * us
				}
			}
			th.Block(clock, "chan receive", next...)
			total += clock - began
			start += 1 * ms
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		g := groupNamed(rep, consume)
		if g == nil || g.Count != tc.want || g.TotalNS != total {
			t.Errorf("%s: %q; want %d in %d ns", tc.name, groupTexts(rep), tc.want, total)
		} else if tc.want > 14 && *g.LatencyNS.Max > 25*us {
			t.Errorf("%s: the longest took %d ns", tc.name, *g.LatencyNS.Max)
		}
	}
}

// TestWakeWithoutWork: if a wake only makes a worker check its queue and wait again, it begins no iteration. The
// function that woke the worker proves it: its wakes never bring work.
func TestWakeWithoutWork(t *testing.T) {
	const (
		queue = "k8s.io/client-go/util/workqueue.(*Typed[...])"
		file  = "@/mod/k8s.io/client-go@v0.37.2/util/workqueue/queue.go:"
		work  = "example.com/operator.(*controller).work:90"
	)
	for _, all := range []bool{true, false} { // the wakes of one function bring work always, or half of the time
		builder := tracetext.New(26)
		th, helper := builder.Thread(), builder.Thread()
		next := []string{"sync.(*Cond).Wait", queue + ".Get" + file + "269", work}
		for g := uint64(3); g <= 5; g++ {
			builder.Waiting(g)
			helper.Unblock(int64(g)*100*us, g)
			th.Start(int64(g)*100*us+us, g)
			th.Block(int64(g)*100*us+2*us, "sync.(*Cond).Wait", next...)
		}
		clock := int64(1 * ms)
		const n = 40
		for i := range n {
			helper.Unblock(clock, 5)
			helper.Start(clock+us, 5)
			helper.Syscall(clock+us+100, "syscall.read", work)
			helper.SyscallEnd(clock + us + 200)
			helper.Unblock(clock+2*us, 3, "sync.(*Cond).Signal", queue+".Add"+file+"250", "example.com/operator.enqueue")
			helper.Block(clock+3*us, "sync.(*Cond).Wait", next...)
			th.Start(clock+4*us, 3)
			if !all && i%2 == 1 {
				th.Block(clock+5*us, "sync.(*Cond).Wait", next...)
			} else {
				th.Syscall(clock+10*us, "syscall.write", "example.com/operator.(*controller).reconcile", work)
				th.SyscallEnd(clock + 100*us)
				th.Unblock(clock+101*us, 4, "sync.(*Cond).Signal", queue+".Done"+file+"302", work)
				th.Block(clock+105*us, "sync.(*Cond).Wait", next...)
				th.Start(clock+110*us, 4)
				th.Block(clock+112*us, "sync", "sync.(*Mutex).Lock", "sync.(*Cond).Wait", queue+".Get"+file+"269", work)
				helper.Unblock(clock+113*us, 4)
				th.Start(clock+114*us, 4)
				if all && i == 8 { // one wake brought work
					th.Syscall(clock+114*us+100, "syscall.write", "example.com/operator.(*controller).reconcile", work)
					th.SyscallEnd(clock + 114*us + 200)
				}
				th.Block(clock+115*us, "sync.(*Cond).Wait", next...)
			}
			clock += 1 * ms
		}
		rep := explainBuilt(t, builder, whylate.Options{})
		// Iterations of 5, which adds work, of 3, and one of 4.
		g := groupNamed(rep, "example.com/operator.(*controller).work")
		want := 2 * n
		if all {
			want++
		}
		check.True(t, g != nil && g.Count == want, "all %v: %q; want %d", all, groupTexts(rep), want)
	}
}
