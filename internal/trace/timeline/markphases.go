package timeline

// MarkPhases joins the mark phases of garbage collection that continue over the borders of generations. The zero
// value is ready for use; generations must be added in order.
//
// A phase that began before the trace begins at the trace's first mention of it. A phase without an end, after
// which another one begins, is left out, because its end was lost and its duration is unknown.
type MarkPhases struct {
	from int64
	open bool
}

// Add calls f for each mark phase that ends in generation g, in order of time.
func (m *MarkPhases) Add(g *Gen, f func(from, to int64)) {
	for _, e := range g.GC {
		switch {
		case e.Begin && (!m.open || !e.Active):
			m.from, m.open = e.Time, true
		case !e.Begin && m.open:
			m.open = false
			f(m.from, e.Time)
		}
	}
}

// Close calls f for the phase that is in progress at the end of the trace, if there is one, and ends it there.
func (m *MarkPhases) Close(end int64, f func(from, to int64)) {
	if m.open {
		m.open = false
		f(m.from, end)
	}
}
