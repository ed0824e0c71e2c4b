package timeline

import (
	"cmp"
	"slices"
	"sort"
	"sync"
)

// childIndex has the goroutines born in a generation by who created them, in order of time. It is made when it is first asked for: a
// request may ask for each of its waits, and what a goroutine did in a run may be a million events.
type childIndex struct {
	childOnce sync.Once
	children  []child  // by dense creator
	childBase []uint32 // by dense creator: its first of children; one more at the end
}

// A child is a goroutine and about when it was born.
type child struct{ coarseTime, d uint32 }

func (c *childIndex) reset() {
	*c = childIndex{children: c.children[:0], childBase: c.childBase[:0]}
}

// Children calls f for every goroutine that goroutine id created in [from, to),
// in order of time, until it returns false.
func (w *Window) Children(id uint64, from, to int64, f func(child uint64, birthTime int64) bool) {
	for i := max(w.genAt(from)-1, 0); i < len(w.Gens) && w.Gens[i].Base < to; i++ {
		if !w.Gens[i].eachChild(id, from, to, f) {
			return
		}
	}
}

func (g *Gen) eachChild(id uint64, from, to int64, f func(child uint64, birthTime int64) bool) bool {
	d := g.ids.lookup(id)
	if d == 0 {
		return true
	}
	if to <= g.Base {
		return true
	}
	g.childOnce.Do(g.buildChildren)
	list := g.children[g.childBase[d]:g.childBase[d+1]]
	first := coarseTimeOf(max(from, g.Base) - g.Base)
	for _, c := range list[sort.Search(len(list), func(i int) bool { return list[i].coarseTime >= first }):] {
		b, ok := g.birth(c.d)
		if !ok {
			continue // in a damaged trace the first thing known may be another than the creation
		}
		if b.Time >= to {
			break
		}
		if b.Time >= from && !f(b.G, b.Time) {
			return false
		}
	}
	return true
}

// buildChildren divides the births by creator.
func (g *Gen) buildChildren() {
	n := len(g.ids.ids)
	base := resize(g.childBase, n+1)
	clear(base)
	eachBirth := func(yield func(s *slot, d uint32)) {
		for d := range uint32(n) {
			// The record is not read where there is a start function: such a goroutine was created here.
			if s := g.firstSlot(d); s != nil && s.ownerBits < uint32(n) && (g.startStacks[d] != 0 || g.record(s.rec).hasTrait(createsOther)) {
				yield(s, d)
			}
		}
	}
	eachBirth(func(s *slot, _ uint32) { base[s.ownerBits+1]++ })
	for creator := range n {
		base[creator+1] += base[creator]
	}
	g.children = resize(g.children, int(base[n]))
	eachBirth(func(s *slot, d uint32) {
		g.children[base[s.ownerBits]] = child{s.coarseTime, d}
		base[s.ownerBits]++
	})
	copy(base[1:], base) // each has moved on to where the next one's begin
	base[0] = 0
	g.childBase = base
	for creator := range n {
		slices.SortFunc(g.children[base[creator]:base[creator+1]], func(a, b child) int {
			if a.coarseTime != b.coarseTime {
				return cmp.Compare(a.coarseTime, b.coarseTime)
			}
			return cmp.Or(cmp.Compare(g.bornAt(a.d), g.bornAt(b.d)), cmp.Compare(g.ids.ids[a.d], g.ids.ids[b.d]))
		})
	}
}

// bornAt returns when a goroutine of children was born.
func (g *Gen) bornAt(d uint32) int64 { return g.Base + g.record(g.firstSlot(d).rec).time() }
