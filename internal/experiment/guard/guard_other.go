//go:build !linux

package guard

import (
	"errors"
	"io"
)

// ErrSystem is returned where there is no way to adopt processes.
var ErrSystem = errors.New("guarding a command needs Linux")

// Run returns ErrSystem.
func Run(io.Reader, io.Writer) error { return ErrSystem }
