package timeline

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A chain is a thread's batches in file order.
type chain struct {
	m        uint64
	from, to int32
	bytes    int
}

type chainIndex struct {
	chains  []chain
	batches []int32
	byM     map[uint64]int32
}

// build groups the batches by thread, largest thread first so that the
// workers end at about the same time.
func (c *chainIndex) build(src *tracefmt.Generation) {
	if c.byM == nil {
		c.byM = make(map[uint64]int32)
	}
	clear(c.byM)
	c.chains = c.chains[:0]
	for i := range src.Batches {
		b := &src.Batches[i]
		k, ok := c.byM[b.M]
		if !ok {
			k = int32(len(c.chains))
			c.byM[b.M] = k
			c.chains = append(c.chains, chain{m: b.M})
		}
		c.chains[k].to++
		c.chains[k].bytes += b.End - b.Off
	}
	n := int32(0)
	for k := range c.chains {
		ch := &c.chains[k]
		ch.from, n = n, n+ch.to
		ch.to = ch.from
	}
	c.batches = sized(c.batches, int(n))
	for i := range src.Batches {
		ch := &c.chains[c.byM[src.Batches[i].M]]
		c.batches[ch.to] = int32(i)
		ch.to++
	}
	slices.SortStableFunc(c.chains, func(a, b chain) int { return cmp.Compare(b.bytes, a.bytes) })
}
