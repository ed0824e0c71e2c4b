package tune

import (
	"math"
	"time"
)

// pollAfterCollection polls and decides about GOMEMLIMIT and GOGC only. Between two
// collections the live heap may grow so much that a poll each second is too late.
func (t *Tuner) pollAfterCollection() {
	t.mu.Lock()
	defer t.unlockAndDeliver()
	_ = t.guard.Do("tune: reading the memory", func() {
		t.reader.readAfterCollection(&t.current)
		t.current.goStats = t.runtime.observe(t.current.goStats)
		t.measureGC()
		t.applyMemoryAndGC(false)
	})
}

// applyMemoryAndGC decides about GOGC and GOMEMLIMIT and sets them, in an order that never
// leaves the heap without a bound: a limit is set before GOGC rises, and removed after
// it has fallen. atInterval means that this is not a poll after a collection.
func (t *Tuner) applyMemoryAndGC(atInterval bool) {
	if t.opts.Memory == ModeOff && t.opts.GC == ModeOff {
		return
	}
	t.detectForeignMemory()
	d := t.gc.step(t.gcWindow())
	t.gogcRaised = t.opts.GC == ModeApply && t.gogc.env == "" && !t.gogc.foreign && d.gogc > t.gc.baseGOGC && t.gc.baseGOGC > 0
	t.recordAlarm(d)
	if int64(d.gogc) >= int64(t.current.goStats.gogc) {
		t.applyMemory(atInterval)
		t.applyGOGC(d)
		return
	}
	t.applyGOGC(d)
	t.applyMemory(atInterval)
}

// detectForeignMemory sets foreign of GOMEMLIMIT and GOGC if other code has set them.
func (t *Tuner) detectForeignMemory() {
	t.memory.foreign = t.memory.foreign || t.memory.hasForeignValue() || t.memory.initial != noMemoryLimit
	t.gogc.foreign = t.gogc.foreign || t.gogc.hasForeignValue()
}

// memoryInput returns memoryFor's input at this poll, except settled.
func (t *Tuner) memoryInput() memoryInput {
	in := memoryInput{
		limit: t.current.memoryLimit(), noLimitReason: t.current.limits.Memory.SightText, high: t.current.bounds.High, ratio: t.opts.MemoryRatio,
		otherMemory: t.current.otherMemory(), reserve: t.opts.MemoryReserve, needed: t.current.goStats.neededMemory(),
		relaxed: t.gc.relaxed, defaultRatio: t.defaultRatio,
	}
	if t.gogcRaised {
		in.target = memoryTarget
	}
	if m := &t.memory; m.changed {
		in.current = m.lastSet
	} else if m.hasEvent {
		in.current = m.lastEvent.To
	}
	return in
}

// pollsToSettle is the number of polls in a row, not after collections, at which other
// memory must be less before the limit rises.
const pollsToSettle = 10

// applyMemory decides about GOMEMLIMIT, sets it if the mode is ModeApply or a raised GOGC or a large heap needs it, and records the decision.
// atInterval is false for a poll after a collection, which does not count for settledPolls.
func (t *Tuner) applyMemory(atInterval bool) {
	memory := &t.memory
	// A raised GOGC needs a limit in every mode.
	apply := t.opts.Memory == ModeApply || t.gogcRaised
	if t.opts.Memory == ModeOff && !t.gogcRaised && !memory.changed {
		return
	}
	event := memory.event(t.current.memorySource())
	if t.keepForeign(memory, event, "") {
		return
	}
	in := t.memoryInput()
	if !apply && memory.changed && t.outgrown(in) {
		// Without the limit the heap would exceed it.
		apply = true
	}
	if !apply && memory.changed {
		memory.restoreInitial()
		event.Action, event.To, event.Reason = ActionRestore, memory.initial, "GOGC is no longer raised, and GOMEMLIMIT is only observed"
		t.record(memory, event)
		return
	}
	ceiling := in.ceiling()
	// A changed container limit and GOGC's share take effect at once, a decrease of other
	// memory after a while.
	in.settled = t.settledPolls >= pollsToSettle || ceiling != t.lastCeiling || t.gogcRaised != t.gogcWasRaised || in.relaxed
	t.lastCeiling, t.gogcWasRaised = ceiling, t.gogcRaised
	want, reason := memoryFor(in)
	if settledInput := in; atInterval {
		settledInput.settled = true
		if w, _ := memoryFor(settledInput); w > in.current {
			t.settledPolls++
		} else {
			t.settledPolls = 0
		}
	}
	event.To, event.Reason = want, reason
	if apply && want != event.From {
		t.settledPolls = 0
		if t.opts.Memory != ModeApply {
			event.Reason += ", for as long as GOGC is raised or the heap is too large without it"
		}
	}
	t.applyEvent(memory, event, apply)
}

// outgrown reports whether the heap would exceed the limit that memoryFor returns for in if GOGC alone controlled it.
func (t *Tuner) outgrown(in memoryInput) bool {
	s := &t.current.goStats
	limit, _ := memoryFor(in)
	gogc := int64(max(0, s.gogc))
	return s.overhead+s.live+(s.live+s.stacks+s.globals)*gogc/100 > limit
}

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
