package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// waitingAt returns an adder for a trace in which each goroutine, numbered from 1, waits at one of some stacks from as many ms on, and
// the first until 150 ms.
func waitingAt(t *testing.T, stacks [][]string) *workerSum {
	const ms = 1_000_000
	win, found := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		th := b.Thread()
		for i := range stacks {
			b.Waiting(uint64(i + 1))
		}
		for i, stack := range stacks {
			th.Unblock(int64(i+1)*ms, uint64(i+1))
			th.Start(int64(i+1)*ms+1000, uint64(i+1))
			th.Block(int64(i+1)*ms+2000, "select", stack...)
		}
		th.Unblock(150*ms, 1)
		th.Start(150*ms+1000, 1)
	})
	syms := found.Snapshot()
	p := New().NewAdder(path.New(win, &syms, path.Options{})).(*workerSum)
	p.stage.Sites = cause.NewSites(&syms)
	return p
}

// TestSampleHolders: of the goroutines that wait for the network, those below the library's function that acquires a connection
// hold one. It fails if a call of the service next to that, or a wait for a connection, counts as a hold.
func TestSampleHolders(t *testing.T) {
	const ms = 1_000_000
	acquire := []string{"runtime.selectgo:1", "dep.org/redis/internal.(*Sem).Acquire:9", "dep.org/redis.(*client).withConn:20", "dep.org/redis.(*client).Get:5", "main.touch:33"}
	read := []string{"internal/poll.runtime_pollWait:351", "dep.org/redis/proto.(*Reader).Peek:95", "dep.org/redis.(*client).withConn:24"}
	waits := [][]string{
		acquire,
		append(read[:3:3], "dep.org/redis.(*client).BLPop:7", "main.consume:57"),
		append(read[:3:3], "dep.org/redis.(*client).Get:5", "main.touch:33"),
		{"internal/poll.runtime_pollWait:351", "net/http.(*persistConn).readLoop:1", "main.touch:40"},
		{"time.Sleep:300", "dep.org/redis.(*client).withConn:28", "main.touch:33"},
	}
	p := waitingAt(t, waits)
	win, syms := p.stage.Win, p.stage.Syms
	start := win.Start()
	spans := win.Spans(1, start+100*ms, start+101*ms, nil)
	sample := p.sampleHolders(&critpath.FollowedWait{Stack: spans[0].Stack, Start: spans[0].Start, End: start + 150*ms}, syms.Line(p.stage.Sites.SiteOf(spans[0].Stack)))
	must.True(t, sample != nil && len(sample.holders) == 2 && sample.holders[0].g+sample.holders[1].g == 2+3, "%+v", sample)
	var sum sampledHolders
	sum.addSamples([]*handover{{holders: sample}, {holders: sample}, {}}, map[uint64]struct{}{1: {}, 3: {}})
	check.True(t, sum.all == 2 && sum.maxHolders == 2 && sum.maxBackground == 1 && sum.isMajority(), "%+v", sum)
	check.True(t, p.sampleHolders(&critpath.FollowedWait{Stack: spans[0].Stack, Start: start + 101*ms, End: start + 102*ms}, syms.Line(p.stage.Sites.SiteOf(spans[0].Stack))) == nil, "a wait without a sampled instant has a sample")
}

// TestSampleHTTPHolders: all requests that wait for an answer over HTTP/1 hold a connection, and are named by their routes. A goroutine of
// another kind may be a client of the process itself, and is marked.
func TestSampleHTTPHolders(t *testing.T) {
	const ms = 1_000_000
	stack := func(route string, inner ...string) []string {
		return append(inner, "net/http.(*Client).Get:5", "main.get:16", route, "net/http.(*conn).serve:2000")
	}
	waits := [][]string{
		stack("main.fast:29", "runtime.selectgo:1", "net/http.(*Transport).getConn:9"),
		stack("main.fast:29", "runtime.selectgo:1", "net/http.(*persistConn).roundTrip:7"),
		stack("main.poll:30", "runtime.selectgo:1", "net/http.(*persistConn).roundTrip:7"),
		{"runtime.selectgo:1", "net/http.(*persistConn).roundTrip:7", "main.client:31"},
	}
	p := waitingAt(t, waits)
	win, syms := p.stage.Win, p.stage.Syms
	wait := win.Spans(1, win.Start()+100*ms, win.Start()+101*ms, nil)[0]
	sample := p.sampleHolders(&critpath.FollowedWait{Stack: wait.Stack, Start: wait.Start, End: win.Start() + 150*ms}, syms.Line(p.stage.Sites.SiteOf(wait.Stack)))
	must.True(t, sample != nil && sample.isHTTP && len(sample.holders) == 3 && len(sample.waiters) == 1, "%+v", sample)
	routes := map[string]bool{}
	for _, holder := range sample.holders {
		if holder.isOtherKind {
			continue
		}
		routes[syms.String(syms.Frame(holder.site).Func)] = holder.waitNS > 50*ms
	}
	check.True(t, len(routes) == 2 && routes["main.fast"] && routes["main.poll"], "%v", routes)
}

// TestLongCalls: long calls of another route hold connections of the same http.Transport if the waiters' route mostly has fewer than at times, or
// none. If it always has as many, that is the limit of another Transport. Short calls hold them, too, if they are those of goroutines in the background,
// which are of the same kind or also wait for a connection.
func TestLongCalls(t *testing.T) {
	const fast, poll, request = 1, 2, 5
	for _, c := range []struct {
		name     string
		calls    []int
		poll     connectionHolder
		waits    bool // the polls wait for a connection
		limit    int
		expected bool
	}{
		{"the polls leave one or two", []int{1, 1, 2, 1}, connectionHolder{g: request, waitNS: 900e6}, false, 0, true},
		{"the polls leave none", []int{0, 0, 0}, connectionHolder{g: request, waitNS: 900e6}, false, 0, true},
		{"another Transport", []int{2, 2, 2, 1}, connectionHolder{g: request, waitNS: 900e6}, false, 2, false},
		{"short calls", []int{1, 1, 2, 1}, connectionHolder{g: request, waitNS: 2e6}, false, 0, false},
		{"short calls in the background", []int{1, 1, 2, 1}, connectionHolder{g: 9, waitNS: 2e6}, false, 0, true},
		{"short calls for requests", []int{1, 1, 2, 1}, connectionHolder{g: 9, creator: request, waitNS: 2e6}, false, 0, false},
		{"a client of the process", []int{1, 1, 2, 1}, connectionHolder{g: 9, waitNS: 2e6, isOtherKind: true}, false, 0, false},
		{"a loop that fills a cache", []int{1, 1, 2, 1}, connectionHolder{g: 9, waitNS: 2e6, isOtherKind: true}, true, 0, true},
	} {
		var sum sampledHolders
		c.poll.site = poll
		for i, count := range c.calls {
			sample := &holderSample{time: int64(i), isHTTP: true}
			if c.waits {
				sample.waiters = map[tracefmt.FrameID]bool{poll: true}
			}
			for i := range 16 {
				holder := c.poll
				if i < count {
					holder = connectionHolder{g: request, site: fast, waitNS: 1e6}
				}
				sample.holders = append(sample.holders, holder)
			}
			sum.addSamples([]*handover{{route: fast, requestG: request, holders: sample}, {route: fast, requestG: request}, {route: poll}}, map[uint64]struct{}{request: {}})
			check.Equal(t, len(sample.holders), 16, "holders in a sample, which may be one of several lists")
		}
		check.True(t, sum.isMajority() == c.expected && sum.ownLimit() == c.limit, "%s: %+v", c.name, sum)
	}
}
