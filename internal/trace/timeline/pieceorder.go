package timeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/whylate/whylate/internal/explain/entry"
)

// placePieces assigns the pieces of all goroutines (runs, and events about them) to slots in their order. A piece belongs at
// slotBase[goroutine] + its sequence number, so nothing is sorted; goroutines with missing or repeated numbers (irregular) are
// ordered by time instead.
func (d *Decoder) placePieces(g *Gen) {
	n := len(g.ids.ids)
	g.slotBase = entry.Resize(g.slotBase, n+1)
	g.startStacks = entry.Resize(g.startStacks, n)
	clear(g.startStacks)
	clear(g.slotBase)
	d.onEachWorker(func(w *worker) {
		for batch := range w.pieces.batches() {
			for i := range batch {
				p := &batch[i]
				atomic.AddUint32(&g.slotBase[p.g+1], 1)
				if p.seq&createdBit != 0 {
					raise(&g.startStacks[p.g], p.seq&seqMask)
					p.seq = 0
				}
			}
		}
	})
	total := uint32(0)
	for i := range g.slotBase {
		total += g.slotBase[i]
		g.slotBase[i] = total
	}
	g.slots = entry.Resize(g.slots, int(total))
	irregular := d.placeByNumber(g)
	g.irregular = irregular
	if len(irregular) > 0 {
		d.placeByTime(g, irregular)
	}
}

// raise sets *v to at least n.
func raise(v *uint32, n uint32) {
	for {
		if old := atomic.LoadUint32(v); n <= old || atomic.CompareAndSwapUint32(v, old, n) {
			return
		}
	}
}

// placeByNumber assigns the pieces to the slots of their numbers. It returns the goroutines for which that fails, in order: a number
// is not below the number of pieces, or it is there twice, so that a slot stays empty.
func (d *Decoder) placeByNumber(g *Gen) (irregular []uint32) {
	// share returns a worker's share of n elements.
	share := func(w *worker, n int) (from, to int) {
		return n * int(w.id) / len(d.workers), n * (int(w.id) + 1) / len(d.workers)
	}
	byWorker := make([][]uint32, len(d.workers))
	d.onEachWorker(func(w *worker) {
		from, to := share(w, len(g.slots))
		clear(g.slots[from:to])
	})
	d.onEachWorker(func(w *worker) {
		var slots [pieceBatch]*slot
		for batch := range w.pieces.batches() {
			for i, p := range batch {
				if slots[i] = nil; p.seq < g.slotBase[p.g+1]-g.slotBase[p.g] {
					slots[i] = &g.slots[g.slotBase[p.g]+p.seq]
					atomic.LoadUint32((*uint32)(&slots[i].rec)) // the loads do not wait for each other, in contrast to the following
				}
			}
			for i, p := range batch {
				// Of two pieces with one number, perhaps of two workers, the first has the slot; another slot stays empty.
				if s := slots[i]; s != nil && atomic.CompareAndSwapUint32((*uint32)(&s.rec), 0, uint32(p.rec)) {
					s.ownerBits, s.coarseTime = p.ownerBits, coarseTimeOf(g.record(p.rec).time())
				}
			}
		}
	})
	d.onEachWorker(func(w *worker) {
		for i, to := share(w, len(g.slotBase)-1); i < to; i++ {
			if slices.ContainsFunc(g.slots[g.slotBase[i]:g.slotBase[i+1]], func(s slot) bool { return s.rec == 0 }) {
				byWorker[w.id] = append(byWorker[w.id], uint32(i))
			}
		}
	})
	return slices.Concat(byWorker...)
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
		for batch := range st.pieces.batches() {
			for _, p := range batch {
				if list, ok := byG[p.g]; ok {
					byG[p.g] = append(list, p)
				}
			}
		}
	}
	for i, list := range byG {
		// Stable: events of one thread at the same time are in order.
		slices.SortStableFunc(list, func(a, b piece) int {
			return cmp.Or(cmp.Compare(g.record(a.rec).time(), g.record(b.rec).time()), cmp.Compare(a.seq, b.seq))
		})
		for k, p := range list {
			g.slots[g.slotBase[i]+uint32(k)] = slot{p.rec, p.ownerBits, coarseTimeOf(g.record(p.rec).time())}
		}
	}
}

// checkComplete returns an error if a generation visibly lacks something: a piece of a goroutine, or the status of a P. A missing thread's
// stream shows as one of these, or as a string or stack that events refer to. It serves generations without an end mark
// (before Go 1.26). orphans is the number of events of a goroutine or P that no event before them introduced.
func (d *Decoder) checkComplete(g *Gen, orphans int64) error {
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
		for batch := range w.pieces.batches() {
			for _, p := range batch {
				if key := [2]uint32{p.g, p.seq}; g.isIrregular(p.g) && !countedPieces[key] {
					countedPieces[key] = true
					count[p.g]++
					top[p.g] = max(top[p.g], p.seq)
				}
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
