package explain_test

import (
	"bytes"
	"context"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// explainBuilt explains a built trace: for tests of packages request and knowledge by the report. They are in this directory because there
// go test would compile every package between the tested one and the engine again.
func explainBuilt(t *testing.T, b *tracetext.Builder, opts whylate.Options) *report.Report {
	t.Helper()
	data := must.Have(b.Bytes())(t)
	rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), opts))(t)
	schematest.Report(t, rep)
	return rep
}

// writeStreams writes a server that handles n HTTP/2 streams one after the other. It has three kinds of goroutines: the
// reader (10), the connection's (11), and one for each stream. pkg is the beginning of the server's function names.
func writeStreams(builder *tracetext.Builder, pkg string, n int) {
	thread, helper := builder.Thread(), builder.Thread()
	builder.Waiting(10)
	builder.Waiting(11)
	conn, read := pkg+"serverConn).serve", pkg+"serverConn).readFrames"
	// The trace shows both waiting before the first stream.
	thread.Unblock(100, 10)
	thread.Start(110, 10)
	thread.Unblock(120, 11, "runtime.chansend1", read)
	thread.Block(130, "network", "internal/poll.(*FD).Read", read)
	thread.Start(140, 11)
	thread.Block(150, "select", "runtime.selectgo", conn)
	clock := int64(1000)
	for i := range n {
		g := uint64(100 + i)
		thread.Unblock(clock, 10)
		thread.Start(clock+100, 10)
		thread.Unblock(clock+150, 11, "runtime.chansend1", read)
		thread.Block(clock+160, "network", "internal/poll.(*FD).Read", read)
		thread.Start(clock+200, 11)
		thread.Create(clock+250, g, pkg+"serverConn).runHandler", pkg+"serverConn).processHeaders", conn)
		thread.Block(clock+260, "select", "runtime.selectgo", conn)
		thread.Start(clock+300, g)
		thread.Block(clock+400, "sleep", "time.Sleep", "example.com/shop.(*server).basket", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", pkg+"serverConn).runHandler")
		helper.Unblock(clock+5000, g)
		thread.Start(clock+5010, g)
		thread.Destroy(clock + 5100)
		clock += 10000
	}
}

// TestHTTP2ByAnyName finds the streams of all three HTTP/2 servers. No program has the one of net/http after Go 1.26
// yet; only its names are known (go.dev/issue/67810).
func TestHTTP2ByAnyName(t *testing.T) {
	for _, pkg := range []string{"net/http.(*http2", "golang.org/x/net/http2.(*", "net/http/internal/http2.(*"} {
		builder := tracetext.New(26)
		const n = 12
		writeStreams(builder, pkg, n)
		rep := explainBuilt(t, builder, whylate.Options{})
		must.Equal(t, len(rep.Groups), 1, "%s: groups", pkg)
		g := rep.Groups[0]
		check.True(t, g.Kind == report.KindHTTP2 && g.Name == "example.com/shop.(*server).basket" && g.Count == n,
			"%s: %d requests of %s %s", pkg, g.Count, g.Kind, g.Name)
		// From the reader's wake to the goroutine's end.
		check.Equal(t, g.TotalNS, int64(n*5100), "%s: ns in all", pkg)
		first := g.Bands[0].Causes[0]
		check.True(t, first.Cause == "sleep" && first.TotalNS == n*4600,
			"%s: the first cause is %s with %d ns", pkg, first.Cause, first.TotalNS)
		// The reader, the connection's goroutine and the stream's each wait for a P.
		var sched int64
		for _, c := range g.Bands[0].Causes {
			if c.Cause == "sched" || c.Cause == "sched-wake" {
				sched += c.TotalNS
			}
		}
		check.Equal(t, sched, int64(n*(100+50+50+10)), "%s: ns in wanting a P", pkg)
	}
}

// TestHungSinceStart reports a handler that has hung since before the trace. Only the stack of its goroutine's status
// shows it.
func TestHungSinceStart(t *testing.T) {
	handler := []string{"runtime.chanrecv1", "example.com/shop.(*server).wait", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve"}
	builder := tracetext.New(26)
	thread := builder.Thread()
	builder.Waiting(5)
	thread.Unblock(100, 5) // for example by a ticker, after which it waits again
	thread.Start(110, 5)
	thread.Block(200, "chan receive", handler...)
	builder.NextGeneration(1_000_000)
	thread.ProcStop(2_000_000)
	rep := explainBuilt(t, builder, whylate.Options{})
	must.Equal(t, len(rep.Groups), 1, "groups")
	g := rep.Groups[0]
	check.True(t, g.Name == "example.com/shop.(*server).wait" && g.Count == 0 && g.Open.Count == 1 && g.Open.OldestNS == rep.Input.DurationNS,
		"%s: %d requests, open %+v", g.Name, g.Count, g.Open)
	check.True(t, g.Open.Site != nil && g.Open.Site.Func == g.Name, "open at %v", g.Open.Site)
}

// TestManyGenerations follows a request that stays open over twenty generations and waits in half of them. It is walked
// in pieces, and the pieces add up to the whole.
func TestManyGenerations(t *testing.T) {
	const gen, gens = 1_000_000, 20
	builder := tracetext.New(26)
	thread, helper := builder.Thread(), builder.Thread()
	builder.Waiting(10)
	thread.Unblock(100, 10)
	thread.Start(110, 10)
	thread.Create(200, 20, "google.golang.org/grpc.(*Server).serveStreams.func2.1", "google.golang.org/grpc.(*Server).serveStreams.func2")
	thread.Block(210, "network", "internal/poll.(*FD).Read", "google.golang.org/grpc.(*Server).serveStreams", "google.golang.org/grpc.(*Server).handleRawConn.func1")
	helper.HasRun(1)
	watch := func(leaf string) []string {
		return []string{leaf, "example.com/api.(*server).Watch", "example.com/api._Feed_Watch_Handler", "google.golang.org/grpc.(*Server).handleStream", "google.golang.org/grpc.(*Server).serveStreams.func2.1"}
	}
	thread.Start(300, 20)
	clock := int64(400)
	for i := 1; i < gens; i++ {
		if i < gens/2 {
			thread.Block(clock, "sleep", watch("time.Sleep")...)
			helper.Unblock(clock+gen/2, 20)
			thread.Start(clock+gen/2, 20)
		} else if i == gens/2 {
			thread.Block(clock, "chan receive", watch("runtime.chanrecv1")...)
		}
		clock = int64(i)*gen + 400
		builder.NextGeneration(int64(i) * gen)
	}
	helper.Create(clock, 30, "main.publish", "main.main")
	thread.Start(clock+10, 30)
	thread.Unblock(clock+1000, 20, "runtime.chansend1", "main.publish")
	thread.Destroy(clock + 1010)
	thread.Start(clock+1020, 20)
	thread.Destroy(clock + 1100)
	end := clock + 1100
	helper.Block(end+100, "forever", "main.main")
	rep := explainBuilt(t, builder, whylate.Options{})
	var g *report.Group
	for i := range rep.Groups {
		if rep.Groups[i].Kind == report.KindGRPC {
			g = &rep.Groups[i]
		}
	}
	must.True(t, g != nil && g.Count == 1 && g.Name == "example.com/api.(*server).Watch" && g.Streaming, "the groups are %+v", rep.Groups)
	if want := end - 100; g.TotalNS != want {
		t.Errorf("it took %d ns, want %d", g.TotalNS, want)
	}
	var sum int64
	causes := map[report.CauseName]int64{}
	for _, c := range g.Bands[0].Causes {
		sum += c.TotalNS
		causes[c.Cause] += c.TotalNS
	}
	check.True(t, sum == g.TotalNS && causes["unknown"] == 0, "the causes add up to %d of %d ns: %v", sum, g.TotalNS, causes)
	check.Equal(t, causes["sleep"], int64((gens/2-1)*gen/2), "ns asleep")
	// The piece with the beginning of the long wait was emitted before its end was known. The rest is main's
	// computation.
	check.True(t, causes["chan"] != 0 && causes["chan"] <= gens/2*gen, "%d ns in the wait itself", causes["chan"])
	clock = 100
	for _, s := range g.Slowest[0].Segments {
		check.True(t, s.StartNS == clock, "a segment begins at %d, the one before ended at %d", s.StartNS, clock)
		clock = s.StartNS + s.DurationNS
	}
	check.Equal(t, clock, end, "the segments end at")
}

// TestRequestByName finds the calls of a function that the user names: from the first event with it to the last.
func TestRequestByName(t *testing.T) {
	builder := tracetext.New(26)
	thread, helper := builder.Thread(1), builder.Thread()
	clock := int64(1000)
	const n = 6
	for range n {
		thread.Block(clock, "sleep", "time.Sleep", "main.idle", "main.main")
		helper.Unblock(clock+1000, 1)
		thread.Start(clock+1010, 1)
		thread.Syscall(clock+1100, "syscall.write", "main.(*store).put", "main.main")
		thread.SyscallEnd(clock + 1300)
		thread.Block(clock+1400, "sleep", "time.Sleep", "main.(*store).put", "main.main")
		helper.Unblock(clock+1900, 1)
		thread.Start(clock+1900, 1)
		thread.Syscall(clock+1950, "syscall.write", "main.(*store).put", "main.main")
		thread.SyscallEnd(clock + 2000)
		clock += 3000
	}
	thread.Block(clock, "sleep", "time.Sleep", "main.idle", "main.main")
	rep := explainBuilt(t, builder, whylate.Options{Request: regexp.MustCompile(`^main\.\(\*store\)\.put$`)})
	must.True(t, len(rep.Groups) == 1 && rep.Groups[0].Count == n && rep.Groups[0].Kind == report.KindFunc,
		"the groups are %+v", rep.Groups)
	// From the start of the run that ends in put's first system call to the end of the last system call.
	if want := int64(n * (2000 - 1010)); rep.Groups[0].TotalNS != want {
		t.Errorf("%d ns in all, want %d", rep.Groups[0].TotalNS, want)
	}
}

// TestRequestByNameIsOneGroup calls a function that waits in three places, and calls it from two lines with no event in
// between. It fails if each place is a group, or if two calls count as one.
func TestRequestByNameIsOneGroup(t *testing.T) {
	builder := tracetext.New(26)
	thread, helper := builder.Thread(1), builder.Thread()
	clock := int64(1000)
	wait := func(stack ...string) {
		thread.Block(clock, "sleep", append([]string{"time.Sleep"}, stack...)...)
		helper.Unblock(clock+100, 1)
		thread.Start(clock+110, 1)
		clock += 200
	}
	const n = 5
	for range n {
		wait("main.idle", "main.main")
		wait("main.read", "main.(*store).put", "main.main@main.go:7")
		wait("main.write", "main.(*store).put", "main.main@main.go:7")
		wait("main.(*store).put", "main.main@main.go:8")
		wait("main.read", "main.(*store).get", "main.main@main.go:9")
	}
	wait("main.idle", "main.main")
	thread.Block(clock, "sleep", "time.Sleep", "main.idle", "main.main")
	got := map[string]int{}
	for _, g := range explainBuilt(t, builder, whylate.Options{Request: regexp.MustCompile(`\(\*store\)`)}).Groups {
		got[g.Name] = g.Count
	}
	if want := map[string]int{"main.(*store).put": 2 * n, "main.(*store).get": n}; !maps.Equal(got, want) {
		t.Errorf("the groups are %v, want %v", got, want)
	}
}

// TestConsecutiveCalls calls a function repeatedly with no event in between. The calls must not appear as one that is
// open since the first, and the report must warn that calls may be several.
func TestConsecutiveCalls(t *testing.T) {
	builder := tracetext.New(26)
	thread, helper := builder.Thread(1), builder.Thread()
	clock := int64(1000)
	for i := range 30 {
		if i%10 == 0 {
			thread.Block(clock, "sleep", "time.Sleep", "main.idle", "main.main:3")
			helper.Unblock(clock+100, 1)
			thread.Start(clock+110, 1)
			clock += 200
		}
		thread.Block(clock, "sleep", "time.Sleep", "main.(*store).put", "main.main:7")
		helper.Unblock(clock+1000, 1)
		thread.Start(clock+1010, 1)
		clock += 1100
	}
	thread.Block(clock, "sleep", "time.Sleep", "main.(*store).put", "main.main:7")
	helper.Create(clock+500, 9, "main.other")
	rep := explainBuilt(t, builder, whylate.Options{Request: regexp.MustCompile(`\.put$`)})
	check.True(t, len(rep.Groups) == 1 && rep.Groups[0].Count == 2 && rep.Groups[0].Open.Count == 1 && rep.Groups[0].Open.OldestNS <= 2000,
		"the groups are %+v", rep.Groups)
	if w := rep.Input.Warnings; len(w) == 0 || !strings.Contains(w[len(w)-1].Text, "2 calls reached the same line again") {
		t.Errorf("the warnings are %+v", w)
	}
}

// TestTimedOut names a request that http.TimeoutHandler answered: by the handler that did not return in time.
func TestTimedOut(t *testing.T) {
	const run, timeout = "net/http.(*http2serverConn).runHandler", "net/http.(*timeoutHandler).ServeHTTP"
	builder := tracetext.New(26)
	thread, helper := builder.Thread(11), builder.Thread()
	clock := int64(1000)
	const n = 12
	for i := range n {
		g, handlerID := uint64(100+2*i), uint64(101+2*i)
		thread.Create(clock, g, run, "net/http.(*http2serverConn).processHeaders")
		thread.Block(clock+10, "select", "runtime.selectgo", "net/http.(*http2serverConn).serve")
		thread.Start(clock+20, g)
		thread.Create(clock+50, handlerID, timeout+".func1", timeout, "net/http.serverHandler.ServeHTTP", run)
		thread.Block(clock+100, "select", "runtime.selectgo", timeout, "net/http.serverHandler.ServeHTTP", run)
		thread.Start(clock+110, handlerID)
		thread.Block(clock+150, "sleep", "time.Sleep", "main.slow", "net/http.HandlerFunc.ServeHTTP", timeout+".func1")
		helper.Unblock(clock+3000, g)
		thread.Start(clock+3010, g)
		thread.Destroy(clock + 3100)
		helper.Unblock(clock+4000, 11)
		thread.Start(clock+4000, 11)
		clock += 10000
	}
	thread.Block(clock, "select", "runtime.selectgo", "net/http.(*http2serverConn).serve")
	rep := explainBuilt(t, builder, whylate.Options{})
	must.True(t, len(rep.Groups) == 1 && rep.Groups[0].Name == "main.slow" && rep.Groups[0].Count == n, "the groups are %+v", rep.Groups)
	if c := rep.Groups[0].Bands[0].Causes[0]; c.Cause != "sleep" || c.Site == nil || c.Site.Func != timeout || c.TotalNS != n*2900 {
		t.Errorf("the first cause is %+v at %+v", c, c.Site)
	}
}
