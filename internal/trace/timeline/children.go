package timeline

import (
	"cmp"
	"sort"
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
)

// A childIndex lists the goroutines that were created in a generation, by creator and time. It is built on the first use,
// because a request may need the children of each of its waits, and one run of the creator may have a million events.
type childIndex struct {
	childOnce sync.Once
	children  []child  // ordered by the creator's Number, then by time
	childBase []uint32 // by creator's Number: index of its first child; then the total
}

// A child is a created goroutine (its Number) with the time of its creation.
type child struct{ coarseTime, d uint32 }

func (c *childIndex) reset() {
	*c = childIndex{children: c.children[:0], childBase: c.childBase[:0]}
}

// Children calls f for each goroutine that goroutine id created in [from, to), in order of time, until f returns false.
func (w *Window) Children(id uint64, from, to int64, f func(child Birth) bool) {
	for i := max(w.genAt(from)-1, 0); i < len(w.Gens) && w.Gens[i].Base < to; i++ {
		if !w.Gens[i].eachChild(id, from, to, f) {
			return
		}
	}
}

// eachChild is Children of goroutine id in [from, to) for one generation. It returns false if f did.
func (g *Gen) eachChild(id uint64, from, to int64, f func(child Birth) bool) bool {
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
		b, ok := g.BirthAt(c.d)
		if !ok {
			continue // in a damaged trace the goroutine's first record may be no creation
		}
		if b.Time >= to {
			break
		}
		if b.Time >= from && !f(b) {
			return false
		}
	}
	return true
}

// buildChildren builds the childIndex: a counting sort of the creations by creator, then those of one creator by time.
func (g *Gen) buildChildren() {
	n := len(g.ids.ids)
	base := entry.Resize(g.childBase, n+1)
	clear(base)
	eachBirth := func(yield func(s *slot, d uint32)) {
		for d := range uint32(n) {
			// If there is a start function, the goroutine was created in this generation, and its
			// record need not be read.
			if s := g.firstSlot(d); s != nil && s.creatorOrWaker() < uint32(n) && (g.startStacks[d] != 0 || g.record(s.rec).hasTrait(createsOther)) {
				yield(s, d)
			}
		}
	}
	eachBirth(func(s *slot, _ uint32) { base[s.creatorOrWaker()+1]++ })
	for creator := range n {
		base[creator+1] += base[creator]
	}
	g.children = entry.Resize(g.children, int(base[n]))
	eachBirth(func(s *slot, d uint32) {
		g.children[base[s.creatorOrWaker()]] = child{s.coarseTime, d}
		base[s.creatorOrWaker()]++
	})
	copy(base[1:], base) // each is now where the next creator's children begin
	base[0] = 0
	g.childBase = base
	for creator := range n {
		mergeSorted(g.children[base[creator]:base[creator+1]], func(a, b child) bool {
			if a.coarseTime != b.coarseTime {
				return a.coarseTime < b.coarseTime
			}
			return cmp.Or(cmp.Compare(g.bornAt(a.d), g.bornAt(b.d)), cmp.Compare(g.ids.ids[a.d], g.ids.ids[b.d])) < 0
		})
	}
}

// bornAt returns the time at which goroutine number d of the childIndex was created.
func (g *Gen) bornAt(d uint32) int64 { return g.Base + g.record(g.firstSlot(d).rec).time() }
