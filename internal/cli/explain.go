package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/capacity"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/source"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// newExplain returns the command explain, which reports why requests of a trace, a URL or a process were late.
func newExplain(s *streams) *cobra.Command {
	var (
		e            explainFlags
		conn         connectFlags
		withCapacity bool
	)
	cmd := &cobra.Command{
		Use:   "explain [flags] TRACE|URL|-|--pid N",
		Short: "Say why requests were late",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && conn.recording.PID > 0 {
				return nil
			}
			return command.AtLeast(1, "name a trace, a URL, - for standard input, or a process with --pid")(cmd, args)
		},
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			if err := e.validate(cmd); err != nil {
				return err
			}
			if withCapacity {
				if !e.asJSON() {
					return command.Usage(cmd, "--capacity is for JSON; `whylate capacity` prints it as text")
				}
				e.options.Capacity = &capacity.Question{LimitsOnly: e.pageFile == ""}
			}
			if len(args) == 0 {
				opt, err := conn.processOptions(cmd)
				if err != nil {
					return err
				}
				if e.peer != "" {
					return command.Usage(cmd, "--peer needs two recordings that were made at the same time: record the process with `whylate record --pid`")
				}
				return e.runProcess(cmd, s, opt, conn.force)
			}
			if e.peer != "" {
				args = append(args, e.peer)
			}
			if areServices(args) {
				return e.runServices(cmd, s, args)
			}
			return e.runInput(cmd, s, &conn, args[0])
		}),
	}
	e.addFlags(cmd)
	cmd.Flags().BoolVar(&e.json, "json", false, "print the report as JSON (report/report.schema.json)")
	cmd.Flags().BoolVar(&withCapacity, "capacity", false, "add to the JSON at which load each resource saturates, as whylate capacity does, without latencies at other loads")
	cmd.Flags().StringVarP(&e.output, "output", "o", "", "write to this `file` instead; a name that ends in .json asks for JSON, one in .html for a page")
	e.addPage(cmd)
	conn.addExplainFlags(cmd.Flags())
	conn.addKernel(cmd.Flags())
	conn.addProcessFlags(cmd.Flags())
	command.ShowFlags(cmd, "duration", "group", "request", "band", "slowest", "from", "to", "what-if", "slo", "ignore", "html", "full", "summary", "json", "output")
	return cmd
}

// runInput explains the service at a URL, or the recording in a file or on standard input ("-"), and writes the answer.
func (e *explainFlags) runInput(cmd *cobra.Command, s *streams, conn *connectFlags, arg string) error {
	if !isURL(arg) {
		return e.runFile(cmd, s, arg)
	}
	opt, err := conn.optionsFor(cmd, arg)
	if err != nil {
		return err
	}
	return e.runURL(cmd, s, arg, opt)
}

// runFile explains the recording in a file or on standard input, or shows a report, and writes the answer.
func (e *explainFlags) runFile(cmd *cobra.Command, s *streams, arg string) error {
	in, err := s.openInput(cmd.Context(), arg)
	if err != nil {
		return err
	}
	defer in.Close()
	if in.isReport {
		return e.runReport(cmd, s, in)
	}
	rep, err := e.explainShown(cmd.Context(), in, s.Bar())
	return e.writeAndExit(cmd, s, arg, rep, err)
}

// runReport shows a report that was saved as JSON. Flags that need the trace are an error.
func (e *explainFlags) runReport(cmd *cobra.Command, s *streams, in *input) error {
	for _, flag := range []string{"request", "group", "trace-id", "no-marks", "module", "thresholds", e.partFlags[0], e.partFlags[1], "path-map", "max-memory", "what-if", "slo", "peer", "iterations", "capacity"} {
		if cmd.Flags().Changed(flag) {
			return command.Usage(cmd, "--%s needs the trace: %s is a report", flag, in.name)
		}
	}
	rep, err := in.readReport(cmd.Context())
	if err != nil {
		return err
	}
	finding.MarkIgnored(rep.Findings, e.ignored)
	return e.write(cmd.Context(), s, "", rep)
}

// runURL explains the recording of the service's flight recorder, if the service at target has one. Otherwise it explains the
// service's trace while it records it; with opt.Kernel, once it has saved both. It writes the answer.
func (e *explainFlags) runURL(cmd *cobra.Command, s *streams, target string, opt record.Options) error {
	if in, err := s.openFlight(cmd, target, opt); err != nil {
		return err
	} else if in != nil {
		defer in.Close()
		rep, err := e.explain(cmd.Context(), in)
		return e.writeAndExit(cmd, s, in.name, rep, err)
	}
	bar := newRecordBar(s.Bar(), []string{target})
	opt.Progress = bar.callback(0)
	if opt.Kernel != nil {
		return e.runSaved(cmd, s, target, opt, bar)
	}
	in, err := openURL(cmd.Context(), target, opt)
	if err != nil {
		bar.clear()
		return command.RecordError(err)
	}
	defer in.Close()
	rep, err := e.explain(cmd.Context(), in)
	in.Close()
	bar.clear()
	in.warnOfRecording(rep)
	return e.writeAndExit(cmd, s, in.name, rep, err)
}

// runSaved records into a temporary file and explains that: the kernel's events are complete only at the end.
func (e *explainFlags) runSaved(cmd *cobra.Command, s *streams, target string, opt record.Options, bar *recordBar) error {
	dir, err := os.MkdirTemp("", "whylate-*")
	if err != nil {
		return fmt.Errorf("keeping the recording for reading: %w", err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "x"+record.BundleExt)
	res, err := record.Save(cmd.Context(), target, opt, name, readBuild().Version, nil)
	bar.clear()
	return e.explainSaved(cmd, s, name, res, err)
}

// explainSaved explains a recording in a temporary file, for which record.Save returned res and err, and writes the answer. Without a complete
// generation it returns err.
func (e *explainFlags) explainSaved(cmd *cobra.Command, s *streams, name string, res *record.Result, err error) error {
	if res == nil || !res.HasGeneration {
		return command.RecordError(err)
	}
	in, err := s.openInput(context.WithoutCancel(cmd.Context()), name)
	if err != nil {
		return err
	}
	defer in.Close()
	in.name = res.URL
	rep, err := e.explain(context.WithoutCancel(cmd.Context()), in)
	return e.writeAndExit(cmd, s, in.name, rep, err)
}

// StartRecording begins to record a service for a verb that loads it, and returns when the trace has begun. explainRecording waits
// for the end of the recording, explains it and writes the answer. discard ends the recording and removes it; call it in any case.
func StartRecording(cmd *cobra.Command, streamsOfVerb *command.Streams, target string, duration time.Duration) (explainRecording func() error, discard func(), err error) {
	s, e := &streams{*streamsOfVerb}, &explainFlags{}
	opt, err := (&connectFlags{recording: record.Options{Duration: duration}, timeout: defaultTimeout}).optionsFor(cmd, target)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "whylate-*")
	if err != nil {
		return nil, nil, fmt.Errorf("keeping the recording for reading: %w", err)
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	name := filepath.Join(dir, "x"+record.BundleExt)
	begun, ended := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	opt.Progress = func(p record.Progress) {
		if p.Elapsed > 0 {
			begin()
		}
	}
	var res *record.Result
	go func() {
		defer close(ended)
		res, err = record.Save(ctx, target, opt, name, readBuild().Version, nil)
	}()
	discard = func() {
		cancel()
		<-ended
		os.RemoveAll(dir)
	}
	select {
	case <-begun:
	case <-ended:
		if res == nil || !res.HasGeneration {
			discard()
			return nil, nil, command.RecordError(err)
		}
	}
	return func() error {
		<-ended
		return e.explainSaved(cmd, s, name, res, err)
	}, discard, nil
}

// explainShown is explain with a bar that shows the progress of reading.
func (e *explainFlags) explainShown(ctx context.Context, in *input, bar *progress.Bar) (*report.Report, error) {
	defer bar.Clear()
	in.Reader = progress.NewReader(in.Reader, bar, in.name, in.size)
	return e.explain(ctx, in)
}

// explain runs the engine on an input, and adds the warnings of the recording, the lengths of waits in source, and the marks of --ignore to the
// report. If the input ended early, both results are set.
func (e *explainFlags) explain(ctx context.Context, in *input) (rep *report.Report, err error) {
	defer func() { in.addWarnings(rep) }()
	adjust := e.adjustMemory
	if adjust == nil {
		held, restore := limitMemory(int64(e.maxMemory))
		adjust = held
		defer func() { warnOfExcess(rep, restore()) }()
	}
	if e.asJSON() {
		go report.CompactJSON(new(report.Report)) // prepares the encoders while the trace is read
	}
	opts := e.engineOptions(in)
	opts.Progress = func(int64) { adjust() }
	if opts.Capacity == nil && (e.pageFile != "" || isPage(e.output)) {
		opts.Capacity = new(capacity.Question)
	}
	rep, err = explain.Explain(ctx, in, opts)
	if rep != nil {
		source.LocalCache().AddWaitLengths(rep)
		finding.MarkIgnored(rep.Findings, e.ignored)
	}
	return rep, err
}

// engineOptions returns the engine's options for an input.
func (e *explainFlags) engineOptions(in *input) explain.Options {
	opts := e.options
	opts.Name, opts.Slowest, opts.MaxMemory = in.name, e.slowestCount(0), int64(e.maxMemory)
	opts.Modules = modules.New(modules.Options{Build: in.program(), OwnPaths: e.modules})
	opts.Host, opts.Allocs, opts.Kernel, opts.Reopen = in.host, in.allocs, in.kernel, in.reopen
	opts.Replayer, opts.Index = e.replayer, e.index
	return opts
}

// slowestCount returns the number of slow requests to show, as the engine and the text expect it: usual without --slowest, negative for none.
func (e *explainFlags) slowestCount(usual int) int {
	switch {
	case !e.slowestGiven:
		return usual
	case e.slowest == 0:
		return -1
	}
	return e.slowest
}

// writeAndExit writes the report about the argument arg, if rep is not nil, and returns the error that ends the run: of an interrupt, of writing,
// err, or that nothing matched.
func (e *explainFlags) writeAndExit(cmd *cobra.Command, s *streams, arg string, rep *report.Report, err error) error {
	interrupted := cmd.Context().Err() != nil
	if rep == nil {
		if interrupted {
			return interruptedEarly()
		}
		return err
	}
	if errors.Is(err, explain.ErrWhatIf) && !errors.Is(err, explain.ErrRefused) {
		return command.Usage(cmd, "%v", err)
	}
	if werr := e.write(cmd.Context(), s, e.reportCommand(cmd, arg), rep); werr != nil {
		return werr
	}
	switch {
	case interrupted:
		return command.Exit(ExitInterrupted, errors.New("interrupted: the report covers what was read until then"))
	case err != nil:
		return err
	}
	if e.exportFormat != nil {
		return nil // an export reports itself that it is empty
	}
	return noMatchError(rep)
}

// noMatchError returns the error for a report without groups in which nothing matches the user's options; nil for any other.
func noMatchError(rep *report.Report) error {
	for _, w := range rep.Input.Warnings {
		if len(rep.Groups) == 0 && (w.Code == explain.NoGroup || w.Code == explain.NoMatch) {
			return command.Exit(ExitFailed, errors.New(w.Text))
		}
	}
	return nil
}

func interruptedEarly() error {
	return command.Exit(ExitInterrupted, errors.New("interrupted before a whole second of the trace was read"))
}

// reportCommand returns the command that explains the same requests of the argument, for hints: "" for standard input.
// A URL is shown without credentials.
func (e *explainFlags) reportCommand(cmd *cobra.Command, arg string) string {
	if arg == "-" {
		return ""
	}
	command := []string{cmd.CommandPath()}
	for _, f := range []struct{ name, value string }{{"request", e.request}, {"trace-id", e.traceID}, {"group", e.group}, {"band", string(e.band)}} {
		if f.value != "" {
			command = append(command, "--"+f.name, words.ShellQuote(f.value))
		}
	}
	for _, m := range e.modules {
		command = append(command, "--module", words.ShellQuote(m))
	}
	if cmd.Name() != "explain" {
		command = []string{cmd.Root().Name(), "explain"}
	}
	if isURL(arg) {
		arg = record.RedactString(arg)
	}
	if !strings.HasPrefix(arg, "--pid ") {
		arg = words.ShellQuote(arg)
	}
	return strings.Join(append(command, arg), " ")
}

// write writes the report as text or JSON to standard output, or to a file, which is replaced atomically.
func (e *explainFlags) write(ctx context.Context, s *streams, command string, rep *report.Report) error {
	if e.exportFormat != nil {
		return e.exportFormat.write(s, e.output, rep)
	}
	if e.pageFile != "" {
		if err := e.writePage(ctx, s, e.pageFile, command, rep); err != nil {
			return err
		}
	}
	if !e.json && isPage(e.output) {
		return e.writePage(ctx, s, e.output, command, rep)
	}
	return e.writeTo(s, func(w io.Writer, color bool, columns int) error {
		if e.writeAnswer != nil {
			return e.writeAnswer(w, rep, columns)
		}
		if e.asJSON() {
			return report.WriteJSON(w, rep)
		}
		if e.summary {
			_, err := fmt.Fprintln(w, text.Line(rep))
			return err
		}
		return text.Write(w, rep, text.Options{
			Width: columns, Color: color, Full: e.full || e.slowestGiven, AllGroups: e.group != "", Band: e.band, Slowest: e.slowestCount(1), Command: command,
		})
	})
}

// asJSON reports whether the output is JSON, by flag or by its name.
func (e *explainFlags) asJSON() bool {
	return e.json || strings.EqualFold(filepath.Ext(e.output), ".json")
}
