package experiments

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
	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/experiment/guard"
	"github.com/whylate/whylate/internal/experiment/sweep"
	"github.com/whylate/whylate/internal/output/progress"
	"github.com/whylate/whylate/internal/output/termtext"
)

// sweepAxes are the flags that list values of a setting.
var sweepAxes = []struct{ name, usage string }{
	{sweep.GOMAXPROCS, "values of GOMAXPROCS, such as 1,2,4"},
	{sweep.GOGC, "values of GOGC, such as 50,100,200 or off"},
	{sweep.GOMEMLIMIT, "values of GOMEMLIMIT, such as 400MiB,900MiB"},
	{sweep.Quota, "CPU `quotas`, such as 0.5,1,2"},
	{sweep.Memory, "memory `limits`, such as 256MiB,512MiB"},
	{sweep.Instances, "`numbers` of instances that share the limits, such as 1,2"},
	// The load's axes are the last: they make tables of their own.
	{sweep.Rate, "`requests` per second, such as 200,1000; a value may be a ramp, 100..500"},
	{sweep.LoadShare, "`shares` of the service's capacity, such as 50%,85%; the capacity is measured first"},
}

// sweeping holds the flags of sweep.
type sweeping struct {
	sweep.Options
	load                   loadFlags
	axes                   []string // values, as in sweepAxes
	env                    []string
	url, slo               string
	cpus, loadCPUs         string
	jsonFile, html, resume string
}

// newSweep returns the command sweep, which runs a service under load with several settings in real limits, and compares them.
func newSweep(s *command.Streams) *cobra.Command {
	v := sweeping{axes: make([]string, len(sweepAxes))}
	cmd := &cobra.Command{
		GroupID: command.GroupTry,
		Use:     "sweep [flags] --url URL -- COMMAND [ARGUMENTS]",
		Short:   "Try settings on your own service, in real limits, under load",
		Args: func(cmd *cobra.Command, args []string) error {
			if dashIndex := cmd.ArgsLenAtDash(); len(args) == 0 || dashIndex != 0 {
				return command.Usage(cmd, "write the service's command after --, and only flags before it")
			}
			return nil
		},
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			if err := v.read(cmd, args); err != nil {
				return err
			}
			if v.resume != "" {
				if err := resumeFrom(cmd.Context(), &v.Options, v.resume); err != nil {
					return err
				}
				v.jsonFile = cmp.Or(v.jsonFile, v.resume)
			}
			return v.run(cmd, s)
		}),
	}
	f := cmd.Flags()
	for i, a := range sweepAxes {
		f.StringVar(&v.axes[i], a.name, "", a.usage)
	}
	f.StringArrayVar(&v.env, "env", nil, "an environment variable's values, `NAME=V1,V2` (may be repeated)")
	f.StringVar(&v.url, "url", "", "the service's URL")
	f.StringVar(&v.ReadyURL, "ready", "", "a `URL` that answers once the service is ready (default: that of --url)")
	f.DurationVar(&v.ReadyTimeout, "ready-timeout", 30*time.Second, "longest time for the service to start")
	f.StringVar(&v.PprofURL, "pprof", "", "`URL` of the service's profiling handlers (default: those beside --url)")
	f.IntVar(&v.Runs, "runs", 10, "runs of each arm")
	f.DurationVarP(&v.Measure, "duration", "d", 10*time.Second, "how long each run is measured")
	f.DurationVar(&v.Warmup, "warmup", time.Second, "warm-up before each run, not measured")
	f.DurationVar(&v.Trace, "trace", time.Second, "record a trace of this length after each run; 0 for none")
	f.StringVar(&v.slo, "slo", "", "goals, such as p99=20ms: find the cheapest arm that meets them")
	f.StringVar(&v.ParentGroup, "cgroup", "", "make the runs' cgroups in this `directory`, which is delegated to you")
	f.StringVar(&v.cpus, "cpus", "", "pin the service to these CPUs, such as 0-2,5")
	f.StringVar(&v.loadCPUs, "load-cpus", "", "pin the load generator to these CPUs")
	f.StringVar(&v.jsonFile, "json", "", "write the result to this `file` as JSON, again after each run")
	f.StringVar(&v.html, "html", "", "write the result to this `file` as a page with plots")
	f.StringVar(&v.resume, "resume", "", "continue with this `file` of --json, and write to it")
	v.load.add(cmd)
	f.Lookup("seed").Usage = "seed of the order of runs and of the arrivals"
	command.ShowFlags(cmd, "url", "rate", "load-share", "gomaxprocs", "gogc", "gomemlimit", "quota", "memory", "env", "runs", "duration", "slo", "json", "html", "resume")
	return cmd
}

// read sets the options that flags and the arguments (the service's command) have to be parsed for, and checks all options.
func (v *sweeping) read(cmd *cobra.Command, args []string) (err error) {
	v.Command, v.Env, v.Seed = args, os.Environ(), v.load.Seed
	for _, e := range v.env {
		name, values, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return command.Usage(cmd, "--env %q: write NAME=V1,V2", e)
		}
		v.Axes = append(v.Axes, sweep.Axis{Name: name, Values: list(values)})
	}
	for i, values := range v.axes {
		if values != "" {
			v.Axes = append(v.Axes, sweep.Axis{Name: sweepAxes[i].name, Values: list(values)})
		}
	}
	if v.url == "" {
		return command.Usage(cmd, "give the service's address with --url")
	}
	filled := strings.NewReplacer("{port}", "1", "{instance}", "0").Replace(v.url)
	if v.Load, err = v.load.options(cmd, filled); err != nil {
		return err
	}
	for i := range v.Load.Targets {
		if v.Load.Targets[i].URL == filled {
			v.Load.Targets[i].URL = v.url
		}
	}
	v.Pace, v.PaceShared = v.load.paceFor(true), v.load.paceFor(false)
	if v.slo != "" {
		if v.SLO, err = sweep.ParseSLO(v.slo); err != nil {
			return command.Usage(cmd, "%v", err)
		}
	}
	if v.CPUs, err = parseCPUs(v.cpus); err != nil {
		return command.Usage(cmd, "%v", err)
	}
	if v.LoadCPUs, err = parseCPUs(v.loadCPUs); err != nil {
		return command.Usage(cmd, "%v", err)
	}
	if _, err := exec.LookPath(args[0]); err != nil && !strings.Contains(args[0], "{") {
		return command.Usage(cmd, "the command %s: %v", args[0], errors.Unwrap(err))
	}
	if err := v.Check(); err != nil {
		return command.Usage(cmd, "%v", err)
	}
	return nil
}

// run runs the sweep with progress and notes on standard error, and writes the result as text, and as JSON or a page if files
// for them are named. An interrupt ends it with the result so far.
func (v *sweeping) run(cmd *cobra.Command, s *command.Streams) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, to start it as the service's guard: %w", err)
	}
	v.Guard = func() *exec.Cmd { return exec.Command(self, "sweep-guard") }
	bar := s.Bar()
	v.Note = func(text string) {
		bar.Clear()
		fmt.Fprintf(s.Err, "whylate: %s\n", command.OneLine(text))
	}
	v.Progress = func(p sweep.Progress) {
		line := fmt.Sprintf("run %d of %d, %v left: %s", p.Done+1, p.Total, p.Remaining.Round(time.Second), termtext.Escape(p.Arm.String()))
		if bar != nil {
			bar.Set(progress.State{Note: line})
		} else {
			fmt.Fprintln(s.Err, line)
		}
	}
	if v.jsonFile != "" {
		v.Save = func(r *sweep.Result) error {
			return atomicfile.WriteTo(v.jsonFile, func(w io.Writer) error { return command.WriteJSON(w, r) })
		}
	}
	res, err := sweep.Do(cmd.Context(), v.Options)
	bar.Clear()
	if res == nil {
		if cmd.Context().Err() != nil {
			return command.Exit(command.ExitInterrupted, errors.New("interrupted before the first run was finished"))
		}
		return err
	}
	if e := sweep.WriteText(s.Out, res); e != nil {
		return e
	}
	if v.html != "" {
		if e := atomicfile.WriteTo(v.html, func(w io.Writer) error { return sweep.WriteHTML(w, res) }); e != nil {
			return e
		}
	}
	switch {
	case cmd.Context().Err() != nil:
		return command.Exit(command.ExitInterrupted, nil)
	case err != nil:
		return err
	case !slices.ContainsFunc(res.Arms, func(a sweep.Arm) bool { return a.Runs > 0 }):
		return command.Exit(command.ExitFailed, errors.New("no run could be measured"))
	}
	return nil
}

// newSweepGuard returns the hidden verb of the process that starts a sweep's service and ends all of its processes.
func newSweepGuard(s *command.Streams) *cobra.Command {
	return &cobra.Command{
		Use:    "sweep-guard",
		Hidden: true,
		Args:   command.NoArgs,
		RunE:   command.RunE(func(*cobra.Command, []string) error { return guard.Run(s.In, s.Out) }),
	}
}

// resumeFrom adds the earlier result in a file to o, so that its runs are not repeated; a file that does not exist yet is no error.
func resumeFrom(ctx context.Context, o *sweep.Options, name string) error {
	r, err := command.WaitFor(ctx, name, func() (*sweep.Result, error) {
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

// list returns the values between commas, without blanks around them.
func list(s string) []string {
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// parseCPUs reads a list of CPUs: 0-2,5. The result is nil for an empty one.
func parseCPUs(s string) ([]int, error) {
	if s == "" {
		return nil, nil
	}
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
