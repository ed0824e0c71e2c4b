package whylate

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/report"
)

// ErrWhatIf is returned, wrapped, if a change cannot be parsed or affects no request. The error names similar changes.
var ErrWhatIf = explain.ErrWhatIf

// ErrRefused is returned, wrapped together with ErrWhatIf, if a trace cannot answer a question about a setting. The error
// says why.
var ErrRefused = explain.ErrRefused

// A Change is a change of the service. Without a Kind it makes a cause at a site smaller, in requests and in the work for other
// requests that they wait for.
type Change struct {
	// Kind, if not "", is ChangeSlots (the pool for which requests wait at Site has Count slots), ChangeUnlock (the work at Site is
	// no longer done while a lock or slot is held), ChangeCalls (each request makes Count calls from Site), ChangeParallel (it makes
	// them at the same time) or ChangeReuse (no connection is opened at Site) of package report. Of the other fields only Site and
	// Count then apply.
	Kind  report.ChangeKind
	Count int
	// Cause limits the change to one of the report's causes, or to a family of them: gc (gc-assist, gc-wait, stw) or sched
	// (sched, sched-wake, sched-poll). "" means any. "queue" means the time in which others were served at the site while
	// the request was in the queue: the gain of more servers, a larger pool or finer locks. Such a change is relative.
	Cause report.CauseName
	// Site is a function's name or the end of one, file.go:line, or function:line. "" means anywhere. Running time counts
	// for every function on its stack. A line or function of the service's own code includes its calls into dependencies. A
	// line of a dependency may be limited to a caller: "LINE from CALLER". A Change without Setting needs a Cause or a Site.
	Site string
	// To is the new length of each instance: a sleep, a timer's period, a call, a computation. Shorter ones stay.
	To time.Duration
	// Relative multiplies the length of each instance by Scale, which is between 0, for none left, and 1. To is ignored.
	Relative bool
	Scale    float64
	// Setting, if not "", replaces all fields above: it is GOGC (Value is a percentage; +Inf for off), GOMEMLIMIT (bytes),
	// GOMAXPROCS, or quota (CPUs).
	Setting string
	Value   float64
}

// ParseChange parses a change: SITE=VALUE or CAUSE@SITE=VALUE, where VALUE is a duration such as 5ms, a percentage of
// today's length such as 50%, or gone; slots@SITE=N, calls@SITE=N, unlock@SITE, parallel@SITE or reuse@SITE; or a setting such as
// GOGC=400, GOMEMLIMIT=900MiB, GOMAXPROCS=2 or quota=1.5. Its error wraps ErrWhatIf.
func ParseChange(text string) (Change, error) {
	c, err := predict.Parse(text)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrWhatIf, err)
	}
	return Change{Kind: c.Kind, Count: c.Count, Cause: c.Cause, Site: c.Site, To: c.To, Relative: c.Relative, Scale: c.Scale, Setting: c.Setting.Name, Value: c.Setting.Value}, err
}

// String returns the change in the form that ParseChange accepts.
func (c Change) String() string { return c.internal().String() }

func (c Change) internal() predict.Change {
	return predict.Change{Kind: c.Kind, Count: c.Count, Cause: c.Cause, Site: c.Site, To: c.To, Relative: c.Relative, Scale: c.Scale, Setting: predict.Setting{Name: c.Setting, Value: c.Value}}
}
