package pass_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A quickGroupChecker compares the QuickGroup of every request with the result of its walk.
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
	var quick path.QuickGroup
	g.stage.FindQuickGroup(r, &quick)
	if !quick.Sufficient {
		return
	}
	g.enough++
	if unwalked := g.stage.Unwalked(r, &quick, nil); observer || unwalked.Group != group || unwalked.HandlerSeenTwice != handlerSeenTwice || unwalked.HandlerFrame != entry {
		g.Errorf("goroutine %d, from %d to %d: a walk finds %s (observer %t, handler seen twice %t), QuickGroup %s (%t)", r.G, r.Start, r.End,
			g.stage.IDs.Group(group).Text(g.stage.Syms), observer, handlerSeenTwice, quick.Group.Text(g.stage.Syms), unwalked.HandlerSeenTwice)
	}
}

// TestQuickGroup: for requests of real programs and of programs with known faults, QuickGroup finds what a walk
// finds. It fails if only one of the two knows a way to name requests.
func TestQuickGroup(t *testing.T) {
	walked, enough := 0, 0
	glance := func(name string, trace io.Reader) {
		t.Run(name, func(t *testing.T) {
			rd := must.Have(tracefmt.NewReader(trace, tracefmt.Options{}))(t)
			g := &quickGroupChecker{T: t}
			p := pass.New(pass.Options{Workers: 1})
			p.Sums = []pass.Sum{g}
			_ = p.Run(t.Context(), rd) // recordings may be incomplete
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
		must.Do(t, err)
		glance(name, trace)
		trace.Close()
		f.Close()
	}
	check.True(t, enough >= walked*8/10, "QuickGroup sufficed for %[2]d of %[1]d requests", walked, enough)
	t.Logf("QuickGroup sufficed for %[2]d of %[1]d requests", walked, enough)
}
