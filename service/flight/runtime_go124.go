//go:build !go1.25

package flight

// supported is false before Go 1.25, which introduced runtime/trace.FlightRecorder.
const supported = false

func newRing() ring { return nil }
