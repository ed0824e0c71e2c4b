package queues

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestHolderLines: the holder works in a call of the function that acquired the lock, in nested calls and on other
// goroutines. If the waiter and the holder are at the same line of it, or if the holder is not the goroutine that ended the
// wait, the line is unknown. The holder of a lock may have acquired it in another function: that is where it unlocks.
func TestHolderLines(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(fns ...any) tracefmt.StackID { // functions, each with its line
		var text []tracefmt.FrameText
		for i := 0; i < len(fns); i += 2 {
			text = append(text, tracefmt.FrameText{Func: fns[i].(string), File: "/s/s.go", Line: uint32(fns[i+1].(int))})
		}
		return symbols.AddStack(text...)
	}
	waiter := stack("runtime.selectgo", 351, "shop.org/s.acquire", 54, "shop.org/s.post", 74, "shop.org/s.serve", 9)
	reader := stack("sync.(*RWMutex).RLock", 71, "shop.org/s.acquire", 54, "shop.org/s.get", 4, "shop.org/s.list", 9)
	callStack := stack("runtime.selectgo", 351, "net/http.(*persistConn).roundTrip", 2900, "shop.org/s.check", 112, "shop.org/s.post", 81, "shop.org/s.serve", 9)
	otherStack := stack("runtime.selectgo", 351, "net/http.(*persistConn).roundTrip", 2900, "shop.org/s.check", 112, "shop.org/s.get", 5, "shop.org/s.serve", 9)
	unlocking := stack("sync.(*RWMutex).Unlock", 211, "shop.org/s.post", 90, "shop.org/s.serve", 9)
	unlockingAbove := stack("sync.(*RWMutex).Unlock", 211, "shop.org/s.put", 3, "shop.org/s.post", 90, "shop.org/s.serve", 9)
	readLoopStack := stack("net.(*conn).Read", 1, "net/http.(*persistConn).readLoop", 2330)
	cause.NewCallerFinder(symbols, modules.New(modules.Options{})).ExamineStacks()
	syms := symbols.Snapshot()
	for _, c := range []struct {
		name              string
		waiter, unlocking tracefmt.StackID
		holder            tracefmt.StackID
		waker             uint64
		want              int
	}{
		{"a call below", waiter, 0, callStack, 8, 81}, {"another function", waiter, 0, otherStack, 8, 0}, {"another goroutine's end", waiter, 0, callStack, 6, 0},
		{"a writer among readers", reader, unlocking, callStack, 8, 81}, {"a writer that unlocks elsewhere", reader, unlockingAbove, callStack, 8, 0},
		{"another waiter", waiter, unlocking, waiter, 8, 0},
	} {
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		waits := []critpath.FollowedWait{{Kind: critpath.WaitLock, Stack: c.waiter, WakerStack: c.unlocking, Parent: -1, G: 7, Waker: c.waker}, {Kind: critpath.WaitSelect, Stack: c.holder, Parent: 0, G: 8, Waker: 9}}
		p.addHolderLines(&path.WalkResult{Req: &request.Request{G: 7, End: 50}, Weight: 1, Steps: []critpath.Step{{Kind: critpath.Network, G: 9, Stack: readLoopStack, Start: 0, End: 10, FollowedWait: 1}}}, waits)
		got := sum.HolderLines(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})})
		line := 0
		for _, u := range got {
			if u.WaitSite.Func == "shop.org/s.acquire" && u.HolderSite.Func == "net/http.(*persistConn).readLoop" && u.Line.Func == "shop.org/s.post" && u.Work.Func == "shop.org/s.check" && u.Work.Line == 112 {
				line = u.Line.Line
			}
		}
		check.True(t, line == c.want, "%s: line %d, want %d: %+v", c.name, line, c.want, got)
	}
}

// TestLockQueues: a goroutine that has queued for a lock does not work at that line, although others wait until it unlocks. One that waits
// for another lock does.
func TestLockQueues(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	frame := func(fn string, line uint32) tracefmt.FrameID {
		stack := symbols.AddStack(tracefmt.FrameText{Func: "main." + fn, File: "/s/s.go", Line: line})
		syms := symbols.Snapshot()
		return syms.Stack(stack)[0]
	}
	show, post, write, send := frame("show", 10), frame("post", 5), frame("write", 52), frame("post", 9)
	sum := New()
	sum.workers = []*workerSum{{holderLines: map[holderLineKey]int64{
		{show, write, holderPosition{post, post}}: 60, {show, write, holderPosition{send, send}}: 20, {post, write, holderPosition{send, send}}: 30,
	}}}
	lines := func() (lines []int) {
		syms := symbols.Snapshot()
		for _, l := range sum.HolderLines(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})}) {
			lines = append(lines, l.Line.Line)
		}
		return lines
	}
	check.True(t, slices.Equal(lines(), []int{9, 9}), "the same lock: %v", lines())
	delete(sum.workers[0].holderLines, holderLineKey{show, write, holderPosition{send, send}})
	check.True(t, slices.Equal(lines(), []int{9, 5}), "another lock: %v", lines())
}
