package timeline

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestBindings: a thread has one goroutine at a time, every run is within a binding of its goroutine to its thread, and so
// is every system call. It detects a binding that ends at a system call, for which no state of a thread would be known.
func TestBindings(t *testing.T) {
	for _, name := range []string{"preempt", "http1", "generations", "iterpull"} {
		t.Run(name, func(t *testing.T) {
			decoded := decodeAll(testprog.Trace(t, name), 2)
			runs, calls := 0, 0
			win := &Window{Gens: decoded.gens}
			for _, g := range decoded.gens {
				byThread, byGoroutine := map[uint64][]Binding{}, map[uint64][]Binding{}
				g.EachBinding(func(b Binding) {
					if list := byThread[b.M]; len(list) > 0 && list[len(list)-1].To > b.From || b.To <= b.From {
						t.Errorf("binding %+v after %+v", b, list)
					}
					byThread[b.M], byGoroutine[b.G] = append(byThread[b.M], b), append(byGoroutine[b.G], b)
				})
				isWithin := func(list []Binding, g uint64, from, to int64) bool {
					return slices.ContainsFunc(list, func(b Binding) bool { return b.G == g && b.From <= from && b.To >= to })
				}
				g.EachRun(g.Base, g.End, func(r Run) {
					if runs++; !isWithin(byThread[r.M], r.G, r.From, r.To) {
						t.Errorf("generation %d: no binding has the run %+v", g.Num, r)
					}
				})
				for id := range byGoroutine {
					for _, s := range win.Spans(id, g.Base, g.End, nil) {
						if s.State == Syscall && s.Start > g.Base && s.End < g.End {
							if calls++; !isWithin(byGoroutine[id], id, s.Start, s.End) {
								t.Errorf("generation %d: no binding of goroutine %d has the system call %+v", g.Num, id, s)
							}
						}
					}
				}
			}
			check.True(t, runs != 0, "no run was found")
			check.False(t, name == "http1" && calls == 0, "no system call was found")
		})
	}
}
