package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/output/termtext"
)

// Widths of help: as wide as the terminal, within what reads well.
const (
	narrowest   = 60
	widestHelp  = 100
	verbsColumn = 13
)

// writeHelp prints a command's help to w.
func writeHelp(w io.Writer, c *cobra.Command, columns int) {
	if columns == 0 {
		columns = widestHelp
	}
	columns = min(max(columns, narrowest), widestHelp)
	var b strings.Builder
	text := c.Long
	if text == "" {
		text = c.Short
	}
	for _, p := range strings.Split(text, "\n\n") {
		switch {
		case strings.HasPrefix(p, "\t"): // a command to type, in cobra's own texts
		case strings.HasPrefix(p, "  "):
			p = reflowList(p, columns)
		default:
			p = reflow(p, columns)
		}
		b.WriteString(p + "\n\n")
	}
	use := c.UseLine()
	if !c.HasParent() {
		use = c.Name() + " COMMAND [flags]"
	}
	b.WriteString("Usage:\n  " + use + "\n")
	if c.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, v := range c.Commands() {
			if v.IsAvailableCommand() {
				b.WriteString("  " + termtext.Pad(v.Name(), verbsColumn) + v.Short + "\n")
			}
		}
	}
	if c.Example != "" {
		b.WriteString("\nExamples:\n" + c.Example + "\n")
	}
	if c.HasAvailableLocalFlags() {
		b.WriteString("\nFlags:\n" + c.LocalFlags().FlagUsagesWrapped(columns))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n`%s COMMAND --help` says more about a command.\n", c.CommandPath())
	}
	_, _ = io.WriteString(w, b.String())
}

// reflowList breaks the lines of a list again, each a name and what is said of
// it, which stays in its column.
func reflowList(p string, columns int) string {
	lines := strings.Split(p, "\n")
	for i, line := range lines {
		_, text, _ := strings.Cut(strings.TrimLeft(line, " "), " ")
		text = strings.TrimLeft(text, " ")
		column := len(line) - len(text)
		lines[i] = line[:column] + strings.ReplaceAll(reflow(text, columns-column), "\n", "\n"+strings.Repeat(" ", column))
	}
	return strings.Join(lines, "\n")
}

// reflow breaks a paragraph into lines.
func reflow(p string, columns int) string {
	var b strings.Builder
	used := 0
	for _, word := range strings.Fields(p) {
		n := termtext.Width(word)
		switch {
		case used == 0:
		case used+1+n > columns:
			b.WriteByte('\n')
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += n
	}
	return b.String()
}
