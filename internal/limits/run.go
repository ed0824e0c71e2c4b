package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/whylate/whylate/internal/output/jsontext"
)

// Options of a run.
type Options struct {
	// PID is the process; 0 is a Go program that would be started from here.
	PID int
	// JSON writes the answer as data.
	JSON bool
}

// Run looks at a process and writes the answer to w. It fails if there is no
// such process, or if its limits cannot be measured on this machine; in the
// latter case the answer, which says so, is written first.
func Run(ctx context.Context, w io.Writer, opts Options) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f, err := Gather(opts.PID)
	if err != nil {
		return err
	}
	a := Judge(f)
	if opts.JSON {
		data, err := json.MarshalIndent(a, "", "  ")
		if err == nil {
			_, err = w.Write(append(jsontext.Escape(data), '\n'))
		}
		if err != nil {
			return fmt.Errorf("writing the limits: %w", err)
		}
	} else if err := Text(w, a); err != nil {
		return err
	}
	if a.Limits == nil {
		return errors.New(f.Why)
	}
	return nil
}
