package explain_test

import (
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// A request that is open at the end of the trace and followed another one without an idle wait began after that one,
// not before the trace.
func TestOpenAfterAnotherRequest(t *testing.T) {
	const ms = 1_000_000
	serve := "net/http.(*conn).serve:2074"
	builder := tracetext.New(26)
	th, poller := builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(7)
	poller.Unblock(1*ms, 7)
	th.Start(1*ms+1000, 7)
	idle := []string{"internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve}
	answer := []string{"syscall.write", "bufio.(*Writer).Flush", "net/http.(*response).finishRequest", serve}
	th.Block(2*ms, "network", idle...)
	poller.Unblock(10*ms, 7)
	th.Start(10*ms+1000, 7)
	th.Syscall(12*ms, answer...)
	th.SyscallEnd(12*ms + 1000)
	th.Block(13*ms, "sleep", "time.Sleep", "main.handler", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve:2074")
	th.Create(20*ms, 8, "main.other")
	rep := explainBuilt(t, builder, whylate.Options{})
	open := 0
	for _, g := range rep.Groups {
		if g.Kind != "http1" || g.Open.Count == 0 {
			continue
		}
		open += g.Open.Count
		check.True(t, g.Open.OldestNS >= 7*ms && g.Open.OldestNS <= 8*ms,
			"group %q: open for %d ns, want about 8 ms: since the answer before it", g.Name, g.Open.OldestNS)
	}
	check.Equal(t, open, 1, "requests open, want 1")
}

// A request whose answer was sent just before the trace ended is over, even if its goroutine has no later event: the
// thread may have lost its CPU in the system call.
func TestAnsweredAtTheEnd(t *testing.T) {
	const ms = 1_000_000
	serve := "net/http.(*conn).serve:2074"
	for name, hasSecond := range map[string]bool{"nothing more": false, "another request": true} {
		builder := tracetext.New(26)
		th, helper, poller := builder.Thread(), builder.Thread(), builder.ThreadWithoutP()
		builder.Waiting(7)
		poller.Unblock(1*ms, 7)
		th.Start(1*ms+1000, 7)
		th.Block(2*ms, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
		poller.Unblock(10*ms, 7)
		th.Start(10*ms+1000, 7)
		th.Block(11*ms, "sleep", "time.Sleep", "main.handler", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
		poller.Unblock(12*ms, 7)
		th.Start(12*ms, 7)
		th.Syscall(13*ms, "syscall.write", "bufio.(*Writer).Flush", "net/http.(*response).finishRequest", serve)
		th.SyscallEnd(13*ms + 1000)
		if hasSecond {
			th.Block(14*ms, "sleep", "time.Sleep", "main.handler", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
		}
		helper.HasRun(9)
		helper.Create(90*ms, 8, "main.other")
		count, open := 0, 0
		for _, g := range explainBuilt(t, builder, whylate.Options{}).Groups {
			if g.Kind == "http1" {
				count += g.Count
				open += g.Open.Count
			}
			check.False(t, g.Count > 0 && (g.LatencyNS.Max == nil || *g.LatencyNS.Max != 3*ms), "%s: %+v, want 3 ms", name, g.LatencyNS)
		}
		if want := map[bool]int{true: 1}[hasSecond]; count != 1 || open != want {
			t.Errorf("%s: %d requests and %d open, want 1 and %d", name, count, open, want)
		}
	}
}

// A request that computes and never waits has no event with its handler on the stack. A CPU sample names it.
func TestSampleNamesRequest(t *testing.T) {
	const ms = 1_000_000
	callers := []string{"net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve"}
	idle := []string{"internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", "net/http.(*conn).serve:2103"}
	builder := tracetext.New(26)
	th, poller := builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(7)
	for i := range int64(4) {
		clock := 10*ms + i*20*ms
		poller.Unblock(clock, 7)
		th.Start(clock+1000, 7)
		if i%2 == 1 {
			builder.Sample(clock+5*ms, th, 7, append([]string{"main.spin", "main.compute"}, callers...)...)
		}
		th.Syscall(clock+10*ms, "syscall.write", "bufio.(*Writer).Flush", "net/http.(*response).finishRequest", "net/http.(*conn).serve:2074")
		th.SyscallEnd(clock + 10*ms + 1000)
		th.Block(clock+11*ms, "network", idle...)
	}
	rep := explainBuilt(t, builder, whylate.Options{})
	got := map[string]int{}
	for _, g := range rep.Groups {
		got[g.Name] += g.Count
	}
	check.True(t, got["main.compute"] == 2 && len(got) == 2,
		"groups %v, want two requests of main.compute and the others without a name", got)
}

// The goroutine that watches a connection while its handler runs is no request, although deep code of the handler
// created it.
func TestWatchingGoroutineIsNoRequest(t *testing.T) {
	const ms = 1_000_000
	builder := tracetext.New(26)
	th, poller := builder.Thread(), builder.ThreadWithoutP()
	builder.Waiting(7)
	poller.Unblock(10*ms, 7)
	th.Start(10*ms+1000, 7)
	serve := []string{"net/http.(*response).finishRequest", "net/http.(*conn).serve:2074"}
	th.Syscall(11*ms, append([]string{"syscall.write", "bufio.(*Writer).Flush"}, serve...)...)
	th.SyscallEnd(11*ms + 1000)
	th.Create(12*ms, 9, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead",
		"main.handler", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve:2074")
	th.Block(20*ms, "sleep", "time.Sleep", "main.handler", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve:2074")
	rep := explainBuilt(t, builder, whylate.Options{})
	open := 0
	for _, g := range rep.Groups {
		if g.Kind == "http1" {
			open += g.Open.Count
			check.True(t, g.Open.OldestNS <= 10*ms, "group %q: open for %d ns", g.Name, g.Open.OldestNS)
		}
	}
	check.Equal(t, open, 1, "requests open, want that of goroutine 7")
}
