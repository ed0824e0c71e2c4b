package timeline

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A rangeEvent is the begin or end of an interval that may contain several pieces of a goroutine: a mark assist or
// a stop of the world.
type rangeEvent struct {
	g, seq uint32 // goroutine and sequence number of its piece
	rec    ref
	typ    tracefmt.EventType

	// The state of the goroutine after the event. assistKnown and stwKnown report which part of it is known.
	assistKnown, stwKnown, stw bool
	assist                     ref // the begin of the assist that is in progress, or 0
}

// A rangeTable holds the range events of all goroutines.
type rangeTable struct {
	ranges       []rangeEvent    // ordered by goroutine
	rangeBitmaps []rangeBitmap   // which goroutine Numbers have range events, 64 in each element
	rangeBase    []uint32        // for each of these goroutines, the index of its first event in ranges
	stwBefore    []uint64        // goroutines that stopped the world when the generation began
	assistBefore map[uint32]bool // goroutines that were inside a mark assist when it began
}

func (t *rangeTable) reset() {
	*t = rangeTable{ranges: t.ranges[:0], rangeBase: t.rangeBase[:0]}
}

// gatherRanges sets g.ranges: the begins and ends of mark assists and of stops of the world, ordered by goroutine (counting
// sort), then in the order of the goroutine's pieces.
func (d *Decoder) gatherRanges(g *Gen) {
	total := 0
	for _, st := range d.threadLists {
		total += len(st.ranges)
	}
	if total == 0 {
		return
	}
	nextIndex := make([]uint32, len(g.ids.ids)+1) // for each goroutine, the index of its next event
	for _, st := range d.threadLists {
		for i := range st.ranges {
			nextIndex[st.ranges[i].g+1]++
		}
	}
	for i := range len(nextIndex) - 1 {
		nextIndex[i+1] += nextIndex[i]
	}
	g.ranges = entry.Resize(g.ranges, total)
	for _, st := range d.threadLists {
		for i := range st.ranges {
			e := &st.ranges[i]
			g.ranges[nextIndex[e.g]] = *e
			nextIndex[e.g]++
		}
	}
	// Stable: the events of one run come from one thread, in order.
	for from := 0; from < total; {
		goroutine := g.ranges[from].g
		to := int(nextIndex[goroutine])
		if list := g.ranges[from:to]; len(list) > 1 {
			if g.isIrregular(goroutine) {
				slices.SortStableFunc(list, func(a, b rangeEvent) int {
					return cmp.Or(cmp.Compare(g.record(a.rec).time(), g.record(b.rec).time()), cmp.Compare(a.seq, b.seq)) // like the pieces, see placeByTime
				})
			} else {
				slices.SortStableFunc(list, func(a, b rangeEvent) int { return cmp.Compare(a.seq, b.seq) })
			}
		}
		from = to
	}
}

// chainRanges sets, in each range event, the goroutine's state after the event (in an assist, stopping the world), and builds
// the index of the goroutines that have range events.
func (g *Gen) chainRanges() {
	g.rangeBitmaps = make([]rangeBitmap, len(g.ids.ids)/64+1)
	g.rangeBase = g.rangeBase[:0]
	for i := range g.ranges {
		e := &g.ranges[i]
		if i > 0 && g.ranges[i-1].g == e.g {
			b := &g.ranges[i-1]
			e.assistKnown, e.stwKnown, e.stw, e.assist = b.assistKnown, b.stwKnown, b.stw, b.assist
		} else {
			g.rangeBitmaps[e.g>>6].bits |= 1 << (e.g & 63)
			g.rangeBase = append(g.rangeBase, uint32(i))
		}
		switch e.typ {
		case tracefmt.EvGCMarkAssistBegin:
			e.assistKnown, e.assist = true, e.rec
		case tracefmt.EvGCMarkAssistEnd:
			e.assistKnown, e.assist = true, 0
		case tracefmt.EvSTWBegin, tracefmt.EvSTWEnd:
			e.stwKnown, e.stw = true, e.typ == tracefmt.EvSTWBegin
		}
	}
	g.rangeBase = append(g.rangeBase, uint32(len(g.ranges)))
	n := 0
	for i := range g.rangeBitmaps {
		g.rangeBitmaps[i].before = uint32(n)
		n += bits.OnesCount64(g.rangeBitmaps[i].bits)
	}
}

// A rangeBitmap has a bit for each of 64 goroutines that has range events, and the number of such goroutines
// before these 64.
type rangeBitmap struct {
	bits   uint64
	before uint32
}

// rangesOf returns the range events of goroutine number d in order.
func (g *Gen) rangesOf(d uint32) []rangeEvent {
	if d>>6 >= uint32(len(g.rangeBitmaps)) {
		return nil
	}
	w := &g.rangeBitmaps[d>>6]
	if w.bits&(1<<(d&63)) == 0 {
		return nil
	}
	k := int(w.before) + bits.OnesCount64(w.bits&(1<<(d&63)-1))
	return g.ranges[g.rangeBase[k]:g.rangeBase[k+1]]
}

// MayAssist reports whether a goroutine was in a mark assist at any time of the window. It may be wrong for one that was not.
func (w *Window) MayAssist(id uint64) bool {
	return slices.ContainsFunc(w.Gens, func(g *Gen) bool {
		d := g.ids.lookup(id)
		return d != 0 && (len(g.rangesOf(d)) > 0 || g.assistBefore[d])
	})
}

// rangeState returns the state of goroutine number d before its piece k in generation i: whether it is inside of a mark assist,
// with the stack at the assist's beginning, and whether it stops the world.
func (w *Window) rangeState(i int, d, k uint32) (assist bool, stack tracefmt.StackID, stw bool) {
	g := w.Gens[i]
	var last rangeEvent
	if events := g.rangesOf(d); len(events) > 0 {
		n := 0
		if slotIndex := g.slotBase[d] + k; g.isIrregular(d) && k < g.slotBase[d+1]-g.slotBase[d] {
			n, _ = slices.BinarySearchFunc(events, g.slots[slotIndex].rec, func(e rangeEvent, rec ref) int {
				return cmp.Or(cmp.Compare(g.record(e.rec).time(), g.record(rec).time()), cmp.Compare(e.rec, rec))
			})
		} else {
			for hi := len(events); n < hi; {
				if mid := int(uint(n+hi) / 2); events[mid].seq < k {
					n = mid + 1
				} else {
					hi = mid
				}
			}
		}
		if n > 0 {
			last = events[n-1]
		}
	}
	if last.assist != 0 {
		assist, stack = true, g.stack(g.record(last.assist).stack())
	}
	stw = last.stw
	if !last.stwKnown && len(g.stwBefore) > 0 {
		stw = slices.Contains(g.stwBefore, g.ids.ids[d])
	}
	if !last.assistKnown && g.assistBefore[d] {
		assist = true
		id := g.ids.ids[d]
		for i--; i >= 0 && stack == 0; i-- {
			if d := w.Gens[i].ids.lookup(id); d != 0 {
				_, stack, _ = w.rangeState(i, d, math.MaxUint32)
				break
			}
		}
	}
	return assist, stack, stw
}
