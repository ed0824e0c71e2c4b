package process

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// If a generation has at least twice eventsPerPart events, addRuns examines only parts of partNS, with about
// partShare of eventsPerPart events in total.
const (
	eventsPerPart = 250_000
	partShare     = 0.4
	partNS        = 5e6
)

// addRuns adds the running times of a generation's goroutines, and the herds that Broadcast wakes. If the generation has very many events, it examines only parts
// of it and scales the times up.
func (c *Collector) addRuns(g *timeline.Gen) {
	divisor := g.Events / c.eventsPerPart
	if divisor <= 1 {
		g.EachRun(g.Base, g.End, func(r timeline.Run) { c.addRun(g, &r, 1) })
		c.addBroadcasts(g, g.Base, g.End+1, 1)
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
		c.addBroadcasts(g, p[0], p[1], scale)
	}
}

// addRun adds the time of a run, and the run itself, to its totals, multiplied by scale: the runs of a sample represent others.
func (c *Collector) addRun(g *timeline.Gen, r *timeline.Run, scale float64) {
	s := c.runningTimeOf(g, r)
	s.NS += int64(float64(r.To-r.From) * scale)
	s.Count += int64(scale + 0.5)
}

// runningTimeOf returns the RunningTime to which a run belongs: by the stack of the event that ended it or, without such a stack, by the
// start function of its goroutine.
func (c *Collector) runningTimeOf(g *timeline.Gen, r *timeline.Run) *RunningTime {
	if r.Stack != 0 {
		for int(r.Stack) >= len(c.timesByStack) {
			c.timesByStack = append(c.timesByStack, make([]RunningTime, max(64, len(c.timesByStack)))...)
		}
		return &c.timesByStack[r.Stack]
	}
	b, _ := g.BirthOf(r.G)
	return entry.GetOrAdd(c.timesByStart, b.Start)
}

// A runSite is the start function of a goroutine and the site where its run ended.
type runSite struct {
	start string
	frame tracefmt.FrameID
}

// runSiteOf returns the start function and the site of a stack.
func runSiteOf(sp *spell.Speller, id tracefmt.StackID) runSite {
	return runSite{sp.StartOf(id), sp.Sites.SiteOf(id)}
}

// runningTimes returns the running times by start function and site, the longest first, and adds their sum to out.BusyNS.
func (c *Collector) runningTimes(sp *spell.Speller, out *Stats) []RunningTime {
	bySite := make(map[runSite]*RunningTime)
	add := func(id tracefmt.StackID, s *RunningTime) {
		entry.GetOrAdd(bySite, runSiteOf(sp, id)).Add(s)
		out.BusyNS += s.NS
	}
	for id := range c.timesByStack {
		if s := &c.timesByStack[id]; s.Count > 0 || s.LongCount > 0 {
			if s.Yields = 0; sp.Sites.HasRole(tracefmt.StackID(id), knowledge.Yield) {
				s.Yields = s.Count
			}
			add(tracefmt.StackID(id), s)
		}
	}
	for id, s := range c.timesByStart {
		s.Ends = s.Count
		add(id, s)
	}
	rows := make([]RunningTime, 0, len(bySite))
	for p, r := range bySite {
		r.Start, r.Site = p.start, sp.Site(p.frame)
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b RunningTime) int {
		return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Start, b.Start), compareSites(a.Site, b.Site))
	})
	return rows[:min(len(rows), maxRows)]
}

// clientCalls returns, by start function, the number of runs that ended in a call of an HTTP or gRPC client.
func (c *Collector) clientCalls(sp *spell.Speller) (out []ClientCalls) {
	runs := map[string]int64{}
	for id := range c.timesByStack {
		if s := &c.timesByStack[id]; s.Count > 0 && sp.Sites.HasRole(tracefmt.StackID(id), knowledge.PeerCall) {
			runs[sp.StartOf(tracefmt.StackID(id))] += s.Count
		}
	}
	for _, start := range slices.Sorted(maps.Keys(runs)) {
		out = append(out, ClientCalls{start, runs[start]})
	}
	return out
}
