package process

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Collector adds up Stats. It implements pass.Listener.
type Collector struct {
	stats          Stats
	runtime        runtimeStats
	background     sync.WaitGroup
	eventsPerPart  int64                     // see addRuns
	runsByStack    []Run                     // by the stack of the event that ended the run
	runsByStart    map[tracefmt.StackID]*Run // runs without such a stack, by start function
	samplesByStack []int64
	firstSample    int64 // the time of the first sample
	herds          map[tracefmt.StackID]*Herd
	openWakeups    map[tracefmt.StackID]*herdWakeup // by stack of the wait
	largestWakeups []finishedWakeup
	gcSums         gcSums
	workerTimes    map[tracefmt.StringID]int64 // running time of mark workers, by mode
	markingWorkers map[uint64]worker           // by goroutine
	window         *timeline.Window
	syms           *tracefmt.Symbols
}

// A herdWakeup is a set of goroutines at one place that timers have just woken. It is a HerdWakeup if it is large
// enough.
type herdWakeup struct {
	firstWake, lastEnd int64 // lastEnd is the end of the last run
	lastWake           int64
	longestDelay       int64 // from a wake until the goroutine ran
	wakes              int64
	emptyRuns, ranNS   int64
}

// A finishedWakeup is a wakeup that was large enough for a herd.
type finishedWakeup struct {
	herdWakeup
	stack tracefmt.StackID
}

// sortLargestWakeups returns the maxRows largest wakeups in order of time.
func sortLargestWakeups(list []finishedWakeup) []finishedWakeup {
	slices.SortFunc(list, func(a, b finishedWakeup) int {
		return cmp.Or(cmp.Compare(b.wakes, a.wakes), cmp.Compare(a.firstWake, b.firstWake), cmp.Compare(a.stack, b.stack))
	})
	list = list[:min(len(list), maxRows)]
	slices.SortFunc(list, func(a, b finishedWakeup) int {
		return cmp.Or(cmp.Compare(a.firstWake, b.firstWake), cmp.Compare(a.stack, b.stack))
	})
	return list
}

// SetWindow gives the Collector a window that ends with the generation that is added next. With it, the Collector
// knows what goroutines did before that generation.
func (c *Collector) SetWindow(w *timeline.Window) { c.window = w }

// NewCollector returns an empty Collector.
func NewCollector() *Collector {
	return &Collector{eventsPerPart: eventsPerPart, runsByStart: make(map[tracefmt.StackID]*Run), herds: make(map[tracefmt.StackID]*Herd), openWakeups: make(map[tracefmt.StackID]*herdWakeup), workerTimes: make(map[tracefmt.StringID]int64)}
}

// AddGeneration implements pass.Listener. It adds in the background.
func (c *Collector) AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, _ bool) {
	c.syms = syms
	c.background.Go(func() { c.Add(g) })
}

// FinishGeneration implements pass.GenerationFinisher.
func (c *Collector) FinishGeneration() { c.background.Wait() }

// Add adds a generation. Only one goroutine at a time may call it. Others may read the generation during the call.
func (c *Collector) Add(g *timeline.Gen) {
	c.runtime.add(g)
	c.stats.SpanNS += g.End - g.Base
	c.stats.Events += g.Events
	for _, p := range g.Procs {
		c.stats.Procs = max(c.stats.Procs, p.N)
	}
	c.addRuns(g)
	g.EachLongRun(LongNS, func(r timeline.Run) {
		s := c.runTotals(g, &r)
		s.Long++
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

// If a generation has at least twice eventsPerPart events, addRuns examines only parts of partNS, with about
// partShare of eventsPerPart events in total.
const (
	eventsPerPart = 250_000
	partShare     = 0.4
	partNS        = 5e6
)

// addRuns adds the runs of a generation, or of parts of it.
func (c *Collector) addRuns(g *timeline.Gen) {
	divisor := g.Events / c.eventsPerPart
	if divisor <= 1 {
		g.EachRun(g.Base, g.End, func(r timeline.Run) { c.addRun(g, &r, 1) })
		return
	}
	divisor = int64(float64(divisor) / partShare)
	// One part in each divisor parts, at a varying offset: periodic events must not be hit or missed every time.
	width := divisor * partNS
	examinedNS, partIndex := int64(0), uint64(0)
	var parts [][2]int64
	for from := g.Base; from < g.End; from += width {
		partIndex++
		partStart := from + int64(sample.Spread(g.Num*1009+partIndex)>>33)%(width-partNS)
		if to := min(partStart+partNS, g.End); partStart < to {
			parts = append(parts, [2]int64{partStart, to})
			examinedNS += to - partStart
		}
	}
	if examinedNS == 0 {
		return
	}
	scale := float64(g.End-g.Base) / float64(examinedNS)
	for _, p := range parts {
		g.EachRun(p[0], p[1], func(r timeline.Run) {
			c.addRun(g, &r, scale)
		})
	}
}

func (c *Collector) addRun(g *timeline.Gen, r *timeline.Run, scale float64) {
	s := c.runTotals(g, r)
	s.NS += int64(float64(r.To-r.From) * scale)
	s.Runs += int64(scale + 0.5)
}

// runTotals returns the totals to which a run is added: those of its stack or, if it has none, of its goroutine's
// start function.
func (c *Collector) runTotals(g *timeline.Gen, r *timeline.Run) *Run {
	if r.Stack != 0 {
		for int(r.Stack) >= len(c.runsByStack) {
			c.runsByStack = append(c.runsByStack, make([]Run, max(64, len(c.runsByStack)))...)
		}
		return &c.runsByStack[r.Stack]
	}
	b, _ := g.BirthOf(r.G)
	return entry.GetOrAdd(c.runsByStart, b.Start)
}

// addHerds adds the goroutines that timers woke in a generation.
func (c *Collector) addHerds(g *timeline.Gen) {
	g.TimerWakes(func(w timeline.TimerWake) {
		if w.Stack == 0 || w.MayBePoller && !c.waitedForTimer(&w) {
			return
		}
		open := entry.GetOrAdd(c.openWakeups, w.Stack)
		if age := w.Time - open.firstWake; age > HerdNS && (open.wakes < HerdSize || w.Time > open.lastEnd || age > maxHerdNS) {
			c.finishWakeup(w.Stack, open)
			*open = herdWakeup{firstWake: w.Time}
		}
		open.wakes++
		open.lastEnd = max(open.lastEnd, w.End)
		open.lastWake = w.Time
		open.longestDelay = max(open.longestDelay, w.Start-w.Time)
		open.ranNS += w.End - w.Start
		if w.End-w.Start <= threshold.IdleCheckNS {
			open.emptyRuns++
		}
	})
	for stack, open := range c.openWakeups {
		c.finishWakeup(stack, open)
	}
	clear(c.openWakeups)
}

// maxHerdNS is for how long, in ns, goroutines join a wakeup that has not ended.
const maxHerdNS = 100e6

// waitedForTimer reports whether a goroutine whose wait began before the generation waited for a timer. If it waited
// since before the trace, only its stack is known.
func (c *Collector) waitedForTimer(t *timeline.TimerWake) bool {
	if c.window == nil {
		return false
	}
	s, ok := c.window.WaitBefore(t)
	if !ok {
		return false
	}
	switch c.syms.String(s.Reason) {
	case "sleep", "chan receive", "select":
		return true
	case "":
		for _, f := range c.syms.Stack(s.Stack) {
			roles := knowledge.Of(c.syms.String(c.syms.Frame(f).Func))
			if roles.Has(knowledge.SleepWait) || roles.Has(knowledge.SelectWait) || roles.Has(knowledge.ReceiveWait) {
				return true
			}
		}
	}
	return false
}

// finishWakeup adds a wakeup to its herd, if it is large enough.
func (c *Collector) finishWakeup(stack tracefmt.StackID, wakeup *herdWakeup) {
	if wakeup.wakes < HerdSize {
		return
	}
	if c.largestWakeups = append(c.largestWakeups, finishedWakeup{*wakeup, stack}); len(c.largestWakeups) >= 2*maxRows {
		c.largestWakeups = sortLargestWakeups(c.largestWakeups)
	}
	h := entry.GetOrAdd(c.herds, stack)
	h.Times++
	h.Wakes += wakeup.wakes
	if int(wakeup.wakes) > h.Largest {
		h.Largest, h.WithinNS, h.LateNS = int(wakeup.wakes), wakeup.lastWake-wakeup.firstWake, wakeup.longestDelay
	}
	h.Empty += wakeup.emptyRuns
	h.RanNS += wakeup.ranNS
	h.ClearNS += wakeup.lastEnd - wakeup.firstWake
}

// maxRows bounds each list of Stats.
const maxRows = 200

type runSite struct {
	start string
	frame tracefmt.FrameID
}

// runSiteOf returns the start function and the site of a stack.
func runSiteOf(sp *spell.Speller, id tracefmt.StackID) runSite {
	return runSite{sp.StartOf(id), sp.Sites.SiteOf(id)}
}

// finish adds mark phases and workers that were active when the trace ended. Nothing may be added afterwards.
func (c *Collector) finish() {
	c.gcSums.phases.Close(c.gcSums.end, c.addMark)
	c.endWorkers()
}

// Stats returns the sums.
func (c *Collector) Stats(sp *spell.Speller) *Stats {
	c.finish()
	out := c.stats
	out.Parallelism = c.runtime.parallelism
	out.Runs = c.runRows(sp, &out)
	out.ClientCalls = c.clientCalls(sp)
	out.Herds = c.herdRows(sp)
	for _, f := range sortLargestWakeups(c.largestWakeups) {
		p := runSiteOf(sp, f.stack)
		out.HerdWakeups = append(out.HerdWakeups, HerdWakeup{Start: p.start, Site: sp.Site(p.frame), FromNS: f.firstWake - sp.Start, ToNS: max(f.lastEnd, f.firstWake) - sp.Start, Goroutines: int(f.wakes)})
	}
	out.GC, out.Stops = c.gcRows(sp)
	for id, n := range c.samplesByStack {
		if n > 0 {
			out.Samples.count(sp, tracefmt.StackID(id), n)
		}
	}
	return &out
}

func (c *Collector) runRows(sp *spell.Speller, out *Stats) []Run {
	bySite := make(map[runSite]*Run)
	add := func(id tracefmt.StackID, s *Run) {
		entry.GetOrAdd(bySite, runSiteOf(sp, id)).add(s)
		out.BusyNS += s.NS
	}
	for id := range c.runsByStack {
		if s := &c.runsByStack[id]; s.Runs > 0 || s.Long > 0 {
			add(tracefmt.StackID(id), s)
		}
	}
	for id, s := range c.runsByStart {
		add(id, s)
	}
	rows := make([]Run, 0, len(bySite))
	for p, r := range bySite {
		r.Start, r.Site = p.start, sp.Site(p.frame)
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b Run) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Start, b.Start), compareSites(a.Site, b.Site))
	})
	return rows[:min(len(rows), maxRows)]
}

func (c *Collector) clientCalls(sp *spell.Speller) []ClientCalls {
	runs := map[string]int64{}
	for id := range c.runsByStack {
		if s := &c.runsByStack[id]; s.Runs > 0 && sp.Sites.HasRole(tracefmt.StackID(id), knowledge.PeerCall) {
			runs[sp.StartOf(tracefmt.StackID(id))] += s.Runs
		}
	}
	var out []ClientCalls
	for _, start := range slices.Sorted(maps.Keys(runs)) {
		out = append(out, ClientCalls{start, runs[start]})
	}
	return out
}

func (c *Collector) herdRows(sp *spell.Speller) []Herd {
	bySite := make(map[runSite]*Herd)
	for id, s := range c.herds {
		entry.GetOrAdd(bySite, runSiteOf(sp, id)).add(s)
	}
	rows := make([]Herd, 0, len(bySite))
	for p, h := range bySite {
		h.Start, h.Site = p.start, sp.Site(p.frame)
		rows = append(rows, *h)
	}
	slices.SortFunc(rows, func(a, b Herd) int {
		return cmp.Or(cmp.Compare(b.RanNS, a.RanNS), cmp.Compare(b.Wakes, a.Wakes), cmp.Compare(a.Start, b.Start), compareSites(a.Site, b.Site))
	})
	return rows[:min(len(rows), maxRows)]
}

// compareSites orders sites by function, file and line. nil comes first.
func compareSites(a, b *report.Site) int {
	if a == nil || b == nil {
		return a.Compare(b)
	}
	return cmp.Or(cmp.Compare(a.Func, b.Func), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), a.Compare(b))
}
