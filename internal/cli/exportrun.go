package cli

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/output/otlphttp"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// An exporter writes a report in a format, and sends it in the case of OTLP.
type exporter struct {
	ctx     context.Context
	format  export.Format
	options export.Options
	// For OTLP.
	encoding string
	service  string
	header   http.Header
	tls      record.TLSFiles
	// replayer and again give the trace a second time, for what the report does not hold; nil without a trace.
	replayer *explain.Replayer
	reopen   func() (*input, error)
}

// run explains a trace, or the traces of several services, or reads a report, and writes it in the exporter's format.
func (x *exporter) run(cmd *cobra.Command, s *streams, e *explainFlags, args []string) error {
	arg := args[0]
	if areServices(args) {
		switch {
		case (x.options.All || x.options.Rows == export.RowRequests) && len(args) > 1:
			return command.Usage(cmd, "--all and --rows requests are for one service: name one recording")
		case x.options.All || x.options.Rows == export.RowRequests:
			return command.Usage(cmd, "--all and --rows requests are for one service: name it, as in %s%sNAME", arg, memberSeparator)
		}
		return e.runServices(cmd, s, args)
	}
	in, err := s.openInput(cmd.Context(), arg)
	if err != nil {
		return err
	}
	defer in.Close()
	if in.isReport {
		if x.options.All || x.options.Rows == export.RowRequests {
			return command.Usage(cmd, "--all and --rows requests need the trace: %s is a report", in.name)
		}
		return e.runReport(cmd, s, in)
	}
	if x.reopen, err = s.readTwice(cmd.Context(), in, arg); err != nil {
		return err
	}
	x.replayer = new(explain.Replayer)
	e.replayer = x.replayer
	rep, err := e.explainShown(cmd.Context(), in, s.Bar())
	if rep != nil && int64(e.options.From) >= rep.Input.DurationNS {
		fmt.Fprintf(s.Err, "whylate: the trace ends after %s, before --since %v\n", words.Duration(rep.Input.DurationNS), e.options.From)
	}
	return e.writeAndExit(cmd, s, arg, rep, err)
}

// readTwice returns a function that opens the input again from its beginning. An input that is no file is copied to a temporary file while it is
// read, so the function may be called only after that.
func (s *streams) readTwice(ctx context.Context, in *input, arg string) (func() (*input, error), error) {
	if arg != "-" && in.size > 0 {
		return func() (*input, error) { return s.openInput(ctx, arg) }, nil
	}
	tmp, err := os.CreateTemp("", "whylate-*.trace")
	if err != nil {
		return nil, fmt.Errorf("keeping %s to read it twice: %w", in.name, err)
	}
	in.ownFile(tmp)
	in.Reader = io.TeeReader(in.Reader, tmp)
	return func() (*input, error) {
		if _, err := tmp.Seek(0, io.SeekStart); err != nil {
			return nil, fmt.Errorf("reading %s again: %w", in.name, err)
		}
		return &input{Reader: tmp, name: in.name}, nil
	}, nil
}

// write writes a report, or the trace of the report, to the output: an OTLP endpoint, a file, compressed if its name ends in .gz, or standard output.
func (x *exporter) write(s *streams, output string, rep *report.Report) error {
	if isEndpoint(output) {
		return x.send(s, output, rep)
	}
	return s.WriteTo(output, func(w io.Writer) error {
		if !strings.HasSuffix(output, ".gz") || x.format.Name == "pprof" { // a profile is compressed already
			return x.writeTo(s, w, rep)
		}
		z := gzip.NewWriter(w)
		return cmp.Or(x.writeTo(s, z, rep), z.Close())
	})
}

func isEndpoint(output string) bool {
	return strings.HasPrefix(output, "http://") || strings.HasPrefix(output, "https://")
}

// writeTo writes the report in the exporter's format to w. Formats that hold single events read the trace for a second time, if
// it can be opened again.
func (x *exporter) writeTo(s *streams, w io.Writer, rep *report.Report) error {
	if x.format.Name == "otlp" {
		return x.writeSpans(s, rep, export.ToWriter(w))
	}
	if !x.canReplay() || x.format.Sink == nil {
		return x.format.Write(w, rep)
	}
	sink := x.format.Sink(w, rep, x.options)
	if sink == nil {
		return x.format.Write(w, rep)
	}
	if p, ok := sink.(*export.PerfettoTrace); ok && p.Omissions() != "" {
		fmt.Fprintf(s.Err, "whylate: %s\n", p.Omissions())
	}
	return x.replay(s, sink)
}

// canReplay reports whether the trace can be read again. After an interrupt, only data of the report is written.
func (x *exporter) canReplay() bool { return x.replayer != nil && x.ctx.Err() == nil }

// replay reads the trace for a second time, passes its requests and events to sink, and closes sink, with progress on standard error.
func (x *exporter) replay(s *streams, sink export.Sink) error {
	in, err := x.reopen()
	if err != nil {
		return err
	}
	defer in.Close()
	bar := s.Bar()
	in.Reader = progress.NewReader(in.Reader, bar, "writing "+x.format.Name, in.size)
	err = x.replayer.Replay(x.ctx, in, sink)
	bar.Clear()
	if x.ctx.Err() != nil && err != nil {
		return command.Exit(ExitInterrupted, errors.New("interrupted while the trace was read for the second time: the output is incomplete"))
	}
	return err
}

// writeSpans passes messages in OTLP and their numbers of spans to emit. Requests of a trace are joined to the spans that tracers wrote into it.
func (x *exporter) writeSpans(s *streams, rep *report.Report, emit func([]byte, int) error) error {
	spans, err := export.NewSpans(rep, x.encoding, x.options.All, emit)
	if err != nil {
		return err
	}
	spans.Service = x.service
	if !x.canReplay() {
		return spans.FromReport(rep)
	}
	if err := x.replay(s, spans); err != nil {
		return err
	}
	if spans.Joined > 0 {
		fmt.Fprintf(s.Err, "whylate: %d requests belong to traces of a tracer, by the ids that it wrote into this one\n", spans.Joined)
	}
	return nil
}

// send sends the report's spans in OTLP to an endpoint. It is an error if the endpoint refuses or rejects any; warnings of the endpoint go to
// standard error.
func (x *exporter) send(s *streams, endpoint string, rep *report.Report) error {
	var conf *tls.Config
	if x.tls != (record.TLSFiles{}) {
		var err error
		if conf, err = x.tls.Config(x.ctx); err != nil {
			return err
		}
	}
	c, err := otlphttp.NewClient(endpoint, x.encoding, x.header, conf)
	if err != nil {
		return err
	}
	defer c.Close()
	err = x.writeSpans(s, rep, func(body []byte, n int) error { return c.Send(x.ctx, body, n) })
	if c.Retries > 0 {
		fmt.Fprintf(s.Err, "whylate: the endpoint was busy: %d messages were sent again\n", c.Retries)
	}
	switch {
	case err != nil && c.Spans > 0:
		return fmt.Errorf("%w (%d spans were sent before)", err, c.Spans)
	case err != nil:
		return err
	case c.Refusal != nil:
		return fmt.Errorf("sending spans: the endpoint accepted %d spans and refused %d messages, the first with: %w", c.Spans, c.Refused, c.Refusal)
	case c.Rejected > 0:
		return fmt.Errorf("sending spans: the endpoint rejected %d of %d: %s", c.Rejected, c.Spans, termtext.Escape(c.Message))
	case c.Message != "": // a warning, by the specification
		fmt.Fprintf(s.Err, "whylate: the endpoint accepted all spans and answered: %s\n", termtext.Escape(c.Message))
	}
	return nil
}
