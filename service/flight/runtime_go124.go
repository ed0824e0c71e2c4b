//go:build !go1.25

package flight

import (
	"errors"
	"io"
	"time"
)

const supported = false

// A runtimeRecorder is missing: runtime/trace.FlightRecorder came with Go 1.25.
type runtimeRecorder struct{}

func newRing() ring { return new(runtimeRecorder) }

var errUnsupported = errors.New("built with a Go version before 1.25, which has no flight recorder")

func (*runtimeRecorder) start(time.Duration, uint64) error { return errUnsupported }

func (*runtimeRecorder) stop() {}

func (*runtimeRecorder) enabled() bool { return false }

func (*runtimeRecorder) writeTo(io.Writer) (int64, error) { return 0, errUnsupported }
