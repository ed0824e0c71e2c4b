package queues

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// addStack adds a stack of functions, innermost first.
func addStack(symbols *tracefmt.Symbols, fns ...string) tracefmt.StackID {
	var frames []tracefmt.FrameText
	for _, fn := range fns {
		frames = append(frames, tracefmt.FrameText{Func: fn})
	}
	return symbols.AddStack(frames...)
}

// TestUnanswered: after a wait, the goroutine repeats the call that had to wait, whichever function of package internal/poll that is
// and from every caller. Only after a deadline it does something else. A system call without a stack decides nothing.
func TestUnanswered(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(fns ...string) tracefmt.StackID { return addStack(symbols, append(fns, "main.ask")...) }
	stacks := map[string]tracefmt.StackID{
		"":              0,
		"read":          stack("syscall.read", "internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read"),
		"close":         stack("syscall.Close", "internal/poll.(*FD).Close", "net.(*netFD).Close", "net.(*conn).Close"),
		"file":          stack("syscall.write", "internal/poll.(*FD).Write", "os.(*File).Write"),
		"write":         stack("syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write"),
		"elsewhere":     stack("syscall.read", "internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read", "main.next"),
		"read wait":     stack("internal/poll.runtime_pollWait", "internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read"),
		"write wait":    stack("internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write"),
		"raw wait":      stack("internal/poll.(*FD).RawRead", "net.(*rawConn).Read", "dep.org/x/reader.(*reader).ReadOnReady"),
		"raw":           stack("syscall.read", "dep.org/x/reader.sysRead", "internal/poll.(*FD).RawRead", "net.(*rawConn).Read", "dep.org/x/reader.(*reader).ReadOnReady"),
		"connect wait":  stack("internal/poll.(*FD).WaitWrite", "net.(*netFD).connect", "net.(*netFD).dial"),
		"connect":       stack("syscall.getsockopt", "net.(*netFD).connect", "net.(*netFD).dial"),
		"connect close": stack("syscall.Close", "internal/poll.(*FD).Close", "net.(*netFD).Close", "net.(*netFD).dial"),
		"send":          stack("syscall.sendfile", "internal/poll.SendFile", "net.sendFile", "net.(*TCPConn).readFrom"),
		"send wait":     stack("internal/poll.SendFile", "net.sendFile", "net.(*TCPConn).readFrom"),
	}
	syms := symbols.Snapshot()
	p := &workerSum{stage: path.New(&timeline.Window{}, &syms, path.Options{})}
	const other = "another goroutine: "
	for name, c := range map[string]struct {
		wait  string
		calls []string
		want  bool
	}{
		"read":                   {"read wait", []string{"read", "close"}, false},
		"closed":                 {"read wait", []string{"close"}, true},
		"written":                {"read wait", []string{"write", "read"}, true},
		"read by another line":   {"read wait", []string{"elsewhere"}, true},
		"another goroutine":      {"read wait", []string{other + "close"}, false},
		"another goroutine read": {"read wait", []string{other + "read", "close"}, true},
		"no stack":               {"read wait", []string{"", "close"}, false},
		"a file":                 {"read wait", []string{"file", "close"}, false},
		"next wait":              {"read wait", []string{"read wait", "close"}, false},
		"sent again":             {"read wait", []string{"write", "read wait", "read"}, true},
		"raw":                    {"raw wait", []string{"raw"}, false},
		"raw, closed":            {"raw wait", []string{"close"}, true},
		"write":                  {"write wait", []string{"write"}, false},
		"write, closed":          {"write wait", []string{"close"}, true},
		"sent":                   {"send wait", []string{"send"}, false},
		"connected":              {"connect wait", []string{"connect"}, false},
		"not connected":          {"connect wait", []string{"connect close"}, true},
	} {
		steps := []critpath.Step{{Kind: critpath.Network, G: 7, Stack: stacks[c.wait]}, {Kind: critpath.CPU, G: 7}}
		for _, call := range c.calls {
			call, isOther := strings.CutPrefix(call, other)
			step := critpath.Step{Kind: critpath.Syscall, G: 7, Stack: stacks[call]}
			if isOther {
				step.G = 8
			}
			if strings.HasSuffix(call, "wait") {
				step.Kind = critpath.Network
			}
			steps = append(steps, step)
		}
		got, resent := isUnanswered(p, steps)
		check.Equal(t, got, c.want, "%s", name)
		check.Equal(t, resent == 1, name == "sent again", "%s: sent again", name)
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
	cause.NewCallerFinder(symbols, modules.New(modules.Options{})).ExamineStacks()
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

// TestEarlyCloses: a request that opens a connection, and waits in Close for the end of the reader's goroutine, has closed a body before its end.
func TestEarlyCloses(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	opens := addStack(symbols, "net.(*conn).Read", "main.look")
	asks := addStack(symbols, "net/http.(*persistConn).roundTrip", "main.look")
	closes := addStack(symbols, "runtime.chanrecv1", "net/http.(*persistConn).readLoop.func2", "net/http.(*bodyEOFSignal).Close", "main.look")
	symbols.SetOpensConnection(opens)
	syms := symbols.Snapshot()
	for _, c := range []struct {
		opening, wait tracefmt.StackID
		earlyCloses   int64
	}{{opens, closes, 2}, {opens, asks, 0}, {asks, closes, 0}} {
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		p.addPeerCalls(&path.WalkResult{Req: &request.Request{G: 7, End: 50}, Weight: 2, Steps: []critpath.Step{
			{Kind: critpath.Network, G: 7, Stack: c.opening, Start: 0, End: 10, FollowedWait: -1}, {Kind: critpath.Network, G: 7, Stack: asks, Start: 10, End: 20, FollowedWait: -1},
		}}, []critpath.FollowedWait{{G: 7, Stack: c.wait, Start: 20, End: 21, Parent: -1}})
		got := sum.PeerCalls(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})}, 0)
		earlyCloses := int64(0)
		for i := range got {
			earlyCloses += got[i].EarlyCloses
			check.Equal(t, got[i].CloseSite != nil, got[i].EarlyCloses > 0, "%+v: %+v", c, got[i])
		}
		check.Equal(t, earlyCloses, c.earlyCloses, "%+v", c)
	}
}

// TestCallsOfAnotherGoroutine: a goroutine for which a request waits asks a peer again after each answer, or reads an answer in
// parts. The goroutine of a library may do work of several requests.
func TestCallsOfAnotherGoroutine(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	library := tracefmt.FrameText{Func: "dep.org/db.call", File: "dep.org/db@v1.0.0/db.go", Line: 7}
	member := tracefmt.FrameText{Func: "shop.org/s.member", File: "/s/member.go", Line: 3}
	reads, readsAlone := symbols.AddStack(tracefmt.FrameText{Func: "net.(*conn).Read"}, library, member), symbols.AddStack(tracefmt.FrameText{Func: "net.(*conn).Read"}, library)
	writes, sends := addStack(symbols, "syscall.write", "net.(*netFD).Write", "net.(*conn).Write", "dep.org/db.call"), addStack(symbols, "runtime.chansend1", "main.publish")
	cause.NewCallerFinder(symbols, modules.New(modules.Options{})).ExamineStacks()
	syms := symbols.Snapshot()
	const hub = 9
	for _, c := range []struct {
		reads                tracefmt.StackID
		writes, calls, parts int64
	}{{reads, 3, 3, 0}, {reads, 1, 1, 2}, {readsAlone, 3, 1, 2}} {
		var steps []critpath.Step
		for i := range int64(3) {
			if i < c.writes {
				steps = append(steps, critpath.Step{Kind: critpath.Syscall, G: hub, Stack: writes, Start: 20 * i, End: 20*i + 5, FollowedWait: 0})
			}
			steps = append(steps, critpath.Step{Kind: critpath.Network, G: hub, Stack: c.reads, Start: 20*i + 10, End: 20*i + 20, FollowedWait: 0})
		}
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		p.addPeerCalls(&path.WalkResult{Req: &request.Request{G: 7, End: 60}, Weight: 1, Steps: steps}, []critpath.FollowedWait{{G: 7, Stack: sends, Start: 0, End: 60, Waker: hub, Parent: -1}})
		got := sum.PeerCalls(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})}, 0)
		check.True(t, len(got) == 1 && got[0].Calls == c.calls && got[0].Parts == c.parts, "%+v: %+v", c, got)
	}
}

// TestConnChecks: calls below a pool's check of a connection are checks, if the request makes other calls. What opens a connection is none.
func TestConnChecks(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	call := func(fns ...string) tracefmt.StackID {
		return addStack(symbols, append(append([]string{"net.(*conn).Read", "main.(*session).call"}, fns...), "main.load")...)
	}
	const get = "github.com/gomodule/redigo/redis.(*Pool).GetContext"
	ping, open, use := call("main.newPool.func2", get), call("main.newPool.func1", "github.com/gomodule/redigo/redis.(*Pool).dial", get), call()
	syms := symbols.Snapshot()
	for name, c := range map[string]struct {
		stacks           []tracefmt.StackID
		checks, checksNS int64
	}{
		"before a use":   {[]tracefmt.StackID{ping, use}, 6, 60},
		"only a check":   {[]tracefmt.StackID{ping}, 0, 0},
		"only a use":     {[]tracefmt.StackID{use}, 0, 0},
		"opened instead": {[]tracefmt.StackID{open, use}, 0, 0},
	} {
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		for range 3 {
			var steps []critpath.Step
			for i, stack := range c.stacks {
				steps = append(steps, critpath.Step{Kind: critpath.Network, G: 7, Stack: stack, Start: int64(10 * i), End: int64(10 * (i + 1)), FollowedWait: -1})
			}
			p.addPeerCalls(&path.WalkResult{Req: &request.Request{G: 7, End: 50}, Weight: 2, Steps: steps}, nil)
		}
		sp := &spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})}
		got := sum.PeerCalls(sp, 0)
		check.True(t, len(got) == 1 && got[0].Checks == c.checks && got[0].CheckNS == c.checksNS && (got[0].CheckSite != nil) == (c.checks > 0), "%s: %+v", name, got)
	}
}

// TestPrepares: a query has its statement prepared first, by database/sql or by the driver. What a new connection prepares does not count.
func TestPrepares(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	call := func(fns ...string) tracefmt.StackID {
		return addStack(symbols, append(append([]string{"net.(*conn).Read", "dep.org/driver.(*conn).read"}, fns...), "database/sql.(*DB).QueryContext", "main.load")...)
	}
	prepare, prepareInDriver := call("database/sql.ctxDriverPrepare", "database/sql.(*DB).queryDC"), call("github.com/lib/pq.(*conn).prepareTo", "github.com/lib/pq.(*conn).query")
	open, query := call("database/sql.ctxDriverPrepare", "dep.org/driver.dial"), call("database/sql.ctxDriverQuery")
	syms := symbols.Snapshot()
	for name, c := range map[string]struct {
		stacks []tracefmt.StackID
		wantNS int64
	}{
		"by database/sql": {[]tracefmt.StackID{prepare, query}, 10},
		"by the driver":   {[]tracefmt.StackID{prepareInDriver, query}, 10},
		"not at all":      {[]tracefmt.StackID{query}, 0},
		"while it opens":  {[]tracefmt.StackID{open, query}, 0},
	} {
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		var steps []critpath.Step
		for i, stack := range c.stacks {
			steps = append(steps, critpath.Step{Kind: critpath.Network, G: 7, Stack: stack, Start: int64(10 * i), End: int64(10 * (i + 1)), FollowedWait: -1})
		}
		p.addPeerCalls(&path.WalkResult{Req: &request.Request{G: 7, End: 50}, Weight: 1, Steps: steps}, nil)
		got := int64(0)
		for _, calls := range sum.PeerCalls(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})}, 0) {
			got += calls.PrepareNS
		}
		check.Equal(t, got, c.wantNS, "%s", name)
	}
}

// TestConnOpensOfGroup: whatever another goroutine does while a request waits for its connection counts, and what the request itself
// does between two events of opening it.
func TestConnOpensOfGroup(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(fn string) tracefmt.StackID {
		return symbols.AddStack(tracefmt.FrameText{Func: fn, File: "google.golang.org/grpc@v1.85.0/x.go", Line: 9}, tracefmt.FrameText{Func: "shop.org/s.load", File: "/s/load.go", Line: 3})
	}
	create, pick, call := stack("google.golang.org/grpc.NewClient"), stack("google.golang.org/grpc.(*pickerWrapper).pick"), stack("google.golang.org/grpc.(*ClientConn).Invoke")
	compute := symbols.AddStack(tracefmt.FrameText{Func: "crypto/ecdsa.Verify"})
	cause.NewCallerFinder(symbols, modules.New(modules.Options{})).ExamineStacks()
	syms := symbols.Snapshot()
	sum := New()
	p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
	waits := []critpath.FollowedWait{{Kind: critpath.WaitSelect, Stack: pick, Parent: -1, G: 7}}
	p.addConnOpens(&path.WalkResult{Req: &request.Request{G: 7, End: 50}, Weight: 2, Steps: []critpath.Step{
		{Kind: critpath.CPU, G: 7, Stack: create, ResumeStack: call, End: 1, FollowedWait: -1}, // before the first event of it
		{Kind: critpath.CPU, G: 7, Stack: create, ResumeStack: create, End: 2, FollowedWait: -1},
		{Kind: critpath.CPU, G: 8, Stack: compute, End: 10, FollowedWait: 0},
		{Kind: critpath.Network, G: 8, Stack: compute, End: 20, FollowedWait: 0},
		{Kind: critpath.Sleep, G: 8, Stack: compute, End: 10, FollowedWait: 0}, // a pause after a failure
		{Kind: critpath.Network, G: 7, Stack: call, End: 7, FollowedWait: -1},
	}}, waits)
	p.addConnOpens(&path.WalkResult{Req: &request.Request{G: 7, End: 10}, Weight: 1}, nil)
	sp := &spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})}
	got := sum.ConnOpens(sp, 0)
	check.True(t, got.NS == 64 && got.Count == 2 && got.TotalNS == 110 && got.Requests == 3 && got.Site == nil && got.Wait.OwnLine().Line == 3,
		"two of three requests open a connection for 32 of 50 ns: %+v", got)
}

// TestAckDelays: a body that comes about 40 ms after its head was held back until the head was acknowledged. That happens once
// an answer: parts of a stream that come every 41 ms, or heads that do, have another reason, and so have longer pauses.
func TestAckDelays(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(fns ...string) tracefmt.StackID { return addStack(symbols, append(fns, "main.ask")...) }
	read := []string{"internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read"}
	head, body := stack(append(read, "io.ReadFull", "main.head")...), stack(append(read, "io.ReadFull")...)
	httpBody, write := stack(append(read, "net/http.(*body).Read")...), stack("syscall.write", "net.(*netFD).Write", "net.(*conn).Write")
	syms := symbols.Snapshot()
	for name, c := range map[string]struct {
		stacks  []tracefmt.StackID // of the waits for an answer; 0 is a write
		lengths []float64          // of the waits for body, in ms; requests take them in turn
		want    bool
	}{
		"after a head":             {[]tracefmt.StackID{0, head, body}, []float64{40.1, 41.5, 43, 44.9}, true},
		"a body of HTTP":           {[]tracefmt.StackID{httpBody}, []float64{40.1, 41.5, 43, 44.9}, true},
		"two calls":                {[]tracefmt.StackID{0, head, body, 0, head, body}, []float64{40.1, 41.5, 43, 44.9}, true},
		"most come at once":        {[]tracefmt.StackID{httpBody}, []float64{40.1, 43, 0.1, 0.1}, true},
		"a head":                   {[]tracefmt.StackID{0, body}, []float64{40.1, 41.5, 43, 44.9}, false},
		"a stream":                 {[]tracefmt.StackID{httpBody, httpBody, httpBody}, []float64{40.1, 41.5, 43, 44.9}, false},
		"a longer pause":           {[]tracefmt.StackID{0, head, body}, []float64{45.1, 45.2, 45.3}, false},
		"pauses of several length": {[]tracefmt.StackID{0, head, body}, []float64{40.1, 20, 43, 60, 80}, false},
	} {
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		n := 0
		for range 40 {
			var steps []critpath.Step
			now := int64(0)
			for _, id := range c.stacks {
				step := critpath.Step{Kind: critpath.Network, G: 7, Stack: id, Start: now, End: now + 1e6, FollowedWait: -1}
				switch id {
				case 0:
					step.Kind, step.Stack = critpath.Syscall, write
				case body, httpBody:
					step.End = now + int64(c.lengths[n%len(c.lengths)]*1e6)
					n++
				}
				steps, now = append(steps, step), step.End
			}
			p.addPeerCalls(&path.WalkResult{Req: &request.Request{G: 7, End: now}, Weight: 1, Steps: steps}, nil)
		}
		sp := &spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})}
		got := false
		for _, calls := range sum.PeerCalls(sp, 0) {
			got = got || calls.DelaysAcks()
		}
		check.True(t, got == c.want, "%s: %t: %+v", name, got, sum.PeerCalls(sp, 0))
	}
}

// TestSplitRequests: a goroutine writes a request at two lines and waits for about 40 ms. It does not count that writes of one line, or one
// write, are followed by such a wait, nor that other waits are.
func TestSplitRequests(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stack := func(fns ...string) tracefmt.StackID { return addStack(symbols, append(fns, "main.ask")...) }
	head, body := stack("syscall.write", "net.(*netFD).Write", "net.(*conn).Write", "main.head"), stack("syscall.write", "net.(*netFD).Write", "net.(*conn).Write")
	read := stack("internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read")
	syms := symbols.Snapshot()
	for name, c := range map[string]struct {
		writes  []tracefmt.StackID
		lengths []int64 // of the waits, in ms; requests take them in turn
		want    bool
	}{
		"head and body":     {[]tracefmt.StackID{head, body}, []int64{42, 44, 46, 49}, true},
		"a first one":       {[]tracefmt.StackID{head, body}, []int64{3, 44, 46, 49, 43}, true},
		"one write":         {[]tracefmt.StackID{body}, []int64{42, 44, 46, 49}, false},
		"writes at a line":  {[]tracefmt.StackID{body, body}, []int64{42, 44, 46, 49}, false},
		"shorter waits":     {[]tracefmt.StackID{head, body}, []int64{42, 30, 46, 49}, false},
		"much longer waits": {[]tracefmt.StackID{head, body}, []int64{42, 44, 60, 49}, false},
	} {
		sum := New()
		p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
		for n := range 40 {
			var steps []critpath.Step
			for _, write := range c.writes {
				steps = append(steps, critpath.Step{Kind: critpath.Syscall, G: 7, Stack: write, FollowedWait: -1})
			}
			end := c.lengths[n%len(c.lengths)] * 1e6
			steps = append(steps, critpath.Step{Kind: critpath.Network, G: 7, Stack: read, End: end, FollowedWait: -1})
			p.addPeerCalls(&path.WalkResult{Req: &request.Request{G: 7, End: end}, Weight: 1, Steps: steps}, nil)
		}
		sp := &spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})}
		calls := sum.PeerCalls(sp, 0)
		check.True(t, len(calls) == 1 && calls[0].SplitsRequests() == c.want, "%s: %+v", name, calls)
	}
}

// TestCallsOfSeveralLines: one line makes three calls of 1, 2 and 3 ms through a function, another two of 5 and 4 ms. The longest call of all
// takes 5 ms, and those of both lines 3 and 5 ms.
func TestCallsOfSeveralLines(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	stacks := map[string][2]tracefmt.StackID{}
	for _, line := range []string{"main.list", "main.one"} {
		stacks[line] = [2]tracefmt.StackID{
			addStack(symbols, "syscall.write", "net.(*netFD).Write", "net.(*conn).Write", "main.ask", line),
			addStack(symbols, "internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read", "main.ask", line),
		}
	}
	syms := symbols.Snapshot()
	sum := New()
	p := sum.NewAdder(path.New(&timeline.Window{}, &syms, path.Options{})).(*workerSum)
	var steps []critpath.Step
	end := int64(0)
	for i, ms := range []int64{1, 2, 3, 5, 4} {
		line := []string{"main.list", "main.one"}[i/3]
		steps = append(steps, critpath.Step{Kind: critpath.Syscall, G: 7, Stack: stacks[line][0], Start: end, End: end, FollowedWait: -1},
			critpath.Step{Kind: critpath.Network, G: 7, Stack: stacks[line][1], Start: end, End: end + ms*1e6, FollowedWait: -1})
		end += ms * 1e6
	}
	p.addPeerCalls(&path.WalkResult{Req: &request.Request{G: 7, End: end}, Weight: 2, Steps: steps}, nil)
	calls := sum.PeerCalls(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms), Modules: modules.New(modules.Options{})}, 0)
	must.True(t, len(calls) == 1, "%+v", calls)
	got := &calls[0]
	check.True(t, got.Calls == 6 && got.TotalCalls == 10 && got.AnswerNS == 12e6 && got.LongestNS == 10e6 && got.LongestOfStacksNS == 16e6, "%+v", got)
	check.True(t, len(got.Callers) == 2 && got.Callers[0].Func == "main.list" && got.Callers[1].Func == "main.one", "%+v", got.Callers)
}

// TestHasSentRequest: a goroutine also sends a request by handing it over to an older goroutine that sends it, the writer of a
// connection. A goroutine that it wakes but that sends nothing does not count.
func TestHasSentRequest(t *testing.T) {
	win, symbols := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		m := b.Thread(1)
		b.Waiting(2)
		b.Waiting(3)
		m.Unblock(100, 3, "runtime.chansend1", "main.ask")
		m.Block(200, "select", "runtime.selectgo", "main.ask")
		m.Start(300, 3)
		m.Unblock(350, 1, "runtime.chansend1", "main.idle")
		m.Block(400, "chan receive", "runtime.chanrecv1", "main.idle")
		m.Start(500, 1)
		m.Unblock(600, 2, "runtime.chansend1", "main.ask")
		m.Block(700, "select", "runtime.selectgo", "main.ask")
		m.Start(800, 2)
		m.Syscall(900, "syscall.write", "internal/poll.(*FD).Write", "net.(*netFD).Write", "net.(*conn).Write", "main.writeLoop")
		m.SyscallEnd(1000)
		m.Block(1100, "chan receive", "runtime.chanrecv1", "main.writeLoop")
	})
	syms := symbols.Snapshot()
	p := &workerSum{stage: path.New(win, &syms, path.Options{})}
	const origin = tracetext.Origin
	check.True(t, !p.hasSentRequest(1, origin, &critpath.FollowedWait{G: 1, Start: origin + 200, End: origin + 500}), "the woken goroutine sends nothing")
	check.True(t, p.hasSentRequest(1, origin+500, &critpath.FollowedWait{G: 1, Start: origin + 700, End: origin + 1100}), "the writer sends it")
}
