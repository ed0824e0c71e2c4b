package process

import (
	"cmp"
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Collector computes the Stats of a trace, generation by generation. It implements pass.Listener.
type Collector struct {
	stats          Stats
	runtime        runtimeStats
	background     sync.WaitGroup
	eventsPerPart  int64                             // the constant, or less in tests; see addRuns
	timesByStack   []RunningTime                     // by the stack of the event that ended the run
	timesByStart   map[tracefmt.StackID]*RunningTime // runs without such a stack, by start function
	samplesByStack []int64
	firstSample    int64 // the time of the first sample
	herds          map[tracefmt.StackID]*Herd
	broadcasts     map[broadcastKey]*Herd
	spans          []timeline.Span                  // scratch
	openWakeups    map[tracefmt.StackID]*herdWakeup // by stack of the wait
	largestWakeups []finishedWakeup
	gcSums         gcSums
	workerTimes    map[tracefmt.StringID]int64 // running time of mark workers, by mode
	markingWorkers map[uint64]worker           // by goroutine
	window         *timeline.Window
	syms           *tracefmt.Symbols
}

// SetWindow sets a window that ends with the generation that is added next. It shows what goroutines did before that generation
// (waitedForTimer).
func (c *Collector) SetWindow(w *timeline.Window) { c.window = w }

// NewCollector returns an empty Collector.
func NewCollector() *Collector {
	return &Collector{eventsPerPart: eventsPerPart, timesByStart: make(map[tracefmt.StackID]*RunningTime), herds: make(map[tracefmt.StackID]*Herd), broadcasts: make(map[broadcastKey]*Herd), openWakeups: make(map[tracefmt.StackID]*herdWakeup), workerTimes: make(map[tracefmt.StringID]int64)}
}

// AddGeneration implements pass.Listener. It adds the generation in the background, until FinishGeneration.
func (c *Collector) AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, _ bool) {
	c.syms = syms
	c.background.Go(func() { c.Add(g) })
}

// FinishGeneration implements pass.GenerationFinisher: it waits until the generation was added.
func (c *Collector) FinishGeneration() { c.background.Wait() }

// Add adds a generation to all sums. Only one goroutine at a time may call it. Others may read the generation during the call.
func (c *Collector) Add(g *timeline.Gen) {
	c.runtime.add(g)
	c.stats.SpanNS += g.End - g.Base
	c.stats.Events += g.Events
	for _, p := range g.Procs {
		c.stats.Procs = max(c.stats.Procs, p.N)
	}
	c.addRuns(g)
	g.EachLongRun(LongNS, func(r timeline.Run) {
		s := c.runningTimeOf(g, &r)
		s.LongCount++
		s.LongNS += r.To - r.From
		s.LongestNS = max(s.LongestNS, r.To-r.From)
	})
	for i := range g.Samples {
		t := g.Samples[i].Time
		if len(c.samplesByStack) == 0 {
			c.firstSample = t
		}
		c.stats.Samples.SpanNS = max(c.stats.Samples.SpanNS, t-c.firstSample)
		*entry.GetOrGrow(&c.samplesByStack, g.Samples[i].Stack)++
	}
	c.addHerds(g)
	c.addGC(g)
}

// maxRows bounds each list of Stats.
const maxRows = 200

// finish adds mark phases and mark workers that were active when the trace ended. Nothing may be added afterwards.
func (c *Collector) finish() {
	c.gcSums.phases.Close(c.gcSums.end, c.addMark)
	c.addRunningWorkers()
}

// Stats returns the sums over the whole trace, with names. Nothing may be added afterwards.
func (c *Collector) Stats(sp *spell.Speller) *Stats {
	c.finish()
	out := c.stats
	out.Parallelism = c.runtime.parallelism
	out.RunningTimes = c.runningTimes(sp, &out)
	out.ClientCalls = c.clientCalls(sp)
	out.Herds = c.herdRows(sp)
	for _, f := range sortLargestWakeups(c.largestWakeups) {
		p := runSiteOf(sp, f.stack)
		out.HerdWakeups = append(out.HerdWakeups, HerdWakeup{Start: p.start, Site: sp.Site(p.frame), FromNS: f.firstWake - sp.Start, ToNS: max(f.lastEnd, f.firstWake) - sp.Start, Goroutines: int(f.wakes)})
	}
	out.GC, out.Stops = c.gcRows(sp)
	out.SampledFuncs = map[string]*SampledFunc{}
	for id, n := range c.samplesByStack {
		if n > 0 {
			out.Samples.addSamples(sp, tracefmt.StackID(id), n)
			out.addCalls(sp, tracefmt.StackID(id), n)
		}
	}
	return &out
}

// compareSites orders sites by function, file and line. nil comes first.
func compareSites(a, b *report.Site) int {
	if a == nil || b == nil {
		return a.Compare(b)
	}
	return cmp.Or(cmp.Compare(a.Func, b.Func), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), a.Compare(b))
}
