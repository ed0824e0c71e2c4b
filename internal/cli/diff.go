package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/difftext"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
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

// minParallelCores is the smallest number of cores with which two traces are read concurrently. Reading one trace uses 1.7
// cores. On two cores, reading both took a tenth less time (3.0 s instead of 3.3) and half as much memory again (348 MB
// instead of 216).
const minParallelCores = 4

// readBoth returns the reports of two inputs, read or explained, with the groups that --group selects. It writes a note if --group matches nothing in
// either.
func (e *explainFlags) readBoth(cmd *cobra.Command, s *streams, before, after string) (old, new *report.Report, err error) {
	old, new, err = e.readSides(cmd, s, before, after)
	if err == nil && e.group != "" && len(old.Groups)+len(new.Groups) == 0 {
		fmt.Fprintf(s.Err, "whylate: no group's name matches --group %s in either recording\n", words.ShellQuote(e.group))
	}
	return old, new, err
}

// readSides returns the reports of two inputs, before and after, read or explained, concurrently if there are enough cores. If one cannot be read, it
// stops reading the other.
func (e *explainFlags) readSides(cmd *cobra.Command, s *streams, before, after string) (*report.Report, *report.Report, error) {
	if runtime.GOMAXPROCS(0) < minParallelCores {
		first, err := e.readReport(cmd, s, before)
		if err != nil {
			return nil, nil, err
		}
		second, err := e.readReport(cmd, s, after)
		return first, second, err
	}
	adjust, restore := limitMemory(int64(e.maxMemory))
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	var (
		sides sync.WaitGroup
		reps  [2]*report.Report
		errs  [2]error
	)
	shown := longer(before, after)
	for i, arg := range []string{before, after} {
		half := *e
		half.maxMemory /= 2
		half.adjustMemory = adjust
		sides.Go(func() {
			var bar *progress.Bar
			if arg == shown {
				bar = s.Bar()
			}
			if reps[i], errs[i] = half.reportOf(ctx, cmd, s, bar, arg); errs[i] != nil {
				cancel()
			}
		})
	}
	sides.Wait()
	warnOfExcess(reps[1], restore())
	err := errs[0]
	if st := new(command.StatusError); err == nil || errors.As(err, &st) && st.Status == ExitInterrupted && errs[1] != nil {
		err = errs[1] // its failure may have stopped the first
	}
	return reps[0], reps[1], err
}

// longer returns the name of the longer of two files, or of an input that is no regular file. The progress of this input is shown.
func longer(a, b string) string {
	size := func(name string) int64 {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			return math.MaxInt64
		}
		return info.Size()
	}
	if size(b) > size(a) {
		return b
	}
	return a
}

// readReport reads a report, or explains a trace or those of several services.
func (e *explainFlags) readReport(cmd *cobra.Command, s *streams, args ...string) (*report.Report, error) {
	return e.reportOf(cmd.Context(), cmd, s, s.Bar(), args...)
}

// reportOf returns the report of an input: read if it is a report, else explained, with progress on bar (nil for none); several
// inputs are recordings of services that are explained together. --group selects its groups. A part of a trace is not enough:
// an interrupt is an error.
func (e *explainFlags) reportOf(ctx context.Context, cmd *cobra.Command, s *streams, bar *progress.Bar, args ...string) (*report.Report, error) {
	arg := args[0]
	if areServices(args) {
		rep, err := e.explainServices(ctx, cmd, s, args)
		if ctx.Err() != nil {
			return nil, command.InterruptedReading(arg)
		}
		return e.selectGroups(cmd, rep, err)
	}
	in, err := s.openInput(ctx, arg)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	var rep *report.Report
	if in.isReport {
		if cmd.Flags().Changed("request") {
			return nil, command.Usage(cmd, "--request needs the trace: %s is a report", in.name)
		}
		if rep, err = in.readReport(ctx); err == nil {
			e.mapPaths(rep)
		}
	} else {
		rep, err = e.explainShown(ctx, in, bar)
	}
	switch {
	// A part of a trace is not compared.
	case ctx.Err() != nil:
		return nil, command.InterruptedReading(in.name)
	case err != nil:
		return nil, err
	}
	return e.selectGroups(cmd, rep, nil)
}

// selectGroups removes, in place, groups that --group does not match from a report, and returns it. If err is not nil, it returns nil and err.
func (e *explainFlags) selectGroups(cmd *cobra.Command, rep *report.Report, err error) (*report.Report, error) {
	if err != nil {
		return nil, err
	}
	if e.group != "" {
		match, err := namePattern(e.group)
		if err != nil {
			return nil, command.Usage(cmd, "--group: %v", err)
		}
		rep.Groups = slices.DeleteFunc(rep.Groups, func(g report.Group) bool { return !match.MatchString(g.Name) })
	}
	return rep, nil
}

// mapPaths applies --path-map, in place, to the sites of causes and findings of a saved report.
func (e *explainFlags) mapPaths(rep *report.Report) {
	apply := func(site *report.Site) {
		for _, m := range e.pathMap {
			old, new, _ := strings.Cut(m, "=")
			if site == nil {
				return
			}
			if rest, ok := strings.CutPrefix(site.File, old); ok {
				site.File = new + rest
				return
			}
		}
	}
	for i := range rep.Groups {
		for j := range rep.Groups[i].Bands {
			for k := range rep.Groups[i].Bands[j].Causes {
				apply(rep.Groups[i].Bands[j].Causes[k].Site)
			}
		}
	}
	for i := range rep.Findings {
		apply(rep.Findings[i].Site)
	}
}
