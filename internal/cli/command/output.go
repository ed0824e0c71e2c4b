package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/output/jsontext"
	"github.com/whylate/whylate/internal/output/progress"
)

// A Verb creates a command that only some programs have. Its GroupID is one of the groups below; without one it is hidden.
type Verb func(*Streams) *cobra.Command

// Groups of verbs: their titles in the help.
const (
	GroupExplain = "Find out why requests are late"
	GroupCompare = "Compare recordings, and check them"
	GroupPassOn  = "Pass recordings on"
	GroupTry     = "Try limits and load"
	GroupLookUp  = "Look something up"
)

// Streams are the standard streams of one run.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Bar returns a progress bar on standard error, nil if it is not a terminal that can show one.
func (s *Streams) Bar() *progress.Bar {
	f, _ := s.Err.(*os.File)
	return progress.NewBar(f, os.Getenv)
}

// WriteTo calls write for standard output if the name is "" or "-", else for a file that is written completely or not at all.
func (s *Streams) WriteTo(name string, write func(w io.Writer) error) error {
	if name == "" || name == "-" {
		return write(s.Out)
	}
	return atomicfile.WriteTo(name, write)
}

// WriteJSON writes v with two spaces a level. Invisible characters, which could disturb a terminal, become \u escapes.
func WriteJSON(w io.Writer, v any) error {
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
