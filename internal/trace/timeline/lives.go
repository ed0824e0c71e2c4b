package timeline

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Birth is the creation of a goroutine.
type Birth struct {
	Time    int64
	G       uint64
	Creator uint64           // the creator; 0 for the runtime (a timer's function)
	Start   tracefmt.StackID // the function it starts with
	Stack   tracefmt.StackID // the creator's stack
}

// SortBirths puts births in order of time.
func SortBirths(list []Birth) {
	slices.SortFunc(list, func(a, b Birth) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.G, b.G)) })
}

// Births appends to out the goroutines created in this generation whose start function's stack is wanted, in no order.
func (g *Gen) Births(wanted func(start tracefmt.StackID) bool, out []Birth) []Birth {
	for d := 1; d < len(g.startStacks); d++ {
		if g.startStacks[d] == 0 {
			continue
		}
		start := g.stack(g.startStacks[d])
		if !wanted(start) {
			continue
		}
		if b, ok := g.birth(uint32(d)); ok {
			b.Start = start
			out = append(out, b)
		}
	}
	return out
}

func (g *Gen) birth(d uint32) (Birth, bool) {
	s := g.firstSlot(d)
	if s == nil {
		return Birth{}, false
	}
	r := g.record(s.rec)
	if !r.hasTrait(createsOther) {
		return Birth{}, false
	}
	return Birth{Time: g.Base + r.time(), G: g.ids.ids[d], Creator: g.ids.ids[s.creatorOrWaker()], Stack: g.stack(r.stack())}, true
}

// firstSlot returns the first thing known of a goroutine, nil if that is not in a record.
func (g *Gen) firstSlot(d uint32) *slot {
	for k := g.slotBase[d]; k < g.slotBase[d+1]; k++ {
		if s := &g.slots[k]; s.rec != 0 {
			return s
		}
	}
	return nil
}

// BirthOf returns when and by whom a goroutine was created, if that was in
// this generation.
func (g *Gen) BirthOf(id uint64) (Birth, bool) {
	d := g.ids.lookup(id)
	if d == 0 {
		return Birth{}, false
	}
	b, ok := g.birth(d)
	if ok {
		b.Start = g.stack(g.startStacks[d])
	}
	return b, ok
}

// Knows reports whether the goroutine lived in this generation.
func (g *Gen) Knows(id uint64) bool { return g.ids.lookup(id) != 0 }

// Death returns when a goroutine ended, if that was in this generation.
func (g *Gen) Death(id uint64) (int64, bool) {
	d := g.ids.lookup(id)
	if d == 0 || g.slotBase[d] == g.slotBase[d+1] {
		return 0, false
	}
	s := g.slots[g.slotBase[d+1]-1]
	if s.rec == 0 {
		return 0, false
	}
	end, ok := g.endOfRun(s.rec)
	if !ok || !end.hasTrait(endsLife) {
		return 0, false
	}
	return g.Base + end.time(), true
}

// Pieces returns how many pieces (runs and events about it) a goroutine has
// in this generation: a measure of how much happened to it.
func (g *Gen) Pieces(id uint64) int {
	d := g.ids.lookup(id)
	return int(g.slotBase[d+1] - g.slotBase[d])
}

// A Life is what a generation shows of a goroutine.
type Life struct {
	ID uint64
	// Born and Died are the instants of its creation and end, 0 for those that
	// lie outside of the generation.
	Born, Died int64
	// Start is the stack that it was created to run, 0 where the generation does
	// not show its creation; Stack is then the first stack of its own seen.
	Start, Stack tracefmt.StackID
	// Pieces are its runs and the events about it: a measure of how much happened.
	Pieces int
}

// Lives calls f for every goroutine that the generation knows.
func (g *Gen) Lives(f func(Life)) {
	for d := uint32(1); int(d)+1 < len(g.slotBase); d++ {
		l := Life{ID: g.ids.ids[d], Pieces: int(g.slotBase[d+1] - g.slotBase[d])}
		if b, ok := g.birth(d); ok {
			l.Born = b.Time
			l.Start = g.stack(g.startStacks[d])
		}
		if l.Start == 0 {
			l.Stack = g.anyStack(d)
		}
		if t, ok := g.Death(l.ID); ok {
			l.Died = t
		}
		f(l)
	}
}

// EachStart calls f for every goroutine that the generation knows, with the
// function that it was created to run, 0 if it was not created in this
// generation, and the number of its pieces. It touches no record.
func (g *Gen) EachStart(f func(id uint64, start tracefmt.StackID, pieces int)) {
	for d := 1; d+1 < len(g.slotBase); d++ {
		start := tracefmt.StackID(0)
		if g.startStacks[d] != 0 {
			start = g.stack(g.startStacks[d])
		}
		f(g.ids.ids[d], start, int(g.slotBase[d+1]-g.slotBase[d]))
	}
}

// AnyStack returns the first stack that a goroutine shows of itself in this
// generation, 0 if it shows none.
func (g *Gen) AnyStack(id uint64) tracefmt.StackID {
	if d := g.ids.lookup(id); d != 0 {
		return g.anyStack(d)
	}
	return 0
}

// anyStack returns the first stack that a goroutine shows of itself.
func (g *Gen) anyStack(d uint32) tracefmt.StackID {
	found := tracefmt.StackID(0)
	g.stacksOf(d, func(id tracefmt.StackID) bool {
		found = id
		return false
	})
	return found
}

// stacksOf calls f for the stacks that a goroutine shows of itself, until f
// returns false: not those of its creator or waker.
func (g *Gen) stacksOf(d uint32, f func(tracefmt.StackID) bool) {
	for _, s := range g.slots[g.slotBase[d]:g.slotBase[d+1]] {
		if s.rec == 0 {
			continue
		}
		r := g.record(s.rec)
		if r.hasTrait(repeatsState) && r.stack() != 0 && !f(g.stack(r.stack())) {
			return
		}
		if !opensRun(r) {
			continue
		}
		for r := range g.runEvents(s.rec) {
			if r.hasTrait(repeatsState) {
				continue // another goroutine's
			}
			if st := r.stack(); st != 0 && !f(g.stack(st)) {
				return
			}
		}
	}
}

// WithStack calls f for every goroutine that shows a wanted stack of itself in
// this generation, or was created to run one. Wanted is indexed by stack.
func (g *Gen) WithStack(wanted []bool, f func(id uint64)) {
	isWanted := func(id tracefmt.StackID) bool { return int(id) < len(wanted) && wanted[id] }
	if !g.stacks.Any(func(id uint32) bool { return isWanted(tracefmt.StackID(id)) }) {
		return
	}
	for d := uint32(1); int(d)+1 < len(g.slotBase); d++ {
		found := g.startStacks[d] != 0 && isWanted(g.stack(g.startStacks[d]))
		if !found {
			g.stacksOf(d, func(id tracefmt.StackID) bool {
				found = isWanted(id)
				return !found
			})
		}
		if found {
			f(g.ids.ids[d])
		}
	}
}
