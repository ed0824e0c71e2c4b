package timeline

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// childIndex has the goroutines born in a generation by who created them, made when it is first asked for: a request may ask for each of
// its waits, and what a goroutine did in a run may be a million events. Who created many is mostly not asked about, so the children of one
// are sorted when they are.
type childIndex struct {
	childOnce  sync.Once
	children   []child  // by dense creator
	childBase  []uint32 // by dense creator: its first of children; one more at the end
	childMutex sync.Mutex
	childOrder []uint64 // by dense creator, a bit each: whether its children are in order of time
}

// A child is a goroutine and about when it was born.
type child struct{ when, d uint32 }

func (c *childIndex) reset() { *c = childIndex{} }

// Children calls f for every goroutine that goroutine id created in [from, to),
// in order of time, until it returns false.
func (w *Window) Children(id uint64, from, to int64, f func(child uint64, at int64) bool) {
	for i := max(w.genAt(from)-1, 0); i < len(w.Gens) && w.Gens[i].Base < to; i++ {
		if !w.Gens[i].eachChild(id, from, to, f) {
			return
		}
	}
}

func (g *Gen) eachChild(id uint64, from, to int64, f func(child uint64, at int64) bool) bool {
	d := g.ids.lookup(id)
	if d == 0 {
		return true
	}
	list := g.childrenOf(d)
	first := uint32(0)
	if from > g.Base {
		first = whenOf(from - g.Base)
	}
	for _, c := range list[sort.Search(len(list), func(i int) bool { return list[i].when >= first }):] {
		at := g.bornAt(c.d)
		if at >= to {
			break
		}
		// In a damaged trace the first thing known may be another than the creation.
		if at >= from && isBirth(g.record(g.firstSlot(c.d).rec)) && !f(g.ids.ids[c.d], at) {
			return false
		}
	}
	return true
}

// childrenOf returns the children of a goroutine in order of time.
func (g *Gen) childrenOf(d uint32) []child {
	g.childOnce.Do(g.buildChildren)
	list := g.children[g.childBase[d]:g.childBase[d+1]]
	if len(list) < 2 {
		return list
	}
	g.childMutex.Lock()
	defer g.childMutex.Unlock()
	if g.childOrder[d>>6]&(1<<(d&63)) == 0 {
		g.childOrder[d>>6] |= 1 << (d & 63)
		slices.SortFunc(list, func(a, b child) int {
			if a.when != b.when {
				return cmp.Compare(a.when, b.when)
			}
			return cmp.Or(cmp.Compare(g.bornAt(a.d), g.bornAt(b.d)), cmp.Compare(g.ids.ids[a.d], g.ids.ids[b.d]))
		})
	}
	return list
}

// buildChildren divides the births by creator.
func (g *Gen) buildChildren() {
	n := uint32(len(g.ids.ids))
	base := make([]uint32, n+1)
	each := func(f func(d uint32, s *slot)) {
		for d := uint32(1); d < n; d++ {
			// The record is not read where there is a start function: such a goroutine was created here.
			if s := g.firstSlot(d); s != nil && s.own < n && (g.starts[d] != 0 || isBirth(g.record(s.rec))) {
				f(d, s)
			}
		}
	}
	each(func(_ uint32, s *slot) { base[s.own]++ })
	sum := uint32(0)
	for by, k := range base {
		base[by], sum = sum, sum+k
	}
	g.children = make([]child, sum)
	each(func(d uint32, s *slot) {
		g.children[base[s.own]] = child{s.when, d}
		base[s.own]++
	})
	copy(base[1:], base) // each has moved on to where the next one's begin
	base[0] = 0
	g.childBase, g.childOrder = base, make([]uint64, n/64+1)
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

// bornAt returns when a goroutine of children was born.
func (g *Gen) bornAt(d uint32) int64 { return g.Base + g.record(g.firstSlot(d).rec).time() }

func isBirth(r record) bool {
	k := tracefmt.EventType(r.kind())
	return k == tracefmt.EvGoCreate || k == tracefmt.EvGoCreateBlocked
}
