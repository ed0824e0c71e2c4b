// Package bounded keeps the output of child processes up to a limit.
package bounded

import (
	"bytes"
	"errors"
)

// A Buffer keeps the first Limit bytes. It drops further bytes or, if DropsRest is unset, fails, which ends the child.
type Buffer struct {
	output     bytes.Buffer // not embedded: io.Copy would call its ReadFrom, which knows no limit
	Limit      int
	DropsRest  bool
	IsExceeded bool // more than Limit bytes were written
}

// Write keeps p as far as it fits. For the rest it sets IsExceeded and, unless DropsRest is set, returns an error.
func (b *Buffer) Write(p []byte) (int, error) {
	n := min(len(p), b.Limit-b.output.Len())
	b.output.Write(p[:n])
	if n == len(p) {
		return n, nil
	}
	b.IsExceeded = true
	if b.DropsRest {
		return len(p), nil
	}
	return n, errors.New("too much output")
}

// Bytes returns the buffer's content.
func (b *Buffer) Bytes() []byte { return b.output.Bytes() }
