package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

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
