package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/whylate/whylate/internal/output/jsontext"
)

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
