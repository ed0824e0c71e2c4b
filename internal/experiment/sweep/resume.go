package sweep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
	"github.com/whylate/whylate/internal/output/termtext"
)

// maxFile bounds the size of a result's file.
const maxFile = 256 << 20

// Read reads a result in JSON, so that a sweep can be resumed.
func Read(r io.Reader) (*Result, error) {
	b, err := wire.ReadAll(r, maxFile)
	if errors.Is(err, wire.ErrLarge) {
		return nil, fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	if err != nil {
		return nil, err
	}
	var res Result
	switch err := json.Unmarshal(b, &res); {
	case err != nil:
		return nil, fmt.Errorf("it is not a result of a sweep: %w", err)
	case res.Schema != Schema:
		return nil, fmt.Errorf("it is not a result of a sweep: its schema is %q, not %q", termtext.Head(res.Schema, 40), Schema)
	}
	return &res, nil
}

// Resume sets FinishedRuns to the runs of an earlier result. It returns an error if that is for
// another service or load.
func (o *Options) Resume(r *Result) error {
	switch {
	case !slices.Equal(r.Command, o.Command):
		return fmt.Errorf("it is for another command: %s", termtext.Head(strings.Join(r.Command, " "), 200))
	case r.Load != describeLoad(o):
		return fmt.Errorf("it is for another load: %s", termtext.Head(r.Load, 200))
	case r.Measure != int64(o.Measure) || r.Warmup != int64(o.Warmup):
		return fmt.Errorf("its runs took %v after a warm-up of %v", time.Duration(r.Measure), time.Duration(r.Warmup))
	}
	o.FinishedRuns = r.Measurements
	return nil
}
