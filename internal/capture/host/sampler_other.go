//go:build !linux

package host

import (
	"fmt"
	"runtime"
	"time"
)

// A Sampler takes samples of one process: on Linux only.
type Sampler struct{}

// Start fails: there is nothing here to read.
func Start(Options) (*Sampler, error) {
	return nil, fmt.Errorf("host samples are taken on Linux only, not on %s", runtime.GOOS)
}

// TraceAsked does nothing.
func (s *Sampler) TraceAsked(time.Time) {}

// PID is 0.
func (s *Sampler) PID() int { return 0 }

// Stop returns an empty recording.
func (s *Sampler) Stop() *Recording { return &Recording{} }
