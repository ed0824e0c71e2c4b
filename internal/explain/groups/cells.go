package groups

// cells is a table of sums by latency bucket and cause: a hash table with
// open addressing, because adding up is most of what happens to a request.
type cells struct {
	slots []cellSlot
	n     int
}

type cellSlot struct {
	key uint64 // bucket and cause plus 1; 0 is free
	cell
}

// ns returns the time of a bucket and a cause, 0 if there is no sum.
func (t *cells) ns(bucket, cause int32) int64 {
	if t.n == 0 {
		return 0
	}
	k := cellKey(bucket, cause)
	mask := uint64(len(t.slots) - 1)
	for i := hash(k) & mask; t.slots[i].key != 0; i = (i + 1) & mask {
		if t.slots[i].key == k {
			return t.slots[i].ns
		}
	}
	return 0
}

func cellKey(bucket, cause int32) uint64 { return uint64(uint32(bucket))<<32 | uint64(uint32(cause)+1) }

// at returns the sum for a bucket and a cause. It is valid until the next call.
func (t *cells) at(bucket, cause int32) *cell {
	if 2*t.n >= len(t.slots) {
		t.grow()
	}
	k := cellKey(bucket, cause)
	mask := uint64(len(t.slots) - 1)
	for i := hash(k) & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.key == k {
			return &s.cell
		}
		if s.key == 0 {
			s.key = k
			t.n++
			return &s.cell
		}
	}
}

func hash(k uint64) uint64 {
	k *= 0x9e3779b97f4a7c15
	return k ^ k>>32
}

func (t *cells) grow() {
	old := *t
	t.slots, t.n = make([]cellSlot, max(64, 2*len(old.slots))), 0
	old.each(func(bucket, cause int32, c *cell) { *t.at(bucket, cause) = *c })
}

// each calls f for every sum, in no order.
func (t *cells) each(f func(bucket, cause int32, c *cell)) {
	for i := range t.slots {
		if s := &t.slots[i]; s.key != 0 {
			f(int32(s.key>>32), int32(uint32(s.key))-1, &s.cell)
		}
	}
}
