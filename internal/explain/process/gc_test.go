package process

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestGC: three cycles over two generations, each from a live heap of 10 MiB to a goal of 20 MiB, one of them forced;
// and another forced cycle that is still marking at the end.
func TestGC(t *testing.T) {
	syms := tracefmt.NewSymbols()
	alloc := syms.AddStack(tracefmt.FrameText{Func: "runtime.mallocgc"}, tracefmt.FrameText{Func: "main.fill", Line: 7})
	std := syms.AddStack(tracefmt.FrameText{Func: "runtime.mallocgc"}, tracefmt.FrameText{Func: "net/http.(*conn).serve", Line: 7})
	forced := syms.AddStack(tracefmt.FrameText{Func: "runtime.GC"}, tracefmt.FrameText{Func: "main.free", Line: 9})
	const mib = 1 << 20
	c := NewCollector()
	c.addGC(&timeline.Gen{
		Base: 0, End: 100 * ms,
		Lists: timeline.Lists{
			Heap: []timeline.HeapPoint{
				{Time: 0, Bytes: 20 * mib, Goal: true}, {Time: 5 * ms, Bytes: 18 * mib}, {Time: 30*ms - 1000, Bytes: 10 * mib}, {Time: 30*ms + 10, Bytes: 20 * mib, Goal: true},
				{Time: 50 * ms, Bytes: 18 * mib}, {Time: 90 * ms, Bytes: 19 * mib},
			},
			GC: []timeline.GCEvent{{Time: 10 * ms, Begin: true, Stack: alloc}, {Time: 30 * ms}, {Time: 80 * ms, Begin: true, Stack: std}},
		},
	})
	c.addGC(&timeline.Gen{
		Base: 100 * ms, End: 200 * ms,
		Lists: timeline.Lists{
			Heap: []timeline.HeapPoint{{Time: 101 * ms, Bytes: 10 * mib}, {Time: 102 * ms, Bytes: 20 * mib, Goal: true}, {Time: 120 * ms, Bytes: 12 * mib}},
			GC:   []timeline.GCEvent{{Time: 100 * ms, Begin: true, Active: true}, {Time: 101*ms + 500, Stack: alloc}, {Time: 150 * ms, Begin: true, Stack: forced}, {Time: 160 * ms}, {Time: 195 * ms, Begin: true, Stack: forced}},
		},
	})
	s := syms.Snapshot()
	c.finish()
	got, _ := c.gcRows(&spell.Speller{Syms: &s, Sites: cause.NewSites(&s)})
	if got.ForcedAt == nil || got.ForcedAt.Func != "main.free" || got.BegunAt == nil || got.BegunAt.Func != "main.fill" || got.BegunShare != 0.5 {
		t.Errorf("forced at %v, begun at %v (%g)", got.ForcedAt, got.BegunAt, got.BegunShare)
	}
	got.ForcedAt, got.BegunAt, got.BegunShare = nil, nil, 0
	want := GC{Cycles: 4, Forced: 2, MarkNS: 20*ms + 21*ms + 500 + 10*ms + 5*ms, LiveBytes: 10 * mib, GoalBytes: 20 * mib, MeasuredCycles: 2}
	check.True(t, got == want, "got %+v\nwant %+v", got, want)
}

// TestFull: if the goal is not or hardly higher than the live heap after a cycle, a memory limit set it. Such cycles
// do not count for GOGC. With GOGC=off the goal is shown as zero, and the heap at which the next cycle begins is compared.
func TestFull(t *testing.T) {
	const (
		mib     = 1 << 20
		unshown = 1
	)
	for goal, want := range map[uint64]GC{
		79 * mib: {FullCycles: 1, FullBytes: 80 * mib},
		82 * mib: {FullCycles: 1, FullBytes: 80 * mib},
		83 * mib: {MeasuredCycles: 1, LiveBytes: 80 * mib, GoalBytes: 83 * mib},
		0:        {FullCycles: 1, FullBytes: 80 * mib},
		unshown:  {},
	} {
		c := NewCollector()
		g := &timeline.Gen{
			Base: 0, End: 100 * ms,
			Lists: timeline.Lists{
				Heap: []timeline.HeapPoint{{Time: 1 * ms, Bytes: 81 * mib}, {Time: 30 * ms, Bytes: 80 * mib}},
				GC:   []timeline.GCEvent{{Time: 10 * ms, Begin: true}, {Time: 30 * ms}, {Time: 50 * ms, Begin: true}},
			},
		}
		if goal != unshown {
			g.Heap = append([]timeline.HeapPoint{{Time: 0, Bytes: goal, Goal: true}}, g.Heap...)
		}
		c.addGC(g)
		syms := tracefmt.NewSymbols().Snapshot()
		c.finish()
		got, _ := c.gcRows(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms)})
		if got.FullCycles != want.FullCycles || got.FullBytes != want.FullBytes || got.MeasuredCycles != want.MeasuredCycles || got.LiveBytes != want.LiveBytes || got.GoalBytes != want.GoalBytes {
			t.Errorf("goal %d: %+v, want %+v", goal, got, want)
		}
	}
}

// TestWorkers compares the running time of mark workers with that of the reference reader.
func TestWorkers(t *testing.T) {
	data := testprog.Trace(t, "gcstress-long")
	c := NewCollector()
	syms := timelinetest.ForEachGen(t, data, 1, c.Add).Snapshot()
	got := c.Stats(&spell.Speller{Syms: &syms, Sites: cause.NewSites(&syms)})
	wantNS, runs := workerRunNS(t, data)
	workersNS := got.GC.DedicatedNS + got.GC.FractionalNS + got.GC.IdleNS
	if off := workersNS - wantNS; wantNS == 0 || got.GC.Cycles == 0 || max(off, -off) > runs { // each side rounds to ns
		t.Errorf("workers ran %d ns (%+v), want %d in %d runs", workersNS, got.GC, wantNS, runs)
	}
	var stopped int64
	for _, s := range got.Stops {
		stopped += s.TotalNS
		check.True(t, s.StoppingNS <= s.ExaminedNS && s.ExaminedNS <= s.TotalNS && s.MaxNS <= s.TotalNS && s.Count != 0, "a stop: %+v", s)
	}
	check.True(t, stopped != 0, "the world was never stopped")
}

// workerRunNS adds up how long goroutines ran that a label identifies as mark workers: each run with a label, and
// each that continues such a run after a preemption. What a worker runs before its first mark phase, or after it was
// woken to end, has no label and does not mark.
func workerRunNS(t *testing.T, data []byte) (ns, runs int64) {
	r := must.Have(trace.NewReader(bytes.NewReader(data)))(t)
	type worker struct {
		runningSince  trace.Time
		running, mark bool
	}
	gs := map[trace.GoID]*worker{}
	var last trace.Time
	stop := func(g *worker) {
		if g.running && g.mark {
			ns += int64(last.Sub(g.runningSince))
			runs++
		}
	}
	for {
		e, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			for _, g := range gs {
				stop(g)
			}
			return ns, runs
		}
		must.Do(t, err)
		last = e.Time()
		switch e.Kind() {
		case trace.EventLabel:
			if l := e.Label(); l.Resource.Kind == trace.ResourceGoroutine && strings.HasPrefix(l.Label, "GC (") && gs[l.Resource.Goroutine()] != nil {
				gs[l.Resource.Goroutine()].mark = true
			}
		case trace.EventStateTransition:
			st := e.StateTransition()
			if st.Resource.Kind != trace.ResourceGoroutine {
				continue
			}
			id := st.Resource.Goroutine()
			g := gs[id]
			if g == nil {
				g = new(worker)
				gs[id] = g
			}
			from, to := st.Goroutine()
			if from == to {
				continue
			}
			stop(g)
			g.running, g.runningSince = to == trace.GoRunning, last
			if to != trace.GoRunning && to != trace.GoRunnable {
				g.mark = false
			}
		}
	}
}
