package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/peers"
	"github.com/whylate/whylate/internal/explain/source"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/validate"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// explanation holds the flags of verbs that explain a trace.
type explanation struct {
	request, group string
	whatIf         []string
	slo            string
	peer           string
	served         *peers.Recording // what the process of peer served
	given          explain.Options  // as far as flags give them, or read has made them of flags
	traceID        string
	modules        []string
	slowest        int
	slowestGiven   bool // 0 is a number, too
	band           report.BandName
	part           [2]string // the flags of given.From and given.To
	pathMap        []string
	maxMemory      sizeFlag
	held           func() // adjusts the limit of memory, which is held already
	ignore         string
	ignored        []finding.Ignore // what the file ignore holds
	thresholds     string
	color          colorFlag
	json           bool
	validate       bool
	checks         *validate.Checks // once --validate has a trace
	output         string
	page, before   string
	editor         string
	full, summary  bool
	as             *exportAs // instead of text, JSON or a page
	keep           *explain.Kept
	index          *inspect.Index // for view
}

func (e *explanation) addFlags(cmd *cobra.Command) {
	e.addTraceFlags(cmd)
	e.addPart(cmd, "from", "to", "leave out requests that end before this time of the trace (also --since)", "leave out requests that end after this time of the trace (also --until)")
	f := cmd.Flags()
	e.add(cmd, "ignore")
	f.StringVar(&e.slo, "slo", "", "search for the fewest changes that are predicted to reach these `goals`, such as p99=20ms,p50=5ms")
	f.StringArrayVar(&e.whatIf, "what-if", nil, "predict latencies with this `change`, SITE=VALUE or a setting such as GOGC=400 (see above; may be repeated)")
	f.StringVar(&e.peer, "peer", "", "the `recording` of a process that requests wait for, made at the same time: the report shows the waits from both sides")
	e.addLength(cmd)
	f.BoolVar(&e.given.Exact, "exact", false, "follow every request; otherwise, from 5,000 on, the slowest tenth and a sample of the others are followed")
	e.color.add(cmd)
}

// addLength adds the flags that say how much a report says as text.
func (e *explanation) addLength(cmd *cobra.Command) {
	bands := report.BandNames()
	choose(cmd, &e.band, "band", "show one latency band in detail: "+words.List(bands), bands...)
	cmd.Flags().BoolVar(&e.full, "full", false, "also show evidence, causes by latency band, the slowest request, and the runtime")
	cmd.Flags().BoolVar(&e.summary, "summary", false, "print the answer in one line")
}

// addPart adds the flags for a part of the trace's time. What they are called
// depends on the verb, because --to is a format for export; each verb takes the
// other's names, too, as far as they are free.
func (e *explanation) addPart(cmd *cobra.Command, from, to, fromText, toText string) {
	e.part = [2]string{from, to}
	f := cmd.Flags()
	f.DurationVar(&e.given.From, from, 0, fromText)
	f.DurationVar(&e.given.To, to, 0, toText)
	same := map[string]string{"from": from, "since": from, "until": to}
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if n, ok := same[name]; ok {
			name = n
		}
		return pflag.NormalizedName(name)
	})
}

// addTraceFlags adds the flags that all verbs have that read a trace.
func (e *explanation) addTraceFlags(cmd *cobra.Command) {
	e.add(cmd, "request", "trace-id", "no-marks", "module", "thresholds", "path-map", "max-memory")
	f := cmd.Flags()
	f.StringVar(&e.group, "group", "", "report only groups whose name matches this regular `expression`, all in full")
	f.IntVar(&e.slowest, "slowest", 0, "show this many of a group's slowest requests (default: 1 in the text, 3 in JSON)")
}

// add adds flags that mean the same for several verbs.
func (e *explanation) add(cmd *cobra.Command, names ...string) {
	f := cmd.Flags()
	for _, name := range names {
		switch name {
		case "request":
			f.StringVar(&e.request, name, "", "treat each call of a function that matches this regular `expression` as a request")
		case "trace-id":
			f.StringVar(&e.traceID, name, "", "report only requests of this trace, or span, of a tracing system: an `id` of 32 or 16 hexadecimal digits, or a traceparent header")
		case "no-marks":
			f.BoolVar(&e.given.NoMarks, name, false, "find requests as if the service did not mark them (see service/mark)")
		case "module":
			f.StringArrayVar(&e.modules, name, nil, "treat the module or package with this `path` as the service's own code (may be repeated); a dependency's lines are shown with the service's line that called them")
		case "thresholds":
			f.StringVar(&e.thresholds, name, "", "a `file` with the limits of each severity: lines SEVERITY share=20% all=2ms slow=10ms few=100ms")
		case "path-map":
			f.StringArrayVar(&e.pathMap, name, nil, "replace the beginning of file names, `OLD=NEW` (may be repeated)")
		case "max-memory":
			f.Var(&e.maxMemory, name, "use at most this much memory, such as 300MB; a second of a trace that needs more is left out")
		case "ignore":
			f.StringVar(&e.ignore, name, "", "a `file` of known findings: lines CODE SITE REASON (see \"whylate rules --help\")")
		}
	}
}

// check refuses values that make no sense, before anything is read or recorded.
func (e *explanation) check(cmd *cobra.Command) error {
	e.slowestGiven = cmd.Flags().Changed("slowest")
	if err := e.read(cmd); err != nil {
		return err
	}
	switch {
	case e.before != "" && e.page == "" && !isPage(e.output):
		return usage(cmd, "--before is for pages: name one with --html")
	case e.editor != "" && e.page == "" && !isPage(e.output) && cmd.Name() != "view":
		return usage(cmd, "--editor is for pages: name one with --html")
	case e.checkEditor(cmd) != nil:
		return e.checkEditor(cmd)
	case e.slowest < 0:
		return usage(cmd, "--slowest must not be negative")
	case e.given.From < 0 || e.given.To < 0:
		return usage(cmd, "--%s and --%s count from the trace's start and cannot be negative", e.part[0], e.part[1])
	case e.given.To > 0 && e.given.To <= e.given.From:
		return usage(cmd, "--%s %v is not after --%s %v", e.part[1], e.given.To, e.part[0], e.given.From)
	case e.maxMemory > 0 && e.maxMemory < minMemory:
		return usage(cmd, "--max-memory must be at least %s", words.Binary(minMemory))
	}
	return e.readIgnores(cmd)
}

// namePattern compiles a pattern of names. A method's name as reports print it, main.(*T).f, is no regular expression, and
// means itself.
func namePattern(pattern string) (*regexp.Regexp, error) {
	match, err := regexp.Compile(pattern)
	if err != nil && strings.Contains(pattern, "(*") {
		name, ends := strings.CutSuffix(pattern, "$")
		if name = regexp.QuoteMeta(name); ends {
			name += "$"
		}
		return regexp.Compile(name)
	}
	return match, err
}

// read reads the flags that are patterns, rewrites and changes into e.given.
func (e *explanation) read(cmd *cobra.Command) (err error) {
	for _, p := range []struct {
		flag, pattern string
		to            **regexp.Regexp
	}{{"request", e.request, &e.given.Request}, {"group", e.group, &e.given.Group}} {
		if p.pattern == "" {
			continue
		}
		if *p.to, err = namePattern(p.pattern); err != nil {
			return usage(cmd, "--%s: %v", p.flag, err)
		}
	}
	if e.given.TraceID, e.given.SpanID, err = spanIDs(e.traceID); err != nil {
		return usage(cmd, "--trace-id %q: %v", e.traceID, err)
	}
	for _, m := range e.pathMap {
		old, with, ok := strings.Cut(m, "=")
		if !ok || old == "" {
			return usage(cmd, "--path-map %q: write OLD=NEW", m)
		}
		e.given.PathMap = append(e.given.PathMap, spell.Rewrite{Old: old, New: with})
	}
	if e.thresholds != "" {
		if e.given.Thresholds, err = readOption(cmd, e.thresholds, finding.ReadThresholds); err != nil {
			return err
		}
	}
	if e.slo != "" {
		for _, goal := range strings.Split(e.slo, ",") {
			name, value, ok := strings.Cut(strings.TrimSpace(goal), "=")
			d, err := time.ParseDuration(value)
			if !ok || err != nil || d <= 0 || name != "p50" && name != "p99" {
				return usage(cmd, "--slo %q: write p50 or p99 and a time, such as p99=20ms; other percentiles cannot be predicted", goal)
			}
			e.given.Goals = append(e.given.Goals, explain.Goal{Percentile: name, Most: d})
		}
	}
	for _, text := range e.whatIf {
		c, err := explain.ParseChange(text)
		if err != nil {
			return usage(cmd, "--%s", strings.TrimPrefix(err.Error(), explain.ErrWhatIf.Error()+": "))
		}
		e.given.WhatIf = append(e.given.WhatIf, c)
	}
	return nil
}

// spanIDs reads what --trace-id names. Of a traceparent header (W3C Trace Context, section 3.2) the trace counts: its span is
// that of the first caller, not of the request to find.
func spanIDs(text string) (trace [16]byte, span [8]byte, err error) {
	if text = strings.TrimSpace(text); text == "" {
		return trace, span, nil
	}
	if parts := strings.Split(text, "-"); len(parts) >= 4 && len(parts[0]) == 2 {
		text = parts[1]
	}
	id, err := hex.DecodeString(text)
	switch {
	case err == nil && len(id) == len(trace) && [16]byte(id) != trace:
		return [16]byte(id), span, nil
	case err == nil && len(id) == len(span) && [8]byte(id) != span:
		return trace, [8]byte(id), nil
	}
	return trace, span, errors.New("write 32 hexadecimal digits for a trace or 16 for a span, not all 0")
}

// readIgnores reads the file that --ignore names.
func (e *explanation) readIgnores(cmd *cobra.Command) (err error) {
	if e.ignore != "" {
		e.ignored, err = readOption(cmd, e.ignore, finding.ReadIgnores)
	}
	return err
}

// minMemory is what the program needs for any trace at all.
const minMemory = 32 << 20

func newExplain(s *streams) *cobra.Command {
	var (
		e    explanation
		conn connection
	)
	cmd := &cobra.Command{
		Use:   "explain [flags] TRACE|URL|-",
		Short: "Say why requests were late",
		Args:  cobra.MatchAll(atLeast(1, "name a trace, a URL, or - for standard input"), exactly(1, "name one trace, got {n}")),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			if err := e.check(cmd); err != nil {
				return err
			}
			if err := e.readPeer(cmd, s, args[0]); err != nil {
				return err
			}
			if isURL(args[0]) {
				opt, err := conn.optionsFor(cmd, args[0])
				if err != nil {
					return err
				}
				return e.validated(s, e.runURL(cmd, s, args[0], opt))
			}
			return e.validated(s, e.runFile(cmd, s, args[0]))
		}),
	}
	e.addFlags(cmd)
	cmd.Flags().BoolVar(&e.json, "json", false, "print the report as JSON (report/report.schema.json)")
	cmd.Flags().StringVarP(&e.output, "output", "o", "", "write to this `file` instead; a name that ends in .json asks for JSON, one in .html for a page")
	cmd.Flags().BoolVar(&e.validate, "validate", false, "also check that the results are consistent, and fail if they are not")
	e.addPage(cmd)
	conn.addFlags(cmd.Flags())
	usual(cmd, "duration", "group", "request", "band", "slowest", "from", "to", "what-if", "slo", "ignore", "html", "full", "summary", "json", "output")
	return cmd
}

// validated says what --validate found, once the report is written.
func (e *explanation) validated(s *streams, err error) error {
	if err != nil || e.checks == nil {
		return err
	}
	if err := e.checks.Err(); err != nil {
		return fmt.Errorf("the report contradicts itself, which is a bug in whylate: please send the trace or these lines: %w", err)
	}
	fmt.Fprintf(s.err, "whylate: consistent: %s\n", e.checks)
	return nil
}

// readPeer reads the recording of the other side.
func (e *explanation) readPeer(cmd *cobra.Command, s *streams, arg string) error {
	if e.peer == "" {
		return nil
	}
	if isURL(e.peer) || isURL(arg) {
		return usage(cmd, "--peer needs two recordings that were made at the same time: whylate record -o server.whylate URL & whylate record -o client.whylate URL")
	}
	if e.peer == "-" && arg == "-" {
		return usage(cmd, "only one input can be standard input")
	}
	in, err := s.openInput(cmd.Context(), e.peer)
	if err != nil {
		return err
	}
	defer in.Close()
	if in.isReport {
		return usage(cmd, "--peer needs the trace: %s is a report", in.name)
	}
	e.served = new(peers.Recording)
	_, err = explain.Explain(cmd.Context(), in, explain.Options{Name: in.name, Serves: e.served, PathMap: e.given.PathMap, MaxMemory: int64(e.maxMemory), Slowest: -1})
	return err
}

// runFile explains a file or standard input.
func (e *explanation) runFile(cmd *cobra.Command, s *streams, arg string) error {
	in, err := s.openInput(cmd.Context(), arg)
	if err != nil {
		return err
	}
	defer in.Close()
	if in.isReport {
		return e.runReport(cmd, s, in)
	}
	rep, err := e.explainShown(cmd.Context(), in, s.bar())
	return e.finish(cmd, s, arg, rep, err)
}

// runReport shows a report that was written as JSON before.
func (e *explanation) runReport(cmd *cobra.Command, s *streams, in *input) error {
	for _, flag := range []string{"request", "group", "trace-id", "no-marks", "module", "thresholds", e.part[0], e.part[1], "path-map", "max-memory", "what-if", "slo", "validate", "peer"} {
		if cmd.Flags().Changed(flag) {
			return usage(cmd, "--%s needs the trace: %s is a report", flag, in.name)
		}
	}
	rep, err := in.readReport(cmd.Context())
	if err != nil {
		return err
	}
	finding.Mark(rep.Findings, e.ignored)
	return e.write(cmd.Context(), s, "", rep)
}

// runURL records and explains at the same time.
func (e *explanation) runURL(cmd *cobra.Command, s *streams, target string, opt record.Options) error {
	if in, err := s.openFlight(cmd, target, opt); err != nil {
		return err
	} else if in != nil {
		defer in.Close()
		rep, err := e.explain(cmd.Context(), in)
		return e.finish(cmd, s, in.name, rep, err)
	}
	bar := newRecordBar(s.bar(), []string{target})
	opt.Progress = bar.of(0)
	in, err := openURL(cmd.Context(), target, opt)
	if err != nil {
		bar.clear()
		return recordError(err)
	}
	defer in.Close()
	rep, err := e.explain(cmd.Context(), in)
	in.Close()
	bar.clear()
	in.warnOfRecording(rep)
	return e.finish(cmd, s, in.name, rep, err)
}

// explainShown is explain with a bar that says how far the input is read.
func (e *explanation) explainShown(ctx context.Context, in *input, bar *progress.Bar) (*report.Report, error) {
	defer bar.Clear()
	in.Reader = progress.NewReader(in.Reader, bar, in.name, in.size)
	return e.explain(ctx, in)
}

// explain runs the engine on an input. The report has the warnings of the recording, too.
func (e *explanation) explain(ctx context.Context, in *input) (rep *report.Report, err error) {
	defer func() { in.addWarnings(rep) }()
	adjust := e.held
	if adjust == nil {
		held, restore := holdMemory(int64(e.maxMemory))
		adjust = held
		defer func() { beyondLimit(rep, restore()) }()
	}
	opts := e.given
	opts.Name, opts.Slowest, opts.MaxMemory = in.name, e.slowestOr(0), int64(e.maxMemory)
	opts.Modules = modules.New(modules.Options{Build: in.program(), Own: e.modules})
	opts.Peer, opts.Again = e.served, in.again
	opts.Host, opts.Allocs, opts.Keep, opts.Index = in.host, in.allocs, e.keep, e.index
	opts.Progress = func(int64) { adjust() }
	if e.validate {
		e.checks = new(validate.Checks)
		opts.Validate = e.checks
	}
	rep, err = explain.Explain(ctx, in, opts)
	if rep != nil {
		source.Local().Explain(rep)
		finding.Mark(rep.Findings, e.ignored)
	}
	return rep, err
}

// beyondLimit says in a report by how much --max-memory could not be kept.
func beyondLimit(rep *report.Report, beyond int64) {
	if rep != nil && beyond > 0 {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "max-memory", Text: fmt.Sprintf(
			"the limit was raised by %s above --max-memory, because the trace needs that much at one time; a shorter trace, or --from and --to, need less", words.Bytes(beyond))})
	}
}

// slowestOr is the number of slow requests to show, as the engine and the text understand it: negative for none.
func (e *explanation) slowestOr(usual int) int {
	switch {
	case !e.slowestGiven:
		return usual
	case e.slowest == 0:
		return -1
	}
	return e.slowest
}

// finish writes what there is and ends the run accordingly.
func (e *explanation) finish(cmd *cobra.Command, s *streams, arg string, rep *report.Report, err error) error {
	interrupted := cmd.Context().Err() != nil
	if rep == nil {
		if interrupted {
			return interruptedEarly()
		}
		return err
	}
	if errors.Is(err, explain.ErrWhatIf) && !errors.Is(err, explain.ErrRefused) {
		return usage(cmd, "%v", err)
	}
	if werr := e.write(cmd.Context(), s, e.again(cmd, arg), rep); werr != nil {
		return werr
	}
	switch {
	case interrupted:
		return &statusError{ExitInterrupted, errors.New("interrupted: the report covers what was read until then")}
	case err != nil:
		return err
	}
	if e.as != nil {
		return nil // an export says itself what it is empty of
	}
	return notThere(rep)
}

// notThere is the error of a report in which nothing is like what was asked for.
func notThere(rep *report.Report) error {
	for _, w := range rep.Input.Warnings {
		if len(rep.Groups) == 0 && (w.Code == explain.NoGroup || w.Code == explain.NoMatch) {
			return &statusError{ExitFailed, errors.New(w.Text)}
		}
	}
	return nil
}

func interruptedEarly() error {
	return &statusError{ExitInterrupted, errors.New("interrupted before a whole second of the trace was read")}
}

// again is the command that makes the same report, for hints. Credentials are no part of it.
func (e *explanation) again(cmd *cobra.Command, arg string) string {
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
	return strings.Join(append(command, words.ShellQuote(arg)), " ")
}

// write writes the report as text or JSON to standard output, or to a file that is either whole or not there.
func (e *explanation) write(ctx context.Context, s *streams, again string, rep *report.Report) error {
	if e.as != nil {
		return e.as.write(s, e.output, rep)
	}
	if e.page != "" {
		if err := e.writePage(ctx, s, e.page, again, rep); err != nil {
			return err
		}
	}
	if !e.json && isPage(e.output) {
		return e.writePage(ctx, s, e.output, again, rep)
	}
	return e.writeTo(s, func(w io.Writer, color bool, columns int) error {
		if e.asJSON() {
			return report.WriteJSON(w, rep)
		}
		if e.summary {
			_, err := fmt.Fprintln(w, text.Line(rep))
			return err
		}
		return text.Write(w, rep, text.Options{
			Width: columns, Color: color, Full: e.full || e.slowestGiven, Every: e.group != "", Band: e.band, Slowest: e.slowestOr(1), Command: again,
		})
	})
}

// asJSON reports whether JSON is asked for, by flag or by the output's name.
func (e *explanation) asJSON() bool {
	return e.json || strings.EqualFold(filepath.Ext(e.output), ".json")
}
