package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/experiment/guard"
	"github.com/whylate/whylate/internal/experiment/sweep"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/termtext"
)

func newSweep(s *streams) *cobra.Command {
	var (
		l                          loadFlags
		o                          sweep.Options
		axes                       [8]string
		env                        []string
		url, slo, cpus, loadCPUs   string
		jsonFile, htmlFile, resume string
		duration, warmup, trace    time.Duration
		runs                       int
		names                      = [8]string{sweep.GOMAXPROCS, sweep.GOGC, sweep.GOMEMLIMIT, sweep.Quota, sweep.Memory, sweep.Instances, sweep.Rate, sweep.LoadShare}
		pprof, ready, group        string
		readyTimeout               time.Duration
	)
	cmd := &cobra.Command{
		Use:   "sweep [flags] --url URL -- COMMAND [ARGUMENTS]",
		Short: "Try settings on your own service, in real limits, under load",
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) == 0 || at != 0 {
				return usage(cmd, "write the service's command after --, and only flags before it")
			}
			return nil
		},
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			o.Command, o.Env, o.Runs, o.Measure, o.Warmup, o.Trace = args, os.Environ(), runs, duration, warmup, trace
			o.Pprof, o.Ready, o.Group, o.ReadyTimeout, o.Seed = pprof, ready, group, readyTimeout, l.seed
			for i, values := range axes {
				if values != "" {
					o.Axes = append(o.Axes, sweep.Axis{Name: names[i], Values: list(values)})
				}
			}
			// The load's axes are the last: they make tables of their own.
			var own []sweep.Axis
			for _, e := range env {
				name, values, ok := strings.Cut(e, "=")
				if !ok || name == "" {
					return usage(cmd, "--env %q: write NAME=V1,V2", e)
				}
				own = append(own, sweep.Axis{Name: name, Values: list(values)})
			}
			o.Axes = slices.Concat(own, o.Axes)
			if url == "" {
				return usage(cmd, "give the service's address with --url")
			}
			filled := strings.NewReplacer("{port}", "1", "{instance}", "0").Replace(url)
			load, err := l.options(cmd, filled)
			if err != nil {
				return err
			}
			for i := range load.Targets {
				if load.Targets[i].URL == filled {
					load.Targets[i].URL = url
				}
			}
			o.Load = load
			if o.Pace = l.paceFor(true); l.pace == "auto" {
				o.PaceShared = l.paceFor(false)
			} else {
				o.PaceShared = o.Pace
			}
			if slo != "" {
				if o.SLO, err = sweep.ParseSLO(slo); err != nil {
					return usage(cmd, "%v", err)
				}
			}
			for flag, to := range map[string]*[]int{cpus: &o.CPUs, loadCPUs: &o.LoadCPUs} {
				if flag != "" {
					if *to, err = parseCPUs(flag); err != nil {
						return usage(cmd, "%v", err)
					}
				}
			}
			if _, err := exec.LookPath(args[0]); err != nil && !strings.Contains(args[0], "{") {
				return usage(cmd, "the command %s: %v", args[0], errors.Unwrap(err))
			}
			if err := o.Check(); err != nil {
				return usage(cmd, "%v", err)
			}
			if resume != "" {
				if err := resumeFrom(cmd.Context(), &o, resume); err != nil {
					return err
				}
				jsonFile = cmp.Or(jsonFile, resume)
			}
			return runSweep(cmd, s, sweepOutput{&o, jsonFile, htmlFile})
		}),
	}
	f := cmd.Flags()
	for i, text := range []string{
		"values of GOMAXPROCS, such as 1,2,4", "values of GOGC, such as 50,100,200 or off", "values of GOMEMLIMIT, such as 400MiB,900MiB",
		"CPU `quotas`, such as 0.5,1,2", "memory `limits`, such as 256MiB,512MiB", "`numbers` of instances that share the limits, such as 1,2",
		"requests per `second`, such as 200,1000; a value may be a ramp, 100..500", "`shares` of the service's capacity, such as 50%,85%; the capacity is measured first",
	} {
		f.StringVar(&axes[i], names[i], "", text)
	}
	f.StringArrayVar(&env, "env", nil, "an environment variable's values, `NAME=V1,V2` (may be repeated)")
	f.StringVar(&url, "url", "", "the service's URL")
	f.StringVar(&ready, "ready", "", "a `URL` that answers once the service is ready (default: that of --url)")
	f.DurationVar(&readyTimeout, "ready-timeout", 30*time.Second, "longest time for the service to start")
	f.StringVar(&pprof, "pprof", "", "`URL` of the service's profiling handlers (default: those beside --url)")
	f.IntVar(&runs, "runs", 10, "runs of each arm")
	f.DurationVarP(&duration, "duration", "d", 10*time.Second, "how long each run is measured")
	f.DurationVar(&warmup, "warmup", time.Second, "warm-up before each run, not measured")
	f.DurationVar(&trace, "trace", time.Second, "record a trace of this length after each run; 0 for none")
	f.StringVar(&slo, "slo", "", "goals, such as p99=20ms: find the cheapest arm that meets them")
	f.StringVar(&group, "cgroup", "", "make the runs' cgroups in this `directory`, which is delegated to you")
	f.StringVar(&cpus, "cpus", "", "pin the service to these CPUs, such as 0-2,5")
	f.StringVar(&loadCPUs, "load-cpus", "", "pin the load generator to these CPUs")
	f.StringVar(&jsonFile, "json", "", "write the result to this `file` as JSON, again after each run")
	f.StringVar(&htmlFile, "html", "", "write the result to this `file` as a page with plots")
	f.StringVar(&resume, "resume", "", "continue with this `file` of --json, and write to it")
	l.add(f)
	f.Lookup("seed").Usage = "seed of the order of runs and of the arrivals"
	usual(cmd, "url", "rate", "load-share", "gomaxprocs", "gogc", "gomemlimit", "quota", "memory", "env", "runs", "duration", "slo", "json", "html", "resume")
	return cmd
}

// sweepOutput is where the result goes.
type sweepOutput struct {
	o              *sweep.Options
	jsonFile, html string
}

func runSweep(cmd *cobra.Command, s *streams, to sweepOutput) error {
	o := to.o
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, to start it as the service's guard: %w", err)
	}
	o.Guard = func() *exec.Cmd { return exec.Command(self, "sweep-guard") }
	bar := s.bar()
	o.Note = func(text string) {
		bar.Clear()
		fmt.Fprintf(s.err, "whylate: %s\n", oneLine(text))
	}
	o.Progress = func(p sweep.Progress) {
		line := fmt.Sprintf("run %d of %d, %v left: %s", p.Done+1, p.Total, p.Left.Round(time.Second), termtext.Escape(p.Arm.String()))
		if bar != nil {
			bar.Set(progress.State{Note: line})
		} else {
			fmt.Fprintln(s.err, line)
		}
	}
	if to.jsonFile != "" {
		o.Save = func(r *sweep.Result) error {
			return atomicfile.WriteTo(to.jsonFile, func(w io.Writer) error { return writeJSON(w, r) })
		}
	}
	res, err := sweep.Do(cmd.Context(), *o)
	bar.Clear()
	if res == nil {
		if cmd.Context().Err() != nil {
			return &statusError{ExitInterrupted, errors.New("interrupted before the first run was finished")}
		}
		return err
	}
	if e := sweep.WriteText(s.out, res); e != nil {
		return e
	}
	if to.html != "" {
		if e := atomicfile.WriteTo(to.html, func(w io.Writer) error { return sweep.WriteHTML(w, res) }); e != nil {
			return e
		}
	}
	switch {
	case cmd.Context().Err() != nil:
		return &statusError{ExitInterrupted, nil}
	case err != nil:
		return err
	case !slices.ContainsFunc(res.Arms, func(a sweep.Arm) bool { return a.Runs > 0 }):
		return &statusError{ExitFailed, errors.New("no run could be measured")}
	}
	return nil
}

// newSweepGuard is the process that starts a sweep's service and ends all of it.
func newSweepGuard(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:    "sweep-guard",
		Hidden: true,
		Args:   noArgs,
		RunE:   verb(func(*cobra.Command, []string) error { return guard.Run(s.in, s.out) }),
	}
}

// resumeFrom reads an earlier result. A file that is not there yet is none.
func resumeFrom(ctx context.Context, o *sweep.Options, name string) error {
	r, err := waitFor(ctx, name, func() (*sweep.Result, error) {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return sweep.Read(f)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = o.Resume(r)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be resumed: %w", name, err)
	}
	return nil
}

// list splits values at commas.
func list(s string) []string {
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// parseCPUs reads a list of CPUs: 0-2,5.
func parseCPUs(s string) ([]int, error) {
	var cpus []int
	for _, part := range list(s) {
		from, to, ok := strings.Cut(part, "-")
		if !ok {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil || a < 0 || b < a || b > 1023 {
			return nil, fmt.Errorf("the CPUs %q: write them as 0-2,5", s)
		}
		for c := a; c <= b; c++ {
			cpus = append(cpus, c)
		}
	}
	return cpus, nil
}
