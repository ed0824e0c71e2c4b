package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
)

// TestMinimumLateness: a run of another goroutine is late if it could have begun 0.1 ms before, poll gap included; runs of
// the request's own goroutine are not. It fails if the minimum is far smaller or larger: a hub that delays all requests by a
// millisecond would be missed.
func TestMinimumLateness(t *testing.T) {
	const us = 1000
	for _, c := range []struct {
		name  string
		g     uint64
		gap   int64
		ns    int64
		noted bool
	}{
		{"0.1 ms", 2, 0, 100 * us, true}, {"1 ms", 2, 0, 1000 * us, true}, {"0.06 ms after as long a gap", 2, 60 * us, 60 * us, true},
		{"less", 2, 0, 99 * us, false}, {"its own", 1, 0, 1000 * us, false},
	} {
		p := New().NewAdder(nil).(*workerSum)
		readySince := int64(5000 * us)
		p.addLateRuns(&path.WalkResult{Weight: 1, Req: &request.Request{G: 1, End: 1 << 40}, Steps: []critpath.Step{
			{Kind: critpath.PollGap, G: c.g, Start: readySince - c.gap, End: readySince},
			{Kind: critpath.Runnable, G: c.g, Start: readySince, End: readySince + c.ns},
		}})
		run, noted := p.lateRuns.runs[lateRunKey{c.g, readySince + c.ns}]
		if noted != c.noted || noted && (run.waitNS != c.gap+c.ns || run.pollGapNS != c.gap || run.requests != 1) {
			t.Errorf("%s: %+v", c.name, run)
		}
	}
}
