package whylate

import (
	"errors"
	"fmt"

	"github.com/whylate/whylate/internal/predict"
	"github.com/whylate/whylate/report"
)

// ErrWhatIf is returned, wrapped, when a change of Options.WhatIf cannot be
// read, or meets nothing that a request spent time on; the error names what is
// near. In the second case there is a report all the same, without predictions.
var ErrWhatIf = errors.New("no such change")

// CheckWhatIf returns an error that wraps ErrWhatIf if a change cannot be read.
func CheckWhatIf(changes []string) error {
	_, err := parseChanges(changes)
	return err
}

func parseChanges(texts []string) ([]predict.Change, error) {
	var out []predict.Change
	for _, s := range texts {
		c, err := predict.Parse(s)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrWhatIf, err)
		}
		out = append(out, c)
	}
	return out, nil
}

// whatIf adds what the asked-for changes, all of them together, would win.
func (e *engine) whatIf(rep *report.Report) error {
	if len(e.changes) == 0 {
		return nil
	}
	for i := range e.changes {
		if err := e.model.Find(&e.changes[i]); err != nil {
			return fmt.Errorf("%w: %w", ErrWhatIf, err)
		}
	}
	rep.WhatIf = []report.WhatIf{}
	for i := range rep.Groups {
		g := &rep.Groups[i]
		if p := e.model.WhatIf(g.ID, e.changes); p != nil {
			rep.WhatIf = append(rep.WhatIf, report.WhatIf{Group: g.ID, Name: g.Name, Requests: g.Count, Predicted: *p})
		}
	}
	return nil
}
