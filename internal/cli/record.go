package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// newRecord returns the command record, which records traces of running services, or of a process.
func newRecord(s *streams) *cobra.Command {
	var (
		conn   connectFlags
		r      = recorder{s: s}
		flight bool
	)
	cmd := &cobra.Command{
		Use:   "record [flags] URL...|NAME=URL...|--pid N",
		Short: "Record a trace of a running service",
		Args: func(cmd *cobra.Command, args []string) error {
			if conn.recording.PID > 0 && !flight {
				return nil
			}
			return command.AtLeast(1, "name at least one URL, or a process with --pid")(cmd, args)
		},
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				opt, err := conn.processOptions(cmd)
				if err != nil {
					return err
				}
				return r.process(cmd, opt, conn.force)
			}
			args, err := r.divideServices(cmd, args)
			if err != nil {
				return err
			}
			if r.options, err = conn.options(cmd); err != nil {
				return command.RecordError(err)
			}
			if flight {
				return r.flight(cmd, args)
			}
			return r.run(cmd, args)
		}),
	}
	conn.addFlags(cmd.Flags())
	conn.addKernel(cmd.Flags())
	conn.addProcessFlags(cmd.Flags())
	cmd.Flags().StringVarP(&r.output, "output", "o", "", "write to this `file`: x.trace, x.whylate, or - for the bare trace on standard output")
	cmd.Flags().BoolVar(&r.json, "json", false, "print what was recorded, and the reports of --explain, as JSON")
	cmd.Flags().BoolVar(&r.explain, "explain", false, "also explain what was recorded")
	cmd.Flags().BoolVar(&flight, "flight", false, "fetch the last seconds from the service's flight recorder, without waiting (URL, or URL"+record.FlightPath+")")
	r.color.add(cmd)
	command.ShowFlags(cmd, "duration", "output", "explain", "flight", "json", "kernel", "pid", "force", "no-host", "header", "user", "token-file", "cacert")
	return cmd
}

// flight fetches the recordings of flight recorders, one file each, or all into one file if the services have names.
func (r *recorder) flight(cmd *cobra.Command, targets []string) error {
	if r.json || r.explain {
		return command.Usage(cmd, "--flight fetches a file and excludes --json and --explain: explain the file")
	}
	if r.output != "" && r.output != "-" && !strings.EqualFold(filepath.Ext(r.output), record.BundleExt) {
		return command.Usage(cmd, "--flight writes a recording with its metadata: name the file x%s", record.BundleExt)
	}
	names, err := r.names(cmd, targets)
	if err != nil {
		return err
	}
	if r.services != nil {
		return r.flights(cmd, targets, names[0])
	}
	for i, target := range targets {
		opt, err := r.options(target)
		if err != nil {
			return command.RecordError(err)
		}
		size, err := record.SaveFlight(cmd.Context(), target, opt, names[i], r.s.Out)
		if err != nil {
			return command.RecordError(err)
		}
		if names[i] != "" {
			fmt.Fprintf(r.s.Out, "%s: %s\n", names[i], words.Bytes(size))
		}
	}
	return nil
}

// A recorder is one run of record.
type recorder struct {
	s       *streams
	output  string
	json    bool
	explain bool
	color   colorFlag
	options func(string) (record.Options, error)
	// services are the names of the targets if all go into one file; else nil.
	services []string
}

// run records the services at the targets concurrently, one file each, or all into one file if the services have names. With
// --explain it also explains the recordings.
func (r *recorder) run(cmd *cobra.Command, targets []string) error {
	names, err := r.names(cmd, targets)
	if err != nil {
		return err
	}
	stderr, _ := r.s.Err.(*os.File)
	bar := newRecordBar(progress.NewBar(stderr, os.Getenv), targets)
	jobs := make([]record.Job, len(targets))
	err = eachService(cmd, targets, r.options, func(i int, opt record.Options, _ record.Endpoint) {
		opt.Progress = bar.callback(i)
		if r.services != nil {
			opt.Service = withServiceName(opt.Service, r.services[i])
		}
		jobs[i] = record.Job{Target: targets[i], Name: names[i], Options: opt}
	})
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.Options.Kernel != nil && !strings.EqualFold(filepath.Ext(j.Name), record.BundleExt) {
			return command.Usage(cmd, "--kernel writes a recording with its metadata: name the file x%s", record.BundleExt)
		}
	}
	if len(targets) > 1 && jobs[0].Options.PID > 0 {
		return command.Usage(cmd, "--pid names one process, but you gave %d services", len(targets))
	}
	answers := make([]chan answer, len(targets))
	if r.explain && r.services == nil {
		adjust, restore := limitMemory(0)
		defer restore()
		for i := range jobs {
			if jobs[i].Options.Kernel != nil {
				continue // explained when the file is complete
			}
			samples := new(bytes.Buffer) // complete before the trace ends, read after that
			jobs[i].Options.HostWriter = samples
			jobs[i].Tee, answers[i] = explainWhile(cmd.Context(), whylate.Options{Name: names[i], Host: samples, Progress: func(int64) { adjust() }})
		}
	}
	version := readBuild().Version
	var outcomes []record.Outcome
	if r.services != nil {
		if outcomes, err = r.saveServices(cmd.Context(), jobs, names[0], version); err != nil {
			bar.clear()
			return command.RecordError(err)
		}
	} else if r.output == "-" {
		outcomes = make([]record.Outcome, 1)
		outcomes[0].Result, outcomes[0].Err = record.Save(cmd.Context(), jobs[0].Target, jobs[0].Options, "", version, r.s.Out)
	} else {
		outcomes = record.SaveAll(cmd.Context(), jobs, version)
	}
	reports := make([]answer, len(targets))
	for i, a := range answers {
		if a != nil {
			reports[i] = <-a
		} else if res := outcomes[i].Result; r.explain && r.services == nil && res != nil && res.HasGeneration {
			reports[i] = r.explainSaved(cmd.Context(), names[i])
		}
	}
	bar.clear()
	err = r.report(cmd, jobs, outcomes, reports)
	isSaved := slices.ContainsFunc(outcomes, func(o record.Outcome) bool { return o.Result != nil && o.HasGeneration })
	if r.services == nil || !r.explain || !isSaved || cmd.Context().Err() != nil {
		return err
	}
	fmt.Fprintln(r.s.Out)
	return cmp.Or((&explainFlags{color: r.color}).runServices(cmd, r.s, names[:1]), err)
}

// An answer is the result of explaining a recording.
type answer struct {
	*report.Report
	err error
}

// explainWhile explains the data written to the returned writer, until that is closed. The channel gets one answer. It reads all data, even after the
// engine returned an error, so that a trace that cannot be explained is still recorded. It does not end with ctx, because the end of the recording
// ends its input.
func explainWhile(ctx context.Context, opt whylate.Options) (io.WriteCloser, chan answer) {
	out, in := io.Pipe()
	done := make(chan answer, 1)
	go func() {
		rep, err := whylate.Explain(context.WithoutCancel(ctx), out, opt)
		_, _ = io.Copy(io.Discard, out)
		done <- answer{rep, err}
	}()
	return in, done
}

// explainSaved explains the file of a recording, also after an interrupt. The caller adds the warnings of the recording to the report.
func (r *recorder) explainSaved(ctx context.Context, name string) answer {
	in, err := r.s.openInput(context.WithoutCancel(ctx), name)
	if err != nil {
		return answer{err: err}
	}
	defer in.Close()
	in.meta.Warnings = nil
	rep, err := new(explainFlags).explain(context.WithoutCancel(ctx), in)
	return answer{rep, err}
}

// names returns the name of each target's file; an empty one for standard output. It returns an error if the flags allow no
// name.
func (r *recorder) names(cmd *cobra.Command, targets []string) ([]string, error) {
	switch {
	case r.output == "-":
		if len(targets) > 1 {
			return nil, command.Usage(cmd, "only one trace can go to standard output")
		}
		if r.json {
			return nil, command.Usage(cmd, "--json and -o - both write to standard output")
		}
		if r.explain {
			return nil, command.Usage(cmd, "--explain and -o - both write to standard output: use whylate explain for the report alone")
		}
		if f, ok := r.s.Out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return nil, command.Usage(cmd, "standard output is a terminal, and a trace is not text: name a file with -o, or redirect it")
		}
		return []string{""}, nil
	case r.output != "" && len(targets) == 1 && r.services == nil:
		return []string{r.output}, nil
	case r.services != nil:
		return slices.Repeat([]string{cmp.Or(r.output, timedName("recording"))}, len(targets)), nil
	}
	names, err := record.FileNames(cmp.Or(r.output, timedName("recording")), targets)
	if err != nil {
		return nil, command.RecordError(err)
	}
	return names, nil
}

// timedName returns the name of a recording that begins now.
func timedName(prefix string) string {
	return prefix + "-" + time.Now().UTC().Format("20060102T150405Z") + record.BundleExt
}
