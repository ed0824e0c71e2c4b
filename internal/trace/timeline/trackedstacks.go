package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// FlagTracked is the flag of a stack that makes its events no marks, but has the stack remembered with the run in which they
// happen: see [Window.Telling].
const FlagTracked = 1 << 7

// A told is a telling stack of a run, from the first event that has it until the run's next one. One without
// a stack says that a mark came.
type trackedStack struct {
	stack      uint32 // local id; with firstOfRun
	coarseTime uint32 // see slot
}

// firstOfRun, in a told's stack, says that another run begins.
const firstOfRun = 1 << 31

// noteFlagged takes note of an event whose stack has flags.
func (w *worker) noteFlagged(g uint32, flags uint8, kind tracefmt.EventType, t int64, run *piece, stack uint32) {
	if f := flags &^ FlagTracked; f != 0 {
		w.marks = append(w.marks, Mark{g: g, Flags: f, Kind: kind, Time: t})
		if w.trackedOpen && run.ownerBits&trackedBit != 0 { // perhaps the border of two requests
			w.tracked, w.trackedOpen = append(w.tracked, trackedStack{0, coarseTimeOf(t)}), false
		}
	}
	if flags&FlagTracked != 0 {
		w.noteTracked(run, stack, t)
	}
}

// noteIfTracked is tell where a goroutine runs and the stack is a telling one.
func (w *worker) noteIfTracked(g uint32, run *piece, stack uint64, t int64) {
	if g != 0 && stack < uint64(len(w.flags)) && w.flags[stack]&FlagTracked != 0 {
		w.noteTracked(run, uint32(stack), t)
	}
}

// noteTracked takes note of an event of a run with a telling stack.
func (w *worker) noteTracked(run *piece, stack uint32, t int64) {
	if run.ownerBits&trackedBit == 0 {
		run.ownerBits |= trackedBit | uint32(len(w.tracked))
		stack |= firstOfRun
	} else if w.trackedOpen && w.tracked[len(w.tracked)-1].stack&^firstOfRun == stack {
		return
	}
	w.tracked, w.trackedOpen = append(w.tracked, trackedStack{stack, coarseTimeOf(t)}), true
}

// TrackedStacks appends to buf the telling stacks of a goroutine's own events between from and to, in order, each once for as many events as
// follow each other. It costs far less than Spans.
func (w *Window) TrackedStacks(id uint64, from, to int64, buf []tracefmt.StackID) []tracefmt.StackID {
	if len(w.Gens) == 0 {
		return buf
	}
	// What happened last before a generation's base may lie in it by its time.
	for i := w.genAt(from); i < len(w.Gens) && (w.Gens[i].Base <= to || i == 0); i++ {
		g := w.Gens[i]
		if d := g.ids.lookup(id); d != 0 {
			buf = g.trackedStacks(d, from-g.Base, to-g.Base, buf)
		}
	}
	return buf
}

// MayHaveTrackedStack reports whether a span of a goroutine that overlaps [from, to) may have a telling stack. It costs far less than to look: it knows
// of each run only whether an event of it tells, so it says yes too often, and where a birth or a border of generations is near.
func (w *Window) MayHaveTrackedStack(id uint64, from, to int64) bool {
	if len(w.Gens) == 0 {
		return true
	}
	i := w.genAt(from)
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

// What a goroutine does at a time has its stack from the run before: the wait's, if it is ready to run. That is the last slot but two (a run,
// a wake, a run); six are in one or two lines of the cache.
const slotsBefore = 6

func (g *Gen) trackedStacks(d uint32, from, to int64, buf []tracefmt.StackID) []tracefmt.StackID {
	lo, hi := g.slotBase[d], g.slotBase[d+1]
	k := max(g.slotAfter(lo, hi, from), lo+1) - 1 // the run that is under way
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
