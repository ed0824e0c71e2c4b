package timeline

// slotAfter returns the first of slots[lo:hi] whose piece begins after t (ns
// since the generation's base), hi if none does. A goroutine's pieces are
// spread over the generation about evenly, so the search starts where t would
// then be and widens from there: it touches a few neighbouring slots instead of
// a dozen far apart, each of them a cache miss.
func (g *Gen) slotAfter(lo, hi uint32, t int64) uint32 {
	if t < 0 {
		return lo
	}
	when := whenOf(t)
	after := func(i uint32) bool {
		if w := g.slots[i].when; w != when {
			return w > when
		}
		return g.record(g.slots[i].rec).time() > t
	}
	if hi-lo > 16 {
		length := max(g.End-g.Base, 1)
		at := lo + uint32(float64(hi-lo)*min(max(float64(t)/float64(length), 0), 0.999999))
		step := uint32(4)
		if after(at) {
			hi = at
			for hi-lo > step {
				if !after(hi - step) {
					lo = hi - step + 1
					break
				}
				hi -= step
				step *= 2
			}
		} else {
			lo = at + 1
			for hi-lo > step {
				if after(lo + step) {
					hi = lo + step
					break
				}
				lo += step + 1
				step *= 2
			}
		}
	}
	for lo < hi {
		if mid := lo + (hi-lo)/2; after(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
