package timeline

import (
	"maps"
	"slices"
)

// Stops joins the stops of the world that continue over the borders of generations. The zero value is ready for
// use; generations must be added in order.
type Stops struct{ open map[uint64]STWRange }

// Add calls f for each stop of the world that ends in generation g, in the order of g.STW. A stop whose beginning is not in the
// trace is left out.
func (s *Stops) Add(g *Gen, f func(STWRange)) {
	for _, r := range g.STW {
		switch {
		case r.End == 0:
			if s.open == nil {
				s.open = make(map[uint64]STWRange)
			}
			s.open[r.G] = r
			continue
		case r.Start == 0:
			o, ok := s.open[r.G]
			if !ok {
				continue
			}
			delete(s.open, r.G)
			r.Start, r.Kind, r.Stack = o.Start, o.Kind, o.Stack
		}
		f(r)
	}
}

// Unfinished returns the stops whose end is not in the trace, ordered by goroutine.
func (s *Stops) Unfinished() []STWRange {
	var out []STWRange
	for _, g := range slices.Sorted(maps.Keys(s.open)) {
		out = append(out, s.open[g])
	}
	return out
}

// FirstStop returns the index of the first stop of the world that may end after t.
func (g *Gen) FirstStop(t int64) int {
	i, _ := slices.BinarySearch(g.latestStopEnd, t+1)
	return i
}
