package process

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A broadcastKey identifies the herds that Broadcast wakes by the stacks of the waits and of the call.
type broadcastKey struct{ wait, waker tracefmt.StackID }

// addBroadcasts adds the herds that calls of Broadcast in [from, to) wake: HerdSize goroutines or more, of which nearly all find
// nothing to do and wait again. Of each herd it examines HerdSize goroutines, which represent the others. Sums are multiplied by
// scale.
func (c *Collector) addBroadcasts(g *timeline.Gen, from, to int64, scale float64) {
	window := timeline.NewWindow([]*timeline.Gen{g}, nil)
	g.EachWakeSeries(from, to, HerdSize, func(waker tracefmt.StackID, woken []timeline.WokenGoroutine) {
		if !c.hasRole(waker, knowledge.Broadcast) {
			return
		}
		wakeup, firstWait := herdWakeup{firstWake: woken[0].Time, lastWake: woken[len(woken)-1].Time}, tracefmt.StackID(0)
		for i := range HerdSize {
			wait, isEmpty := c.addCheck(&wakeup, window, woken[i*len(woken)/HerdSize])
			if isEmpty && (firstWait == 0 || wait == firstWait) {
				firstWait = wait
				wakeup.emptyRuns++
			}
		}
		if float64(wakeup.emptyRuns) < threshold.NearlyAllShare*HerdSize {
			return
		}
		weight := float64(len(woken)) / HerdSize
		entry.GetOrAdd(c.broadcasts, broadcastKey{firstWait, waker}).add(&Herd{
			Times: int64(scale + 0.5), Wakes: int64(scale * float64(len(woken))), Largest: len(woken), WithinNS: wakeup.lastWake - wakeup.firstWake, LateNS: wakeup.longestDelay,
			Empty: int64(scale * weight * float64(wakeup.emptyRuns)), RanNS: int64(scale * weight * float64(wakeup.ranNS)), ClearNS: int64(scale * float64(wakeup.lastEnd-wakeup.firstWake)),
		})
	})
}

// addCheck adds the runs of a goroutine that was woken from a wait for a Cond until it waits for one again, and returns the stack of
// the first wait. isEmpty reports that it found nothing to do: in between it only took the lock, and the second wait has the same
// stack.
func (c *Collector) addCheck(wakeup *herdWakeup, window *timeline.Window, woken timeline.WokenGoroutine) (wait tracefmt.StackID, isEmpty bool) {
	ranNS := int64(0)
	c.spans = window.SpansCoarse(woken.G, woken.Time-1, woken.Time+maxHerdNS, c.spans[:0])
	for span := range entry.Each(c.spans) {
		switch isCond := c.hasRole(span.Stack, knowledge.CondWait); {
		case span.State == timeline.Running:
			if ranNS == 0 {
				wakeup.longestDelay = max(wakeup.longestDelay, span.Start-woken.Time)
			}
			ranNS += span.End - span.Start
			wakeup.ranNS += span.End - span.Start
			wakeup.lastEnd = max(wakeup.lastEnd, span.End)
		case span.State == timeline.Runnable, span.State == timeline.Waiting && isCond && c.hasRole(span.Stack, knowledge.Mutex):
		case span.State != timeline.Waiting || !isCond:
			return wait, false
		case wait == 0:
			wait = span.Stack
		default:
			return wait, span.Stack == wait && ranNS <= threshold.IdleCheckNS
		}
	}
	return wait, false
}

// hasRole reports whether a function of a stack has a role.
func (c *Collector) hasRole(stack tracefmt.StackID, role knowledge.Role) bool {
	return slices.ContainsFunc(c.syms.Stack(stack), func(f tracefmt.FrameID) bool { return knowledge.Has(c.syms.String(c.syms.Frame(f).Func), role) })
}
