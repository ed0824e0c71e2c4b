package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

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
	win, found := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		th := b.Thread()
		for i := range waits {
			b.Waiting(uint64(i + 1))
		}
		for i, wait := range waits {
			th.Unblock(int64(i+1)*ms, uint64(i+1))
			th.Start(int64(i+1)*ms+1000, uint64(i+1))
			th.Block(int64(i+1)*ms+2000, "select", wait...)
		}
		th.Unblock(150*ms, 1)
		th.Start(150*ms+1000, 1)
	})
	syms := found.Snapshot()
	p := New().NewAdder(path.New(win, &syms, path.Options{})).(*workerSum)
	p.stage.Sites = cause.NewSites(&syms)
	start := win.Start()
	spans := win.Spans(1, start+100*ms, start+101*ms, nil)
	sample := p.sampleHolders(&critpath.FollowedWait{Stack: spans[0].Stack, Start: spans[0].Start, End: start + 150*ms}, syms.Line(p.stage.Sites.SiteOf(spans[0].Stack)))
	must.True(t, sample != nil && len(sample.holders) == 2 && sample.holders[0].g+sample.holders[1].g == 2+3, "%+v", sample)
	var sum sampledHolders
	sum.addSamples([]*handover{{holders: sample}, {holders: sample}, {}}, map[uint64]struct{}{1: {}, 3: {}})
	check.True(t, sum.all == 2 && sum.maxHolders == 2 && sum.maxBackground == 1 && sum.isMajority(), "%+v", sum)
	check.True(t, p.sampleHolders(&critpath.FollowedWait{Stack: spans[0].Stack, Start: start + 101*ms, End: start + 102*ms}, syms.Line(p.stage.Sites.SiteOf(spans[0].Stack))) == nil, "a wait without a sampled instant has a sample")
}
