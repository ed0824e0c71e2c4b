package timeline

import (
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Region is an interval that the program marked on a goroutine with runtime/trace.
type Region struct {
	G, Task    uint64
	Name       tracefmt.StringID
	Start, End int64 // BeforeTrace if its begin was not seen; 0 until it ends
	Depth      int   // number of regions around it on its goroutine; -1 if its begin was not seen
}

// Regions joins begins and ends of regions. Its zero value is ready for use.
type Regions struct {
	open map[uint64][]Region // by goroutine, the innermost last
}

// Add reads the annotations of the next generation, in order of time. It calls end for each region that ends, and log for each
// log message.
func (r *Regions) Add(g *Gen, end func(Region), log func(*UserEvent)) {
	if r.open == nil {
		r.open = make(map[uint64][]Region)
	}
	for i := range g.User {
		e := &g.User[i]
		stack := r.open[e.G]
		switch e.Kind {
		case RegionBegin:
			r.open[e.G] = append(stack, Region{G: e.G, Task: e.Task, Name: e.Name, Start: e.Time, Depth: len(stack)})
		case RegionEnd:
			k := len(stack) - 1
			for k >= 0 && stack[k].Name != e.Name {
				k--
			}
			if k < 0 {
				end(Region{G: e.G, Task: e.Task, Name: e.Name, Start: BeforeTrace, End: e.Time, Depth: -1})
				continue
			}
			for len(stack) > k { // those inside it lost their ends
				stack = endLast(stack, e.Time, end)
			}
			if r.open[e.G] = stack; k == 0 {
				delete(r.open, e.G)
			}
		case LogMessage:
			log(e)
		}
	}
}

// Close ends the regions that are still open, at the given time.
func (r *Regions) Close(time int64, end func(Region)) {
	for _, g := range slices.Sorted(maps.Keys(r.open)) {
		for stack := r.open[g]; len(stack) > 0; {
			stack = endLast(stack, max(time, stack[len(stack)-1].Start), end)
		}
	}
	clear(r.open)
}

// endLast sets the end of the innermost region of a stack, passes it to end, and returns the stack without it.
func endLast(stack []Region, time int64, end func(Region)) []Region {
	last := stack[len(stack)-1]
	last.End = time
	end(last)
	return stack[:len(stack)-1]
}
