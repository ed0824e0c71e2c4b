//go:build !linux

package host

import (
	"fmt"
	"runtime"
	"time"
)

// A Sampler takes samples of one process on Linux. On this system Start returns none.
type Sampler struct{}

// Start fails: only Linux has the files that a Sampler reads.
func Start(Options) (*Sampler, error) {
	return nil, fmt.Errorf("host samples are taken on Linux only, not on %s", runtime.GOOS)
}

// SetTraceRequest does nothing.
func (s *Sampler) SetTraceRequest(time.Time) {}

// PID returns 0.
func (s *Sampler) PID() int { return 0 }

// Stop returns an empty recording.
func (s *Sampler) Stop() *Recording { return &Recording{} }
