//go:build !linux

package guard

import (
	"errors"
	"io"
)

// ErrSystem is returned on systems that cannot adopt orphaned processes.
var ErrSystem = errors.New("guarding a command needs Linux")

// Run returns ErrSystem.
func Run(io.Reader, io.Writer) error { return ErrSystem }
