package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/cli/command"
)

// newDocs returns the verb that writes pages about the command, with the texts of its help.
func newDocs() *cobra.Command {
	return &cobra.Command{
		Use:    "docs markdown|man DIRECTORY",
		Short:  "Write the command's documentation",
		Hidden: true,
		Example: `  whylate docs markdown docs/cli
  whylate docs man /usr/local/share/man/man1`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 || args[0] != "markdown" && args[0] != "man" {
				return command.Usage(cmd, "name markdown or man, and a directory")
			}
			return nil
		},
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[1], 0o755); err != nil {
				return fmt.Errorf("making the directory: %w", err)
			}
			for name, page := range pages(cmd.Root(), args[0]) {
				write := func(w io.Writer) error { _, err := w.Write(page); return err }
				if err := atomicfile.WriteTo(filepath.Join(args[1], name), write); err != nil {
					return err
				}
			}
			return nil
		}),
	}
}

// pages returns a page for the program and for each of its verbs, by file name, in a format: "markdown" or "man". They contain no date and no
// version: equal help gives equal pages.
func pages(root *cobra.Command, format string) map[string][]byte {
	out := map[string][]byte{}
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	cmds := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			c.InitDefaultHelpFlag()
			cmds = append(cmds, c)
		}
	}
	for _, c := range cmds {
		base := strings.ReplaceAll(c.CommandPath(), " ", "-")
		if format == "man" {
			out[base+".1"] = manPage(c, cmds[1:])
		} else {
			out[base+".md"] = markdownPage(c, cmds[1:])
		}
	}
	return out
}

// flags calls f for every flag that help shows, with its names and argument (head) and its description and default (value).
func flags(c *cobra.Command, f func(f *pflag.Flag, head, value string)) {
	c.LocalFlags().VisitAll(func(fl *pflag.Flag) {
		if fl.Hidden {
			return
		}
		name, text := pflag.UnquoteUsage(fl)
		head := "--" + fl.Name
		if fl.Shorthand != "" {
			head = "-" + fl.Shorthand + ", " + head
		}
		if name != "" {
			head += " " + name
		}
		if d := fl.DefValue; d != "" && d != "false" && d != "0" && d != "[]" && d != "0s" {
			text += " (default " + d + ")"
		}
		f(fl, head, text)
	})
}

// markdownPage returns the page of a command's documentation in Markdown. The page of the root command lists the verbs.
func markdownPage(c *cobra.Command, verbs []*cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n%s\n\n", c.CommandPath(), sentence(c.Short))
	fmt.Fprintf(&b, "    %s\n\n%s\n\n", c.UseLine(), c.Long)
	fmt.Fprintf(&b, "## Examples\n\n```\n%s\n```\n\n", unindent(c.Example))
	fmt.Fprintf(&b, "## Flags\n\n| flag | meaning |\n|---|---|\n")
	flags(c, func(_ *pflag.Flag, head, text string) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", head, strings.ReplaceAll(text, "|", `\|`))
	})
	b.WriteString("\n")
	if !c.HasParent() {
		b.WriteString("## Commands\n\n| command | |\n|---|---|\n")
		for _, v := range verbs {
			fmt.Fprintf(&b, "| [%s](%s.md) | %s |\n", v.CommandPath(), strings.ReplaceAll(v.CommandPath(), " ", "-"), v.Short)
		}
	} else {
		fmt.Fprintf(&b, "All commands: [%s](%s.md)\n", c.Root().Name(), c.Root().Name())
	}
	return b.Bytes()
}

// manPage returns the page of a command's documentation in the man macros of roff (man(7)). The page of the root command lists the verbs.
func manPage(c *cobra.Command, verbs []*cobra.Command) []byte {
	var b bytes.Buffer
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	fmt.Fprintf(&b, ".TH %s 1 \"\" whylate \"User Commands\"\n", strings.ToUpper(name))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	for i, p := range strings.Split(c.Long, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		b.WriteString(roff(p) + "\n")
	}
	if !c.HasParent() {
		b.WriteString(".SH COMMANDS\n")
		for _, v := range verbs {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s (see %s(1))\n", roff(v.CommandPath()), roff(v.Short), roff(strings.ReplaceAll(v.CommandPath(), " ", "-")))
		}
	}
	b.WriteString(".SH OPTIONS\n")
	flags(c, func(_ *pflag.Flag, head, text string) { fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(head), roff(text)) })
	fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(unindent(c.Example)))
	return b.Bytes()
}

// roff escapes text: backslashes and hyphens everywhere, and a dot or a quote at the beginning of a line, which would be a
// request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// sentence returns a short text with a full stop, unless it is a question.
func sentence(s string) string {
	if strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// unindent removes the two spaces before the lines of an example.
func unindent(s string) string {
	return strings.ReplaceAll(strings.TrimPrefix(s, "  "), "\n  ", "\n")
}
