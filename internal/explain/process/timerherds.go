package process

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A herdWakeup is a set of goroutines that timers woke at one site at nearly the same time. It becomes a HerdWakeup if it is
// large enough.
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

// sortLargestWakeups returns the maxRows wakeups with the most goroutines, in order of time, in the memory of the list.
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

// addHerds groups the wakes by timers in a generation into wakeups, by the site of the wait, and adds the large ones to the
// herds. A goroutine joins a wakeup if it woke within HerdNS of the first one or, once the wakeup has HerdSize goroutines,
// before the last of them had run.
func (c *Collector) addHerds(g *timeline.Gen) {
	stack, open := tracefmt.StackID(0), (*herdWakeup)(nil) // of the wake before
	g.TimerWakes(func(w timeline.TimerWake) {
		if w.Stack == 0 || w.MayBePoller && !c.waitedForTimer(&w) {
			return
		}
		if w.Stack != stack {
			stack, open = w.Stack, entry.GetOrAdd(c.openWakeups, w.Stack)
		}
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

// maxHerdNS bounds the time, in ns, during which goroutines can join a wakeup.
const maxHerdNS = 100e6

// waitedForTimer reports whether a wake is by a timer, not by the network poller, for a wait that began before the generation.
// The recorded reason of the wait decides; for a wait that began before the trace, its stack.
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

// finishWakeup adds a wakeup of at least HerdSize goroutines to the herd of its stack; smaller ones are dropped.
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

// herdRows returns the herds by start function and site, the longest running time first.
func (c *Collector) herdRows(sp *spell.Speller) []Herd {
	type herdSite struct {
		runSite
		waker tracefmt.FrameID
	}
	bySite := make(map[herdSite]*Herd)
	for id, s := range c.herds {
		entry.GetOrAdd(bySite, herdSite{runSiteOf(sp, id), 0}).add(s)
	}
	for key, s := range c.broadcasts {
		entry.GetOrAdd(bySite, herdSite{runSiteOf(sp, key.wait), sp.Sites.SiteOf(key.waker)}).add(s)
	}
	rows := make([]Herd, 0, len(bySite))
	for p, h := range bySite {
		h.Start, h.Site, h.Waker = p.start, sp.Site(p.frame), sp.Site(p.waker)
		rows = append(rows, *h)
	}
	slices.SortFunc(rows, func(a, b Herd) int {
		return cmp.Or(cmp.Compare(b.RanNS, a.RanNS), cmp.Compare(b.Wakes, a.Wakes), cmp.Compare(a.Start, b.Start), compareSites(a.Site, b.Site), compareSites(a.Waker, b.Waker))
	})
	return rows[:min(len(rows), maxRows)]
}
