package tune

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
