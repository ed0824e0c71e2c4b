package timeline

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Mark is an event whose stack has flags: see Decoder.Classify.
type Mark struct {
	Time  int64 // relative to Base while the generation is decoded
	Flags uint8
	Kind  tracefmt.EventType

	g uint32
}

// gatherMarks sets g.Marks: the marks (events whose stack has flags) of all threads, ordered by goroutine (counting sort), then
// by time.
func (d *Decoder) gatherMarks(g *Gen) {
	total := 0
	for _, st := range d.threadLists {
		total += len(st.marks)
	}
	if total == 0 {
		return
	}
	n := len(g.ids.ids)
	g.markBase = entry.Resize(g.markBase, n+1)
	clear(g.markBase)
	for _, st := range d.threadLists {
		for i := range st.marks {
			g.markBase[st.marks[i].g]++
		}
	}
	sum := uint32(0)
	for i, c := range g.markBase {
		g.markBase[i] = sum
		sum += c
	}
	if cap(g.Marks) == 0 {
		d.pool.mu.Lock()
		g.Marks, d.pool.spareMarks = d.pool.spareMarks, nil
		d.pool.mu.Unlock()
	}
	g.Marks = entry.Resize(g.Marks, total)
	for _, st := range d.threadLists {
		for _, m := range st.marks {
			m.Time += g.Base
			g.Marks[g.markBase[m.g]] = m
			g.markBase[m.g]++
		}
	}
	// markBase[i] is now the end of goroutine i's marks, which is where those of i+1 begin.
	copy(g.markBase[1:], g.markBase)
	g.markBase[0] = 0
	for i := range n {
		mergeSorted(g.Marks[g.markBase[i]:g.markBase[i+1]], func(a, b Mark) bool { return a.Time < b.Time })
	}
}

// EachMarked calls f for each goroutine that has marks (events whose stack has flags, see Decoder.Classify), in order of ids.
// marks are in order of time and must not be changed.
func (g *Gen) EachMarked(f func(id uint64, marks []Mark)) {
	order := g.markedOrder[:0]
	for i := range len(g.markBase) - 1 {
		if g.markBase[i] < g.markBase[i+1] {
			order = append(order, uint32(i))
		}
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Compare(g.ids.ids[a], g.ids.ids[b]) })
	g.markedOrder = order
	for _, i := range order {
		f(g.ids.ids[i], g.Marks[g.markBase[i]:g.markBase[i+1]])
	}
}

// DropMarks takes the memory of a generation's marks for the next generation, which may be decoded concurrently.
// Afterwards EachMarked finds no marks in g.
func (d *Decoder) DropMarks(g *Gen) {
	d.pool.mu.Lock()
	defer d.pool.mu.Unlock()
	d.pool.spareMarks, g.Marks = g.Marks, nil
	g.markBase = g.markBase[:0]
}
