package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// entrySlot returns a slot of goroutine number d at which expansion may start in order to know the state at t (ns since the
// generation's base). It is the slot before the last one at t, because the state of a runnable goroutine also includes the wait
// before. ok is false if fewer than minBefore pieces begin before t.
//
// The pieces of an irregular goroutine may repeat earlier states any number of times, so for it the slot is the start of a run.
// A trace with one flipped bit has hundreds of irregular goroutines, so expanding them from their first piece in each query
// would be too slow.
func (g *Gen) entrySlot(d uint32, t int64, minBefore uint32) (slotIndex uint32, ok bool) {
	lo, hi := g.slotBase[d], g.slotBase[d+1]
	if hi-lo <= 8 {
		return 0, false
	}
	k := g.slotAfter(lo, hi, t)
	if k < lo+minBefore {
		return 0, false
	}
	k -= 2
	if !g.isIrregular(d) {
		return k, true
	}
	for n := 0; k > lo && n < maxEntrySearch; n++ {
		switch r := g.record(g.slots[k].rec); r.kind() {
		case kind(tracefmt.EvGoStart), kindSwitched, kind(tracefmt.EvGoCreateSyscall):
			return k, true
		}
		k--
	}
	return k, k > lo
}

// maxEntrySearch bounds the search for the start of a run. Goroutines of real programs have one within that many
// pieces.
const maxEntrySearch = 1024

// slotAfter returns the index of the first of slots[lo:hi] whose piece begins after t (ns since the generation's base); hi if
// none does. The pieces of a goroutine are about evenly distributed over the generation. So the search starts at the slot where
// t would be then and widens from there: it reads a few neighbouring slots instead of a dozen distant ones, each of which would
// be a cache miss.
func (g *Gen) slotAfter(lo, hi uint32, t int64) uint32 {
	if t < 0 {
		return lo
	}
	when := coarseTimeOf(t)
	isAfter := func(i uint32) bool {
		if w := g.slots[i].coarseTime; w != when {
			return w > when
		}
		return g.record(g.slots[i].rec).time() > t
	}
	if hi-lo > 16 {
		length := max(g.End-g.Base, 1)
		guess := lo + uint32(float64(hi-lo)*min(max(float64(t)/float64(length), 0), 0.999999))
		step := uint32(4)
		if isAfter(guess) {
			hi = guess
			for hi-lo > step {
				if !isAfter(hi - step) {
					lo = hi - step + 1
					break
				}
				hi -= step
				step *= 2
			}
		} else {
			lo = guess + 1
			for hi-lo > step {
				if isAfter(lo + step) {
					hi = lo + step
					break
				}
				lo += step + 1
				step *= 2
			}
		}
	}
	for lo < hi {
		if mid := lo + (hi-lo)/2; isAfter(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
