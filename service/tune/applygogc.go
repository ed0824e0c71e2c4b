package tune

import (
	"math"
	"time"
)

// measureGC sets gcShare, the collector's share (0 to 1) of the process's CPU time, and quotaShare, its share of the CPU quota, -1 if unknown. The
// runtime updates its CPU classes at the end of a collection, so windows end there; before that, it changes nothing.
func (t *Tuner) measureGC() {
	s := &t.current.goStats
	end := gcTimes{gcSeconds: s.gcSeconds, busySeconds: s.totalSeconds - s.idleSeconds, realSeconds: t.current.cpu.Seconds()}
	if t.gcTimesStartAt.IsZero() || !t.current.cpuOK {
		t.gcTimesStart, t.gcTimesStartAt = end, t.current.readAt
		return
	}
	wall := t.current.readAt.Sub(t.gcTimesStartAt)
	if end.busySeconds == t.gcTimesStart.busySeconds || wall < minShareWindow {
		return // no collection since, or too short a time to measure
	}
	t.gcShare = gcShare(t.gcTimesStart, end)
	t.quotaShare = -1
	if q := t.current.bounds.Quota; q > 0 && t.gcShare >= 0 {
		t.quotaShare = t.gcShare * (end.realSeconds - t.gcTimesStart.realSeconds) / (q * wall.Seconds())
	}
	t.gcTimesStart, t.gcTimesStartAt = end, t.current.readAt
}

// gcWindow returns the GOGC policy's input since the start of the window, and starts a new window if there was a collection.
func (t *Tuner) gcWindow() gcWindow {
	s := &t.current.goStats
	w := gcWindow{
		live: s.live, stacks: s.stacks, globals: s.globals, goal: s.goal, gogc: s.gogc, overhead: s.overhead,
		memoryBound: t.current.memoryLimit(), otherMemory: max(t.current.otherMemory(), t.opts.MemoryReserve),
		gomemlimit: s.memoryLimit, gcShare: t.gcShare,
	}
	if h := t.current.bounds.High; h > 0 && (w.memoryBound == 0 || h < w.memoryBound) {
		w.memoryBound = h
	}
	if t.polls > 1 {
		w.cycles = s.cycles - t.policyCycles
	}
	if w.cycles > 0 || t.polls <= 1 {
		w.elapsed = t.current.readAt.Sub(t.policyCyclesAt)
		t.policyCycles, t.policyCyclesAt = s.cycles, t.current.readAt
	}
	if !t.memory.foreign && t.memory.env == "" {
		in := t.memoryInput()
		in.target = 0
		w.bounded = in.ceiling() != noMemoryLimit
		w.limitOurs = t.memory.changed && t.opts.Memory == ModeApply
		in.relaxed, in.current = false, 0
		w.unrelaxedLimit, _ = memoryFor(in)
		in.defaultRatio = false
		w.slack = w.limitOurs && s.memoryLimit < in.ceiling()
		return w
	}
	// A limit set by hand bounds the heap if it leaves room for other memory.
	w.bounded = s.memoryLimit != noMemoryLimit && (w.memoryBound == 0 || float64(s.memoryLimit) <= maxSafeShare*float64(w.memoryBound))
	if w.bounded {
		w.memoryBound, w.otherMemory = s.memoryLimit, 0
	}
	return w
}

const (
	// minShareWindow is the shortest window in which the collector's share is measured.
	minShareWindow = 200 * time.Millisecond
	// A GOMEMLIMIT set by hand to more than this share of the memory limit does not
	// prevent the kernel from killing the process.
	maxSafeShare = 0.97
)

// recordAlarm records the guard's alarm, at most one a minute unless it relaxes the limit.
// applyMemory changes the limit.
func (t *Tuner) recordAlarm(d gcDecision) {
	if !d.alarm || !d.relax && !t.lastAlarm.IsZero() && t.current.readAt.Sub(t.lastAlarm) < time.Minute {
		return
	}
	t.lastAlarm = t.current.readAt
	e := t.gogc.event("runtime/metrics and the memory limit")
	e.Action = ActionAlarm
	e.Reason = d.reason
	if d.relax {
		e.Reason += "; GOMEMLIMIT no longer accounts for memory outside of Go"
	}
	e.Undo = "a larger memory limit, or a smaller live heap"
	t.record(&knob{}, e)
}

// applyGOGC sets GOGC in ModeApply, or only records the decision in ModeObserve; in ModeOff it does nothing.
func (t *Tuner) applyGOGC(d gcDecision) {
	if t.opts.GC == ModeOff {
		return
	}
	g := &t.gogc
	e := g.event("runtime/metrics and the memory limit")
	e.To, e.Reason = int64(d.gogc), d.reason
	if t.keepForeign(g, e, "") || e.To == e.From {
		return
	}
	// In ModeObserve GOGC stays, so the policy's value varies all the time. It is reported again if it has changed by 20 %.
	if t.opts.GC == ModeObserve && g.hasEvent && g.lastEvent.Action == ActionWouldSet && math.Abs(float64(e.To-g.lastEvent.To)) < 0.2*float64(g.lastEvent.To) {
		return
	}
	t.applyEvent(g, e, t.opts.GC == ModeApply)
}
