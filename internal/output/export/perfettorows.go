package export

import "container/heap"

// lanes puts overlapping intervals on different rows, as few as possible.
type lanes struct {
	id     uint64
	tracks []uint64
	free   laneHeap
}

type laneEnd struct {
	end int64
	no  int
}

type laneHeap []laneEnd

func (h laneHeap) Len() int { return len(h) }
func (h laneHeap) Less(i, j int) bool {
	return h[i].end < h[j].end || h[i].end == h[j].end && h[i].no < h[j].no
}
func (h laneHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *laneHeap) Push(x any)   { *h = append(*h, x.(laneEnd)) }
func (h *laneHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// take reserves a row that is free at from, until to. If it adds a row, its number is
// the number of rows before.
func (l *lanes) take(from, to int64) int {
	if len(l.free) > 0 && l.free[0].end <= from {
		no := l.free[0].no
		l.free[0].end = max(to, l.free[0].end)
		heap.Fix(&l.free, 0)
		return no
	}
	no := len(l.free)
	heap.Push(&l.free, laneEnd{to, no})
	return no
}
