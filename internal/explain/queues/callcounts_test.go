package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestCallCounts: three of twenty requests make six calls, through two copies of a closure, and the others one. If all make as many, or the
// calls are little of the time, they do not make the requests slow. A library that calls the closure for other requests is named. Calls of a
// lock's holder are not counted.
func TestCallCounts(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(closure, caller string) tracefmt.StackID {
		return symbols.AddStack(tracefmt.FrameText{Func: closure, File: "/s/plant.go", Line: 7}, tracefmt.FrameText{Func: caller, File: "/m/m.go", Line: 3})
	}
	const drain = "github.com/qmuntal/stateless.(*fireModeQueued).Fire"
	first, second, drained := stack("main.New.actuate.func1", "main.run"), stack("main.New.actuate.func2", "main.run"), stack("main.New.actuate.func2", drain)
	syms := symbols.Snapshot()
	for name, c := range map[string]struct {
		usualCalls, slowNS int64
		second             tracefmt.StackID
		uneven             bool
		drain              string
	}{
		"uneven":      {1, 60, second, true, ""},
		"drained":     {1, 60, drained, true, drain},
		"all as many": {3, 60, second, false, ""},
		"other time":  {1, 600, second, false, ""},
	} {
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		for i := range int64(20) {
			r := &request.Request{G: uint64(i), Start: 1000 * i, End: 1000*i + 10*c.usualCalls}
			p.callScratch = []requestCalls{{stack: first, peerCallSum: peerCallSum{PeerCalls: PeerCalls{Calls: c.usualCalls, AnswerNS: 9 * c.usualCalls}}}}
			if i%7 == 0 {
				r.End = r.Start + c.slowNS
				p.callScratch = []requestCalls{{stack: first, peerCallSum: peerCallSum{PeerCalls: PeerCalls{Calls: 2, AnswerNS: 18}}}, {stack: first, root: 1, peerCallSum: peerCallSum{PeerCalls: PeerCalls{Calls: 9}}}, {stack: c.second, peerCallSum: peerCallSum{PeerCalls: PeerCalls{Calls: 4, AnswerNS: 36}}}}
			}
			p.addCallCounts(&path.WalkResult{Req: r, Weight: 1}, []critpath.FollowedWait{{Kind: critpath.WaitSelect}, {Kind: critpath.WaitLock}})
		}
		sum.Merge([]path.Translation{{Groups: []path.GroupID{0}}})
		got := sum.CallCounts(&spell.Speller{Syms: &syms}, 0)
		check.True(t, len(got) == 1 && got[0].SlowCalls == 6 && got[0].UsualCalls == float64(c.usualCalls) && got[0].AreUneven() == c.uneven &&
			(got[0].Drain == nil && c.drain == "" || got[0].Drain != nil && got[0].Drain.Func == c.drain), "%s: %+v", name, got)
	}
}

// TestSlowCaller: the slow requests call a function from another place than the faster ones. If both call it there, that place explains nothing.
func TestSlowCaller(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(line uint32) tracefmt.StackID {
		return symbols.AddStack(tracefmt.FrameText{Func: "main.query", File: "/s/main.go", Line: 43}, tracefmt.FrameText{Func: "main.search", File: "/s/main.go", Line: line})
	}
	index, archive := stack(80), stack(84)
	syms := symbols.Snapshot()
	for name, c := range map[string]struct {
		usual tracefmt.StackID
		line  int
	}{"another place": {index, 84}, "the same place": {archive, 0}} {
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		for i := range int64(40) {
			call, latencyNS := c.usual, int64(50)
			if i%8 == 0 {
				call, latencyNS = archive, 350
			}
			p.callScratch = []requestCalls{{stack: call, root: -1, peerCallSum: peerCallSum{PeerCalls: PeerCalls{Calls: 1, AnswerNS: latencyNS}}}}
			p.addCallCounts(&path.WalkResult{Req: &request.Request{G: uint64(i), Start: 1000 * i, End: 1000*i + latencyNS}, Weight: 1}, nil)
		}
		sum.Merge([]path.Translation{{Groups: []path.GroupID{0}}})
		got := sum.CallCounts(&spell.Speller{Syms: &syms}, 0)
		check.True(t, len(got) == 1 && (got[0].SlowCaller == nil && c.line == 0 || got[0].SlowCaller != nil && got[0].SlowCaller.Line == c.line), "%s: %+v", name, got)
	}
}
