package critpath

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestGraphsAreConsistent: every case of the walk also has a graph that is consistent and sorted, and that ends with
// the end of the request.
func TestGraphsAreConsistent(t *testing.T) {
	for _, c := range walkCases {
		t.Run(c.name, func(t *testing.T) {
			win, syms := timelinetest.BuildWindow(t, c.build)
			from, to := c.from+tracetext.Origin, c.to+tracetext.Origin
			g := New(win, syms).Graph(1, from, to)
			must.True(t, g != nil, "there is no graph")
			for i, n := range g.Nodes {
				check.True(t, n.Predecessor < int32(i), "node %d is sorted before its predecessor, node %d", i, n.Predecessor)
				for _, e := range g.Edges[n.FirstEdge:n.EndEdge] {
					check.True(t, e.From < int32(i), "node %d is sorted before node %d, on which it depends", i, e.From)
				}
				for _, s := range g.Steps[n.FirstStep:n.EndStep] {
					if s.Start >= s.End || s.FullLength != 0 && s.FullLength < s.End-s.Start {
						t.Errorf("node %d: a step from %d to %d with a full length of %d", i, s.Start, s.End, s.FullLength)
					}
				}
			}
			if last := g.Nodes[len(g.Nodes)-1]; last.Time != to || last.G != 1 {
				t.Errorf("the last node is goroutine %d's at %d", last.G, last.Time)
			}
			check.True(t, g.isConsistent(make([]int64, len(g.Nodes))), "the graph is inconsistent")
		})
	}
}

// TestGraphStartsAtTheRequest: the graph of the second half of a case has no steps outside that half.
func TestGraphStartsAtTheRequest(t *testing.T) {
	for _, c := range walkCases {
		win, syms := timelinetest.BuildWindow(t, c.build)
		from, to := (c.from+c.to)/2+tracetext.Origin, c.to+tracetext.Origin
		g := New(win, syms).Graph(1, from, to)
		if g == nil {
			t.Errorf("%s: the second half has no graph", c.name)
			continue
		}
		for _, s := range g.Steps {
			check.True(t, s.Start >= from && s.End <= to,
				"%s: a step from %d to %d is not within %d to %d", c.name, s.Start, s.End, from, to)
		}
	}
}

// TestEarlierHolderOfAFilesLock: the goroutine that releases a file's lock came late, for a request that began during the wait. Until
// then another goroutine had the lock, in the same call of the system.
func TestEarlierHolderOfAFilesLock(t *testing.T) {
	write := []string{"syscall.write", "os.(*File).Write", "main.log"}
	win, syms := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		m, n, poller := b.Thread(1), b.Thread(2), b.ThreadWithoutP()
		n.Block(20, "network", "internal/poll.(*FD).Read", "bufio.(*Reader).Peek", "net/http.(*conn).serve")
		m.Block(110, "sync", "internal/poll.(*fdMutex).rwlock", "os.(*File).Write", "main.log")
		poller.Unblock(300, 2)
		n.Start(310, 2)
		n.Syscall(320, write...)
		n.SyscallEnd(340)
		n.Unblock(350, 1, "internal/poll.(*fdMutex).rwunlock", "os.(*File).Write", "main.log")
		n.Block(380, "forever", "main.after")
		m.Start(360, 1)
		m.Block(400, "forever", "main.end")
	})
	graph := New(win, syms).Graph(1, 100+tracetext.Origin, 400+tracetext.Origin)
	must.True(t, graph != nil, "there is no graph")
	for _, step := range graph.Steps {
		if step.Start == 110+tracetext.Origin {
			check.Equal(t, step.Kind, Syscall, "the wait for the lock, in g%d", step.G)
			return
		}
	}
	t.Error("no step begins with the wait for the lock")
}
