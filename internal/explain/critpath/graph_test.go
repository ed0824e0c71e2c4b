package critpath

import (
	"testing"

	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestGraphsAreConsistent: every hand-made walk has a graph, too, in which everything
// happens when it did, in an order of dependence, and the request ends at its
// end.
func TestGraphsAreConsistent(t *testing.T) {
	for _, c := range walkCases {
		t.Run(c.name, func(t *testing.T) {
			win, syms := timelinetest.Built(t, c.build)
			from, to := c.from+tracetext.Origin, c.to+tracetext.Origin
			g := New(win, syms).Graph(1, from, to)
			if g == nil {
				t.Fatal("there is no graph")
			}
			for i, n := range g.Nodes {
				if n.Predecessor >= int32(i) {
					t.Errorf("node %d stands before node %d, which it comes after", i, n.Predecessor)
				}
				for _, e := range g.Edges[n.FirstEdge:n.EndEdge] {
					if e.From >= int32(i) {
						t.Errorf("node %d stands before node %d, on which it depends", i, e.From)
					}
				}
				for _, s := range g.Steps[n.FirstStep:n.EndStep] {
					if s.Start >= s.End || s.FullLength != 0 && s.FullLength < s.End-s.Start {
						t.Errorf("node %d: a step from %d to %d, of %d", i, s.Start, s.End, s.FullLength)
					}
				}
			}
			if last := g.Nodes[len(g.Nodes)-1]; last.Time != to || last.G != 1 {
				t.Errorf("the last node is goroutine %d's at %d", last.G, last.Time)
			}
			if !g.isConsistent() {
				t.Error("with nothing changed, it does not end when it did")
			}
		})
	}
}

// TestGraphStartsAtTheRequest: the second half of each request does not see
// what lies before it.
func TestGraphStartsAtTheRequest(t *testing.T) {
	for _, c := range walkCases {
		win, syms := timelinetest.Built(t, c.build)
		from, to := (c.from+c.to)/2+tracetext.Origin, c.to+tracetext.Origin
		g := New(win, syms).Graph(1, from, to)
		if g == nil {
			t.Errorf("%s: no graph of its second half", c.name)
			continue
		}
		for _, s := range g.Steps {
			if s.Start < from || s.End > to {
				t.Errorf("%s: a step from %d to %d lies outside of %d to %d", c.name, s.Start, s.End, from, to)
			}
		}
	}
}
