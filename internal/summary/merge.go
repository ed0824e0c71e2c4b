package summary

import (
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/tracefmt"
)

// Merge adds another worker's tables to these; o must not be used afterwards.
func (t *Tables) Merge(o *Tables) {
	t.Observer += o.Observer
	if o.blockMin != 0 && (t.blockMin == 0 || o.blockMin < t.blockMin) {
		t.blockMin = o.blockMin
	}
	t.blockMax = max(t.blockMax, o.blockMax)
	for t.blockShift < o.blockShift {
		t.coarsen()
	}
	for o.blockShift < t.blockShift {
		o.coarsen()
	}
	t.namers = append(t.namers, o.namers...)
	t.turns.merge(&o.turns)
	chains := make([]int32, len(o.chains))
	for i := 1; i < len(o.chains); i++ {
		k := o.chains[i].viaKey
		k.parent = chains[k.parent]
		chains[i] = t.viaID(k)
	}
	ids := make([]int32, len(o.keys))
	for i, k := range o.keys {
		k.via = chains[k.via]
		ids[i] = t.causeID(k)
	}
	for id, m := range o.ran {
		mine := t.ran[ids[id]]
		if mine == nil {
			mine = make(map[tracefmt.FrameID]int64)
			t.ran[ids[id]] = mine
		}
		for f, ns := range m {
			mine[f] += ns
		}
	}
	for k, ns := range o.under {
		t.under[k] += ns
	}
	for k, og := range o.groups {
		t.mergeGroup(k, og, ids)
	}
	t.fitBlocks()
	for k, p := range o.parts {
		t.parts[k] = p
	}
}

// keysOf returns a map's keys in order.
func keysOf[K int32 | int64, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// mergeGroup adds a group to the one with key k. ids translates its causes;
// nil means that they are these tables' own.
func (t *Tables) mergeGroup(k groupKey, og *group, ids []int32) {
	g := t.groups[k]
	if g == nil {
		g = &group{key: k, blocks: make(map[int64]*block)}
		t.groups[k] = g
	}
	if og.entry != 0 && t.better(og.entry, g.entry, k.name) {
		g.entry = og.entry
	}
	g.lat.merge(&og.lat)
	g.ready.merge(&og.ready)
	g.gap.merge(&og.gap)
	og.cells.each(func(bucket, cause int32, c *cell) {
		if ids != nil {
			cause = ids[cause]
		}
		mine := g.cells.at(bucket, cause)
		mine.ns += c.ns
		mine.requests += c.requests
	})
	for bi, b := range og.blocks {
		mine := g.blocks[bi]
		if mine == nil {
			mine = newBlock()
			g.blocks[bi] = mine
		}
		mine.merge(b)
	}
	for _, s := range og.slow {
		t.addSlow(g, s)
	}
	for _, s := range og.sample {
		g.addSample(s)
	}
	g.graphs.Merge(&og.graphs)
	g.cut += og.cut
	g.multi += og.multi
	g.parted = g.parted || og.parted
	g.open += og.open
	g.refs = append(g.refs, og.refs...)
	if og.oldest != 0 && g.isOlder(og.oldest, og.oldestG) {
		g.oldest, g.oldestG, g.openSite = og.oldest, og.oldestG, og.openSite
	}
}
