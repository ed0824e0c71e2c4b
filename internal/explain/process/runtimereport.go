package process

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// runtimeStats is what the report shows about the runtime.
type runtimeStats struct {
	procs        int // the last GOMAXPROCS
	maxHeap      uint64
	maxGoal      uint64
	goroutines   int
	snapshot     *tracefmt.ClockSnapshot
	snapshotTime int64
	psUnknown    bool
	parallelism  float64 // for a trace that does not show Ps: the largest mean number of running goroutines in any parallelismStep
	series       series
}

// add adds GOMAXPROCS, heap sizes, goroutine counts and clock readings of a generation.
func (s *runtimeStats) add(g *timeline.Gen) {
	for _, p := range g.Procs {
		s.procs = p.N
	}
	if g.PsUnknown {
		s.psUnknown = true
		s.addParallelism(g)
	}
	for _, h := range g.Heap {
		if h.Goal {
			s.maxGoal = max(s.maxGoal, h.Bytes)
		} else {
			s.maxHeap = max(s.maxHeap, h.Bytes)
		}
	}
	s.series.add(g)
	n := 0
	g.Goroutines(func(uint64) { n++ })
	s.goroutines = max(s.goroutines, n)
	if g.Snapshot != nil && s.snapshot == nil {
		s.snapshot, s.snapshotTime = g.Snapshot, g.SnapshotTime
	}
}

// Procs returns the last GOMAXPROCS of the trace, 0 if unknown.
func (c *Collector) Procs() int { return c.runtime.procs }

// parallelismStep is the time, in ns, over which concurrent runs are averaged.
const parallelismStep = 10e6

// addParallelism raises parallelism to the largest mean number of running goroutines in any parallelismStep of a generation.
func (s *runtimeStats) addParallelism(g *timeline.Gen) {
	loads, step := g.Loads(g.End, parallelismStep)
	for i := 1; i < len(loads)-1; i++ { // the first and the last step may be shorter
		s.parallelism = max(s.parallelism, float64(loads[i].Running)/float64(step))
	}
}

// PsUnknown reports that the trace was recorded from outside the process: it shows neither Ps nor garbage collection.
func (c *Collector) PsUnknown() bool { return c.runtime.psUnknown }

// Clock returns the first reading of the wall clock in the trace, and the time on the trace's clock at which it was taken; nil
// if there is none.
func (c *Collector) Clock() (s *tracefmt.ClockSnapshot, readAt int64) {
	return c.runtime.snapshot, c.runtime.snapshotTime
}

// Runtime returns the report's section about the runtime and about throttling. Stats must be called before.
func (c *Collector) Runtime(sp *spell.Speller, froze *freeze.Verdict) report.Runtime {
	s := &c.runtime
	r := report.Runtime{
		GC:       report.GC{Cycles: c.gcSums.cycles, MarkNS: c.gcSums.markNS, HeapMaxBytes: int64(min(s.maxHeap, 1<<62)), GoalMaxBytes: int64(min(s.maxGoal, 1<<62))},
		Sched:    report.Sched{Goroutines: s.goroutines},
		Throttle: froze.Throttle,
		STW:      c.stopRowsByKind(sp.Syms),
		Series:   s.series.report(sp.Start, sp.End),
	}
	if s.series.spanNS > 0 {
		r.Sched.PsIdle = float64(s.series.idleNS) / float64(s.series.spanNS)
	}
	var freezes longestIntervals
	for _, f := range froze.Intervals() {
		freezes.add(f.Start, f.Length())
	}
	if len(freezes.list) > 0 {
		r.Series.Freezes = freezes.report(sp.Start)
	}
	return r
}

// stopRowsByKind returns the number and times of the stops of the world by kind only, the most time first.
func (c *Collector) stopRowsByKind(syms *tracefmt.Symbols) []report.STW {
	byKind := make(map[string]*Stop)
	for k, s := range c.gcSums.stops {
		kind := syms.String(k.kind)
		entry.GetOrAdd(byKind, kind).add(&s.Stop)
	}
	out := make([]report.STW, 0, len(byKind))
	for kind, s := range byKind {
		out = append(out, report.STW{Kind: kind, Count: s.Count, TotalNS: s.TotalNS, MaxNS: s.MaxNS})
	}
	slices.SortFunc(out, func(a, b report.STW) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}
