package whylate

import (
	"time"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/report"
)

// ErrWhatIf is returned, wrapped, when a change cannot be read, or meets
// nothing that a request spent time on; the error names what is near.
var ErrWhatIf = explain.ErrWhatIf

// A Change makes what requests spend time on smaller, wherever it stands in
// them, also in work for other requests that they wait for.
type Change struct {
	// Cause limits the change to one of the report's causes, or to a family of
	// them: gc (gc-assist, gc-wait, stw) or sched (sched, sched-wake,
	// sched-poll). "" means any. "queue" means the time in which others were
	// served at the site while the request waited for its turn; such a change
	// is relative.
	Cause report.CauseName
	// Site is where: a function's name or the end of one, file.go:line, or
	// function:line. "" means anywhere. Running time counts for every function
	// on its stack. Cause or Site must be set.
	Site string
	// To is how long each single sleep, timer's period, call or computation
	// takes then; those that are shorter already stay.
	To time.Duration
	// Relative makes each Scale times as long instead, from 0, which takes it
	// away, to 1. To is not used then.
	Relative bool
	Scale    float64
	// Setting, if not "", is what is asked about instead: GOGC (Value is a
	// percentage; +Inf for off), GOMEMLIMIT (bytes), GOMAXPROCS, or quota (CPUs).
	// Nothing else of a Change counts then. Where a trace does not tell, the
	// answer is an error that wraps ErrRefused.
	Setting string
	Value   float64
}

// ErrRefused is returned, wrapped together with ErrWhatIf, where a trace does
// not tell what a setting would do; the error says why.
var ErrRefused = explain.ErrRefused

// ParseChange reads a change: SITE=VALUE or CAUSE@SITE=VALUE, where VALUE is a
// duration such as 5ms, a percentage of today's length such as 50%, or gone; or
// a setting such as GOGC=400, GOMEMLIMIT=900MiB, GOMAXPROCS=2 or quota=1.5.
// Its error wraps ErrWhatIf.
func ParseChange(text string) (Change, error) {
	c, err := explain.ParseChange(text)
	return Change{Cause: c.Cause, Site: c.Site, To: c.To, Relative: c.Relative, Scale: c.Scale, Setting: c.Setting.Name, Value: c.Setting.Value}, err
}

// String returns the change as ParseChange reads it.
func (c Change) String() string { return c.internal().String() }

func (c Change) internal() predict.Change {
	return predict.Change{Cause: c.Cause, Site: c.Site, To: c.To, Relative: c.Relative, Scale: c.Scale, Setting: predict.Setting{Name: c.Setting, Value: c.Value}}
}
