package export

import "container/heap"

// A laneSet assigns overlapping intervals to different lanes, as few as possible.
type laneSet struct {
	id     uint64
	tracks []uint64
	ends   laneHeap
}

type laneEnd struct {
	end  int64
	lane int
}

type laneHeap []laneEnd

func (h laneHeap) Len() int { return len(h) }
func (h laneHeap) Less(i, j int) bool {
	return h[i].end < h[j].end || h[i].end == h[j].end && h[i].lane < h[j].lane
}
func (h laneHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *laneHeap) Push(x any)   { *h = append(*h, x.(laneEnd)) }
func (h *laneHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// reserve returns the number of a lane that is free at from, and reserves it until to. Calls are in the order of from. A number that equals the
// number of lanes before the call is that of a new lane.
func (l *laneSet) reserve(from, to int64) int {
	if len(l.ends) > 0 && l.ends[0].end <= from {
		no := l.ends[0].lane
		l.ends[0].end = max(to, l.ends[0].end)
		heap.Fix(&l.ends, 0)
		return no
	}
	no := len(l.ends)
	heap.Push(&l.ends, laneEnd{to, no})
	return no
}
