package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// placePieces assigns the pieces of all goroutines (runs, and events about them) to slots in their order. A piece belongs at
// slotBase[goroutine] + its sequence number, so nothing is sorted; goroutines with missing or repeated numbers (irregular) are
// ordered by time instead.
func (d *Decoder) placePieces(g *Gen) {
	n := len(g.ids.ids)
	g.slotBase = entry.Resize(g.slotBase, n+1)
	g.startStacks = entry.Resize(g.startStacks, n)
	clear(g.startStacks)
	total := uint32(0)
	var irregular []uint32 // goroutines whose pieces are not numbered 0..count-1
	for i := range n {
		var c tally
		for _, w := range d.workers {
			if i < len(w.count) {
				c.count += w.count[i].count
				c.top = max(c.top, w.count[i].top)
			}
		}
		g.slotBase[i] = total
		total += c.count
		if c.count > 0 && c.top != c.count-1 {
			irregular = append(irregular, uint32(i))
		}
	}
	g.slotBase[n] = total
	g.slots = entry.Resize(g.slots, int(total))
	isIrregular := func(i uint32) bool { _, ok := slices.BinarySearch(irregular, i); return ok }
	d.onEachWorker(func(w *worker) {
		// Two workers never write the same slot, unless a goroutine has one number twice and lacks
		// another. Then a slot stays empty, and the loop below finds it.
		k, workers := int(w.id), len(d.workers)
		share := g.slots[len(g.slots)*k/workers : len(g.slots)*(k+1)/workers]
		clear(share)
	})
	d.onEachWorker(func(w *worker) {
		if len(irregular) == 0 {
			for p := range w.pieces.all() {
				g.slots[g.slotBase[p.g]+p.seq] = slot{p.rec, p.ownerBits, p.coarseTime}
			}
			return
		}
		for p := range w.pieces.all() {
			if slotIndex := g.slotBase[p.g] + p.seq; slotIndex < g.slotBase[p.g+1] && !isIrregular(p.g) {
				g.slots[slotIndex] = slot{p.rec, p.ownerBits, p.coarseTime}
			}
		}
	})
	for i := range n {
		for _, s := range g.slots[g.slotBase[i]:g.slotBase[i+1]] {
			if s.rec == 0 && (len(irregular) == 0 || !isIrregular(uint32(i))) {
				k, _ := slices.BinarySearch(irregular, uint32(i))
				irregular = slices.Insert(irregular, k, uint32(i))
				break
			}
		}
	}
	g.irregular = irregular
	if len(irregular) > 0 {
		d.placeByTime(g, irregular)
	}
	for _, st := range d.threadLists {
		for _, s := range st.starts {
			g.startStacks[s.g] = s.stack
		}
	}
}

// placeByTime orders the pieces of irregular goroutines by time: their sequence numbers are not 0 to n-1. That happens if an id
// is reused within a generation: callbacks from C threads reuse their goroutine, and the numbers restart from 0
// (GoCreateSyscall ... GoDestroySyscall).
func (d *Decoder) placeByTime(g *Gen, irregular []uint32) {
	byG := make(map[uint32][]piece, len(irregular))
	for _, i := range irregular {
		byG[i] = nil
	}
	for _, st := range d.threadLists {
		for p := range st.pieces.all() {
			if list, ok := byG[p.g]; ok {
				byG[p.g] = append(list, *p)
			}
		}
	}
	for i, list := range byG {
		// Stable: events of one thread at the same time are in order.
		slices.SortStableFunc(list, func(a, b piece) int {
			return cmp.Or(cmp.Compare(g.record(a.rec).time(), g.record(b.rec).time()), cmp.Compare(a.seq, b.seq))
		})
		for k, p := range list {
			g.slots[g.slotBase[i]+uint32(k)] = slot{p.rec, p.ownerBits, p.coarseTime}
		}
	}
}

// checkComplete returns an error if a generation visibly lacks something: a string or stack that events refer to, a piece of a
// goroutine, or the status of a P. A missing thread's stream shows as one of these. It serves generations without an end mark
// (before Go 1.26). orphans is the number of events of a goroutine or P that no event before them introduced.
func (d *Decoder) checkComplete(src *tracefmt.Generation, g *Gen, orphans int64) error {
	if err := d.tables.CheckDefined(src); err != nil {
		return err
	}
	if orphans > 0 {
		return fmt.Errorf("%d events speak of a goroutine or P that was not introduced", orphans)
	}
	// It names the lowest of several such goroutines or Ps, so that the error does not depend on the number of
	// workers.
	statusSeen := make(map[uint32]bool)
	for _, w := range d.workers {
		for _, e := range w.procs {
			statusSeen[e.P] = statusSeen[e.P] || e.Change >= procStatus
		}
	}
	lowestMissing := uint64(math.MaxUint64)
	for p, ok := range statusSeen {
		if !ok {
			lowestMissing = min(lowestMissing, uint64(p))
		}
	}
	if lowestMissing != math.MaxUint64 {
		return fmt.Errorf("the status of P %d is missing", lowestMissing)
	}
	// Goroutines with dense numbers lack no piece.
	countedPieces := make(map[[2]uint32]bool)
	count, top := make(map[uint32]uint32), make(map[uint32]uint32)
	for _, w := range d.workers {
		for p := range w.pieces.all() {
			if key := [2]uint32{p.g, p.seq}; g.isIrregular(p.g) && !countedPieces[key] {
				countedPieces[key] = true
				count[p.g]++
				top[p.g] = max(top[p.g], p.seq)
			}
		}
	}
	for goroutine, n := range count {
		if top[goroutine] != n-1 {
			lowestMissing = min(lowestMissing, g.ids.ids[goroutine])
		}
	}
	if lowestMissing != math.MaxUint64 {
		return fmt.Errorf("a part of goroutine %d's life is missing", lowestMissing)
	}
	return nil
}
