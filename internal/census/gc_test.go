package census

import (
	"testing"

	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/internal/testprog"
	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/timeline/timelinetest"
	"github.com/whylate/whylate/internal/tracefmt"
	"github.com/whylate/whylate/report"
)

// TestGC: three cycles over two generations, each from a live heap of 10 MiB to a goal of 20 MiB, one of them forced; and
// another forced one that is still marking at the end.
func TestGC(t *testing.T) {
	syms := tracefmt.NewSymbols()
	alloc := syms.AddStack(tracefmt.FrameText{Func: "runtime.mallocgc"}, tracefmt.FrameText{Func: "main.fill", Line: 7})
	std := syms.AddStack(tracefmt.FrameText{Func: "runtime.mallocgc"}, tracefmt.FrameText{Func: "net/http.(*conn).serve", Line: 7})
	forced := syms.AddStack(tracefmt.FrameText{Func: "runtime.GC"}, tracefmt.FrameText{Func: "main.free", Line: 9})
	const mib = 1 << 20
	c := NewCollector()
	c.addGC(&timeline.Gen{
		Base: 0, End: 100 * ms,
		Heap: []timeline.HeapPoint{
			{Time: 0, Bytes: 20 * mib, Goal: true}, {Time: 5 * ms, Bytes: 18 * mib}, {Time: 30*ms - 1000, Bytes: 10 * mib}, {Time: 30*ms + 10, Bytes: 20 * mib, Goal: true},
			{Time: 50 * ms, Bytes: 18 * mib}, {Time: 90 * ms, Bytes: 19 * mib},
		},
		GC: []timeline.GCEvent{{Time: 10 * ms, Begin: true, Stack: alloc}, {Time: 30 * ms}, {Time: 80 * ms, Begin: true, Stack: std}},
	})
	c.addGC(&timeline.Gen{
		Base: 100 * ms, End: 200 * ms,
		Heap: []timeline.HeapPoint{{Time: 101 * ms, Bytes: 10 * mib}, {Time: 102 * ms, Bytes: 20 * mib, Goal: true}, {Time: 120 * ms, Bytes: 12 * mib}},
		GC:   []timeline.GCEvent{{Time: 100 * ms, Begin: true, Active: true}, {Time: 101*ms + 500, Stack: alloc}, {Time: 150 * ms, Begin: true, Stack: forced}, {Time: 160 * ms}, {Time: 195 * ms, Begin: true, Stack: forced}},
	})
	s := syms.Snapshot()
	got, _ := c.gcCensus(&Names{Symbols: &s, Sites: cause.NewSites(&s), Site: func(f tracefmt.FrameID) *report.Site {
		if f == 0 {
			return nil
		}
		return &report.Site{Func: s.String(s.Frame(f).Func)}
	}})
	if got.ForcedAt == nil || got.ForcedAt.Func != "main.free" || got.BegunAt == nil || got.BegunAt.Func != "main.fill" || got.BegunShare != 0.5 {
		t.Errorf("forced at %v, begun at %v (%g)", got.ForcedAt, got.BegunAt, got.BegunShare)
	}
	got.ForcedAt, got.BegunAt, got.BegunShare = nil, nil, 0
	want := GC{Cycles: 4, Forced: 2, MarkNS: 20*ms + 21*ms + 500 + 10*ms + 5*ms, LiveBytes: 10 * mib, GoalBytes: 20 * mib, Measured: 2}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestWorkers holds the running time of mark workers by their labels to that by what ran on the Ps.
func TestWorkers(t *testing.T) {
	data := testprog.Trace(t, "gcstress", "-d", "200ms")
	c := NewCollector()
	ran := map[uint64]int64{}
	workers := map[uint64]bool{}
	syms := timelinetest.Each(t, data, 1, func(g *timeline.Gen) {
		c.Add(g)
		for _, l := range g.Labels {
			workers[l.G] = true
		}
		g.EachRun(g.Base, g.End, func(r timeline.Run) { ran[r.G] += r.To - r.From })
	}).Snapshot()
	got := c.Census(&Names{Symbols: &syms, Sites: cause.NewSites(&syms), Site: func(tracefmt.FrameID) *report.Site { return nil }})
	var want int64
	for g := range workers {
		want += ran[g]
	}
	sum := got.GC.DedicatedNS + got.GC.FractionalNS + got.GC.IdleNS
	if want == 0 || got.GC.Cycles == 0 || sum < want*98/100 || sum > want*102/100 {
		t.Errorf("workers ran %d ns by labels (%+v), %d by runs", sum, got.GC, want)
	}
	var stopped int64
	for _, s := range got.Stops {
		stopped += s.TotalNS
		if s.StoppingNS > s.LookedNS || s.LookedNS > s.TotalNS || s.MaxNS > s.TotalNS || s.Count == 0 {
			t.Errorf("a stop: %+v", s)
		}
	}
	if stopped == 0 {
		t.Error("the world was never stopped")
	}
}
