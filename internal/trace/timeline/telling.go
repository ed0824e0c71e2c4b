package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// FlagTelling is the flag of a stack that makes its events no marks, but has the stack remembered with the run in which they
// happen: see [Window.Telling].
const FlagTelling = 1 << 7

// A told is a telling stack of a run, from the first event that has it until the run's next one. One without
// a stack says that a mark came.
type told struct {
	stack uint32 // local id; with firstTold
	when  uint32 // see slot
}

// firstTold, in a told's stack, says that another run begins.
const firstTold = 1 << 31

// flagged takes note of an event whose stack has flags.
func (w *worker) flagged(g uint32, flags uint8, kind tracefmt.EventType, t int64, run *piece, stack uint32) {
	if f := flags &^ FlagTelling; f != 0 {
		w.marks = append(w.marks, Mark{g: g, Flags: f, Kind: kind, Time: t})
		if w.open && run.owner&telling != 0 { // perhaps the border of two requests
			w.told, w.open = append(w.told, told{0, whenOf(t)}), false
		}
	}
	if flags&FlagTelling != 0 {
		w.tell(run, stack, t)
	}
}

// tellIf is tell where a goroutine runs and the stack is a telling one.
func (w *worker) tellIf(g uint32, run *piece, stack uint64, t int64) {
	if g != 0 && stack < uint64(len(w.flags)) && w.flags[stack]&FlagTelling != 0 {
		w.tell(run, uint32(stack), t)
	}
}

// tell takes note of an event of a run with a telling stack.
func (w *worker) tell(run *piece, stack uint32, t int64) {
	if run.owner&telling == 0 {
		run.owner |= telling | uint32(len(w.told))
		stack |= firstTold
	} else if w.open && w.told[len(w.told)-1].stack&^firstTold == stack {
		return
	}
	w.told, w.open = append(w.told, told{stack, whenOf(t)}), true
}

// Telling appends to buf the telling stacks of a goroutine's own events between from and to, in order, each once for as many events as
// follow each other. It costs far less than Spans.
func (w *Window) Telling(id uint64, from, to int64, buf []tracefmt.StackID) []tracefmt.StackID {
	if len(w.Gens) == 0 {
		return buf
	}
	// What happened last before a generation's base may lie in it by its time.
	for i := w.genAt(from); i < len(w.Gens) && (w.Gens[i].Base <= to || i == 0); i++ {
		g := w.Gens[i]
		if d := g.ids.lookup(id); d != 0 {
			buf = g.tellingOf(d, from-g.Base, to-g.Base, buf)
		}
	}
	return buf
}

// MayTell reports whether a span of a goroutine that overlaps [from, to) may have a telling stack. It costs far less than to look: it knows
// of each run only whether an event of it tells, so it says yes too often, and where a birth or a border of generations is near.
func (w *Window) MayTell(id uint64, from, to int64) bool {
	if len(w.Gens) == 0 {
		return true
	}
	i := w.genAt(from)
	g := w.Gens[i]
	d := g.ids.lookup(id)
	if d == 0 || from < g.Base || i+1 < len(w.Gens) && to >= w.Gens[i+1].Base || g.isIrregular(d) {
		return true
	}
	lo, hi := g.base[d], g.base[d+1]
	k := g.slotAfter(lo, hi, from-g.Base)
	if k < lo+tellsBefore {
		return true
	}
	last := whenOf(to - g.Base)
	for k -= tellsBefore; k < hi; k++ {
		s := &g.slots[k]
		if _, ok := s.tells(); ok {
			return true
		}
		if s.when > last {
			break
		}
	}
	return false
}

// What a goroutine does at a time has its stack from the run before: the wait's, if it is ready to run. That is the last slot but two (a run,
// a wake, a run); six are in one or two lines of the cache.
const tellsBefore = 6

func (g *Gen) tellingOf(d uint32, from, to int64, buf []tracefmt.StackID) []tracefmt.StackID {
	lo, hi := g.base[d], g.base[d+1]
	k := max(g.slotAfter(lo, hi, from), lo+1) - 1 // the run that is under way
	first, last := whenOf(max(from, 0)), whenOf(max(to, 0))
	for ; k < hi; k++ {
		s := &g.slots[k]
		if s.rec == 0 {
			continue
		}
		if s.when > last {
			break
		}
		at, ok := s.tells()
		if !ok {
			continue
		}
		list := g.told[g.slabBy[s.rec>>slabBits]]
		for n := at; n < len(list) && (n == at || list[n].stack&firstTold == 0) && list[n].when <= last; n++ {
			stack := list[n].stack &^ firstTold
			over := n+1 < len(list) && list[n+1].stack&firstTold == 0 && list[n+1].when <= first
			if stack != 0 && (list[n].when >= first || !over) {
				buf = append(buf, g.stack(stack))
			}
		}
	}
	return buf
}
