//go:build !linux

package cgroup

import (
	"fmt"
	"runtime"
)

func hostSource(string) (source, error) {
	return nil, fmt.Errorf("cgroup limits on %s: %w", runtime.GOOS, ErrNotMeasurable)
}
