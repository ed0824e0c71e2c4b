package predict

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// TestBacklogAfterPause: a request that came after a server's pause waits for the same backlog as those that came during it, so a
// shorter pause helps both. The same is true if the request's graph would be too large.
func TestBacklogAfterPause(t *testing.T) {
	win, syms := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		// The server pauses until 10200 and then writes for 1 ms each: three times for others, for 1, and for 3.
		m, n, r, o := b.Thread(1), b.Thread(), b.Thread(2), b.Thread(3)
		r.Block(50*us, "sleep", "time.Sleep", "main.pause", "main.server")
		m.Block(200*us, "chan receive", recv("main.ask")...)
		n.Unblock(10200*us, 2)
		r.Start(10200*us, 2)
		o.Block(10400*us, "chan receive", recv("main.ask")...)
		for i := range int64(5) {
			r.Syscall((10200+1000*i)*us, "syscall.write", "main.store", "main.server")
			r.SyscallEnd((11200 + 1000*i) * us)
			switch i {
			case 3:
				r.Unblock(14200*us, 1, "runtime.chansend1", "main.server")
				m.Start(14200*us, 1)
				m.Block(14300*us, "forever", "main.end")
			case 4:
				r.Unblock(15200*us, 3, "runtime.chansend1", "main.server")
				o.Start(15200*us, 3)
				o.Block(15300*us, "forever", "main.end")
			}
		}
		r.Block(15200*us, "sleep", "time.Sleep", "main.pause", "main.server")
	})
	builder, sample := NewBuilder(path.New(win, syms, path.Options{})), new(Sample)
	add := func(g uint64, from, to int64, build func(g uint64, from, to int64) *Graph) {
		from, to = from*us+tracetext.Origin, to*us+tracetext.Origin
		sample.Count(from, to, g, 1)
		sample.Add(build(g, from, to))
	}
	add(1, 100, 14300, builder.Build)
	add(3, 10300, 15300, builder.Build)
	add(3, 10300, 15299, func(g uint64, from, to int64) *Graph {
		return builder.Chain(g, from, to, builder.split(builder.classifier.Segments(builder.stage.Steps(g, from, to))), nil, builder.stage.FollowedWaits())
	})
	m := NewModel(syms, settled, 15300*us, func(tracefmt.StringID) (map[tracefmt.FrameID]int64, int64) { return nil, 0 })
	m.AddGroup("g", sample, report.Latency{})
	m.Prepare()
	group := m.groups["g"]
	trial := m.compile("g", parse(t, []string{"sleep@pause=10%"}))
	trial.measureGroup(group)
	must.True(t, trial.backlog != nil, "no backlog is found")
	for _, r := range trial.retimeAll(group) {
		check.True(t, r.latencies[est] < 3e6 && r.latencies[est] > 1e6, "goroutine %d, chain %v: %v ns is not one write and a tenth of the others", r.G, r.isChain, r.latencies[est])
		check.True(t, r.latencies[high] > r.latencies[est], "goroutine %d: the backlog does not stay for high", r.G)
	}
}
