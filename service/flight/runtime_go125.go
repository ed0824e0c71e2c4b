//go:build go1.25

package flight

import (
	"io"
	"runtime/trace"
	"time"
)

const supported = true

// A runtimeRecorder is runtime/trace's flight recorder.
type runtimeRecorder struct{ fr *trace.FlightRecorder }

func newRing() ring { return new(runtimeRecorder) }

// start starts a flight recorder of the runtime that keeps at least minAge of trace, in at
// most about maxBytes.
func (r *runtimeRecorder) start(minAge time.Duration, maxBytes uint64) error {
	fr := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: minAge, MaxBytes: maxBytes})
	if err := fr.Start(); err != nil {
		return err
	}
	r.fr = fr
	return nil
}

// stop stops the recorder and drops its trace; a stopped recorder does nothing.
func (r *runtimeRecorder) stop() {
	if r.fr != nil {
		r.fr.Stop()
		r.fr = nil
	}
}

func (r *runtimeRecorder) enabled() bool { return r.fr != nil && r.fr.Enabled() }

func (r *runtimeRecorder) writeTo(w io.Writer) (int64, error) { return r.fr.WriteTo(w) }
