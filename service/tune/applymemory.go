package tune

import (
	"math"
	"time"
)

// lookAfterCollection decides about memory and the collector only: from one
// collection to the next the live heap may grow so much that a look each second
// comes too late.
func (t *Tuner) lookAfterCollection() {
	t.mu.Lock()
	defer t.unlockAndTell()
	_ = t.guard.Do("tune: reading the memory", func() {
		t.read.readAfterCollection(&t.now)
		t.now.rt = t.runtime.observe(t.now.rt)
		t.measureGC()
		t.lookAtMemoryAndGC(false)
	})
}

// lookAtMemoryAndGC decides about GOGC and GOMEMLIMIT, in the order in which
// the heap is never without a bound: a limit comes before GOGC rises, and goes
// after it fell. second says that this is a look of the interval's.
func (t *Tuner) lookAtMemoryAndGC(second bool) {
	if t.opts.Memory == ModeOff && t.opts.GC == ModeOff {
		return
	}
	t.noteForeign()
	d := t.gc.step(t.gcWindow())
	t.raised = t.opts.GC == ModeApply && t.gogc.env == "" && !t.gogc.foreign && d.gogc > t.gc.base && t.gc.base > 0
	t.tellGuard(d)
	if int64(d.gogc) >= int64(t.now.rt.gogc) {
		t.lookAtMemory(second)
		t.applyGOGC(d)
		return
	}
	t.applyGOGC(d)
	t.lookAtMemory(second)
}

// noteForeign notes that other code set a limit or GOGC.
func (t *Tuner) noteForeign() {
	t.memory.foreign = t.memory.foreign || t.memory.moved() || t.memory.initial != noMemoryLimit
	t.gogc.foreign = t.gogc.foreign || t.gogc.moved()
}

// memoryInput is what memoryFor needs now.
func (t *Tuner) memoryInput() memoryInput {
	in := memoryInput{
		limit: t.now.memoryLimit(), absent: t.now.limits.Memory.Seen, high: t.now.bounds.High, ratio: t.opts.MemoryRatio,
		other: t.now.otherMemory(), reserve: t.opts.MemoryReserve, needs: t.now.rt.needs(),
		relaxed: t.gc.relaxed, usual: t.usualRatio,
	}
	if t.raised {
		in.target = memoryTarget
	}
	if m := &t.memory; m.changed {
		in.current = m.set
	} else if m.spoke {
		in.current = m.told.To
	}
	return in
}

// settledAfter is for how many looks of the interval's other memory must be
// less before the limit rises.
const settledAfter = 10

func (t *Tuner) lookAtMemory(second bool) {
	m := &t.memory
	// A raised GOGC has a limit in any mode.
	apply := t.opts.Memory == ModeApply || t.raised
	if t.opts.Memory == ModeOff && !t.raised && !m.changed {
		return
	}
	e := m.event(t.now.memorySource())
	if t.yield(m, e, "") {
		return
	}
	in := t.memoryInput()
	if !apply && m.changed && t.outgrown(in) {
		// The heap would do without a limit what it was to be kept from.
		apply = true
	}
	if !apply && m.changed {
		m.giveBack()
		e.Action, e.To, e.Reason = ActionRestore, m.initial, "GOGC is no longer raised, and GOMEMLIMIT is only observed"
		t.tell(m, e)
		return
	}
	ceiling := in.ceiling()
	// A limit that was changed is followed at once, other memory that shrank
	// after a while, and GOGC's share at once.
	in.settled = t.settled >= settledAfter || ceiling != t.ceiling || t.raised != t.wasRaised || in.relaxed
	t.ceiling, t.wasRaised = ceiling, t.raised
	want, reason := memoryFor(in)
	if free := in; second {
		free.settled = true
		if w, _ := memoryFor(free); w > in.current {
			t.settled++
		} else {
			t.settled = 0
		}
	}
	e.To, e.Reason = want, reason
	if apply && want != e.From {
		t.settled = 0
		if t.opts.Memory != ModeApply {
			e.Reason += ", for as long as GOGC is raised or the heap is too large without it"
		}
	}
	t.act(m, e, apply)
}

// outgrown reports whether the heap would go beyond the limit if GOGC alone
// paced it.
func (t *Tuner) outgrown(in memoryInput) bool {
	s := &t.now.rt
	limit, _ := memoryFor(in)
	gogc := int64(max(0, s.gogc))
	return s.overhead+s.live+(s.live+s.stacks+s.globals)*gogc/100 > limit
}

// measureGC brings the collector's share up to date. The runtime refreshes its
// CPU classes at the end of a collection, so windows end there.
func (t *Tuner) measureGC() {
	s := &t.now.rt
	to := gcTimes{gc: s.gcSeconds, busy: s.totalSeconds - s.idleSeconds, real: t.now.cpu.Seconds()}
	if t.gcFromAt.IsZero() || !t.now.cpuOK {
		t.gcFrom, t.gcFromAt = to, t.now.at
		return
	}
	wall := t.now.at.Sub(t.gcFromAt)
	if to.busy == t.gcFrom.busy || wall < shareWindow {
		return // no collection since, or too short a time to measure
	}
	t.gcShare = gcShare(t.gcFrom, to)
	t.quotaShare = -1
	if q := t.now.bounds.Quota; q > 0 && t.gcShare >= 0 {
		t.quotaShare = t.gcShare * (to.real - t.gcFrom.real) / (q * wall.Seconds())
	}
	t.gcFrom, t.gcFromAt = to, t.now.at
}

func (t *Tuner) gcWindow() gcWindow {
	s := &t.now.rt
	w := gcWindow{
		live: s.live, stacks: s.stacks, globals: s.globals, goal: s.goal, gogc: s.gogc, overhead: s.overhead,
		memory: t.now.memoryLimit(), other: max(t.now.otherMemory(), t.opts.MemoryReserve),
		limit: s.memoryLimit, share: t.gcShare,
	}
	if h := t.now.bounds.High; h > 0 && (w.memory == 0 || h < w.memory) {
		w.memory = h
	}
	if t.looks > 1 {
		w.cycles = s.cycles - t.gcCycles
	}
	if w.cycles > 0 || t.looks <= 1 {
		w.elapsed = t.now.at.Sub(t.gcAt)
		t.gcCycles, t.gcAt = s.cycles, t.now.at
	}
	if !t.memory.foreign && t.memory.env == "" {
		in := t.memoryInput()
		in.target = 0
		w.safe = in.ceiling() != noMemoryLimit
		w.ours = t.memory.changed && t.opts.Memory == ModeApply
		in.relaxed, in.current = false, 0
		w.calm, _ = memoryFor(in)
		in.usual = false
		w.slack = w.ours && s.memoryLimit < in.ceiling()
		return w
	}
	// A limit by hand bounds the heap if it leaves the rest some room.
	w.safe = s.memoryLimit != noMemoryLimit && (w.memory == 0 || float64(s.memoryLimit) <= largestSafe*float64(w.memory))
	if w.safe {
		w.memory, w.other = s.memoryLimit, 0
	}
	return w
}

const (
	// shareWindow is the least time over which the collector's share is taken.
	shareWindow = 200 * time.Millisecond
	// A GOMEMLIMIT by hand of more than this share of the memory does not keep
	// a process from being killed.
	largestSafe = 0.97
)

// tellGuard reports what the guard decided; lookAtMemory does it.
func (t *Tuner) tellGuard(d gcDecision) {
	if !d.alarm || !d.relax && !t.alarmed.IsZero() && t.now.at.Sub(t.alarmed) < time.Minute {
		return
	}
	t.alarmed = t.now.at
	e := t.gogc.event("runtime/metrics and the memory limit")
	e.Action = ActionAlarm
	e.Reason = d.reason
	if d.relax {
		e.Reason += "; GOMEMLIMIT no longer accounts for memory outside of Go"
	}
	e.Undo = "a larger memory limit, or a smaller live heap"
	t.tell(&knob{}, e)
}

func (t *Tuner) applyGOGC(d gcDecision) {
	if t.opts.GC == ModeOff {
		return
	}
	g := &t.gogc
	e := g.event("runtime/metrics and the memory limit")
	e.To, e.Reason = int64(d.gogc), d.reason
	if t.yield(g, e, "") || e.To == e.From {
		return
	}
	// In observe mode nothing changes, so the wish moves all the time: it is reported again when it moved by 20 %.
	if t.opts.GC == ModeObserve && g.spoke && g.told.Action == ActionWouldSet && math.Abs(float64(e.To-g.told.To)) < 0.2*float64(g.told.To) {
		return
	}
	t.act(g, e, t.opts.GC == ModeApply)
}
