package process

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// GC describes the garbage collections of a trace.
type GC struct {
	Cycles int // cycles that began
	// Forced is the number of cycles that code requested (runtime.GC, debug.FreeOSMemory). ForcedAt is the site that requested
	// most of them.
	Forced   int
	ForcedAt *report.Site
	// BegunAt is the site at which most of the other cycles began: the allocation that reached the trigger, if its site is
	// outside the standard library. The more a site allocates, the more often it is this one. BegunShare is its share of these
	// cycles.
	BegunAt    *report.Site
	BegunShare float64
	// MarkNS is the time in mark phases.
	MarkNS int64
	// LiveBytes is the heap after a cycle, and GoalBytes the heap goal of the next. Both are means over
	// MeasuredCycles cycles, whose time from their end to the next beginning is known.
	LiveBytes, GoalBytes int64
	MeasuredCycles       int
	// FullCycles counts further cycles after which the live heap left no room below the goal. FullBytes is the mean
	// of the live heap then.
	FullCycles int
	FullBytes  int64
	// AllocatedBytes is the total growth of the heap between collections.
	AllocatedBytes int64
	// Running time of the mark workers, by mode: dedicated workers occupy their P, fractional workers use a part of
	// it, idle workers run only on idle Ps.
	DedicatedNS, FractionalNS, IdleNS int64
}

// A Stop is the sum of the stops of the world of one kind at one site.
type Stop struct {
	Kind    string
	Site    *report.Site // that stopped the world; nil if unknown
	Count   int
	TotalNS int64
	MaxNS   int64
	// ExaminedNS is the time of the examined stops (the longest ones of each generation), and StoppingNS the part of
	// it until the last goroutine had stopped.
	ExaminedNS, StoppingNS int64
	// SlowStoppers are the sites where goroutines ran longest after the request to stop, with their shares of
	// StoppingNS.
	SlowStoppers []report.Share
}

// gcSums adds up garbage collection over generations.
type gcSums struct {
	cycles               int
	beginsByStack        map[tracefmt.StackID]int
	markNS               int64
	phases               timeline.MarkPhases
	end                  int64 // of the last generation
	liveBytes, goalBytes int64 // sums over measured cycles
	measuredCycles       int
	fullCycles           int
	fullBytes            int64  // sum over full cycles
	lastCycleEnd         int64  // 0 while a cycle is active, and before the first one ends
	lowestHeap           uint64 // smallest heap since the end of the last cycle: the live heap
	currentGoal          uint64
	hasGoal              bool // a goal was shown
	currentHeap          uint64
	allocatedBytes       uint64
	stops                map[stopKey]*stopTotals
	openStops            timeline.Stops
}

type stopKey struct {
	kind  tracefmt.StringID
	stack tracefmt.StackID
}

// stopTotals are the sums of one kind of stop at one stack.
type stopTotals struct {
	Stop
	slowStoppers map[tracefmt.StackID]int64
}

// add adds the stops of another sum of the same kind and site.
func (s *Stop) add(o *Stop) {
	s.Count += o.Count
	s.TotalNS += o.TotalNS
	s.MaxNS = max(s.MaxNS, o.MaxNS)
	s.ExaminedNS += o.ExaminedNS
	s.StoppingNS += o.StoppingNS
}

// heapSettleNS is how long before the event of a cycle's end the heap may already show the live heap.
const heapSettleNS = 1e6

// addGC adds the collections, heap sizes, mark workers and stops of the world of a generation.
func (c *Collector) addGC(g *timeline.Gen) {
	s := &c.gcSums
	if s.stops == nil {
		s.stops, s.beginsByStack = make(map[stopKey]*stopTotals), make(map[tracefmt.StackID]int)
	}
	nextPoint := 0
	addHeapUntil := func(end int64) {
		for ; nextPoint < len(g.Heap) && g.Heap[nextPoint].Time < end; nextPoint++ {
			p := &g.Heap[nextPoint]
			if !p.Goal {
				if p.Bytes > s.currentHeap && s.currentHeap != 0 {
					s.allocatedBytes += p.Bytes - s.currentHeap
				}
				s.currentHeap = p.Bytes
			}
			switch {
			case p.Goal:
				s.currentGoal, s.hasGoal = p.Bytes, true
			case s.lastCycleEnd != 0 && p.Time >= s.lastCycleEnd-heapSettleNS && (s.lowestHeap == 0 || p.Bytes < s.lowestHeap):
				s.lowestHeap = p.Bytes
			}
		}
	}
	for _, e := range g.GC {
		if e.Begin {
			addHeapUntil(e.Time)
			if !e.Active {
				s.countCycle(&e)
			}
			continue
		}
		// Heap sizes shortly before the event already show the live heap.
		addHeapUntil(e.Time - heapSettleNS)
		s.lastCycleEnd, s.lowestHeap = e.Time, 0
	}
	addHeapUntil(g.End + 1)
	s.phases.Add(g, c.addMark)
	s.end = max(s.end, g.End)
	c.addWorkers(g)
	c.addStops(g)
}

// addMark adds a mark phase from from to to (ns).
func (c *Collector) addMark(from, to int64) {
	c.gcSums.markNS += to - from
	c.runtime.series.gc.add(from, to-from)
}

// minRoomDivisor: less room between live heap and goal than this fraction of the live heap counts as none. GOGC puts the goal
// GOGC/100 of the live heap above it. Values as low as GOGC=3 are not used in practice, so a memory limit must have lowered the
// goal.
const minRoomDivisor = 32

// countCycle counts a cycle at its beginning. With the live heap and the goal since the previous cycle it counts as measured,
// or as full if the goal left no room.
func (s *gcSums) countCycle(e *timeline.GCEvent) {
	s.cycles++
	s.beginsByStack[e.Stack]++
	if s.lastCycleEnd != 0 && s.lowestHeap != 0 && s.hasGoal {
		live, goal := int64(min(s.lowestHeap, 1<<50)), int64(min(s.currentGoal, 1<<50))
		isGOGCOff := goal == 0 // then the goal is shown as zero (go.dev/issue/63864), and only a memory limit or code begins cycles
		if isGOGCOff {
			goal = int64(min(s.currentHeap, 1<<50))
		}
		switch {
		case goal-live <= live/minRoomDivisor:
			s.fullCycles++
			s.fullBytes += live
		case !isGOGCOff:
			s.liveBytes += live
			s.goalBytes += goal
			s.measuredCycles++
		}
	}
	s.lastCycleEnd = 0
}

// A worker is a mark worker that is active when a generation ends.
type worker struct {
	mode         tracefmt.StringID
	runningSince int64 // 0 if it was preempted
}

// addWorkers adds the running time of mark workers. A label shows the mode of a worker each time it starts to mark. A
// worker that marks when a generation ends continues in the next one without a new label. Because generations
// overlap, its stop is only known then.
func (c *Collector) addWorkers(g *timeline.Gen) {
	if len(g.Labels) == 0 && len(c.markingWorkers) == 0 {
		return
	}
	labels := slices.Clone(g.Labels)
	slices.SortFunc(labels, func(a, b timeline.Label) int { return cmp.Or(cmp.Compare(a.G, b.G), cmp.Compare(a.Time, b.Time)) })
	ids := slices.AppendSeq(make([]uint64, 0, len(labels)+len(c.markingWorkers)), maps.Keys(c.markingWorkers))
	for i := range labels {
		ids = append(ids, labels[i].G)
	}
	slices.Sort(ids)
	marking := make(map[uint64]worker)
	win := timeline.Window{Gens: []*timeline.Gen{g}}
	var spans []timeline.Span
	for _, id := range slices.Compact(ids) {
		spans = win.Spans(id, g.Base, g.End, spans[:0])
		w := c.markingWorkers[id]
		for k := range spans {
			sp := &spans[k]
			if sp.State != timeline.Running {
				if sp.State != timeline.Runnable {
					w.mode = 0
				} // a preempted worker may continue without a new label
				w.runningSince = 0
				continue
			}
			for len(labels) > 0 && (labels[0].G < id || labels[0].G == id && labels[0].Time < sp.Start) {
				labels = labels[1:]
			}
			if len(labels) > 0 && labels[0].G == id && labels[0].Time <= sp.End {
				w.mode = labels[0].Name
			}
			if w.mode == 0 {
				continue
			}
			w.runningSince = cmp.Or(w.runningSince, max(sp.Start, g.Base))
			if k < len(spans)-1 { // a run may consist of several spans
				c.workerTimes[w.mode] += max(0, sp.End-w.runningSince)
				w.runningSince = sp.End
			}
		}
		if w.mode != 0 {
			marking[id] = w
		}
	}
	c.markingWorkers = marking
}

// addRunningWorkers adds the running time of mark workers that were active at the end of the trace.
func (c *Collector) addRunningWorkers() {
	for _, w := range c.markingWorkers {
		if w.runningSince != 0 {
			c.workerTimes[w.mode] += max(0, c.gcSums.end-w.runningSince)
		}
	}
	c.markingWorkers = nil
}

// At most maxExaminedStops stops of a generation, of at least minExaminedStopNS, are examined.
const (
	maxExaminedStops  = 16
	minExaminedStopNS = 100e3
)

// addStops adds the stops of the world that ended in a generation, and examines the longest of them.
func (c *Collector) addStops(g *timeline.Gen) {
	s := &c.gcSums
	var long []timeline.STWRange
	s.openStops.Add(g, func(r timeline.STWRange) {
		c.runtime.series.stw.add(r.Start, r.End-r.Start)
		k := stopKey{r.Kind, r.Stack}
		sum := entry.GetOrMake(s.stops, k, func() *stopTotals { return &stopTotals{slowStoppers: make(map[tracefmt.StackID]int64)} })
		d := r.End - r.Start
		sum.add(&Stop{Count: 1, TotalNS: d, MaxNS: d})
		if d >= minExaminedStopNS && r.Start >= g.Base {
			long = append(long, r)
		}
	})
	slices.SortFunc(long, func(a, b timeline.STWRange) int {
		return cmp.Or(cmp.Compare(b.End-b.Start, a.End-a.Start), cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G))
	})
	for _, r := range long[:min(len(long), maxExaminedStops)] {
		s.stops[stopKey{r.Kind, r.Stack}].addSlowStopper(g, &r)
	}
}

// addSlowStopper determines which goroutine stopped last: how long after the beginning of the stop it still ran, and where.
func (s *stopTotals) addSlowStopper(g *timeline.Gen, r *timeline.STWRange) {
	stopped, lastRun := r.Start, timeline.Run{}
	g.EachRun(r.Start, r.End, func(run timeline.Run) {
		if run.G != r.G && run.To < r.End && (run.To > stopped || run.To == stopped && run.G < lastRun.G) {
			stopped, lastRun = run.To, run
		}
	})
	s.ExaminedNS += r.End - r.Start
	s.StoppingNS += stopped - r.Start
	if lastRun.G != 0 {
		s.slowStoppers[lastRun.Stack] += stopped - r.Start
	}
}

// maxSlowStoppers bounds the SlowStoppers of a Stop.
const maxSlowStoppers = 3

// gcRows returns the garbage collection and the stops of the world in the form of Stats.
func (c *Collector) gcRows(sp *spell.Speller) (GC, []Stop) {
	s := &c.gcSums
	out := GC{Cycles: s.cycles, MarkNS: s.markNS, MeasuredCycles: s.measuredCycles}
	if s.measuredCycles > 0 {
		out.LiveBytes, out.GoalBytes = s.liveBytes/int64(s.measuredCycles), s.goalBytes/int64(s.measuredCycles)
	}
	if s.fullCycles > 0 {
		out.FullCycles, out.FullBytes = s.fullCycles, s.fullBytes/int64(s.fullCycles)
		out.AllocatedBytes = int64(min(s.allocatedBytes, 1<<50))
	}
	for name, ns := range c.workerTimes {
		switch sp.Syms.String(name) {
		case "GC (dedicated)":
			out.DedicatedNS += ns
		case "GC (fractional)":
			out.FractionalNS += ns
		case "GC (idle)":
			out.IdleNS += ns
		}
	}
	forcedSites, begunSites := map[tracefmt.FrameID]int{}, map[tracefmt.FrameID]int{}
	for id, n := range s.beginsByStack {
		if sp.Sites.HasRole(id, knowledge.ForcedGC) {
			out.Forced += n
			forcedSites[sp.Sites.SiteOf(id)] += n
		} else if f := sp.Sites.SiteOf(id); f != 0 && !sp.Sites.IsStdlib(sp.Syms.Frame(f).Func) {
			begunSites[f] += n
		}
	}
	out.ForcedAt, _ = mostFrequentSite(forcedSites, sp)
	n := 0
	if out.BegunAt, n = mostFrequentSite(begunSites, sp); n > 0 {
		out.BegunShare = float64(n) / float64(s.cycles-out.Forced)
	}
	return out, c.stopRows(sp)
}

// mostFrequentSite returns the site with the highest count, and the count; nil if counts is empty.
func mostFrequentSite(counts map[tracefmt.FrameID]int, sp *spell.Speller) (site *report.Site, count int) {
	for f, n := range counts {
		if s := sp.Site(f); n > count || n == count && compareSites(s, site) < 0 {
			site, count = s, n
		}
	}
	return site, count
}

// stopRows returns the stops of the world by kind and site, each with the sites that stopped last, the most time first.
func (c *Collector) stopRows(sp *spell.Speller) []Stop {
	type key struct {
		kind string
		site tracefmt.FrameID
	}
	byKey := map[key]*Stop{}
	slowSites := map[key]map[tracefmt.FrameID]int64{}
	for k, s := range c.gcSums.stops {
		id := key{sp.Syms.String(k.kind), sp.Sites.SiteOf(k.stack)}
		r := byKey[id]
		if r == nil {
			r = &Stop{Kind: id.kind, Site: sp.Site(id.site)}
			byKey[id], slowSites[id] = r, map[tracefmt.FrameID]int64{}
		}
		r.add(&s.Stop)
		for stack, ns := range s.slowStoppers {
			slowSites[id][sp.Sites.SiteOf(stack)] += ns
		}
	}
	rows := make([]Stop, 0, len(byKey))
	for id, r := range byKey {
		for f, ns := range slowSites[id] {
			if r.StoppingNS > 0 {
				r.SlowStoppers = append(r.SlowStoppers, report.Share{Site: sp.Site(f), Share: float64(ns) / float64(r.StoppingNS)})
			}
		}
		slices.SortFunc(r.SlowStoppers, func(a, b report.Share) int {
			return cmp.Or(cmp.Compare(b.Share, a.Share), compareSites(a.Site, b.Site))
		})
		r.SlowStoppers = r.SlowStoppers[:min(len(r.SlowStoppers), maxSlowStoppers)]
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b Stop) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.Kind, b.Kind), compareSites(a.Site, b.Site))
	})
	return rows[:min(len(rows), maxRows)]
}
