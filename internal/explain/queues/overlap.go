package queues

import "slices"

// An interval is a time span in ns of trace time, such as a wait or a hold.
type interval struct{ start, end int64 }

// maxOverlap returns the largest number of intervals that overlap at any instant.
func maxOverlap(intervals []interval) int { return overlapOf(intervals).Max() }

// overlapOf returns the Overlap of intervals.
func overlapOf(intervals []interval) *Overlap {
	o := new(Overlap)
	for _, i := range intervals {
		o.Add(i.start, i.end)
	}
	return o
}

// An Overlap counts how many of its intervals overlap. An interval that starts when another one ends does not overlap it. The
// zero value is empty.
type Overlap struct {
	starts, ends []int64
	isSorted     bool
}

// Add adds the interval from start to end.
func (o *Overlap) Add(start, end int64) {
	o.starts, o.ends, o.isSorted = append(o.starts, start), append(o.ends, end), false
}

// Bounds returns the sorted starts and ends of the intervals. They belong to o and are valid until the next Add.
func (o *Overlap) Bounds() (starts, ends []int64) {
	if !o.isSorted {
		slices.Sort(o.starts)
		slices.Sort(o.ends)
		o.isSorted = true
	}
	return o.starts, o.ends
}

// At returns the number of intervals that contain a time.
func (o *Overlap) At(t int64) int {
	starts, ends := o.Bounds()
	started, _ := slices.BinarySearch(starts, t+1)
	ended, _ := slices.BinarySearch(ends, t+1)
	return started - ended
}

// Max returns the largest number of intervals that overlap at any instant.
func (o *Overlap) Max() (overlap int) {
	starts, ends := o.Bounds()
	ended := 0
	for i, t := range starts {
		for ended < len(ends) && ends[ended] <= t {
			ended++
		}
		overlap = max(overlap, i+1-ended)
	}
	return overlap
}
