package cli

import (
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/export"
)

// newExport returns the command export, which writes the results in formats of other tools.
func newExport(s *streams) *cobra.Command {
	var (
		e       explainFlags
		to      string
		headers []string
		as      = exporter{encoding: export.EncodingJSON, header: http.Header{}}
		options = export.Options{Rows: export.RowCauses}
	)
	var names []string
	for _, f := range export.Formats() {
		names = append(names, f.Name)
	}
	cmd := &cobra.Command{
		Use:   "export --to FORMAT [flags] TRACE|REPORT|-",
		Short: "Write the results in formats of other tools",
		Args:  command.AtLeast(1, "name a trace or report, or - for standard input"),
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			if err := e.validate(cmd); err != nil {
				return err
			}
			if to == "" {
				return command.Usage(cmd, "name a format with --to: %s", strings.Join(names, ", "))
			}
			f, err := export.Find(to)
			if _, notTime := time.ParseDuration(to); err != nil && notTime == nil {
				return command.Usage(cmd, "--to names the format of an export: for a time, write --until %s", to)
			}
			if err != nil {
				return command.Usage(cmd, "--to: %v", err)
			}
			toURL := isEndpoint(e.output)
			switch {
			case toURL && to != "otlp":
				return command.Usage(cmd, "only --to otlp can be sent to a URL")
			case options.All && to != "perfetto" && to != "otlp" && to != "jsonl":
				return command.Usage(cmd, "--all is for perfetto, otlp and jsonl: pprof holds all requests anyway, csv with --rows requests")
			case len(headers) > 0 && !toURL:
				return command.Usage(cmd, "--header is for an output that is a URL")
			case as.tls != (record.TLSFiles{}) && !strings.HasPrefix(e.output, "https://"):
				return command.Usage(cmd, "--cacert, --cert, --key, --server-name and --insecure are for an output that is an https:// URL")
			case as.encoding == export.EncodingProtobuf && (e.output == "" || e.output == "-") && width(s.Out) > 0:
				return command.Usage(cmd, "protocol buffers cannot be shown on a terminal: name a file with -o")
			case (e.output == "" || e.output == "-") && !f.Text && width(s.Out) > 0:
				return command.Usage(cmd, "%s cannot be shown on a terminal: name a file with -o", to)
			}
			for _, exclusive := range []struct{ flag, format string }{{"rows", "csv"}, {"encoding", "otlp"}, {"service", "otlp"}} {
				if cmd.Flags().Changed(exclusive.flag) && to != exclusive.format {
					return command.Usage(cmd, "--%s is for --to %s", exclusive.flag, exclusive.format)
				}
			}
			if err := record.AddHeaders(as.header, "from --header", headers); err != nil {
				return command.RecordError(err)
			}
			options.FromNS, options.ToNS = int64(e.options.From), int64(e.options.To)
			as.ctx, as.format, as.options = cmd.Context(), f, options
			e.exportFormat = &as
			return e.exportFormat.run(cmd, s, &e, args)
		}),
	}
	e.addTraceFlags(cmd)
	e.addPart(cmd, "since", "until", "write only the part of the trace from this time on (also --from)", "write only the part of the trace until this time")
	f := cmd.Flags()
	f.StringVar(&to, "to", "", "the format: "+strings.Join(names, ", "))
	f.StringVarP(&e.output, "output", "o", "", "write to this `file`, compressed if its name ends in .gz; with --to otlp, it may be the URL of an OTLP/HTTP endpoint")
	f.StringArrayVarP(&headers, "header", "H", nil, "send this `header` to the endpoint, 'Name: value' (may be repeated)")
	command.Choose(cmd, &as.encoding, "encoding", "how spans are encoded: json or protobuf", export.EncodingJSON, export.EncodingProtobuf)
	f.StringVar(&as.service, "service", "", "the `name` of the service in spans, service.name (default: that of the input)")
	addTLSFiles(f, &as.tls, "endpoint")
	addInsecure(f, &as.tls, "endpoint")
	f.BoolVar(&options.All, "all", false, "write every request of the trace, and with perfetto every goroutine, not only the slow ones")
	command.Choose(cmd, &options.Rows, "rows", "what the rows of csv are: causes (of every band of every group) or requests (all of them)", export.RowCauses, export.RowRequests)
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	command.ShowFlags(cmd, "to", "output", "all", "rows", "since", "until", "group", "request", "slowest", "encoding", "header", "service")
	return cmd
}
