package groups

import (
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
)

// A cellTable holds sums by latency bucket and cause, in a hash table with open addressing: additions to it are most of the
// work for a request.
type cellTable[sum any] struct {
	slots []cellSlot[sum]
	count int
}

type cellSlot[sum any] struct {
	key uint64 // bucket and cause plus 1; 0 is free
	sum sum
}

// find returns the sum of a latency bucket and a cause; nil if there is none.
func (t *cellTable[sum]) find(bucket, cause int32) *sum {
	if t.count == 0 {
		return nil
	}
	k := packKey(bucket, cause)
	mask := uint64(len(t.slots) - 1)
	for i := sample.Hash(k) & mask; t.slots[i].key != 0; i = (i + 1) & mask {
		if t.slots[i].key == k {
			return &t.slots[i].sum
		}
	}
	return nil
}

// packKey returns the hash-table key of a bucket and a cause, which is never 0.
func packKey(bucket, cause int32) uint64 { return uint64(uint32(bucket))<<32 | uint64(uint32(cause)+1) }

// getOrAdd returns the sum of a latency bucket and a cause, creating it on demand. The pointer is valid until the next call.
func (t *cellTable[sum]) getOrAdd(bucket, cause int32) *sum {
	if 2*t.count >= len(t.slots) {
		t.grow()
	}
	k := packKey(bucket, cause)
	mask := uint64(len(t.slots) - 1)
	for i := sample.Hash(k) & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.key == k {
			return &s.sum
		}
		if s.key == 0 {
			s.key = k
			t.count++
			return &s.sum
		}
	}
}

// grow doubles the number of slots.
func (t *cellTable[sum]) grow() {
	old := *t
	t.slots, t.count = make([]cellSlot[sum], max(64, 2*len(old.slots))), 0
	old.forEach(func(bucket, cause int32, c *sum) { *t.getOrAdd(bucket, cause) = *c })
}

// merge adds the sums of another table. causes translates the other table's cause ids to this table's; nil: the ids are the
// same.
func (t *cellTable[sum]) merge(other *cellTable[sum], causes []path.CauseID, add func(to, from *sum)) {
	other.forEach(func(bucket, cause int32, c *sum) {
		if causes != nil {
			cause = int32(causes[cause])
		}
		add(t.getOrAdd(bucket, cause), c)
	})
}

// forEach calls f for every sum, in undefined order.
func (t *cellTable[sum]) forEach(f func(bucket, cause int32, c *sum)) {
	for i := range t.slots {
		if s := &t.slots[i]; s.key != 0 {
			f(int32(s.key>>32), int32(uint32(s.key))-1, &s.sum)
		}
	}
}
