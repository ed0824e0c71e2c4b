package timeline

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Birth is the creation of a goroutine.
type Birth struct {
	Time  int64
	G     uint64
	By    uint64           // the creator; 0 for the runtime (a timer's function)
	Start tracefmt.StackID // the function it starts with
	Stack tracefmt.StackID // the creator's stack
}

// SortBirths puts births in order of time.
func SortBirths(list []Birth) {
	slices.SortFunc(list, func(a, b Birth) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.G, b.G)) })
}

// Births appends to out the goroutines created in this generation whose start function's stack is wanted, in no order.
func (g *Gen) Births(wanted func(start tracefmt.StackID) bool, out []Birth) []Birth {
	for d := 1; d < len(g.starts); d++ {
		if g.starts[d] == 0 {
			continue
		}
		start := g.stack(g.starts[d])
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
	if !r.is(births) {
		return Birth{}, false
	}
	return Birth{Time: g.Base + r.time(), G: g.ids.ids[d], By: g.ids.ids[s.owner()], Stack: g.stack(r.stack())}, true
}

// firstSlot returns the first thing known of a goroutine, nil if that is not in a record.
func (g *Gen) firstSlot(d uint32) *slot {
	for k := g.base[d]; k < g.base[d+1]; k++ {
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
		b.Start = g.stack(g.starts[d])
	}
	return b, ok
}

// Knows reports whether the goroutine lived in this generation.
func (g *Gen) Knows(id uint64) bool { return g.ids.lookup(id) != 0 }

// Death returns when a goroutine ended, if that was in this generation.
func (g *Gen) Death(id uint64) (int64, bool) {
	d := g.ids.lookup(id)
	if d == 0 || g.base[d] == g.base[d+1] {
		return 0, false
	}
	s := g.slots[g.base[d+1]-1]
	if s.rec == 0 {
		return 0, false
	}
	end, ok := g.endOfRun(s.rec)
	if !ok || !end.is(dies) {
		return 0, false
	}
	return g.Base + end.time(), true
}

// NextWake returns the first time after t at which a goroutine was woken in
// this generation.
func (g *Gen) NextWake(id uint64, t int64) (int64, bool) {
	c := g.Wakes(id)
	return c.Next(t)
}

// Wakes finds a goroutine's wakes in a generation. It is quick where it is asked for one after the other.
type Wakes struct {
	g         *Gen
	lo, hi, k uint32 // slots: the goroutine's, and one that begins not after the time asked for last
}

// Wakes returns the wakes of a goroutine.
func (g *Gen) Wakes(id uint64) Wakes {
	d := g.ids.lookup(id)
	if d == 0 {
		return Wakes{}
	}
	return Wakes{g, g.base[d], g.base[d+1], g.base[d]}
}

// Next returns the first time after t at which it was woken.
func (c *Wakes) Next(t int64) (int64, bool) {
	g := c.g
	if g == nil {
		return 0, false
	}
	k := c.lo
	if t > g.Base {
		k = c.after(t - g.Base - 1)
	}
	for ; k < c.hi; k++ {
		if r := g.record(g.slots[k].rec); tracefmt.EventType(r.kind()) == tracefmt.EvGoUnblock {
			if at := g.Base + r.time(); at >= t {
				c.k = k
				return at, true
			}
		}
	}
	return 0, false
}

// after is slotAfter, but looks first at those behind the one found last.
func (c *Wakes) after(t int64) uint32 {
	when := whenOf(t)
	if k := c.k; k < c.hi && c.g.slots[k].when < when {
		for k++; k < c.hi && k < c.k+32; k++ {
			if w := c.g.slots[k].when; w > when {
				return k
			} else if w == when {
				break // only the record tells
			}
		}
	}
	return c.g.slotAfter(c.lo, c.hi, t)
}

// LastWake returns the last time after from and not after to at which a goroutine was woken, or switched to.
func (w *Window) LastWake(id uint64, from, to int64) (int64, bool) {
	if len(w.Gens) == 0 {
		return 0, false
	}
	for i := w.genAt(to); i >= 0; i-- {
		g := w.Gens[i]
		d := g.ids.lookup(id)
		if d == 0 {
			if g.Base <= from {
				break
			}
			continue
		}
		lo, hi := g.base[d], g.base[d+1]
		for k := g.slotAfter(lo, hi, to-g.Base); k > lo; k-- {
			s := &g.slots[k-1]
			if s.rec == 0 {
				continue
			}
			r := g.record(s.rec)
			t := g.Base + r.time()
			if t <= from {
				return 0, false
			}
			if k := r.kind(); k == kind(tracefmt.EvGoUnblock) || k == kindSwitched {
				return t, true
			}
		}
		if g.Base+overlap <= from {
			break
		}
	}
	return 0, false
}

// mostWoke bounds the events of a goroutine that Woke looks at.
const mostWoke = 1 << 12

// Woke calls f for every goroutine that goroutine id made runnable in [from, to), in order of time, with the stack of that, until
// it returns false. It reports whether it looked at all of that time: where very much happened it does not.
func (w *Window) Woke(id uint64, from, to int64, f func(woken uint64, stack tracefmt.StackID) bool) bool {
	looked := 0
	for i := w.genAt(from); i < len(w.Gens) && w.Gens[i].Base < to; i++ {
		g := w.Gens[i]
		d := g.ids.lookup(id)
		if d == 0 {
			continue
		}
		lo, hi := g.base[d], g.base[d+1]
		for k := max(g.slotAfter(lo, hi, from-g.Base), lo+1) - 1; k < hi; k++ {
			s := &g.slots[k]
			if s.rec == 0 || !opensRun(g.record(s.rec)) {
				continue
			}
			if g.Base+g.record(s.rec).time() >= to {
				return true
			}
			for r := range g.run(s.rec) {
				if r.is(leaves) || g.Base+r.time() >= to {
					break
				}
				if looked++; looked > mostWoke {
					return false
				}
				if tracefmt.EventType(r.kind()) == tracefmt.EvGoUnblock && g.Base+r.time() >= from && !f(g.ids.ids[r.peer()], g.stack(r.stack())) {
					return true
				}
			}
		}
	}
	return true
}

// Pieces returns how many pieces (runs and events about it) a goroutine has
// in this generation: a measure of how much happened to it.
func (g *Gen) Pieces(id uint64) int {
	d := g.ids.lookup(id)
	return int(g.base[d+1] - g.base[d])
}

// Death returns when a goroutine ended, if the window saw it end at t or later.
func (w *Window) Death(id uint64, t int64) (int64, bool) {
	for i := max(w.genAt(t)-1, 0); i < len(w.Gens); i++ {
		if d, ok := w.Gens[i].Death(id); ok && d >= t {
			return d, true
		}
	}
	return 0, false
}

// Born returns the creation of a goroutine that was alive at time t, if the
// window saw it.
func (w *Window) Born(id uint64, t int64) (Birth, bool) {
	if len(w.Gens) == 0 {
		return Birth{}, false
	}
	for i := w.genAt(t); i >= 0; i-- {
		if b, ok := w.Gens[i].BirthOf(id); ok {
			return b, b.Time <= t
		}
		if !w.Gens[i].Knows(id) {
			break
		}
	}
	return Birth{}, false
}
