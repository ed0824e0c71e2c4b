//go:build !linux

package sweep

import (
	"context"
	"errors"
)

// ErrSystem is returned on systems without cgroups.
var ErrSystem = errors.New("a sweep needs Linux: limits are those of its cgroups")

// Do returns ErrSystem.
func Do(context.Context, Options) (*Result, error) { return nil, ErrSystem }
