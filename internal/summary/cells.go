package summary

// cells is a table of sums by latency bucket and cause: a hash table with
// open addressing, because adding up is most of what happens to a request.
type cells struct {
	keys []uint64 // bucket and cause plus 1; 0 is free
	vals []cell
	n    int
}

func cellKey(bucket, cause int32) uint64 { return uint64(uint32(bucket))<<32 | uint64(uint32(cause)+1) }

// at returns the sum for a bucket and a cause. It is valid until the next call.
func (t *cells) at(bucket, cause int32) *cell {
	if 2*t.n >= len(t.keys) {
		t.grow()
	}
	k := cellKey(bucket, cause)
	mask := uint64(len(t.keys) - 1)
	for i := hash(k) & mask; ; i = (i + 1) & mask {
		if t.keys[i] == k {
			return &t.vals[i]
		}
		if t.keys[i] == 0 {
			t.keys[i] = k
			t.n++
			return &t.vals[i]
		}
	}
}

func hash(k uint64) uint64 {
	k *= 0x9e3779b97f4a7c15
	return k ^ k>>32
}

func (t *cells) grow() {
	old := *t
	size := max(64, 2*len(old.keys))
	t.keys, t.vals, t.n = make([]uint64, size), make([]cell, size), 0
	old.each(func(bucket, cause int32, c *cell) { *t.at(bucket, cause) = *c })
}

// each calls f for every sum, in no order.
func (t *cells) each(f func(bucket, cause int32, c *cell)) {
	for i, k := range t.keys {
		if k != 0 {
			f(int32(k>>32), int32(uint32(k))-1, &t.vals[i])
		}
	}
}
