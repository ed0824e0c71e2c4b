package timeline

import (
	"cmp"
	"slices"
	"sort"
	"sync"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// childIndex has the goroutines born in a generation by who created them, made when it is first asked for: a request may ask for each of
// its waits, and what a goroutine did in a run may be a million events.
type childIndex struct {
	childOnce sync.Once
	children  []uint32 // dense goroutines, by creator, then time of birth
	childBase []uint32 // by dense creator: its first of children; one more at the end
}

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
	g.childOnce.Do(g.buildChildren)
	list := g.children[g.childBase[d]:g.childBase[d+1]]
	list = list[sort.Search(len(list), func(i int) bool { return g.bornAt(list[i]) >= from }):]
	for _, c := range list {
		at := g.bornAt(c)
		if at >= to {
			break
		}
		// In a damaged trace the first thing known may be another than the creation.
		if isBirth(g.record(g.firstSlot(c).rec)) && !f(g.ids.ids[c], at) {
			return false
		}
	}
	return true
}

// buildChildren sorts the births by creator, then time.
func (g *Gen) buildChildren() {
	n := uint32(len(g.ids.ids))
	base := make([]uint32, n+1)
	each := func(f func(d, by uint32)) {
		for d := uint32(1); d < n; d++ {
			// The record is not read where there is a start function: such a goroutine was created here.
			if s := g.firstSlot(d); s != nil && s.own < n && (g.starts[d] != 0 || isBirth(g.record(s.rec))) {
				f(d, s.own)
			}
		}
	}
	each(func(_, by uint32) { base[by]++ })
	sum := uint32(0)
	for by, k := range base {
		base[by], sum = sum, sum+k
	}
	g.children = make([]uint32, sum)
	each(func(d, by uint32) {
		g.children[base[by]] = d
		base[by]++
	})
	copy(base[1:], base) // each has moved on to where the next one's begin
	base[0] = 0
	for by := range n {
		if list := g.children[base[by]:base[by+1]]; by != 0 && len(list) > 1 {
			slices.SortFunc(list, g.byBirth)
		}
	}
	g.childBase = base
}

func (g *Gen) byBirth(a, b uint32) int {
	if x, y := g.firstSlot(a), g.firstSlot(b); x.when != y.when {
		return cmp.Compare(x.when, y.when)
	}
	return cmp.Or(cmp.Compare(g.bornAt(a), g.bornAt(b)), cmp.Compare(g.ids.ids[a], g.ids.ids[b]))
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
