package timeline

import (
	"cmp"
	"iter"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Birth is the creation of a goroutine.
type Birth struct {
	Time    int64
	G       uint64
	Creator uint64           // the goroutine that created it; 0 if the runtime did, for a timer's function
	Start   tracefmt.StackID // stack whose only frame is its start function
	Stack   tracefmt.StackID // stack of the creator
}

// SortBirths sorts births by time, those of equal time by goroutine.
func SortBirths(list []Birth) {
	slices.SortFunc(list, func(a, b Birth) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.G, b.G)) })
}

// Births appends to out the creations of goroutines in this generation whose start function is wanted, in no order.
func (g *Gen) Births(wanted func(start tracefmt.StackID) bool, out []Birth) []Birth {
	g.EachBirth(wanted, func(_ uint32, b Birth) { out = append(out, b) })
	return out
}

// EachBirth calls f for each creation in this generation of a goroutine whose start function is wanted, with the goroutine's
// Number.
func (g *Gen) EachBirth(wanted func(start tracefmt.StackID) bool, f func(number uint32, b Birth)) {
	start, isWanted := tracefmt.StackID(0), false // of the goroutine before
	for d := uint32(1); int(d) < len(g.startStacks); d++ {
		if g.startStacks[d] == 0 {
			continue
		}
		if stack := g.stack(g.startStacks[d]); stack != start {
			start, isWanted = stack, wanted(stack)
		}
		if !isWanted {
			continue
		}
		if b, ok := g.birth(d); ok {
			b.Start = start
			f(d, b)
		}
	}
}

// A BirthTime is the creation time of the goroutine with a Number.
type BirthTime struct {
	Time   int64
	Number uint32
}

// OrderBirths returns the indexes of the elements of list in the order of SortBirths, reusing the memory of order. Creations
// are about evenly distributed over a generation, so each index is put into the bucket of its time, and only the few of one
// bucket are sorted.
func (g *Gen) OrderBirths(list []BirthTime, order []int32) []int32 {
	order = entry.Resize(order, len(list))
	if len(list) == 0 {
		return order
	}
	first, last := list[0].Time, list[0].Time
	for i := range list {
		first, last = min(first, list[i].Time), max(last, list[i].Time)
	}
	scale := float64(len(list)) / float64(last-first+1)
	placeOf := func(i int) int { return int(float64(list[i].Time-first) * scale) }
	next := make([]int32, len(list)+1) // by place: where its next index goes
	for i := range list {
		next[placeOf(i)+1]++
	}
	for k := range list {
		next[k+1] += next[k]
	}
	for i := range list {
		place := placeOf(i)
		order[next[place]] = int32(i)
		next[place]++
	}
	from := int32(0)
	for _, end := range next[:len(list)] {
		if end > from+1 {
			slices.SortFunc(order[from:end], func(a, b int32) int {
				return cmp.Or(cmp.Compare(list[a].Time, list[b].Time), cmp.Compare(g.ids.ids[list[a].Number], g.ids.ids[list[b].Number]))
			})
		}
		from = end
	}
	return order
}

// birth returns the creation of goroutine number d, without its start function; false if it was not in this generation.
func (g *Gen) birth(d uint32) (b Birth, ok bool) {
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

// firstSlot returns the first slot of goroutine number d that has a record; nil if none has.
func (g *Gen) firstSlot(d uint32) *slot {
	for k := g.slotBase[d]; k < g.slotBase[d+1]; k++ {
		if s := &g.slots[k]; s.rec != 0 {
			return s
		}
	}
	return nil
}

// BirthOf returns the creation of a goroutine, false if it was not in this generation.
func (g *Gen) BirthOf(id uint64) (Birth, bool) {
	d := g.ids.lookup(id)
	if d == 0 {
		return Birth{}, false
	}
	return g.BirthAt(d)
}

// BirthAt returns the creation of the goroutine with a Number; false if it was not in this generation. BirthOf does so by id.
func (g *Gen) BirthAt(d uint32) (Birth, bool) {
	b, ok := g.birth(d)
	if ok {
		b.Start = g.stack(g.startStacks[d])
	}
	return b, ok
}

// Number returns the number of a goroutine in this generation, from 1 on, 0 if it does not occur. The numbers depend on the
// workers.
func (g *Gen) Number(id uint64) uint32 { return g.ids.lookup(id) }

// Knows reports whether a goroutine occurs in this generation.
func (g *Gen) Knows(id uint64) bool { return g.ids.lookup(id) != 0 }

// EndsInWait reports whether it is known of a goroutine that it waits at the end of the generation.
func (g *Gen) EndsInWait(id uint64) bool {
	d := g.ids.lookup(id)
	return d != 0 && g.slotBase[d] < g.slotBase[d+1] && g.slots[g.slotBase[d+1]-1].endedInWait()
}

// Death returns when a goroutine ended, false if it did not end in this generation.
func (g *Gen) Death(id uint64) (endTime int64, ok bool) { return g.DeathOf(g.ids.lookup(id)) }

// DeathOf returns when goroutine number d ended; false if it did not end in this generation.
func (g *Gen) DeathOf(d uint32) (endTime int64, ok bool) {
	if d == 0 || g.slotBase[d] == g.slotBase[d+1] {
		return 0, false
	}
	s := g.slots[g.slotBase[d+1]-1]
	if s.rec == 0 || s.endedInWait() {
		return 0, false
	}
	end, ok := g.endOfRun(s.rec)
	if !ok || !end.hasTrait(endsLife) {
		return 0, false
	}
	return g.Base + end.time(), true
}

// Pieces returns the number of a goroutine's pieces (its runs and the events about it), a measure of its activity.
func (g *Gen) Pieces(id uint64) int {
	return g.PiecesOf(g.ids.lookup(id))
}

// PiecesOf is Pieces for a goroutine's Number.
func (g *Gen) PiecesOf(d uint32) int { return int(g.slotBase[d+1] - g.slotBase[d]) }

// PiecesAfter returns how many of a goroutine's pieces begin after t.
func (g *Gen) PiecesAfter(id uint64, t int64) int {
	d := g.ids.lookup(id)
	hi := g.slotBase[d+1]
	return int(hi - g.slotAfter(g.slotBase[d], hi, t-g.Base))
}

// A Life summarizes a goroutine within one generation.
type Life struct {
	ID uint64
	// Born and Died are the times of its creation and end, 0 if they are not in this generation.
	Born, Died int64
	// Start is the stack of its start function, 0 if its creation is not in this generation. Stack is then the
	// first stack of its events, 0 if they have none.
	Start, Stack tracefmt.StackID
	// Pieces is the number of its runs and of the events about it, a measure of its activity.
	Pieces int
}

// Lives calls f with a summary (birth, death, start function, activity) of each goroutine that occurs in the generation.
func (g *Gen) Lives(f func(Life)) {
	for d := uint32(1); int(d)+1 < len(g.slotBase); d++ {
		l := Life{ID: g.ids.ids[d], Pieces: int(g.slotBase[d+1] - g.slotBase[d])}
		if b, ok := g.birth(d); ok {
			l.Born = b.Time
			l.Start = g.stack(g.startStacks[d])
		}
		if l.Start == 0 {
			l.Stack = g.AnyStackOf(d)
		}
		if t, ok := g.Death(l.ID); ok {
			l.Died = t
		}
		f(l)
	}
}

// EachStart calls f for each goroutine that occurs in the generation, with the stack of its start function (0 if its creation
// is not in this generation) and its number of pieces. It reads no record, so it is cheap.
func (g *Gen) EachStart(f func(id uint64, start tracefmt.StackID, pieces int)) {
	for d := 1; d+1 < len(g.slotBase); d++ {
		start := tracefmt.StackID(0)
		if g.startStacks[d] != 0 {
			start = g.stack(g.startStacks[d])
		}
		f(g.ids.ids[d], start, int(g.slotBase[d+1]-g.slotBase[d]))
	}
}

// AnyStack returns the first stack of a goroutine's own events in this generation, 0 if they have none.
func (g *Gen) AnyStack(id uint64) tracefmt.StackID {
	if d := g.ids.lookup(id); d != 0 {
		return g.AnyStackOf(d)
	}
	return 0
}

// AnyStackOf returns the first stack of the own events of goroutine number d, 0 if they have none. AnyStack does so by id.
func (g *Gen) AnyStackOf(d uint32) tracefmt.StackID {
	found := tracefmt.StackID(0)
	g.stacksOf(d, func(id tracefmt.StackID) bool {
		found = id
		return false
	})
	return found
}

// stacksOf calls f for each stack of goroutine number d's own events, until f returns false. Stacks of its creator and its
// wakers are not among them.
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
				continue // about another goroutine
			}
			if st := r.stack(); st != 0 && !f(g.stack(st)) {
				return
			}
		}
	}
}

// WithStack iterates over the goroutines that have a wanted stack in their own events of this generation, or were created in it
// with a wanted start function. wanted is indexed by StackID. Goroutines that occur late in the generation come first: they are quicker
// to examine than those that live long.
func (g *Gen) WithStack(wanted []bool) iter.Seq[uint64] {
	isWanted := func(id tracefmt.StackID) bool { return int(id) < len(wanted) && wanted[id] }
	return func(yield func(uint64) bool) {
		if !g.stacks.Any(func(id uint32) bool { return isWanted(tracefmt.StackID(id)) }) {
			return
		}
		for d := len(g.slotBase) - 2; d > 0; d-- {
			found := g.startStacks[d] != 0 && isWanted(g.stack(g.startStacks[d]))
			if !found {
				g.stacksOf(uint32(d), func(id tracefmt.StackID) bool {
					found = isWanted(id)
					return !found
				})
			}
			if found && !yield(g.ids.ids[d]) {
				return
			}
		}
	}
}
