package pass_test

import (
	"bytes"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// A unitCounter counts the results without a walk, and the requests in them.
type unitCounter struct{ results, units atomic.Int64 }

func (c *unitCounter) NewAdder(*path.Stage) path.Adder { return c }

func (c *unitCounter) Add(w *path.WalkResult) {
	if w.Form == path.NotWalked {
		c.results.Add(1)
		c.units.Add(int64(len(w.Units)))
	}
}

// TestSeries: iterations that are not walked are added many at a time, with the same result as one by one, which a selection by time
// makes necessary.
func TestSeries(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	data := shopTraceOf(t, 2, func(worker, waker *tracetext.Thread, clock int64) int64 {
		for range 8000 {
			g := 1 + r.Uint64N(8)
			waker.Unblock(clock, g)
			worker.Start(clock+1000, g)
			clock += 2000 + int64(r.ExpFloat64()*20_000)
			worker.Block(clock, "chan receive", "runtime.chanrecv1", "main.loop")
		}
		return clock
	})
	rows := func(selection pass.Selection) ([]groups.Row, *unitCounter, *pass.Pass) {
		rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
		g, counter := groups.New(), new(unitCounter)
		p := pass.New(pass.Options{Workers: 2, ExactFirst: 1000, Selection: selection})
		p.Sums = []pass.Sum{g, counter}
		must.Do(t, p.Run(t.Context(), rd))
		ts := path.MergeIDs(p.Stages)
		g.Merge(ts)
		list := g.Rows(speller(p), groups.Selection{})
		for i := range list {
			list[i].PathGroup = 0 // ids depend on the order of requests
		}
		return list, counter, p
	}
	bulk, inBulk, p := rows(pass.Selection{})
	single, oneByOne, _ := rows(pass.Selection{To: time.Hour})
	check.True(t, p.NotWalked == inBulk.units.Load() && p.NotWalked > p.Requests/2, "%d of %d requests were not walked, %d in results", p.NotWalked, p.Requests, inBulk.units.Load())
	check.True(t, 20*inBulk.results.Load() < inBulk.units.Load(), "%d results for %d requests", inBulk.results.Load(), inBulk.units.Load())
	check.True(t, oneByOne.results.Load() == inBulk.units.Load(), "%d requests were not walked one by one", oneByOne.results.Load())
	check.True(t, len(bulk) > 0 && text(t, bulk) == text(t, single), "in bulk:\n%s\none by one:\n%s", text(t, bulk), text(t, single))
}
