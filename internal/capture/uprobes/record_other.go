//go:build !linux || !amd64

package uprobes

import (
	"context"
	"fmt"
	"runtime"
)

// Record is only possible on Linux for amd64.
func Record(context.Context, Options) (*Result, error) {
	return nil, fmt.Errorf("%w: a process can be recorded without its help only on Linux for amd64, not on %s for %s: give the URL of its profiling endpoint", ErrSystem, runtime.GOOS, runtime.GOARCH)
}
