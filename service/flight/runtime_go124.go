//go:build !go1.25

package flight

// supported: runtime/trace.FlightRecorder came with Go 1.25.
const supported = false

func newRing() ring { return nil }
