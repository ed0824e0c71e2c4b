package validate

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Checks are all checks of the last pass over a trace that they were attached to.
type Checks struct {
	// Damaged disables the rules of timelines, which a trace with lost or altered events breaks. The rules of requests
	// and reports remain.
	Damaged bool

	timelines Timelines
	requests  Requests
	window    *timeline.Window
	problems  Problems
}

// Attach implements explain.Checks.
func (c *Checks) Attach(p *pass.Pass) {
	*c = Checks{Damaged: c.Damaged, window: &p.Window}
	p.Sums = append(p.Sums, &c.requests)
	p.Listeners = append(p.Listeners, c)
	p.KeepMarks = true
}

// AddGeneration implements pass.Listener.
func (c *Checks) AddGeneration(_ *timeline.Gen, _ *tracefmt.Symbols, gap bool) {
	if !c.Damaged {
		c.timelines.Decoded(c.window, gap)
	}
}

// Report implements explain.Checks.
func (c *Checks) Report(rep *report.Report, all bool) {
	c.requests.Report(rep, all)
	c.problems.join(&c.timelines.Problems)
	c.problems.join(&c.requests.Problems)
}

// Err returns all broken rules as one error, or nil.
func (c *Checks) Err() error { return c.problems.Err() }

// String returns how many goroutines, spans, runs and requests were checked.
func (c *Checks) String() string {
	return fmt.Sprintf("%d goroutines, %d spans, %d runs on threads, %d requests",
		c.timelines.Goroutines, c.timelines.Spans, c.timelines.Runs, c.requests.Walked)
}
