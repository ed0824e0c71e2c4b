package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/atomicfile"
	"github.com/whylate/whylate/internal/export"
	"github.com/whylate/whylate/report"
)

// exportAs says in which format a report is written, and for OTLP, how it is sent.
type exportAs struct {
	ctx     context.Context
	format  export.Format
	headers []string
}

func newExport(s *streams) *cobra.Command {
	var (
		e       explanation
		to      string
		headers []string
	)
	var names []string
	var list strings.Builder
	for _, f := range export.Formats() {
		names = append(names, f.Name)
		list.WriteString("\n  " + f.Name + strings.Repeat(" ", 10-len(f.Name)) + f.Short)
	}
	cmd := &cobra.Command{
		Use:   "export --to FORMAT [flags] TRACE|REPORT|-",
		Short: "Write what was found for other tools",
		Long: `Explains a trace, or reads a report that "whylate explain --json" wrote, and writes it in another format:
` + list.String() + `

Slow requests are those that a report holds in full; --slowest says how many of each group.

With --to otlp, the output may be the URL of an OTLP/HTTP endpoint such as http://localhost:4318/v1/traces: the spans are
sent there instead.`,
		Example: `  whylate export --to pprof -o late.pb.gz x.trace && go tool pprof -http : late.pb.gz
  whylate export --to pprof -o late.pb.gz x.trace && go tool pprof -top -sample_index p99-max late.pb.gz
  whylate export --to perfetto --slowest 10 -o x.perfetto x.trace      # open it at ui.perfetto.dev
  whylate export --to otlp -o http://localhost:4318/v1/traces x.trace
  whylate export --to csv x.json > x.csv`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, "name one trace or report, or - for standard input")
			}
			return nil
		},
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			if err := e.check(cmd); err != nil {
				return err
			}
			if to == "" {
				return usage(cmd, "say with --to which format: %s", strings.Join(names, ", "))
			}
			f, err := export.Find(to)
			if err != nil {
				return usage(cmd, "--to: %v", err)
			}
			toURL := strings.HasPrefix(e.output, "http://") || strings.HasPrefix(e.output, "https://")
			switch {
			case toURL && to != "otlp":
				return usage(cmd, "only --to otlp can be sent to a URL")
			case len(headers) > 0 && !toURL:
				return usage(cmd, "--header is for an output that is a URL")
			case (e.output == "" || e.output == "-") && !f.Text && width(s.out) > 0:
				return usage(cmd, "%s is no text for a terminal: name a file with -o", to)
			}
			for _, h := range headers {
				if name, _, ok := strings.Cut(h, ":"); !ok || strings.TrimSpace(name) == "" {
					return usage(cmd, "--header %q: write NAME: VALUE", h)
				}
			}
			e.as = &exportAs{ctx: cmd.Context(), format: f, headers: headers}
			return e.runFile(cmd, s, args[0])
		}),
	}
	e.addTraceFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "the format: "+strings.Join(names, ", "))
	f.StringVarP(&e.output, "output", "o", "", "write to this file; with --to otlp, also the URL of an OTLP/HTTP endpoint")
	f.StringArrayVarP(&headers, "header", "H", nil, "send this header to the endpoint (NAME: VALUE; may be repeated)")
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (x *exportAs) write(s *streams, output string, rep *report.Report) error {
	if strings.HasPrefix(output, "http://") || strings.HasPrefix(output, "https://") {
		return export.SendOTLP(x.ctx, output, x.headers, rep)
	}
	var w io.Writer = s.out
	if output == "" || output == "-" {
		return x.format.Write(w, rep)
	}
	f, err := atomicfile.Create(output)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := x.format.Write(f, rep); err != nil {
		return err
	}
	return f.Commit()
}
