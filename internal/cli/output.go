package cli

import (
	"io"
	"os"
)

// writeTo is writeTo of streams, with what --color says of where that is, and its width.
func (e *explanation) writeTo(s *streams, write func(w io.Writer, color bool, columns int) error) error {
	return s.WriteTo(e.output, func(w io.Writer) error {
		if w == s.Out {
			return write(w, e.color.on(w, os.Getenv), width(w))
		}
		return write(w, e.color == "always", 0)
	})
}
