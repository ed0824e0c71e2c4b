package timeline

// MarkPhases joins mark phases of garbage collection that lie over the borders
// of generations. The zero value is ready for use; generations must come in
// order.
//
// A phase under way when the trace began lasts from where the trace says so. A
// phase before whose end another begins is left out: its end was lost, and with
// it how long it lasted.
type MarkPhases struct {
	from int64
	open bool
}

// Add calls f for every phase that ends in a generation, in order of time.
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

// Close calls f for the phase that is under way at the end of the trace, if
// there is one: it lasts until then.
func (m *MarkPhases) Close(end int64, f func(from, to int64)) {
	if m.open {
		m.open = false
		f(m.from, end)
	}
}
