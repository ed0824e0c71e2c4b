package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

// newReport returns the command report, which shows a report from its JSON as text or as a page.
func newReport(s *streams) *cobra.Command {
	var e explainFlags
	cmd := &cobra.Command{
		Use:   "report [flags] REPORT|-",
		Short: "Show a report from its JSON",
		Args:  command.Exactly(1, "name one report, or - for standard input"),
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			if err := e.validate(cmd); err != nil {
				return err
			}
			in, err := s.openInput(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer in.Close()
			if !in.isReport {
				return fmt.Errorf("%s is not a report in JSON: `whylate explain --json` makes one from a trace", in.name)
			}
			return e.runReport(cmd, s, in)
		}),
	}
	f := cmd.Flags()
	f.IntVar(&e.slowest, "slowest", 0, "show this many of a group's slowest requests (default: 1 in the text)")
	f.StringVarP(&e.output, "output", "o", "", "write to this `file` instead; a name that ends in .json asks for JSON, one in .html for a page")
	e.addLength(cmd)
	e.addPage(cmd)
	e.color.add(cmd)
	return cmd
}

// addPage adds the flags --html and --before, for a report as a page, and --editor.
func (e *explainFlags) addPage(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.pageFile, "html", "", "also write the report to this `file` as a page, which needs no other file")
	_ = cmd.MarkFlagFilename("html", "html")
	cmd.Flags().StringVar(&e.before, "before", "", "on the page, compare with this earlier `report` in JSON: percentiles, and flame graphs with what has grown and shrunk")
	_ = cmd.MarkFlagFilename("before", "json")
	e.addEditor(cmd)
}

// addEditor adds the flag of verbs that write pages.
func (e *explainFlags) addEditor(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.editor, "editor", "", "let the page open code in this editor: vscode, idea, or an address such as 'zed://file{file}:{line}'")
}

// checkEditor returns an error for a value that is neither an editor nor the URL form of one.
func (e *explainFlags) checkEditor(cmd *cobra.Command) error {
	switch e.editor {
	case "", "vscode", "idea":
		return nil
	}
	scheme, _, ok := strings.Cut(e.editor, ":")
	if !ok || !strings.Contains(e.editor, "{file}") || strings.ContainsFunc(scheme, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '+' && r != '.'
	}) {
		return command.Usage(cmd, "--editor %q: name vscode or idea, or an address with {file} and {line} in it, such as 'zed://file{file}:{line}'", e.editor)
	}
	switch scheme {
	case "javascript", "data", "vbscript", "blob":
		return command.Usage(cmd, "--editor %q: this is not the address of an editor", e.editor)
	}
	return nil
}

// isPage reports whether an output is a page, by its name.
func isPage(name string) bool {
	ext := filepath.Ext(name)
	return strings.EqualFold(ext, ".html") || strings.EqualFold(ext, ".htm")
}

// readBefore reads the report of --before, which must be JSON and not a trace; nil without the flag.
func (e *explainFlags) readBefore(ctx context.Context, s *streams) (*report.Report, error) {
	if e.before == "" {
		return nil, nil
	}
	in, err := s.openInput(ctx, e.before)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if !in.isReport {
		return nil, fmt.Errorf("%s is not a report in JSON: `whylate explain --json` makes one from a trace", in.name)
	}
	return in.readReport(ctx)
}

// writePage writes the report as a page to the file name, which is replaced atomically. The page shows command as the one that
// made it.
func (e *explainFlags) writePage(ctx context.Context, s *streams, name, command string, rep *report.Report) error {
	before, err := e.readBefore(ctx, s)
	if err != nil {
		return err
	}
	return atomicfile.WriteTo(name, func(w io.Writer) error {
		return html.Write(w, rep, html.Options{Command: command, Version: readBuild().Version, Before: before, Editor: e.editor})
	})
}
