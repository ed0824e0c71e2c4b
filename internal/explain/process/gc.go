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
	Measured             int
	// Full counts, beside Measured, the cycles after which what lived had no room below the goal, FullBytes is the mean of
	// what lived then.
	Full      int
	FullBytes int64
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
	LookedNS, StoppingNS int64
	// Slow lists where goroutines ran on the longest after the wish to stop, by the time that the world waited for them.
	Slow []report.Share
}

// gcSum adds up garbage collection. It goes on from generation to generation.
type gcSum struct {
	cycles     int
	begunAt    map[tracefmt.StackID]int
	mark       int64
	phases     timeline.MarkPhases
	until      int64 // end of the last generation
	live, goal int64 // sums over measured cycles
	measured   int
	full       int
	fullBytes  int64  // sum over full cycles
	ended      int64  // when the last cycle ended, 0 before the first
	least      uint64 // heap since
	goalNow    uint64
	stops      map[stopKey]*stopSum
	open       timeline.Stops
}

type stopKey struct {
	kind tracefmt.StringID
	by   tracefmt.StackID
}

type stopSum struct {
	Stop
	slow map[tracefmt.StackID]int64
}

func (s *Stop) add(o *Stop) {
	s.Count += o.Count
	s.TotalNS += o.TotalNS
	s.MaxNS = max(s.MaxNS, o.MaxNS)
	s.LookedNS += o.LookedNS
	s.StoppingNS += o.StoppingNS
}

// settle is how long before the end of a cycle is seen the heap may have been set to what is live.
const settle = 1e6

func (c *Collector) addGC(g *timeline.Gen) {
	s := &c.gc
	if s.stops == nil {
		s.stops, s.begunAt = make(map[stopKey]*stopSum), make(map[tracefmt.StackID]int)
	}
	h := 0
	heap := func(until int64) {
		for ; h < len(g.Heap) && g.Heap[h].Time < until; h++ {
			p := &g.Heap[h]
			switch {
			case p.Goal:
				s.goalNow = p.Bytes
			case s.ended != 0 && p.Time >= s.ended-settle && (s.least == 0 || p.Bytes < s.least):
				s.least = p.Bytes
			}
		}
	}
	for _, e := range g.GC {
		if e.Begin {
			heap(e.Time)
			if !e.Active {
				s.begin(&e, c)
			}
			continue
		}
		// What came shortly before is part of what was left.
		heap(e.Time - settle)
		s.ended, s.least = e.Time, 0
	}
	heap(g.End + 1)
	s.phases.Each(g, c.addMark)
	s.until = max(s.until, g.End)
	c.addWorkers(g)
	c.addStops(g)
}

func (c *Collector) addMark(from, to int64) {
	c.gc.mark += to - from
	c.runtime.series.gc.add(from, to-from)
}

// noRoom is the part of what lives below which the room between it and the goal is none. GOGC puts the goal GOGC/100 of
// what lives above it, and nobody sets GOGC=3: it is a memory limit that puts it lower.
const noRoom = 32

func (s *gcSum) begin(e *timeline.GCEvent, c *Collector) {
	s.cycles++
	s.begunAt[e.Stack]++
	if s.ended != 0 && s.least != 0 && s.goalNow != 0 {
		live, goal := int64(min(s.least, 1<<50)), int64(min(s.goalNow, 1<<50))
		if goal-live <= live/noRoom {
			s.full++
			s.fullBytes += live
		} else {
			s.live += live
			s.goal += goal
			s.measured++
		}
	}
	s.ended = 0
}

// A worker is one that marked when a generation ended.
type worker struct {
	mode  tracefmt.StringID
	since int64 // it has run since then, 0 if it was made to stop
}

// addWorkers adds up how long mark workers ran. A worker's label says its mode each time it starts. One that marks when a
// generation ends goes on in the next without a new label; when it stopped is known only then: generations overlap.
func (c *Collector) addWorkers(g *timeline.Gen) {
	if len(g.Labels) == 0 && len(c.marking) == 0 {
		return
	}
	labels := slices.Clone(g.Labels)
	slices.SortFunc(labels, func(a, b timeline.Label) int { return cmp.Or(cmp.Compare(a.G, b.G), cmp.Compare(a.Time, b.Time)) })
	ids := slices.AppendSeq(make([]uint64, 0, len(labels)+len(c.marking)), maps.Keys(c.marking))
	for i := range labels {
		ids = append(ids, labels[i].G)
	}
	slices.Sort(ids)
	marking := make(map[uint64]worker)
	win := timeline.Window{Gens: []*timeline.Gen{g}}
	var spans []timeline.Span
	for _, id := range slices.Compact(ids) {
		spans = win.Spans(id, g.Base, g.End, spans[:0])
		w := c.marking[id]
		for k := range spans {
			sp := &spans[k]
			if sp.State != timeline.Running {
				if sp.State != timeline.Runnable {
					w.mode = 0
				} // one that was made to stop may go on without a new label
				w.since = 0
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
			if w.since == 0 {
				w.since = max(sp.Start, g.Base)
			}
			if k < len(spans)-1 { // a run goes on through stops of the world and the like
				c.workers[w.mode] += max(0, sp.End-w.since)
				w.since = sp.End
			}
		}
		if w.mode != 0 {
			marking[id] = w
		}
	}
	c.marking = marking
}

// endWorkers adds what ran until the end of the trace.
func (c *Collector) endWorkers() {
	for _, w := range c.marking {
		if w.since != 0 {
			c.workers[w.mode] += max(0, c.gc.until-w.since)
		}
	}
	c.marking = nil
}

// Of a generation's stops, at most so many of at least this length are looked at.
const (
	stopsLooked  = 16
	shortestStop = 100e3
)

func (c *Collector) addStops(g *timeline.Gen) {
	s := &c.gc
	var long []timeline.STWRange
	s.open.Each(g, func(r timeline.STWRange) {
		c.runtime.series.stw.add(r.Start, r.End-r.Start)
		k := stopKey{r.Kind, r.Stack}
		sum := s.stops[k]
		if sum == nil {
			sum = &stopSum{slow: make(map[tracefmt.StackID]int64)}
			s.stops[k] = sum
		}
		d := r.End - r.Start
		sum.add(&Stop{Count: 1, TotalNS: d, MaxNS: d})
		if d >= shortestStop && r.Start >= g.Base {
			long = append(long, r)
		}
	})
	slices.SortFunc(long, func(a, b timeline.STWRange) int {
		return cmp.Or(cmp.Compare(b.End-b.Start, a.End-a.Start), cmp.Compare(a.Start, b.Start), cmp.Compare(a.G, b.G))
	})
	for _, r := range long[:min(len(long), stopsLooked)] {
		s.stops[stopKey{r.Kind, r.Stack}].look(g, &r)
	}
}

// look finds who ran on longest after the world was to stop.
func (s *stopSum) look(g *timeline.Gen, r *timeline.STWRange) {
	last, who := r.Start, timeline.Run{}
	g.EachRun(r.Start, r.End, func(run timeline.Run) {
		if run.G != r.G && run.To < r.End && (run.To > last || run.To == last && run.G < who.G) {
			last, who = run.To, run
		}
	})
	s.LookedNS += r.End - r.Start
	s.StoppingNS += last - r.Start
	if who.G != 0 {
		s.slow[who.Stack] += last - r.Start
	}
}

// mostSlow bounds how many places are listed that were slow to stop.
const mostSlow = 3

func (c *Collector) gcRows(sp *spell.Speller) (GC, []Stop) {
	s := &c.gc
	out := GC{Cycles: s.cycles, MarkNS: s.mark, Measured: s.measured}
	if s.measured > 0 {
		out.LiveBytes, out.GoalBytes = s.live/int64(s.measured), s.goal/int64(s.measured)
	}
	if s.full > 0 {
		out.Full, out.FullBytes = s.full, s.fullBytes/int64(s.full)
	}
	for name, ns := range c.workers {
		switch sp.Syms.String(name) {
		case "GC (dedicated)":
			out.DedicatedNS += ns
		case "GC (fractional)":
			out.FractionalNS += ns
		case "GC (idle)":
			out.IdleNS += ns
		}
	}
	forced, begun := map[tracefmt.FrameID]int{}, map[tracefmt.FrameID]int{}
	for id, n := range s.begunAt {
		if isForced(sp.Syms, id) {
			out.Forced += n
			forced[sp.Sites.SiteOf(id)] += n
		} else if f := sp.Sites.SiteOf(id); f != 0 && !sp.Sites.IsStdlib(sp.Syms.Frame(f).Func) {
			begun[f] += n
		}
	}
	out.ForcedAt, _ = mostOf(forced, sp)
	n := 0
	if out.BegunAt, n = mostOf(begun, sp); n > 0 {
		out.BegunShare = float64(n) / float64(s.cycles-out.Forced)
	}
	return out, c.stopRows(sp)
}

// mostOf returns the place that counts most.
func mostOf(counts map[tracefmt.FrameID]int, sp *spell.Speller) (site *report.Site, most int) {
	for f, n := range counts {
		if s := sp.Site(f); n > most || n == most && compareSites(s, site) < 0 {
			site, most = s, n
		}
	}
	return site, most
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
	at := map[key]*Stop{}
	slow := map[key]map[tracefmt.FrameID]int64{}
	for k, s := range c.gc.stops {
		id := key{sp.Syms.String(k.kind), sp.Sites.SiteOf(k.by)}
		r := at[id]
		if r == nil {
			r = &Stop{Kind: id.kind, Site: sp.Site(id.site)}
			at[id], slow[id] = r, map[tracefmt.FrameID]int64{}
		}
		r.add(&s.Stop)
		for by, ns := range s.slow {
			slow[id][sp.Sites.SiteOf(by)] += ns
		}
	}
	rows := make([]Stop, 0, len(at))
	for id, r := range at {
		for f, ns := range slow[id] {
			if r.StoppingNS > 0 {
				r.Slow = append(r.Slow, report.Share{Site: sp.Site(f), Share: float64(ns) / float64(r.StoppingNS)})
			}
		}
		slices.SortFunc(r.Slow, func(a, b report.Share) int {
			return cmp.Or(cmp.Compare(b.Share, a.Share), compareSites(a.Site, b.Site))
		})
		r.Slow = r.Slow[:min(len(r.Slow), mostSlow)]
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b Stop) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.Kind, b.Kind), compareSites(a.Site, b.Site))
	})
	return rows[:min(len(rows), maxRows)]
}
