package timeline

import "github.com/whylate/whylate/internal/trace/tracefmt"

// entrySlot returns the slot from which on a goroutine's pieces tell what it was doing at t (ns since the generation's base), if
// at least least pieces begin before t; it is the one before the last, which says where a runnable goroutine was.
//
// Where a goroutine's life has holes (its numbers are not dense), any number of pieces may repeat what was before them: there it
// is the start of a run. A trace in which one bit is flipped has hundreds of such goroutines, so these must not be told from
// their beginning each time.
func (g *Gen) entrySlot(d uint32, t int64, minBefore uint32) (uint32, bool) {
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

// maxEntrySearch bounds the search for the start of a run; a goroutine that has none in so many pieces is none of a real program.
const maxEntrySearch = 1024

// slotAfter returns the first of slots[lo:hi] whose piece begins after t (ns
// since the generation's base), hi if none does. A goroutine's pieces are
// spread over the generation about evenly, so the search starts where t would
// then be and widens from there: it touches a few neighbouring slots instead of
// a dozen far apart, each of them a cache miss.
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
