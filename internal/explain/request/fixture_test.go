package request_test

import (
	"bytes"
	"context"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

func explain(t *testing.T, b *tracetext.Builder, opts whylate.Options) *report.Report {
	t.Helper()
	data := must.Have(b.Bytes())(t)
	rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), opts))(t)
	schematest.Report(t, rep)
	return rep
}

// streams writes a server that handles n HTTP/2 streams, one after the other,
// by the three goroutines that there are: the reader (10), the connection's
// own (11), and one for each stream; pkg is the package of the server, as its
// functions are named.
func streams(b *tracetext.Builder, pkg string, n int) {
	m, o := b.Thread(), b.Thread()
	b.Waiting(10)
	b.Waiting(11)
	conn, read := pkg+"serverConn).serve", pkg+"serverConn).readFrames"
	// Both are seen waiting before the first stream.
	m.Unblock(100, 10)
	m.Start(110, 10)
	m.Unblock(120, 11, "runtime.chansend1", read)
	m.Block(130, "network", "internal/poll.(*FD).Read", read)
	m.Start(140, 11)
	m.Block(150, "select", "runtime.selectgo", conn)
	at := int64(1000)
	for i := range n {
		g := uint64(100 + i)
		m.Unblock(at, 10)
		m.Start(at+100, 10)
		m.Unblock(at+150, 11, "runtime.chansend1", read)
		m.Block(at+160, "network", "internal/poll.(*FD).Read", read)
		m.Start(at+200, 11)
		m.Create(at+250, g, pkg+"serverConn).runHandler", pkg+"serverConn).processHeaders", conn)
		m.Block(at+260, "select", "runtime.selectgo", conn)
		m.Start(at+300, g)
		m.Block(at+400, "sleep", "time.Sleep", "example.com/shop.(*server).basket", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", pkg+"serverConn).runHandler")
		o.Unblock(at+5000, g)
		m.Start(at+5010, g)
		m.Destroy(at + 5100)
		at += 10000
	}
}

// TestHTTP2ByAnyName finds the streams of the three HTTP/2 servers that there
// are, the one that net/http has after Go 1.26 among them, of which there is
// no program yet: only its names are known (go.dev/issue/67810).
func TestHTTP2ByAnyName(t *testing.T) {
	for _, pkg := range []string{"net/http.(*http2", "golang.org/x/net/http2.(*", "net/http/internal/http2.(*"} {
		b := tracetext.New(26)
		const n = 12
		streams(b, pkg, n)
		rep := explain(t, b, whylate.Options{})
		if len(rep.Groups) != 1 {
			t.Fatalf("%s: %d groups", pkg, len(rep.Groups))
		}
		g := rep.Groups[0]
		if g.Kind != report.KindHTTP2 || g.Name != "example.com/shop.(*server).basket" || g.Count != n {
			t.Errorf("%s: %d requests of %s %s", pkg, g.Count, g.Kind, g.Name)
		}
		// From the wake of the reader to the goroutine's end.
		if want := int64(n * 5100); g.TotalNS != want {
			t.Errorf("%s: %d ns in all, want %d", pkg, g.TotalNS, want)
		}
		first := g.Bands[0].Causes[0]
		if first.Cause != "sleep" || first.TotalNS != n*4600 {
			t.Errorf("%s: the first cause is %s with %d ns", pkg, first.Cause, first.TotalNS)
		}
		// The reader, the connection's goroutine and the stream's each have to
		// wait for a P on the way.
		var sched int64
		for _, c := range g.Bands[0].Causes {
			if c.Cause == "sched" || c.Cause == "sched-wake" {
				sched += c.TotalNS
			}
		}
		if want := int64(n * (100 + 50 + 50 + 10)); sched != want {
			t.Errorf("%s: %d ns in wanting a P, want %d", pkg, sched, want)
		}
	}
}

// TestHungSinceBefore reports a handler that has hung since before the trace:
// nothing marks it but the stack with which its goroutine's status comes.
func TestHungSinceBefore(t *testing.T) {
	handler := []string{"runtime.chanrecv1", "example.com/shop.(*server).wait", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve"}
	b := tracetext.New(26)
	m := b.Thread()
	b.Waiting(5)
	m.Unblock(100, 5) // by a ticker, say: it looks, and waits again
	m.Start(110, 5)
	m.Block(200, "chan receive", handler...)
	b.NextGeneration(1_000_000)
	m.ProcStop(2_000_000)
	rep := explain(t, b, whylate.Options{})
	if len(rep.Groups) != 1 {
		t.Fatalf("%d groups", len(rep.Groups))
	}
	g := rep.Groups[0]
	if g.Name != "example.com/shop.(*server).wait" || g.Count != 0 || g.Open.Count != 1 || g.Open.OldestNS != rep.Input.DurationNS {
		t.Errorf("%s: %d requests, open %+v", g.Name, g.Count, g.Open)
	}
	if g.Open.Site == nil || g.Open.Site.Func != g.Name {
		t.Errorf("open at %v", g.Open.Site)
	}
}

// TestManyGenerations follows a request that stays open over twenty
// generations, with a wait over half of them: it is walked piece by piece, and
// the pieces add up.
func TestManyGenerations(t *testing.T) {
	const gen, gens = 1_000_000, 20
	b := tracetext.New(26)
	m, o := b.Thread(), b.Thread()
	b.Waiting(10)
	m.Unblock(100, 10)
	m.Start(110, 10)
	m.Create(200, 20, "google.golang.org/grpc.(*Server).serveStreams.func2.1", "google.golang.org/grpc.(*Server).serveStreams.func2")
	m.Block(210, "network", "internal/poll.(*FD).Read", "google.golang.org/grpc.(*Server).serveStreams", "google.golang.org/grpc.(*Server).handleRawConn.func1")
	o.Was(1)
	watch := func(leaf string) []string {
		return []string{leaf, "example.com/api.(*server).Watch", "example.com/api._Feed_Watch_Handler", "google.golang.org/grpc.(*Server).handleStream", "google.golang.org/grpc.(*Server).serveStreams.func2.1"}
	}
	m.Start(300, 20)
	at := int64(400)
	for i := 1; i < gens; i++ {
		if i < gens/2 {
			m.Block(at, "sleep", watch("time.Sleep")...)
			o.Unblock(at+gen/2, 20)
			m.Start(at+gen/2, 20)
		} else if i == gens/2 {
			m.Block(at, "chan receive", watch("runtime.chanrecv1")...)
		}
		at = int64(i)*gen + 400
		b.NextGeneration(int64(i) * gen)
	}
	o.Create(at, 30, "main.publish", "main.main")
	m.Start(at+10, 30)
	m.Unblock(at+1000, 20, "runtime.chansend1", "main.publish")
	m.Destroy(at + 1010)
	m.Start(at+1020, 20)
	m.Destroy(at + 1100)
	end := at + 1100
	o.Block(end+100, "forever", "main.main")
	rep := explain(t, b, whylate.Options{})
	var g *report.Group
	for i := range rep.Groups {
		if rep.Groups[i].Kind == report.KindGRPC {
			g = &rep.Groups[i]
		}
	}
	if g == nil || g.Count != 1 || g.Name != "example.com/api.(*server).Watch" || !g.Streaming {
		t.Fatalf("the groups are %+v", rep.Groups)
	}
	if want := end - 100; g.TotalNS != want {
		t.Errorf("it took %d ns, want %d", g.TotalNS, want)
	}
	var sum int64
	causes := map[report.CauseName]int64{}
	for _, c := range g.Bands[0].Causes {
		sum += c.TotalNS
		causes[c.Cause] += c.TotalNS
	}
	if sum != g.TotalNS || causes["unknown"] != 0 {
		t.Errorf("the causes add up to %d of %d ns: %v", sum, g.TotalNS, causes)
	}
	if want := int64((gens/2 - 1) * gen / 2); causes["sleep"] != want {
		t.Errorf("%d ns asleep, want %d", causes["sleep"], want)
	}
	// The beginning of the long wait was handed out before anybody could know
	// what would end it; the rest is what main computed.
	if causes["chan"] == 0 || causes["chan"] > gens/2*gen {
		t.Errorf("%d ns in the wait itself", causes["chan"])
	}
	at = 100
	for _, s := range g.Slowest[0].Segments {
		if s.StartNS != at {
			t.Errorf("a segment begins at %d, the one before ended at %d", s.StartNS, at)
		}
		at = s.StartNS + s.DurationNS
	}
	if at != end {
		t.Errorf("the segments end at %d, not %d", at, end)
	}
}

// TestRequestByName finds the calls of a function that the user names: from
// its first sign on a stack to its last.
func TestRequestByName(t *testing.T) {
	b := tracetext.New(26)
	m, o := b.Thread(1), b.Thread()
	at := int64(1000)
	const n = 6
	for range n {
		m.Block(at, "sleep", "time.Sleep", "main.idle", "main.main")
		o.Unblock(at+1000, 1)
		m.Start(at+1010, 1)
		m.Syscall(at+1100, "syscall.write", "main.(*store).put", "main.main")
		m.SyscallEnd(at + 1300)
		m.Block(at+1400, "sleep", "time.Sleep", "main.(*store).put", "main.main")
		o.Unblock(at+1900, 1)
		m.Start(at+1900, 1)
		m.Syscall(at+1950, "syscall.write", "main.(*store).put", "main.main")
		m.SyscallEnd(at + 2000)
		at += 3000
	}
	m.Block(at, "sleep", "time.Sleep", "main.idle", "main.main")
	rep := explain(t, b, whylate.Options{Request: regexp.MustCompile(`^main\.\(\*store\)\.put$`)})
	if len(rep.Groups) != 1 || rep.Groups[0].Count != n || rep.Groups[0].Kind != report.KindFunc {
		t.Fatalf("the groups are %+v", rep.Groups)
	}
	// From the start of the run that ends in put's first system call to the end
	// of its last.
	if want := int64(n * (2000 - 1010)); rep.Groups[0].TotalNS != want {
		t.Errorf("%d ns in all, want %d", rep.Groups[0].TotalNS, want)
	}
}

// TestRequestByNameIsOneGroup holds calls that wait in three places below the
// function against a group for each of the places, and calls of two lines that
// follow each other with no event between against one long call.
func TestRequestByNameIsOneGroup(t *testing.T) {
	b := tracetext.New(26)
	m, o := b.Thread(1), b.Thread()
	at := int64(1000)
	wait := func(stack ...string) {
		m.Block(at, "sleep", append([]string{"time.Sleep"}, stack...)...)
		o.Unblock(at+100, 1)
		m.Start(at+110, 1)
		at += 200
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
	m.Block(at, "sleep", "time.Sleep", "main.idle", "main.main")
	got := map[string]int{}
	for _, g := range explain(t, b, whylate.Options{Request: regexp.MustCompile(`\(\*store\)`)}).Groups {
		got[g.Name] = g.Count
	}
	if want := map[string]int{"main.(*store).put": 2 * n, "main.(*store).get": n}; !maps.Equal(got, want) {
		t.Errorf("the groups are %v, want %v", got, want)
	}
}

// TestCallsAfterEachOther writes a goroutine that calls a function repeatedly,
// with no event between: it is not one call that has been open since the first, and
// the report says that calls may be several.
func TestCallsAfterEachOther(t *testing.T) {
	b := tracetext.New(26)
	m, o := b.Thread(1), b.Thread()
	at := int64(1000)
	for i := range 30 {
		if i%10 == 0 {
			m.Block(at, "sleep", "time.Sleep", "main.idle", "main.main:3")
			o.Unblock(at+100, 1)
			m.Start(at+110, 1)
			at += 200
		}
		m.Block(at, "sleep", "time.Sleep", "main.(*store).put", "main.main:7")
		o.Unblock(at+1000, 1)
		m.Start(at+1010, 1)
		at += 1100
	}
	m.Block(at, "sleep", "time.Sleep", "main.(*store).put", "main.main:7")
	o.Create(at+500, 9, "main.other")
	rep := explain(t, b, whylate.Options{Request: regexp.MustCompile(`\.put$`)})
	if len(rep.Groups) != 1 || rep.Groups[0].Count != 2 || rep.Groups[0].Open.Count != 1 || rep.Groups[0].Open.OldestNS > 2000 {
		t.Errorf("the groups are %+v", rep.Groups)
	}
	if w := rep.Input.Warnings; len(w) == 0 || !strings.Contains(w[len(w)-1].Text, "2 calls reached the same line again") {
		t.Errorf("the warnings are %+v", w)
	}
}

// TestTimedOut names a request that http.TimeoutHandler has answered itself by
// the handler that did not come back in time.
func TestTimedOut(t *testing.T) {
	const run, timeout = "net/http.(*http2serverConn).runHandler", "net/http.(*timeoutHandler).ServeHTTP"
	b := tracetext.New(26)
	m, o := b.Thread(11), b.Thread()
	at := int64(1000)
	const n = 12
	for i := range n {
		g, aside := uint64(100+2*i), uint64(101+2*i)
		m.Create(at, g, run, "net/http.(*http2serverConn).processHeaders")
		m.Block(at+10, "select", "runtime.selectgo", "net/http.(*http2serverConn).serve")
		m.Start(at+20, g)
		m.Create(at+50, aside, timeout+".func1", timeout, "net/http.serverHandler.ServeHTTP", run)
		m.Block(at+100, "select", "runtime.selectgo", timeout, "net/http.serverHandler.ServeHTTP", run)
		m.Start(at+110, aside)
		m.Block(at+150, "sleep", "time.Sleep", "main.slow", "net/http.HandlerFunc.ServeHTTP", timeout+".func1")
		o.Unblock(at+3000, g)
		m.Start(at+3010, g)
		m.Destroy(at + 3100)
		o.Unblock(at+4000, 11)
		m.Start(at+4000, 11)
		at += 10000
	}
	m.Block(at, "select", "runtime.selectgo", "net/http.(*http2serverConn).serve")
	rep := explain(t, b, whylate.Options{})
	if len(rep.Groups) != 1 || rep.Groups[0].Name != "main.slow" || rep.Groups[0].Count != n {
		t.Fatalf("the groups are %+v", rep.Groups)
	}
	if c := rep.Groups[0].Bands[0].Causes[0]; c.Cause != "sleep" || c.Site == nil || c.Site.Func != timeout || c.TotalNS != n*2900 {
		t.Errorf("the first cause is %+v at %+v", c, c.Site)
	}
}
