package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/output/jsontext"
)

// writeTo calls write for standard output, or for a file that is either whole or not there.
func (s *streams) writeTo(name string, write func(w io.Writer) error) error {
	if name == "" || name == "-" {
		return write(s.out)
	}
	return atomicfile.WriteTo(name, write)
}

// writeTo is writeTo of streams, with what --color says of where that is, and its width.
func (e *explanation) writeTo(s *streams, write func(w io.Writer, color bool, columns int) error) error {
	return s.writeTo(e.output, func(w io.Writer) error {
		if w == s.out {
			return write(w, e.color.on(w, os.Getenv), width(w))
		}
		return write(w, e.color == "always", 0)
	})
}

// writeJSON writes v with two spaces a level. Characters that are not plainly visible, and could disturb a terminal, stand
// as \u escapes.
func writeJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	if _, err := w.Write(jsontext.Escape(text.Bytes())); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return nil
}
