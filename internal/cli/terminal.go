package cli

import (
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/whylate/whylate/internal/cli/command"
)

// colorFlag is the value of --color.
type colorFlag string

func (f *colorFlag) add(cmd *cobra.Command) {
	*f = "auto"
	command.ChooseKind(cmd, f, "when", "color", "colours: auto (on a terminal, unless NO_COLOR is set or TERM is dumb), always, never", "auto", "always", "never")
}

// on reports whether output to w is coloured.
func (f colorFlag) on(w io.Writer, getenv func(string) string) bool {
	file, ok := w.(*os.File)
	terminal := ok && term.IsTerminal(int(file.Fd()))
	return f.wanted(terminal, getenv) && (!terminal || enableColors(file) || f == "always")
}

// wanted reports whether a stream is coloured; terminal says whether it is a terminal. The flag takes precedence over the
// environment's NO_COLOR (https://no-color.org: set and not empty) and TERM.
func (f colorFlag) wanted(terminal bool, getenv func(string) string) bool {
	switch f {
	case "always":
		return true
	case "never":
		return false
	}
	return terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
}

// width returns the columns of w if it is a terminal, else the number in the environment variable COLUMNS (for a pipe to a
// pager), 0 if that is not set.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 { // a pipe to a pager
		return n
	}
	return 0
}
