package process

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Collector adds up Stats. It implements pass.Listener.
type Collector struct {
	stats   Stats
	runtime runtimeStats
	beside  sync.WaitGroup
	enough  int64 // see addRuns
	runs    []Run // by the stack that ended the run
	born    map[tracefmt.StackID]*Run
	samples []int64 // by stack
	sampled int64   // when the first was
	herds   map[tracefmt.StackID]*Herd
	flocks  map[tracefmt.StackID]*flock
	largest []flown
	gc      gcSum
	workers map[tracefmt.StringID]int64 // running time of GC workers, by mode
	marking map[uint64]worker           // by goroutine
	window  *timeline.Window
	syms    *tracefmt.Symbols
}

// A flock is goroutines of one place that timers have just woken.
type flock struct {
	from, to   int64 // first wake, last end
	last       int64 // last wake
	late       int64 // the longest from a wake until the run
	n          int64
	empty, ran int64
}

// A flown is a flock that was large enough for a herd.
type flown struct {
	flock
	at tracefmt.StackID
}

// largestFlocks returns the largest, in order of time.
func largestFlocks(list []flown) []flown {
	slices.SortFunc(list, func(a, b flown) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.from, b.from), cmp.Compare(a.at, b.at))
	})
	list = list[:min(len(list), maxRows)]
	slices.SortFunc(list, func(a, b flown) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.at, b.at)) })
	return list
}

// See lets a Collector ask what goroutines did before a generation that is added, the window's last one.
func (c *Collector) See(w *timeline.Window) { c.window = w }

// NewCollector returns an empty Collector.
func NewCollector() *Collector {
	return &Collector{enough: enough, born: make(map[tracefmt.StackID]*Run), herds: make(map[tracefmt.StackID]*Herd), flocks: make(map[tracefmt.StackID]*flock), workers: make(map[tracefmt.StringID]int64)}
}

// AddGeneration implements pass.Listener. The work is done in the background.
func (c *Collector) AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, _ bool) {
	c.syms = syms
	c.beside.Go(func() { c.Add(g) })
}

// FinishGeneration implements pass.Waiter.
func (c *Collector) FinishGeneration() { c.beside.Wait() }

// Add adds a generation up. One goroutine may call it at a time; what it reads of a generation others may read too.
func (c *Collector) Add(g *timeline.Gen) {
	c.runtime.add(g)
	c.stats.SpanNS += g.End - g.Base
	c.stats.Events += g.Events
	for _, p := range g.Procs {
		c.stats.Procs = max(c.stats.Procs, p.N)
	}
	c.addRuns(g)
	g.EachLongRun(LongNS, func(r timeline.Run) {
		s := c.runsOf(g, &r)
		s.Long++
		s.LongNS += r.To - r.From
		s.LongestNS = max(s.LongestNS, r.To-r.From)
	})
	for i := range g.Samples {
		t := g.Samples[i].Time
		if len(c.samples) == 0 {
			c.sampled = t
		}
		c.stats.Samples.SpanNS = max(c.stats.Samples.SpanNS, t-c.sampled)
		*entry.At(&c.samples, g.Samples[i].Stack)++
	}
	c.addHerds(g)
	c.addGC(g)
}

// Of a generation with more than twice as many events, stretches are looked at that hold about enoughOf of enough.
const (
	enough   = 250_000
	enoughOf = 0.4
	stretch  = 5e6 // ns
)

func (c *Collector) addRuns(g *timeline.Gen) {
	n := g.Events / c.enough
	if n <= 1 {
		g.EachRun(g.Base, g.End, func(r timeline.Run) { c.addRun(g, &r, 1) })
		return
	}
	n = int64(float64(n) / enoughOf)
	// One stretch of each n, at a place that moves: what comes back at a fixed rate must not be met or missed always.
	width := n * stretch
	seen, k := int64(0), uint64(0)
	var parts [][2]int64
	for from := g.Base; from < g.End; from += width {
		k++
		at := from + int64((g.Num*1009+k)*0x9e3779b97f4a7c15>>33)%(width-stretch)
		if to := min(at+stretch, g.End); at < to {
			parts = append(parts, [2]int64{at, to})
			seen += to - at
		}
	}
	if seen == 0 {
		return
	}
	scale := float64(g.End-g.Base) / float64(seen)
	for _, p := range parts {
		g.EachRun(p[0], p[1], func(r timeline.Run) {
			c.addRun(g, &r, scale)
		})
	}
}

func (c *Collector) addRun(g *timeline.Gen, r *timeline.Run, scale float64) {
	s := c.runsOf(g, r)
	s.NS += int64(float64(r.To-r.From) * scale)
	s.Runs += int64(scale + 0.5)
}

// runsOf returns where a run is added up: by its stack, or, where it shows none, by that of its start function.
func (c *Collector) runsOf(g *timeline.Gen, r *timeline.Run) *Run {
	if r.Stack != 0 {
		for int(r.Stack) >= len(c.runs) {
			c.runs = append(c.runs, make([]Run, max(64, len(c.runs)))...)
		}
		return &c.runs[r.Stack]
	}
	b, _ := g.BirthOf(r.G)
	return entry.In(c.born, b.Start)
}

func (c *Collector) addHerds(g *timeline.Gen) {
	g.TimerWakes(func(w timeline.TimerWake) {
		if w.Stack == 0 || w.Unseen && !c.byTimer(&w) {
			return
		}
		f := entry.In(c.flocks, w.Stack)
		if since := w.Time - f.from; since > HerdNS && (f.n < HerdSize || w.Time > f.to || since > longHerd) {
			c.disperse(w.Stack, f)
			*f = flock{from: w.Time}
		}
		f.n++
		f.to = max(f.to, w.End)
		f.last = w.Time
		f.late = max(f.late, w.Start-w.Time)
		f.ran += w.End - w.Start
		if w.End-w.Start <= scale.Turn {
			f.empty++
		}
	})
	for at, f := range c.flocks {
		c.disperse(at, f)
	}
	clear(c.flocks)
}

// longHerd is for how long, in ns, goroutines join a herd that has not all run yet.
const longHerd = 100e6

// byTimer reports whether a goroutine that waited since before the generation did so for a timer, as far as what it did
// before is known: of one that waited since before the trace, only where.
func (c *Collector) byTimer(t *timeline.TimerWake) bool {
	if c.window == nil {
		return false
	}
	s, ok := c.window.Waited(t)
	if !ok {
		return false
	}
	switch c.syms.String(s.Reason) {
	case "sleep", "chan receive", "select":
		return true
	case "":
		for _, f := range c.syms.Stack(s.Stack) {
			switch c.syms.String(c.syms.Frame(f).Func) {
			case "time.Sleep", "runtime.selectgo", "runtime.chanrecv1", "runtime.chanrecv2":
				return true
			}
		}
	}
	return false
}

func (c *Collector) disperse(at tracefmt.StackID, f *flock) {
	if f.n < HerdSize {
		return
	}
	if c.largest = append(c.largest, flown{*f, at}); len(c.largest) >= 2*maxRows {
		c.largest = largestFlocks(c.largest)
	}
	h := entry.In(c.herds, at)
	h.Times++
	h.Wakes += f.n
	if int(f.n) > h.Most {
		h.Most, h.WithinNS, h.LateNS = int(f.n), f.last-f.from, f.late
	}
	h.Empty += f.empty
	h.RanNS += f.ran
	h.ClearNS += f.to - f.from
}

// maxRows bounds each list of Stats.
const maxRows = 200

type place struct {
	start string
	frame tracefmt.FrameID
}

// placeOf returns the start function and the site of a stack.
func placeOf(sp *spell.Speller, id tracefmt.StackID) place {
	return place{sp.StartOf(id), sp.Sites.SiteOf(id)}
}

// close adds what was under way when the trace ended. Nothing may be added afterwards.
func (c *Collector) close() {
	c.gc.phases.Close(c.gc.until, c.addMark)
	c.endWorkers()
}

// Stats returns what was added up.
func (c *Collector) Stats(sp *spell.Speller) *Stats {
	c.close()
	out := c.stats
	out.Runs = c.runRows(sp, &out)
	out.Asks = c.asks(sp)
	out.Herds = c.herdRows(sp)
	for _, f := range largestFlocks(c.largest) {
		p := placeOf(sp, f.at)
		out.Flocks = append(out.Flocks, Flock{Start: p.start, Site: sp.Site(p.frame), FromNS: f.from - sp.Start, ToNS: max(f.to, f.from) - sp.Start, N: int(f.n)})
	}
	out.GC, out.Stops = c.gcRows(sp)
	for id, n := range c.samples {
		if n > 0 {
			out.Samples.count(sp.Syms, tracefmt.StackID(id), n)
		}
	}
	return &out
}

func (c *Collector) runRows(sp *spell.Speller, out *Stats) []Run {
	at := make(map[place]*Run)
	add := func(id tracefmt.StackID, s *Run) {
		entry.In(at, placeOf(sp, id)).add(s)
		out.BusyNS += s.NS
	}
	for id := range c.runs {
		if s := &c.runs[id]; s.Runs > 0 || s.Long > 0 {
			add(tracefmt.StackID(id), s)
		}
	}
	for id, s := range c.born {
		add(id, s)
	}
	rows := make([]Run, 0, len(at))
	for p, r := range at {
		r.Start, r.Site = p.start, sp.Site(p.frame)
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b Run) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(b.Runs, a.Runs), cmp.Compare(a.Start, b.Start), compareSites(a.Site, b.Site))
	})
	return rows[:min(len(rows), maxRows)]
}

func (c *Collector) asks(sp *spell.Speller) []Asking {
	by := map[string]int64{}
	for id := range c.runs {
		if s := &c.runs[id]; s.Runs > 0 && slices.ContainsFunc(sp.Syms.Stack(tracefmt.StackID(id)), func(f tracefmt.FrameID) bool {
			return isAsk(sp.Syms.String(sp.Syms.Frame(f).Func))
		}) {
			by[sp.StartOf(tracefmt.StackID(id))] += s.Runs
		}
	}
	var out []Asking
	for _, start := range slices.Sorted(maps.Keys(by)) {
		out = append(out, Asking{start, by[start]})
	}
	return out
}

// isAsk reports whether a function calls another service for whoever called it.
func isAsk(fn string) bool {
	return fn == "net/http.(*Client).do" || strings.Contains(fn, "Transport).RoundTrip") || strings.HasPrefix(fn, "google.golang.org/grpc.(*ClientConn).Invoke") ||
		strings.HasPrefix(fn, "google.golang.org/grpc.(*clientStream).")
}

func (c *Collector) herdRows(sp *spell.Speller) []Herd {
	at := make(map[place]*Herd)
	for id, s := range c.herds {
		entry.In(at, placeOf(sp, id)).add(s)
	}
	rows := make([]Herd, 0, len(at))
	for p, h := range at {
		h.Start, h.Site = p.start, sp.Site(p.frame)
		rows = append(rows, *h)
	}
	slices.SortFunc(rows, func(a, b Herd) int {
		return cmp.Or(cmp.Compare(b.RanNS, a.RanNS), cmp.Compare(b.Wakes, a.Wakes), cmp.Compare(a.Start, b.Start), compareSites(a.Site, b.Site))
	})
	return rows[:min(len(rows), maxRows)]
}

// compareSites orders sites by function, file and line; nil comes first.
func compareSites(a, b *report.Site) int {
	if a == nil || b == nil {
		return a.Compare(b)
	}
	return cmp.Or(cmp.Compare(a.Func, b.Func), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), a.Compare(b))
}
