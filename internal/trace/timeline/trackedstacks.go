package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// FlagTracked is the flag of a tracked stack. Events with this flag alone are no marks; instead the stack is
// stored with the run of the event: see [Window.TrackedStacks].
const FlagTracked = 1 << 7

// A trackedStack is a tracked stack of a run, from the first event with it until the run's next element. Stack 0
// marks the position of a Mark.
type trackedStack struct {
	stack      uint32 // local id, perhaps with firstOfRun
	coarseTime uint32 // see coarseTimeOf
}

// firstOfRun, in a stack, reports that the element is the first one of a run.
const firstOfRun = 1 << 31

// storeFlagged stores an event whose stack has flags: as a Mark, as a tracked stack of the run, or as both.
func (w *worker) storeFlagged(g uint32, flags uint8, kind tracefmt.EventType, t int64, run *piece, stack uint32) {
	if f := flags &^ FlagTracked; f != 0 {
		w.marks = append(w.marks, Mark{g: g, Flags: f, Kind: kind, Time: t})
		if w.trackedOpen && run.ownerBits&trackedBit != 0 { // the mark may separate two requests
			w.tracked, w.trackedOpen = append(w.tracked, trackedStack{0, coarseTimeOf(t)}), false
		}
	}
	if flags&FlagTracked != 0 {
		w.storeTracked(run, stack, t)
	}
}

// storeIfTracked calls storeTracked if a goroutine runs and the stack is tracked.
func (w *worker) storeIfTracked(g uint32, run *piece, stack uint64, t int64) {
	if g != 0 && stack < uint64(len(w.flags)) && w.flags[stack]&FlagTracked != 0 {
		w.storeTracked(run, uint32(stack), t)
	}
}

// storeTracked stores the tracked stack of an event with its run, unless the run's last element has the same stack.
func (w *worker) storeTracked(run *piece, stack uint32, t int64) {
	if run.ownerBits&trackedBit == 0 {
		run.ownerBits |= trackedBit | uint32(len(w.tracked))
		stack |= firstOfRun
	} else if w.trackedOpen && w.tracked[len(w.tracked)-1].stack&^firstOfRun == stack {
		return
	}
	w.tracked, w.trackedOpen = append(w.tracked, trackedStack{stack, coarseTimeOf(t)}), true
}

// TrackedStacks appends to buf the tracked stacks (those to which Decoder.Classify gives FlagTracked) of a goroutine's own
// events in [from, to], in order; equal stacks of consecutive events appear once. Stacks of events up to 64 ns outside may be
// among them. It costs far less than Spans.
func (w *Window) TrackedStacks(id uint64, from, to int64, buf []tracefmt.StackID) []tracefmt.StackID {
	if len(w.Gens) == 0 {
		return buf
	}
	// By its time, an event of the generation before may be after a generation's base.
	for i := w.genReaching(from); i < len(w.Gens) && (w.Gens[i].Base <= to || i == 0); i++ {
		g := w.Gens[i]
		if d := g.ids.lookup(id); d != 0 {
			buf = g.trackedStacks(d, from-g.Base, to-g.Base, buf)
		}
	}
	return buf
}

// MayHaveTrackedStacks reports whether a stack of the window may be tracked. It returns true for an empty window.
func (w *Window) MayHaveTrackedStacks() bool {
	return len(w.Gens) == 0 || w.Gens[len(w.Gens)-1].mayHaveTracked
}

// MayHaveTrackedStack reports whether a span of a goroutine that overlaps [from, to) may have a tracked stack. It only reads
// whether runs have any event with a tracked stack, so it is cheap. It returns true too often, and always near the goroutine's
// birth and near the border of a generation.
func (w *Window) MayHaveTrackedStack(id uint64, from, to int64) bool {
	if len(w.Gens) == 0 || !w.MayHaveTrackedStacks() {
		return len(w.Gens) == 0
	}
	i := w.genReaching(from)
	g := w.Gens[i]
	d := g.ids.lookup(id)
	if d == 0 || from < g.Base || i+1 < len(w.Gens) && to >= w.Gens[i+1].Base || g.isIrregular(d) {
		return true
	}
	lo, hi := g.slotBase[d], g.slotBase[d+1]
	k := g.slotAfter(lo, hi, from-g.Base)
	if k < lo+slotsBefore {
		return true
	}
	last := coarseTimeOf(to - g.Base)
	for k -= slotsBefore; k < hi; k++ {
		s := &g.slots[k]
		if _, ok := s.firstTracked(); ok {
			return true
		}
		if s.coarseTime > last {
			break
		}
	}
	return false
}

// slotsBefore is how many slots before an interval MayHaveTrackedStack examines. A runnable goroutine has the stack of the run
// before: the wait's. That is the last slot but two (a run, a wake, a run); six slots are in one or two cache lines.
const slotsBefore = 6

// trackedStacks appends to buf what TrackedStacks finds for goroutine number d in one generation; from and to are ns since the
// generation's base.
func (g *Gen) trackedStacks(d uint32, from, to int64, buf []tracefmt.StackID) []tracefmt.StackID {
	lo, hi := g.slotBase[d], g.slotBase[d+1]
	k := max(g.slotAfter(lo, hi, from), lo+1) - 1 // the run that is in progress at from
	fromCoarse, toCoarse := coarseTimeOf(max(from, 0)), coarseTimeOf(max(to, 0))
	for ; k < hi; k++ {
		s := &g.slots[k]
		if s.rec == 0 {
			continue
		}
		if s.coarseTime > toCoarse {
			break
		}
		first, ok := s.firstTracked()
		if !ok {
			continue
		}
		list := g.tracked[g.slabWorker[s.rec>>slabBits]]
		for n := first; n < len(list) && (n == first || list[n].stack&firstOfRun == 0) && list[n].coarseTime <= toCoarse; n++ {
			stack := list[n].stack &^ firstOfRun
			ended := n+1 < len(list) && list[n+1].stack&firstOfRun == 0 && list[n+1].coarseTime <= fromCoarse
			if stack != 0 && (list[n].coarseTime >= fromCoarse || !ended) {
				buf = append(buf, g.stack(stack))
			}
		}
	}
	return buf
}
