//go:build !linux

package kernelprobe

import (
	"errors"

	"github.com/whylate/whylate/internal/capture/bundle"
)

// A Probe records events until Stop. There is none outside of Linux.
type Probe struct{}

// Start returns an error: kernel events exist on Linux only.
func Start(int) (*Probe, error) { return nil, errors.New("kernel events exist on Linux only") }

// Stop does nothing.
func (*Probe) Stop() ([]byte, *bundle.Kernel, []bundle.Warning) { return nil, nil, nil }
