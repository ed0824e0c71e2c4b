package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// place brings the pieces of each goroutine into order.
func (d *Decoder) place(g *Gen) {
	n := len(g.ids.ids)
	g.base = sized(g.base, n+1)
	g.starts = sized(g.starts, n)
	clear(g.starts)
	total := uint32(0)
	var odd []uint32 // goroutines whose pieces are not numbered 0..count-1
	for i := range n {
		var c tally
		for _, w := range d.workers {
			if i < len(w.count) {
				c.count += w.count[i].count
				c.top = max(c.top, w.count[i].top)
			}
		}
		g.base[i] = total
		total += c.count
		if c.count > 0 && c.top != c.count-1 {
			odd = append(odd, uint32(i))
		}
	}
	g.base[n] = total
	g.slots = sized(g.slots, int(total))
	isOdd := func(i uint32) bool { _, ok := slices.BinarySearch(odd, i); return ok }
	d.parallel(func(w *worker) {
		// Two workers never write one slot, except where a goroutine has a
		// number twice and another not at all; such slots are found below.
		k, of := int(w.id), len(d.workers)
		part := g.slots[len(g.slots)*k/of : len(g.slots)*(k+1)/of]
		clear(part)
	})
	d.parallel(func(w *worker) {
		if len(odd) == 0 {
			for p := range w.pieces.all() {
				g.slots[g.base[p.g]+p.seq] = slot{p.rec, p.owner, p.when}
			}
			return
		}
		for p := range w.pieces.all() {
			if at := g.base[p.g] + p.seq; at < g.base[p.g+1] && !isOdd(p.g) {
				g.slots[at] = slot{p.rec, p.owner, p.when}
			}
		}
	})
	for i := range n {
		for _, s := range g.slots[g.base[i]:g.base[i+1]] {
			if s.rec == 0 && (len(odd) == 0 || !isOdd(uint32(i))) {
				k, _ := slices.BinarySearch(odd, uint32(i))
				odd = slices.Insert(odd, k, uint32(i))
				break
			}
		}
	}
	g.irregular = odd
	if len(odd) > 0 {
		d.placeByTime(g, odd)
	}
	for _, st := range d.streams {
		for _, s := range st.starts {
			g.starts[s.g] = s.stack
		}
	}
}

// placeByTime orders the pieces of goroutines whose numbers are not dense.
// That is so where an id comes back within one generation: callbacks from C
// threads reuse their goroutine, whose numbers then start again from 0
// (GoCreateSyscall ... GoDestroySyscall).
func (d *Decoder) placeByTime(g *Gen, odd []uint32) {
	byG := make(map[uint32][]piece, len(odd))
	for _, i := range odd {
		byG[i] = nil
	}
	for _, st := range d.streams {
		for p := range st.pieces.all() {
			if list, ok := byG[p.g]; ok {
				byG[p.g] = append(list, *p)
			}
		}
	}
	for i, list := range byG {
		// Stable: what one thread says at one time is in order.
		slices.SortStableFunc(list, func(a, b piece) int {
			return cmp.Or(cmp.Compare(g.record(a.rec).time(), g.record(b.rec).time()), cmp.Compare(a.seq, b.seq))
		})
		for k, p := range list {
			g.slots[g.base[i]+uint32(k)] = slot{p.rec, p.owner, p.when}
		}
	}
}

// incomplete returns an error if a generation that nothing marks as whole
// visibly lacks something: a string or stack, or a thread's stream, so that a
// number is missing in a goroutine's life or the status of a P.
func (d *Decoder) incomplete(src *tracefmt.Generation, g *Gen, orphans int64) error {
	if err := d.tables.Missing(src); err != nil {
		return err
	}
	if orphans > 0 {
		return fmt.Errorf("%d events speak of a goroutine or P that was not introduced", orphans)
	}
	// Of several that lack something the lowest is named, so that the text does
	// not depend on the workers.
	known := make(map[uint32]bool)
	for _, w := range d.workers {
		for _, e := range w.procs {
			known[e.P] = known[e.P] || e.What >= procStatus
		}
	}
	lacking := uint64(math.MaxUint64)
	for p, ok := range known {
		if !ok {
			lacking = min(lacking, uint64(p))
		}
	}
	if lacking != math.MaxUint64 {
		return fmt.Errorf("the status of P %d is missing", lacking)
	}
	// Goroutines whose numbers are dense have everything.
	seen := make(map[[2]uint32]bool)
	count, top := make(map[uint32]uint32), make(map[uint32]uint32)
	for _, w := range d.workers {
		for p := range w.pieces.all() {
			if key := [2]uint32{p.g, p.seq}; g.isIrregular(p.g) && !seen[key] {
				seen[key] = true
				count[p.g]++
				top[p.g] = max(top[p.g], p.seq)
			}
		}
	}
	for d, n := range count {
		if top[d] != n-1 {
			lacking = min(lacking, g.ids.ids[d])
		}
	}
	if lacking != math.MaxUint64 {
		return fmt.Errorf("a part of goroutine %d's life is missing", lacking)
	}
	return nil
}
