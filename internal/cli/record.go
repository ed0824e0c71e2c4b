package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
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

// recording is one element of the JSON output.
type recording struct {
	URL           string           `json:"url"`
	Service       string           `json:"service,omitempty"` // of several in one file
	File          string           `json:"file,omitempty"`
	Start         *time.Time       `json:"start,omitempty"`
	AskedNS       int64            `json:"asked_ns,omitempty"`
	WindowNS      int64            `json:"window_ns,omitempty"`
	GotNS         int64            `json:"got_ns,omitempty"`
	Bytes         int64            `json:"bytes"`
	TraceVersion  string           `json:"trace_version,omitempty"`
	Truncated     bool             `json:"truncated"`
	CPUProfile    bool             `json:"cpu_profile"`
	AllocsProfile bool             `json:"allocs_profile"`
	Warnings      []bundle.Warning `json:"warnings"`
	Error         *recordingError  `json:"error,omitempty"`
	Report        json.RawMessage  `json:"report,omitempty"` // of --explain: report/report.schema.json
}

type recordingError struct {
	Kind record.Kind `json:"kind"`
	Text string      `json:"text"`
}

// report writes the results of the jobs, of which outcomes and answers have one each, and returns the error that ends the run: that of an interrupt
// before any other.
func (r *recorder) report(cmd *cobra.Command, jobs []record.Job, outcomes []record.Outcome, answers []answer) error {
	status := ExitOK
	raise := func(to int) {
		// An interrupt explains all the others.
		if status != ExitInterrupted && to != ExitOK {
			status = to
		}
	}
	list := make([]recording, len(jobs))
	out := r.s.Out
	if r.output == "-" {
		out = r.s.Err
	}
	for i, o := range outcomes {
		list[i] = recording{Warnings: []bundle.Warning{}}
		name := jobs[i].Name
		if r.services != nil {
			list[i].Service = r.services[i]
			name += "#" + r.services[i]
		}
		if jobs[i].Target != "" {
			end, _, _ := record.ParseEndpoint(jobs[i].Target)
			list[i].URL = end.String()
		}
		if o.Err != nil {
			e := &recordingError{Text: o.Err.Error()}
			if re, ok := errors.AsType[*record.Error](o.Err); ok {
				e.Kind = re.Kind
			}
			list[i].Error = e
			if o.Result == nil || !o.HasGeneration || e.Kind == record.Interrupted {
				raise(command.RecordStatus(o.Err))
			}
		}
		if o.Result == nil {
			fmt.Fprintf(r.s.Err, "whylate: %s\n", command.OneLine(o.Err.Error()))
			continue
		}
		res := o.Result
		start := res.Start.Round(0).UTC()
		list[i] = recording{URL: res.URL, Service: list[i].Service, File: jobs[i].Name, Start: &start, AskedNS: int64(res.Requested), WindowNS: int64(res.Window),
			GotNS: int64(res.Received), Bytes: res.Bytes, TraceVersion: res.TraceVersion, Truncated: res.Partial, CPUProfile: res.CPUProfile,
			AllocsProfile: res.AllocsProfile, Warnings: append([]bundle.Warning{}, res.Warnings...), Error: list[i].Error}
		for _, w := range res.Warnings {
			fmt.Fprintf(r.s.Err, "whylate: warning: %s\n", command.OneLine(res.Host+": "+w.Text))
		}
		if !res.HasGeneration {
			fmt.Fprintf(r.s.Err, "whylate: %s\n", command.OneLine(res.Host+": what arrived cannot be analysed: it has no complete second of the trace"))
		}
		if a := &answers[i]; a.Report != nil {
			warn(a.Report, res.Warnings)
		} else if a.err != nil && res.HasGeneration {
			raise(ExitFailed)
			fmt.Fprintf(r.s.Err, "whylate: %s\n", command.OneLine(a.err.Error()))
		}
		if !r.json {
			if _, err := fmt.Fprintln(out, command.OneLine(summary(res, name))); err != nil {
				return fmt.Errorf("writing the result: %w", err)
			}
		}
	}
	if err := r.writeReports(cmd, jobs, outcomes, answers, list); err != nil {
		return err
	}
	if r.json {
		if err := command.WriteJSON(r.s.Out, map[string]any{"recordings": list}); err != nil {
			return err
		}
	}
	if status != ExitOK {
		return command.Exit(status, nil) // everything has been said
	}
	return nil
}

// writeReports puts each report into the element of list with the same index if the output is JSON; else it prints the reports,
// and a summary of all if there are several. jobs, outcomes and answers have an element for each recording, too; an answer
// without a report is left out.
func (r *recorder) writeReports(cmd *cobra.Command, jobs []record.Job, outcomes []record.Outcome, answers []answer, list []recording) error {
	var named []text.NamedReport
	for i, a := range answers {
		if a.Report == nil {
			continue
		}
		if r.json {
			var b bytes.Buffer
			if err := report.WriteJSON(&b, a.Report); err != nil {
				return err
			}
			list[i].Report = b.Bytes()
			continue
		}
		fmt.Fprintln(r.s.Out)
		e := explainFlags{color: r.color}
		if err := e.write(cmd.Context(), r.s, e.reportCommand(cmd, jobs[i].Name), a.Report); err != nil {
			return err
		}
		if res := outcomes[i].Result; res != nil {
			named = append(named, text.NamedReport{Name: res.Host, Report: a.Report})
		}
	}
	if len(named) < 2 {
		return nil
	}
	fmt.Fprintln(r.s.Out)
	return text.WriteSummary(r.s.Out, named, text.Options{Width: width(r.s.Out), Color: r.color.on(r.s.Out, os.Getenv)})
}

// summary describes a recording, written to the file name ("" for none), in a line.
func summary(r *record.Result, name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s of trace in %.1fs", r.Host, words.Bytes(r.Bytes), r.Received.Seconds())
	var with []string
	if r.CPUProfile {
		with = append(with, "CPU profile")
	}
	if r.AllocsProfile {
		with = append(with, "allocation profile")
	}
	if r.HostSamples > 0 {
		with = append(with, "host samples")
	}
	if r.Kernel != nil {
		with = append(with, fmt.Sprintf("%d kernel events", r.Kernel.Events))
	}
	if len(with) > 0 {
		b.WriteString(", with " + strings.Join(with, " and "))
	}
	if r.Partial {
		b.WriteString(", cut short")
	}
	if name != "" {
		b.WriteString(": " + name)
	}
	return b.String()
}

// A recordBar is one bar for all recordings of a run.
type recordBar struct {
	bar        *progress.Bar
	label      string
	mu         sync.Mutex
	progresses []record.Progress
}

// newRecordBar returns a bar for the progress of all recordings together. Its label is the host of a single target, else the
// number of targets.
func newRecordBar(bar *progress.Bar, targets []string) *recordBar {
	b := &recordBar{bar: bar, label: fmt.Sprintf("%d services", len(targets)), progresses: make([]record.Progress, len(targets))}
	if len(targets) == 1 {
		if end, _, err := record.ParseEndpoint(targets[0]); err == nil {
			b.label = end.Host()
		}
	}
	return b
}

// callback returns the progress callback of one recording, nil if nothing is drawn.
func (b *recordBar) callback(i int) func(record.Progress) {
	if b.bar == nil {
		return nil
	}
	return func(p record.Progress) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.progresses[i] = p
		b.bar.Set(b.state())
	}
}

// state combines the recordings: the bytes of all, the longest duration, and the elapsed time of the one that began last and still runs.
func (b *recordBar) state() progress.State {
	s := progress.State{Label: b.label, Note: "connecting"}
	first := true
	for _, p := range b.progresses {
		s.Bytes += p.Bytes
		s.Total = max(s.Total, p.Total)
		if p.Done || p.Elapsed == 0 {
			continue
		}
		if first || p.Elapsed < s.Elapsed {
			s.Elapsed = p.Elapsed
		}
		first, s.Note = false, ""
	}
	if s.Note == "" && s.Elapsed > s.Total {
		s.Note = "waiting for the last bytes and the profiles, " + words.Bytes(s.Bytes) + " so far"
	}
	return s
}

func (b *recordBar) clear() { b.bar.Clear() }
