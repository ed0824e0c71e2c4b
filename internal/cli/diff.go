package cli

import (
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/difftext"
	"github.com/whylate/whylate/report/html"
)

// newDiff returns the command diff, which reports what became slower or faster between two recordings, and why.
func newDiff(s *streams) *cobra.Command {
	var (
		e    explainFlags
		full bool
	)
	cmd := &cobra.Command{
		Use:   "diff [flags] OLD NEW",
		Short: "Say what got slower or faster, and why",
		Args:  cobra.MatchAll(command.Exactly(2, "name two traces or reports, got {n}"), twoInputs),
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			if err := e.validate(cmd); err != nil {
				return err
			}
			old, new, err := e.readBoth(cmd, s, args[0], args[1])
			if err != nil {
				return err
			}
			d := compare.Reports(old, new)
			if e.group != "" {
				d.Servers = []compare.Group{} // only some groups were read
			}
			if e.pageFile != "" {
				opts := difftext.PageOptions(d, old)
				opts.Version, opts.Editor = readBuild().Version, e.editor
				if err := atomicfile.WriteTo(e.pageFile, func(w io.Writer) error { return html.Write(w, new, opts) }); err != nil {
					return err
				}
			}
			return e.writeTo(s, func(w io.Writer, color bool, columns int) error {
				if e.asJSON() {
					return command.WriteJSON(w, d)
				}
				return difftext.Write(w, d, difftext.Options{Width: columns, Color: color, Full: full})
			})
		}),
	}
	f := cmd.Flags()
	f.BoolVar(&full, "full", false, "show every group and every cause, also those without evidence of a change")
	f.BoolVar(&e.json, "json", false, "print the comparison as JSON")
	f.StringVar(&e.pageFile, "html", "", "also write a page to this `file`: NEW beside OLD, distributions on one axis, flame graphs with what grew and shrank, findings that are new or gone")
	_ = cmd.MarkFlagFilename("html", "html")
	e.addEditor(cmd)
	f.StringVarP(&e.output, "output", "o", "", "write to this `file` instead; a name that ends in .json asks for JSON")
	f.StringVar(&e.group, "group", "", "compare only groups whose name matches this regular `expression`")
	e.addShared(cmd, "request", "path-map", "max-memory")
	e.color.add(cmd)
	return cmd
}

// twoInputs returns an error of usage if the arguments cannot be inputs of one command: a URL, or standard input twice.
func twoInputs(cmd *cobra.Command, args []string) error {
	for i, arg := range args {
		if isURL(arg) {
			return command.Usage(cmd, "record %s first: whylate record -o x.whylate %s", arg, arg)
		}
		if arg == "-" && slices.Contains(args[:i], arg) {
			return command.Usage(cmd, "only one input can be standard input")
		}
	}
	return nil
}
