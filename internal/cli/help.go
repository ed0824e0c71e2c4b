package cli

import (
	"cmp"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/output/termtext"
)

//go:embed help
var helpTexts embed.FS

// helpText returns the text of that name, "" if there is none.
func helpText(name string) string {
	b, _ := helpTexts.ReadFile("help/" + name + ".txt")
	return strings.TrimRight(string(b), "\n")
}

// addHelp sets the long texts and examples of commands from the help files with their names, and adds --help-all. {connect} and other placeholders
// are replaced by texts that several commands share.
func addHelp(commands ...*cobra.Command) {
	var formats []string
	for _, f := range export.Formats() {
		formats = append(formats, "  "+termtext.Pad(f.Name, 10)+f.Short)
	}
	parts := strings.NewReplacer("{connect}", helpText("connect"), "{flight}", helpText("flight"), "{formats}", strings.Join(formats, "\n"),
		"{severities}", reflow("Severity is the same for all rules. "+finding.Severities, 120))
	for _, c := range commands {
		addHelpAll(c)
		if text := helpText(c.Name()); text != "" {
			c.Long, c.Example, _ = strings.Cut(parts.Replace(text), "\n\nExamples:\n\n")
		}
	}
}

// Widths of help: that of the terminal, within limits for readability.
const (
	narrowest   = 60
	widestHelp  = 100
	verbsColumn = 13
)

// writeHelp prints a command's help to w.
func writeHelp(w io.Writer, c *cobra.Command, columns int) {
	columns = cmp.Or(columns, widestHelp)
	columns = min(max(columns, narrowest), widestHelp)
	var b strings.Builder
	text := cmp.Or(c.Long, c.Short)
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
	group := "none yet"
	for _, v := range c.Commands() {
		if !v.IsAvailableCommand() {
			continue
		}
		if v.GroupID != group {
			group = v.GroupID
			b.WriteString("\n" + cmp.Or(group, "Commands") + ":\n")
		}
		b.WriteString("  " + termtext.Pad(v.Name(), verbsColumn) + v.Short + "\n")
	}
	if c.Example != "" {
		b.WriteString("\nExamples:\n" + c.Example + "\n")
	}
	if c.HasAvailableLocalFlags() {
		shown, hidden := shownFlags(c)
		b.WriteString("\nFlags:\n" + shown.FlagUsagesWrapped(columns))
		if hidden > 0 {
			fmt.Fprintf(&b, "\n`%s --help-all` shows %d more flags.\n", c.CommandPath(), hidden)
		}
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n`%s COMMAND --help` says more about a command.\n", c.CommandPath())
	}
	_, _ = io.WriteString(w, b.String())
}

// addHelpAll adds --help-all. Every command accepts it, but help lists it only if it shows more flags.
func addHelpAll(c *cobra.Command) {
	all := c.Flags().VarPF(new(helpAll), "help-all", "", "help for "+c.Name()+", with all flags")
	all.NoOptDefVal = "true"
	_, isShortened := c.Annotations[command.UsualFlags]
	all.Hidden = !isShortened
}

// helpAll is the value of --help-all, which requests help as --help does.
type helpAll bool

func (h *helpAll) Type() string   { return "bool" }
func (h *helpAll) String() string { return "" }
func (h *helpAll) Set(string) error {
	*h = true
	return pflag.ErrHelp
}

// shownFlags returns the command's own flags that help shows, and the number of the others, without those that are always hidden.
// It shows all with --help-all, and where the command has no list of usual flags.
func shownFlags(c *cobra.Command) (shown *pflag.FlagSet, omitted int) {
	names, isShortened := c.Annotations[command.UsualFlags]
	if all := c.Flags().Lookup("help-all"); !isShortened || bool(*all.Value.(*helpAll)) {
		return c.LocalFlags(), 0
	}
	shown = pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case slices.Contains(strings.Fields(names), f.Name):
			shown.AddFlag(f)
		case !f.Hidden:
			omitted++
		}
	})
	return shown, omitted
}

// reflowList breaks the lines of a list at the given width. Each consists of a name and a description, which stays in its column.
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
	return strings.Join(termtext.Wrap(strings.Fields(p), columns), "\n")
}
