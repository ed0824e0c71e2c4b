package timeline

import (
	"sort"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// NextWake returns the first time at or after t at which a goroutine was woken in this generation; false if there is none.
func (g *Gen) NextWake(id uint64, t int64) (wakeTime int64, ok bool) {
	c := g.Wakes(id)
	return c.Next(t)
}

// Wakes searches the wakes of a goroutine in one generation. It is fast if the times of consecutive searches
// increase.
type Wakes struct {
	g                *Gen
	lo, hi, lastSlot uint32 // limits of the goroutine's slots, and a slot that begins at or before the last result
}

// Wakes returns a cursor over the wakes of a goroutine in this generation.
func (g *Gen) Wakes(id uint64) Wakes {
	d := g.ids.lookup(id)
	if d == 0 {
		return Wakes{}
	}
	return Wakes{g, g.slotBase[d], g.slotBase[d+1], g.slotBase[d]}
}

// Next returns the first time at or after t at which the goroutine was woken; false if there is none.
func (c *Wakes) Next(t int64) (wakeTime int64, ok bool) {
	g := c.g
	if g == nil {
		return 0, false
	}
	k := c.lo
	if t > g.Base {
		k = c.slotAfter(t - g.Base - 1)
	}
	for ; k < c.hi; k++ {
		if r := g.record(g.slots[k].rec); tracefmt.EventType(r.kind()) == tracefmt.EvGoUnblock {
			if wakeTime = g.Base + r.time(); wakeTime >= t {
				c.lastSlot = k
				return wakeTime, true
			}
		}
	}
	return 0, false
}

// slotAfter returns the goroutine's first slot that begins after t (ns since the generation's base); c.hi if none does. It tries
// the slots after the last result before it searches.
func (c *Wakes) slotAfter(t int64) uint32 {
	when := coarseTimeOf(t)
	if k := c.lastSlot; k < c.hi && c.g.slots[k].coarseTime < when {
		for k++; k < c.hi && k < c.lastSlot+32; k++ {
			if w := c.g.slots[k].coarseTime; w > when {
				return k
			} else if w == when {
				break // only the record has the exact time
			}
		}
	}
	return c.g.slotAfter(c.lo, c.hi, t)
}

// A Wake is the end of a goroutine's wait.
type Wake struct {
	Time  int64
	Waker uint64 // 0 if no goroutine woke it, or it is not known which
	// EndsNetworkWait reports that the wait was for the network, EndsOtherWait that it was for something else. If neither is set, only
	// spans show that, and the waker.
	EndsNetworkWait, EndsOtherWait bool
}

// LastWake returns when, in (from, to], a goroutine was last woken, or another one switched to it; false if there is none.
func (w *Window) LastWake(id uint64, from, to int64) (wake Wake, ok bool) {
	if len(w.Gens) == 0 {
		return Wake{}, false
	}
	for i := w.genAt(to); i >= 0; i-- {
		g := w.Gens[i]
		d := g.ids.lookup(id)
		if d == 0 {
			if g.Base+overlap <= from {
				break
			}
			continue
		}
		lo, hi := g.slotBase[d], g.slotBase[d+1]
		for k := g.slotAfter(lo, hi, to-g.Base); k > lo; k-- {
			s := &g.slots[k-1]
			if s.rec == 0 {
				continue
			}
			r := g.record(s.rec)
			t := g.Base + r.time()
			if t <= from {
				return Wake{}, false
			}
			switch r.kind() {
			case kind(tracefmt.EvGoUnblock):
				if k > lo+1 && g.slots[k-2].endedInWait() && !g.isIrregular(d) {
					before := &g.slots[k-2]
					return Wake{t, g.ids.ids[s.creatorOrWaker()], before.endedInNetwork(), before.endedInOtherWait()}, true
				}
				return Wake{Time: t}, true
			case kindSwitched:
				return Wake{Time: t}, true
			}
		}
		if g.Base+overlap <= from {
			break
		}
	}
	return Wake{}, false
}

// maxEventsWoken bounds the events of a goroutine that EachWoken visits.
const maxEventsWoken = 1 << 12

// EachWoken calls f for each goroutine that goroutine id made runnable in [from, to), in order of time, with the stack of the
// wake, until f returns false. woken is 0 if it is not known: in a generation of very many goroutines (see newLayout). complete is
// false if there were too many events to visit all (maxEventsWoken), so that wakes may be missing.
func (w *Window) EachWoken(id uint64, from, to int64, f func(woken uint64, stack tracefmt.StackID) bool) (complete bool) {
	return w.EachWake(id, from, to, func(woken WokenGoroutine, stack tracefmt.StackID) bool { return f(woken.G, stack) })
}

// HasWoken reports whether goroutine id made one runnable in [from, to) for which matches returns true. complete is that of EachWoken, true
// if it has found one.
func (w *Window) HasWoken(id uint64, from, to int64, matches func(woken uint64, stack tracefmt.StackID) bool) (found, complete bool) {
	complete = w.EachWoken(id, from, to, func(woken uint64, stack tracefmt.StackID) bool {
		found = matches(woken, stack)
		return !found
	})
	return found, complete
}

// EachWake is EachWoken with the time of each wake.
func (w *Window) EachWake(id uint64, from, to int64, f func(woken WokenGoroutine, stack tracefmt.StackID) bool) (complete bool) {
	visited := 0
	for i := w.genReaching(from); i < len(w.Gens) && w.Gens[i].Base < to; i++ {
		g := w.Gens[i]
		d := g.ids.lookup(id)
		if d == 0 {
			continue
		}
		lo, hi := g.slotBase[d], g.slotBase[d+1]
		for k := max(g.slotAfter(lo, hi, from-g.Base), lo+1) - 1; k < hi; k++ {
			s := &g.slots[k]
			if s.rec == 0 || !opensRun(g.record(s.rec)) {
				continue
			}
			if g.Base+g.record(s.rec).time() >= to {
				return true
			}
			for r := range g.runEvents(s.rec) {
				if r.hasTrait(leavesThread) || g.Base+r.time() >= to {
					break
				}
				if visited++; visited > maxEventsWoken {
					return false
				}
				if tracefmt.EventType(r.kind()) == tracefmt.EvGoUnblock && g.Base+r.time() >= from && !f(WokenGoroutine{g.ids.ids[r.peer()], g.Base + r.time()}, g.stack(r.stack())) {
					return true
				}
			}
		}
	}
	return true
}

// A WokenGoroutine is a goroutine that another one made runnable at an instant.
type WokenGoroutine struct {
	G    uint64
	Time int64
}

// EachWakeSeries calls f for each series of at least minWakes wakes in [from, to) by consecutive events of one goroutine with one
// stack, such as those of a Broadcast, thread by thread. The slice is valid during the call.
func (g *Gen) EachWakeSeries(from, to int64, minWakes int, f func(waker tracefmt.StackID, woken []WokenGoroutine)) {
	var woken []WokenGoroutine
	for k := range g.streams {
		waypoints := g.index[g.streams[k].index[0]:g.streams[k].index[1]]
		first := sort.Search(len(waypoints), func(i int) bool { return waypoints[i].t > from-g.Base })
		if len(waypoints) == 0 {
			continue
		}
		stack := uint32(0)
		for rec, r := waypoints[max(first-1, 0)].rec, g.record(waypoints[max(first-1, 0)].rec); ; rec, r = g.next(rec) {
			if r.kind() == kindLink {
				rec = r.link()
				r = g.record(rec)
			}
			isEnd := r.kind() == kindEnd || g.Base+r.time() >= to
			isWake := !isEnd && tracefmt.EventType(r.kind()) == tracefmt.EvGoUnblock && r.stack() != 0 && r.peer() != 0 && g.Base+r.time() >= from
			if len(woken) > 0 && (!isWake || r.stack() != stack) {
				if len(woken) >= minWakes {
					f(g.stack(stack), woken)
				}
				woken = woken[:0]
			}
			if isEnd {
				break
			}
			if isWake {
				stack, woken = r.stack(), append(woken, WokenGoroutine{g.ids.ids[r.peer()], g.Base + r.time()})
			}
		}
	}
}
