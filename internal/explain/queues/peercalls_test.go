package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestEndsWithoutRead: the goroutine that waited reads at once what has arrived. If it closes the connection instead, a
// deadline passed. A system call without a stack decides nothing.
func TestEndsWithoutRead(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(fn string) tracefmt.StackID {
		return symbols.AddStack(tracefmt.FrameText{Func: "syscall.syscall"}, tracefmt.FrameText{Func: fn}, tracefmt.FrameText{Func: "main.ask"})
	}
	read, closed, file := stack("net.(*netFD).Read"), stack("net.(*netFD).Close"), stack("os.(*File).Write")
	syms := symbols.Snapshot()
	p := &workerSum{stage: path.New(&timeline.Window{}, &syms, path.Options{})}
	call := func(g uint64, stack tracefmt.StackID) critpath.Step {
		return critpath.Step{Kind: critpath.Syscall, G: g, Stack: stack}
	}
	wait, run := critpath.Step{Kind: critpath.Network, G: 7}, critpath.Step{Kind: critpath.CPU, G: 7}
	for name, c := range map[string]struct {
		steps []critpath.Step
		want  bool
	}{
		"read":                   {[]critpath.Step{wait, run, call(7, read), call(7, closed)}, false},
		"closed":                 {[]critpath.Step{wait, run, call(7, closed)}, true},
		"another goroutine":      {[]critpath.Step{wait, run, call(8, closed)}, false},
		"another goroutine read": {[]critpath.Step{wait, call(8, read), run, call(7, closed)}, true},
		"no stack":               {[]critpath.Step{wait, run, call(7, 0), call(7, closed)}, false},
		"a file":                 {[]critpath.Step{wait, run, call(7, file), call(7, closed)}, false},
		"next wait":              {[]critpath.Step{wait, run, wait, run, call(7, closed)}, false},
	} {
		if got := endsWithoutRead(p, c.steps); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestConnOpens: at a line where requests wait for answers, stacks of libraries that open connections count as such, whatever
// the other stacks are.
func TestConnOpens(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(fns ...string) tracefmt.StackID {
		text := []tracefmt.FrameText{{Func: "net.(*conn).Read"}, {Func: "dep.org/db.read", File: "dep.org/db@v1.0.0/db.go", Line: 7}}
		for _, fn := range fns {
			text = append(text, tracefmt.FrameText{Func: fn, File: "dep.org/db@v1.0.0/db.go", Line: 9})
		}
		return symbols.AddStack(append(text, tracefmt.FrameText{Func: "shop.org/s.load", File: "/s/load.go", Line: 3})...)
	}
	query, opens := stack("dep.org/db.(*Conn).Query"), stack("dep.org/db.(*Connector).Connect", "database/sql.(*DB).conn")
	cause.NewPlacer(symbols, modules.New(modules.Options{})).Place()
	syms := symbols.Snapshot()
	sum := New()
	p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
	for range 3 {
		p.addPeerCalls(&path.WalkResult{Req: &request.Request{G: 7, End: 50}, Weight: 2, Steps: []critpath.Step{
			{Kind: critpath.Network, G: 7, Stack: query, Start: 0, End: 10, FollowedWait: -1},
			{Kind: critpath.Network, G: 7, Stack: opens, Start: 10, End: 16, FollowedWait: -1},
			{Kind: critpath.Network, G: 7, Stack: query, Start: 16, End: 20, FollowedWait: -1},
		}}, nil)
	}
	sp := &spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})}
	got := sum.PeerCalls(sp, 0)
	if len(got) != 1 || got[0].TotalNS != 120 || got[0].ConnOpenNS != 36 || got[0].ConnOpenRequests != 6 ||
		got[0].ConnOpenFunc != "database/sql.(*DB).conn" {
		t.Errorf("three requests of weight 2 that open a connection for 6 of 20 ns: %+v", got)
	}
}
