package pass_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// quickGroupChecker glances at every request that was walked.
type quickGroupChecker struct {
	*testing.T
	stage          *path.Stage
	walked, enough int
}

func (g *quickGroupChecker) NewAdder(s *path.Stage) path.Adder { g.stage = s; return g }

func (g *quickGroupChecker) Add(w *path.WalkResult) {
	r := w.Req
	if g.walked++; w.Form != path.Whole || r.Open {
		return
	}
	observer, group, handlerSeenTwice, entry := w.Observer, w.Group, w.HandlerSeenTwice, w.HandlerFrame
	quick := g.stage.QuickGroup(r)
	if !quick.Sufficient {
		return
	}
	g.enough++
	if unwalked := g.stage.Unwalked(r, &quick); observer || unwalked.Group != group || unwalked.HandlerSeenTwice != handlerSeenTwice || unwalked.HandlerFrame != entry {
		g.Errorf("goroutine %d, from %d to %d: a walk says %s (observer %t, several stacks %t), a glance %s (%t)", r.G, r.Start, r.End,
			g.stage.IDs.Group(group).Text(g.stage.Syms), observer, handlerSeenTwice, quick.Group.Text(g.stage.Syms), unwalked.HandlerSeenTwice)
	}
}

// TestQuickGroup: of all requests of real programs and of those of known faults, a glance says what a walk says. It would catch
// a way of naming requests that only one of them knows.
func TestQuickGroup(t *testing.T) {
	walked, enough := 0, 0
	glance := func(name string, trace io.Reader) {
		t.Run(name, func(t *testing.T) {
			rd := must.Have(tracefmt.NewReader(trace, tracefmt.Options{}))(t)
			g := &quickGroupChecker{T: t}
			p := pass.New(pass.Options{Workers: 1})
			p.Sums = []pass.Sum{g}
			_ = p.Run(t.Context(), rd) // recordings may be cut
			walked, enough = walked+g.walked, enough+g.enough
		})
	}
	for i, name := range testprog.Services(t) {
		if testing.Short() && i%5 != 0 {
			continue
		}
		glance(name, bytes.NewReader(testprog.Service(t, name).Trace))
	}
	dir, names := testprog.Corpus(t)
	for i, name := range names {
		if testing.Short() && i%5 != 0 {
			continue
		}
		f := must.Have(bundle.Open(testprog.FieldRecording(t, dir, name)))(t)
		trace, _, err := f.Trace()
		if err != nil {
			t.Fatal(err)
		}
		glance(name, trace)
		trace.Close()
		f.Close()
	}
	if enough < walked*8/10 {
		t.Errorf("of %d requests a glance was enough for %d", walked, enough)
	}
	t.Logf("of %d requests a glance was enough for %d", walked, enough)
}
