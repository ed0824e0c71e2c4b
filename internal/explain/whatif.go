package explain

import (
	"errors"
	"fmt"
	"slices"

	"github.com/whylate/whylate/internal/predict"
	"github.com/whylate/whylate/report"
)

// ErrWhatIf is returned, wrapped, when a change of Options.WhatIf cannot be
// read, or meets nothing that a request spent time on; the error names what is
// near. In the second case there is a report all the same, without predictions.
var ErrWhatIf = errors.New("no such change")

// ParseChange reads a change as predict.Parse does. Its error wraps ErrWhatIf.
func ParseChange(text string) (predict.Change, error) {
	c, err := predict.Parse(text)
	if err != nil {
		return c, fmt.Errorf("%w: %w", ErrWhatIf, err)
	}
	return c, nil
}

// whatIf adds what the asked-for changes, all of them together, would win.
func (e *engine) whatIf(rep *report.Report) error {
	if len(e.opts.WhatIf) == 0 {
		return nil
	}
	changes := slices.Clone(e.opts.WhatIf)
	for i := range changes {
		if err := e.model.Find(&changes[i]); err != nil {
			return fmt.Errorf("%w: %w", ErrWhatIf, err)
		}
	}
	rep.WhatIf = []report.WhatIf{}
	for i := range rep.Groups {
		g := &rep.Groups[i]
		if p := e.model.WhatIf(g.ID, changes); p != nil {
			rep.WhatIf = append(rep.WhatIf, report.WhatIf{Group: g.ID, Name: g.Name, Requests: g.Count, Predicted: *p})
		}
	}
	return nil
}
