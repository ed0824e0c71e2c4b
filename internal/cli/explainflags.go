package cli

import (
	"encoding/hex"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// explainFlags contains the flags of verbs that explain a trace, and what their values are parsed into.
type explainFlags struct {
	request, group   string
	whatIf           []string
	slo              string
	peer             string
	options          explain.Options // as far as flags give them, or read has made them of flags
	traceID          string
	modules          []string
	slowest          int
	iterations       string
	slowestGiven     bool // distinguishes --slowest 0
	band             report.BandName
	partFlags        [2]string // the flags of given.From and given.To
	pathMap          []string
	maxMemory        sizeFlag
	adjustMemory     func() // adjusts the limit of memory, which is held already
	ignore           string
	ignored          []finding.IgnoreEntry // what the file ignore holds
	thresholds       string
	color            colorFlag
	json             bool
	output           string
	pageFile, before string
	editor           string
	full, summary    bool
	exportFormat     *exporter                                                // instead of text, JSON or a page
	writeAnswer      func(w io.Writer, rep *report.Report, columns int) error // the same, for a verb that answers another question
	replayer         *explain.Replayer
	index            explain.Index // for view
}

// addFlags adds the flags of the command explain, except those for connecting and for writing pages.
func (e *explainFlags) addFlags(cmd *cobra.Command) {
	e.addTraceFlags(cmd)
	e.addPart(cmd, "from", "to", "leave out requests that end before this time of the trace (also --since)", "leave out requests that end after this time of the trace (also --until)")
	f := cmd.Flags()
	e.addShared(cmd, "ignore")
	f.StringVar(&e.slo, "slo", "", "search for the fewest changes that are predicted to reach these `goals`, such as p99=20ms,p50=5ms")
	f.StringArrayVar(&e.whatIf, "what-if", nil, "predict latencies with this `change`, SITE=VALUE or a setting such as GOGC=400 (see above; may be repeated)")
	f.StringVar(&e.iterations, "iterations", "", "divide the time of a benchmark's or a program's run by this `count`, or by the lines that go test -bench printed")
	f.StringVar(&e.peer, "peer", "", "the `recording` of a process that requests wait for, made at the same time: the same as a further argument")
	e.addLength(cmd)
	f.BoolVar(&e.options.Exact, "exact", false, "follow every request; otherwise, from 5,000 on, the slowest and a sample of the others are followed, and a sample of a long run")
	e.color.add(cmd)
}

// addTraceFlags adds the flags of all verbs that read a trace.
func (e *explainFlags) addTraceFlags(cmd *cobra.Command) {
	e.addShared(cmd, "request", "trace-id", "no-marks", "module", "thresholds", "path-map", "max-memory")
	f := cmd.Flags()
	f.StringVar(&e.group, "group", "", "report only groups whose name matches this regular `expression`, all in full")
	f.IntVar(&e.slowest, "slowest", 0, "show this many of a group's slowest requests (default: 1 in the text, 3 in JSON)")
}

// addShared adds those of the flags that have the same meaning for several verbs that the names list; it ignores other names.
func (e *explainFlags) addShared(cmd *cobra.Command, names ...string) {
	f := cmd.Flags()
	for _, name := range names {
		switch name {
		case "request":
			f.StringVar(&e.request, name, "", "treat each call of a function that matches this regular `expression` as a request")
		case "trace-id":
			f.StringVar(&e.traceID, name, "", "report only requests of this trace, or span, of a tracing system: an `id` of 32 or 16 hexadecimal digits, or a traceparent header")
		case "no-marks":
			f.BoolVar(&e.options.IgnoreMarks, name, false, "find requests as if the service did not mark them (see service/mark)")
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

// addPart adds the flags from and to, with their help texts, for a part of the trace's time. Their names depend on the verb,
// because --to is a format for export; each verb accepts the other's names as well, if they are free.
func (e *explainFlags) addPart(cmd *cobra.Command, from, to, fromText, toText string) {
	e.partFlags = [2]string{from, to}
	f := cmd.Flags()
	f.DurationVar(&e.options.From, from, 0, fromText)
	f.DurationVar(&e.options.To, to, 0, toText)
	aliases := map[string]string{"from": from, "since": from, "until": to}
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if n, ok := aliases[name]; ok {
			name = n
		}
		return pflag.NormalizedName(name)
	})
}

// addLength adds the flags for the length of a report as text.
func (e *explainFlags) addLength(cmd *cobra.Command) {
	bands := report.BandNames()
	command.Choose(cmd, &e.band, "band", "show one latency band in detail: "+words.List(bands), bands...)
	cmd.Flags().BoolVar(&e.full, "full", false, "also show evidence, causes by latency band, the slowest request, and the runtime")
	cmd.Flags().BoolVar(&e.summary, "summary", false, "print the answer in one line")
}

// validate checks and parses the flags, and reads the file of --ignore, before any trace is read or recorded.
func (e *explainFlags) validate(cmd *cobra.Command) error {
	e.slowestGiven = cmd.Flags().Changed("slowest")
	if err := e.parse(cmd); err != nil {
		return err
	}
	switch {
	case e.before != "" && e.pageFile == "" && !isPage(e.output):
		return command.Usage(cmd, "--before is for pages: name one with --html")
	case e.editor != "" && e.pageFile == "" && !isPage(e.output) && cmd.Name() != "view":
		return command.Usage(cmd, "--editor is for pages: name one with --html")
	case e.checkEditor(cmd) != nil:
		return e.checkEditor(cmd)
	case e.slowest < 0:
		return command.Usage(cmd, "--slowest must not be negative")
	case e.options.From < 0 || e.options.To < 0:
		return command.Usage(cmd, "--%s and --%s count from the trace's start and cannot be negative", e.partFlags[0], e.partFlags[1])
	case e.options.To > 0 && e.options.To <= e.options.From:
		return command.Usage(cmd, "--%s %v is not after --%s %v", e.partFlags[1], e.options.To, e.partFlags[0], e.options.From)
	case e.maxMemory > 0 && e.maxMemory < minMemory:
		return command.Usage(cmd, "--max-memory must be at least %s", words.Binary(minMemory))
	}
	return e.readIgnores(cmd)
}

// minMemory is the memory that the program needs for any trace.
const minMemory = 32 << 20

// parse parses the texts of flags (patterns, ids, goals, changes) and reads the file of --thresholds into e.options. Errors are those of usage. Call
// it once, because lists are appended to.
func (e *explainFlags) parse(cmd *cobra.Command) (err error) {
	for _, p := range []struct {
		flag, pattern string
		to            **regexp.Regexp
	}{{"request", e.request, &e.options.Request}, {"group", e.group, &e.options.Group}} {
		if p.pattern == "" {
			continue
		}
		if *p.to, err = namePattern(p.pattern); err != nil {
			return command.Usage(cmd, "--%s: %v", p.flag, err)
		}
	}
	if e.options.TraceID, e.options.SpanID, err = spanIDs(e.traceID); err != nil {
		return command.Usage(cmd, "--trace-id %q: %v", e.traceID, err)
	}
	for _, m := range e.pathMap {
		old, with, ok := strings.Cut(m, "=")
		if !ok || old == "" {
			return command.Usage(cmd, "--path-map %q: write OLD=NEW", m)
		}
		e.options.PathMap = append(e.options.PathMap, spell.PathRewrite{Old: old, New: with})
	}
	if e.thresholds != "" {
		if e.options.Thresholds, err = command.ReadOption(cmd, e.thresholds, finding.ReadThresholds); err != nil {
			return err
		}
	}
	if e.slo != "" {
		for _, goal := range strings.Split(e.slo, ",") {
			name, value, ok := strings.Cut(strings.TrimSpace(goal), "=")
			d, err := time.ParseDuration(value)
			if !ok || err != nil || d <= 0 || name != "p50" && name != "p99" {
				return command.Usage(cmd, "--slo %q: write p50 or p99 and a time, such as p99=20ms; other percentiles cannot be predicted", goal)
			}
			e.options.Goals = append(e.options.Goals, explain.Goal{Percentile: name, Limit: d})
		}
	}
	if e.iterations != "" {
		if e.options.Iterations, err = explain.ParseIterations(e.iterations); err != nil {
			return command.Usage(cmd, "--iterations: %v", err)
		}
	}
	for _, text := range e.whatIf {
		c, err := predict.Parse(text)
		if err != nil {
			return command.Usage(cmd, "--%v", err)
		}
		e.options.WhatIf = append(e.options.WhatIf, c)
	}
	return nil
}

// namePattern compiles a pattern of names. The name of a method as reports print it, main.(*T).f, is no regular expression,
// and matches literally.
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

// spanIDs parses --trace-id, as a trace or as a span; the other one is zero, and both are for "". Of a traceparent header (W3C
// Trace Context, section 3.2) it uses the trace: its span is that of the first caller, not of the request.
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

// readIgnores reads the file that --ignore names, if it is set, into e.ignored.
func (e *explainFlags) readIgnores(cmd *cobra.Command) (err error) {
	if e.ignore != "" {
		e.ignored, err = command.ReadOption(cmd, e.ignore, finding.ReadIgnoreEntries)
	}
	return err
}

// writeTo calls write for the output that -o names, with whether the output is coloured and its width in columns, 0 if that is not limited.
func (e *explainFlags) writeTo(s *streams, write func(w io.Writer, color bool, columns int) error) error {
	return s.WriteTo(e.output, func(w io.Writer) error {
		if w == s.Out {
			return write(w, e.color.on(w, os.Getenv), width(w))
		}
		return write(w, e.color == "always", 0)
	})
}
