package process

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// GC is what garbage collection did.
type GC struct {
	Cycles int // begun
	// Forced counts those that code asked for (runtime.GC, debug.FreeOSMemory), ForcedAt says where most of them were.
	Forced   int
	ForcedAt *report.Site
	// BegunAt is where the others were begun most often: by the allocation that reached the trigger, the standard
	// library's own left out. The more a place allocates, the more often it is the one. BegunShare is its share of them.
	BegunAt    *report.Site
	BegunShare float64
	// MarkNS is the time with a mark phase under way.
	MarkNS int64
	// LiveBytes is the heap after a cycle, GoalBytes that at which the next was to be over; means over Measured cycles
	// that were seen from end to next begin.
	LiveBytes, GoalBytes int64
	MeasuredCycles       int
	// FullCycles counts, beside Measured, the cycles after which what lived had no room below the goal, FullBytes is the mean of
	// what lived then.
	FullCycles int
	FullBytes  int64
	// Running time of the mark workers, by mode: dedicated ones keep their P, fractional ones take a part of it, idle
	// ones run where nothing else wants to.
	DedicatedNS, FractionalNS, IdleNS int64
}

// A Stop sums the stops of the world of one kind by one site.
type Stop struct {
	Kind    string
	Site    *report.Site // who stopped the world; nil if unknown
	Count   int
	TotalNS int64
	MaxNS   int64
	// Of stops that were looked at (the longest of each generation): their time, and the part of it until the last goroutine
	// had stopped.
	ExaminedNS, StoppingNS int64
	// SlowStoppers lists where goroutines ran on the longest after the wish to stop, by the time that the world waited for them.
	SlowStoppers []report.Share
}

// gcSums adds up garbage collection. It goes on from generation to generation.
type gcSums struct {
	cycles               int
	beginsByStack        map[tracefmt.StackID]int
	markNS               int64
	phases               timeline.MarkPhases
	end                  int64 // end of the last generation
	liveBytes, goalBytes int64 // sums over measured cycles
	measuredCycles       int
	fullCycles           int
	fullBytes            int64  // sum over full cycles
	lastCycleEnd         int64  // when the last cycle ended, 0 before the first
	lowestHeap           uint64 // heap since
	currentGoal          uint64
	stops                map[stopKey]*stopTotals
	openStops            timeline.Stops
}

type stopKey struct {
	kind  tracefmt.StringID
	stack tracefmt.StackID
}

type stopTotals struct {
	Stop
	slowStoppers map[tracefmt.StackID]int64
}

func (s *Stop) add(o *Stop) {
	s.Count += o.Count
	s.TotalNS += o.TotalNS
	s.MaxNS = max(s.MaxNS, o.MaxNS)
	s.ExaminedNS += o.ExaminedNS
	s.StoppingNS += o.StoppingNS
}

// heapSettleNS is how long before the end of a cycle is seen the heap may have been set to what is live.
const heapSettleNS = 1e6

func (c *Collector) addGC(g *timeline.Gen) {
	s := &c.gcSums
	if s.stops == nil {
		s.stops, s.beginsByStack = make(map[stopKey]*stopTotals), make(map[tracefmt.StackID]int)
	}
	nextPoint := 0
	addHeapUntil := func(end int64) {
		for ; nextPoint < len(g.Heap) && g.Heap[nextPoint].Time < end; nextPoint++ {
			p := &g.Heap[nextPoint]
			switch {
			case p.Goal:
				s.currentGoal = p.Bytes
			case s.lastCycleEnd != 0 && p.Time >= s.lastCycleEnd-heapSettleNS && (s.lowestHeap == 0 || p.Bytes < s.lowestHeap):
				s.lowestHeap = p.Bytes
			}
		}
	}
	for _, e := range g.GC {
		if e.Begin {
			addHeapUntil(e.Time)
			if !e.Active {
				s.countCycle(&e, c)
			}
			continue
		}
		// What came shortly before is part of what was left.
		addHeapUntil(e.Time - heapSettleNS)
		s.lastCycleEnd, s.lowestHeap = e.Time, 0
	}
	addHeapUntil(g.End + 1)
	s.phases.Add(g, c.addMark)
	s.end = max(s.end, g.End)
	c.addWorkers(g)
	c.addStops(g)
}

func (c *Collector) addMark(from, to int64) {
	c.gcSums.markNS += to - from
	c.runtime.series.gc.add(from, to-from)
}

// minRoomDivisor is the part of what lives below which the room between it and the goal is none. GOGC puts the goal GOGC/100 of
// what lives above it, and nobody sets GOGC=3: it is a memory limit that puts it lower.
const minRoomDivisor = 32

func (s *gcSums) countCycle(e *timeline.GCEvent, c *Collector) {
	s.cycles++
	s.beginsByStack[e.Stack]++
	if s.lastCycleEnd != 0 && s.lowestHeap != 0 && s.currentGoal != 0 {
		live, goal := int64(min(s.lowestHeap, 1<<50)), int64(min(s.currentGoal, 1<<50))
		if goal-live <= live/minRoomDivisor {
			s.fullCycles++
			s.fullBytes += live
		} else {
			s.liveBytes += live
			s.goalBytes += goal
			s.measuredCycles++
		}
	}
	s.lastCycleEnd = 0
}

// A worker is one that marked when a generation ended.
type worker struct {
	mode         tracefmt.StringID
	runningSince int64 // it has run since then, 0 if it was made to stop
}

// addWorkers adds up how long mark workers ran. A worker's label says its mode each time it starts. One that marks when a
// generation ends goes on in the next without a new label; when it stopped is known only then: generations overlap.
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
				} // one that was made to stop may go on without a new label
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
			if w.runningSince == 0 {
				w.runningSince = max(sp.Start, g.Base)
			}
			if k < len(spans)-1 { // a run goes on through stops of the world and the like
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

// endWorkers adds what ran until the end of the trace.
func (c *Collector) endWorkers() {
	for _, w := range c.markingWorkers {
		if w.runningSince != 0 {
			c.workerTimes[w.mode] += max(0, c.gcSums.end-w.runningSince)
		}
	}
	c.markingWorkers = nil
}

// Of a generation's stops, at most so many of at least this length are looked at.
const (
	maxExaminedStops  = 16
	minExaminedStopNS = 100e3
)

func (c *Collector) addStops(g *timeline.Gen) {
	s := &c.gcSums
	var long []timeline.STWRange
	s.openStops.Add(g, func(r timeline.STWRange) {
		c.runtime.series.stw.add(r.Start, r.End-r.Start)
		k := stopKey{r.Kind, r.Stack}
		sum := s.stops[k]
		if sum == nil {
			sum = &stopTotals{slowStoppers: make(map[tracefmt.StackID]int64)}
			s.stops[k] = sum
		}
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
		s.stops[stopKey{r.Kind, r.Stack}].examine(g, &r)
	}
}

// examine finds who ran on longest after the world was to stop.
func (s *stopTotals) examine(g *timeline.Gen, r *timeline.STWRange) {
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

// maxSlowStoppers bounds how many places are listed that were slow to stop.
const maxSlowStoppers = 3

func (c *Collector) gcRows(sp *spell.Speller) (GC, []Stop) {
	s := &c.gcSums
	out := GC{Cycles: s.cycles, MarkNS: s.markNS, MeasuredCycles: s.measuredCycles}
	if s.measuredCycles > 0 {
		out.LiveBytes, out.GoalBytes = s.liveBytes/int64(s.measuredCycles), s.goalBytes/int64(s.measuredCycles)
	}
	if s.fullCycles > 0 {
		out.FullCycles, out.FullBytes = s.fullCycles, s.fullBytes/int64(s.fullCycles)
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
		if isForced(sp.Syms, id) {
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

// mostFrequentSite returns the place that counts most.
func mostFrequentSite(counts map[tracefmt.FrameID]int, sp *spell.Speller) (site *report.Site, count int) {
	for f, n := range counts {
		if s := sp.Site(f); n > count || n == count && compareSites(s, site) < 0 {
			site, count = s, n
		}
	}
	return site, count
}

func isForced(syms *tracefmt.Symbols, id tracefmt.StackID) bool {
	for _, f := range syms.Stack(id) {
		switch syms.String(syms.Frame(f).Func) {
		case "runtime.GC", "runtime/debug.freeOSMemory", "runtime/debug.FreeOSMemory":
			return true
		}
	}
	return false
}

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
