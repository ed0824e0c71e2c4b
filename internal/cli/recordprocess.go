package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/capture/schedtrace"
	"github.com/whylate/whylate/internal/capture/uprobes"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/report"
)

// processDuration is the default length of a recording from outside: short, because the probes cost CPU time.
const processDuration = 3 * time.Second

// A processRecording is a process that was recorded without its help.
type processRecording struct {
	trace  []byte
	host   *host.Recording
	result record.Result
	goName string // version that built the program
	start  time.Time
}

// processName names a process in place of a URL.
func processName(pid int) string {
	if name := host.ProgramName(pid); name != "" {
		return fmt.Sprintf("process %d (%s)", pid, name)
	}
	return fmt.Sprintf("process %d", pid)
}

// recordProcess records the process that the options name, for opt.Duration, and blocks until then. force records at any cost. bar may be nil. After
// an interrupt it returns the recording until then, and an error.
func recordProcess(cmd *cobra.Command, opt record.Options, force bool, bar *progress.Bar) (*processRecording, error) {
	if !cmd.Flags().Changed("duration") {
		opt.Duration = processDuration
	}
	var sampler *host.Sampler
	var warnings []bundle.Warning
	if !opt.NoHost {
		var err error
		if sampler, err = host.Start(host.Options{PID: opt.PID}); err != nil {
			warnings = append(warnings, bundle.Warning{Code: host.WarnHost, Text: "no host samples: " + err.Error()})
		}
	}
	p := &processRecording{start: time.Now()}
	name := processName(opt.PID)
	res, err := uprobes.Record(cmd.Context(), uprobes.Options{PID: opt.PID, Duration: opt.Duration, Force: force, Progress: func(elapsed time.Duration) {
		bar.Set(progress.State{Label: name, Elapsed: elapsed, Total: opt.Duration})
	}})
	bar.Clear()
	if sampler != nil {
		p.host = sampler.Stop()
		warnings = append(warnings, p.host.Warnings...)
	}
	if res == nil {
		return nil, processError(name, err)
	}
	for _, text := range res.Warnings {
		warnings = append(warnings, bundle.Warning{Code: "uprobes", Text: text})
	}
	var trace bytes.Buffer
	if err := schedtrace.Write(&trace, res.Recording); err != nil {
		return nil, fmt.Errorf("writing the trace: %w", err)
	}
	p.trace, p.start, p.goName = trace.Bytes(), res.Recording.Wall, res.Go
	p.result = record.Result{
		Host: name, Start: res.Recording.Wall, Requested: opt.Duration, Window: opt.Duration, Received: res.Window, Bytes: int64(trace.Len()),
		TraceVersion: "go 1.25", Partial: err != nil, HasGeneration: len(res.Recording.Events) > 0, Warnings: warnings,
	}
	if p.host != nil {
		p.result.HostFacts, p.result.HostSamples = p.host.Facts, p.host.Samples
	}
	if err != nil {
		err = processError(name, err)
	}
	return p, err
}

// processError converts an error of package uprobes to a *record.Error of its kind. name is in place of the URL.
func processError(name string, err error) error {
	e := &record.Error{Op: "recording", URL: name, Text: err.Error(), Err: err, Kind: record.NoProcess}
	switch {
	case errors.Is(err, context.Canceled):
		e.Kind, e.Text = record.Interrupted, "interrupted"
	case errors.Is(err, uprobes.ErrPermission):
		e.Kind = record.Capability
	case errors.Is(err, uprobes.ErrCostly):
		e.Kind = record.Costly
	case errors.Is(err, uprobes.ErrSystem):
		e.Kind = record.Unsupported
	}
	return e
}

// meta returns the metadata of the recording.
func (p *processRecording) meta(tool string) bundle.Meta {
	m := p.result.Meta(tool, nil)
	m.Go, m.TraceFrom = p.goName, report.TraceFromUprobes
	return m
}

// write writes the recording, with its host samples, as a bundle. tool is the version of this program.
func (p *processRecording) write(w io.Writer, tool string) error {
	b, err := bundle.NewWriter(w, p.start)
	if err != nil {
		return err
	}
	if _, err := b.Write(p.trace); err != nil {
		return err
	}
	var samples []byte
	if p.host != nil {
		samples = p.host.Data
	}
	return errors.Join(b.Add(bundle.NameHost, samples), b.Close(p.meta(tool)))
}

// input returns the recording as the input of explain.
func (p *processRecording) input() *input {
	meta := p.meta(readBuild().Version)
	in := &input{Reader: bytes.NewReader(p.trace), name: p.result.Host, size: int64(len(p.trace)), meta: &meta}
	in.reopen = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(p.trace)), nil }
	if p.host != nil && len(p.host.Data) > 0 {
		in.host = bytes.NewReader(p.host.Data)
	}
	return in
}

// process records the process that --pid names into a file.
func (r *recorder) process(cmd *cobra.Command, opt record.Options, force bool) error {
	name := r.output
	if name == "" {
		name = timedName(fmt.Sprintf("recording-%d", opt.PID))
	}
	if !strings.EqualFold(filepath.Ext(name), record.BundleExt) {
		return command.Usage(cmd, "--pid without a URL writes a recording that says how its trace was made: name the file x%s (unzip -p x%s trace has the bare trace)", record.BundleExt, record.BundleExt)
	}
	// Create the file first: a wrong name should fail before the recording.
	f, err := atomicfile.Create(name)
	if err != nil {
		return fmt.Errorf("saving the recording as %s: %w", name, err)
	}
	defer f.Discard()
	p, recordErr := recordProcess(cmd, opt, force, r.s.Bar())
	if p == nil {
		if r.json {
			return r.report(cmd, []record.Job{{Target: "", Name: name}}, []record.Outcome{{Err: recordErr}}, make([]answer, 1))
		}
		return command.RecordError(recordErr)
	}
	if err := errors.Join(p.write(f, readBuild().Version), f.Commit()); err != nil {
		return fmt.Errorf("saving the recording as %s: %w", name, err)
	}
	answers := make([]answer, 1)
	if r.explain {
		in := p.input()
		rep, err := whylate.Explain(cmd.Context(), in, whylate.Options{Name: name, Host: in.host})
		answers[0] = answer{rep, err}
	}
	return r.report(cmd, []record.Job{{Name: name}}, []record.Outcome{{Result: &p.result, Err: recordErr}}, answers)
}

// runProcess records a process from outside and explains the recording.
func (e *explainFlags) runProcess(cmd *cobra.Command, s *streams, opt record.Options, force bool) error {
	p, err := recordProcess(cmd, opt, force, s.Bar())
	if p == nil {
		return command.RecordError(err)
	}
	in := p.input()
	rep, err := e.explain(cmd.Context(), in)
	return e.writeAndExit(cmd, s, fmt.Sprintf("--pid %d", opt.PID), rep, err)
}
