package cause

import (
	"cmp"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// addRunnable divides the time in which a goroutine was ready to run into three causes: the world was stopped (stw), no P was
// free (sched), or a P was idle but had not yet woken up (sched-wake).
func (c *Classifier) addRunnable(segment Segment) {
	start := segment.Start
	c.eachStop(segment.Start, segment.End, func(r timeline.STWRange, from, to int64) {
		c.addWaitForP(segment, start, from)
		stop := segment
		stop.Start, stop.End = from, to
		stop.Code, stop.Kind, stop.Site = Code(STW), r.Kind, c.Sites.SiteOf(r.Stack)
		c.addSegment(&stop)
		start = to
	})
	c.addWaitForP(segment, start, segment.End)
}

// addWaitForP adds the part of a wait for a P from start to end, during which the world was not stopped, as sched and
// sched-wake. If the idle intervals are too many, the rest is two sums.
func (c *Classifier) addWaitForP(segment Segment, start, end int64) {
	if end <= start {
		return
	}
	add := func(partEnd int64, cause Cause) {
		segment.Start, segment.End, segment.Code = start, partEnd, Code(cause)
		c.addSegment(&segment)
		start = partEnd
	}
	intervals, last := 0, c.window.GenIndex(end)
	for i := c.window.GenIndex(start); i <= last; i++ {
		c.window.Gens[i].IdleIntervals(start, end, func(a, b int64) bool {
			if intervals++; intervals > maxIdleIntervals {
				return false
			}
			add(a, Sched)
			add(b, SchedWake)
			return true
		})
		if intervals > maxIdleIntervals {
			// Too many parts: add the rest as two sums.
			idle := int64(0)
			for ; i <= last; i++ {
				idle += c.window.Gens[i].IdleTime(start, end)
			}
			add(min(start+idle, end), SchedWake)
		}
	}
	add(end, Sched)
}

// eachStop calls f for each stop of the world that overlaps [from, to), cut to it, in order of time and without overlap.
func (c *Classifier) eachStop(from, to int64, f func(r timeline.STWRange, a, b int64)) {
	if len(c.window.Gens) == 0 {
		return
	}
	start := from
	for i := max(c.window.GenIndex(from)-1, 0); i < len(c.window.Gens) && c.window.Gens[i].Base < to; i++ {
		gen := c.window.Gens[i]
		for k := gen.FirstStop(start); k < len(gen.STW) && gen.STW[k].Start < to; k++ {
			end := cmp.Or(gen.STW[k].End, gen.End) // it may end in a later generation
			if a, b := max(gen.STW[k].Start, start), min(end, to); a < b {
				f(gen.STW[k], a, b)
				start = b
			}
		}
	}
}

// EachStopper calls f with the stacks of the goroutines that stopped the world in [from, to).
func (c *Classifier) EachStopper(from, to int64, f func(tracefmt.StackID)) {
	c.eachStop(from, to, func(r timeline.STWRange, _, _ int64) { f(r.Stack) })
}

// worldStopAt returns the stop of the world at t; false if the world ran.
func (c *Classifier) worldStopAt(t int64) (timeline.STWRange, bool) {
	var found timeline.STWRange
	ok := false
	c.eachStop(t, t+1, func(r timeline.STWRange, _, _ int64) { found, ok = r, true })
	return found, ok
}
