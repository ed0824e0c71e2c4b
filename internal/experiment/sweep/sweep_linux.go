package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/capacity"
	"github.com/whylate/whylate/report"
)

// A sweeper runs one sweep.
type sweeper struct {
	options     *Options
	arms        []Settings
	result      *Result
	parentGroup *cpugroup.Group
	hasGroups   bool
	cpus        []int // CPUs of the service; empty: all
	hasOwnCPUs  bool  // service and generator have separate CPUs
	loadCPUs    int
	cannotTrace bool // the service has no trace handler
	notedCodes  map[string]bool
	runTime     time.Duration // total time of the runs of this call
	runCount    int
	failures    map[string]int // consecutive failed runs, by arm
	saveErr     error
}

// maxFailuresInRow is the number of consecutive failed runs after which an arm's remaining runs are
// skipped.
const maxFailuresInRow = 3

// Do executes the unfinished runs of a sweep and returns the result of all runs. If ctx ends, the
// result covers the finished runs and the error is ctx's. The result is also valid with an error of
// Save.
func Do(ctx context.Context, o Options) (*Result, error) {
	arms, err := o.check()
	if err != nil {
		return nil, err
	}
	s := &sweeper{options: &o, arms: arms, notedCodes: map[string]bool{}, failures: map[string]int{}}
	s.result = newResult(&o, arms)
	restore, err := s.prepare()
	if err != nil {
		return nil, err
	}
	defer restore()
	if !strings.Contains(o.Load.Targets[0].URL, "{port}") && isListening(o.Load.Targets[0].URL) {
		return nil, fmt.Errorf("another process already listens at %s: stop it, or let the service use another port", redactURL(o.Load.Targets[0].URL))
	}
	if err := s.measureSaturation(ctx); err != nil {
		return s.summarize(), err
	}
	order := s.pendingRuns()
	for i, next := range order {
		if ctx.Err() != nil {
			break
		}
		if s.failures[next.arm.String()] >= maxFailuresInRow {
			continue
		}
		s.reportProgress(i, len(order), next.arm)
		begin := time.Now()
		run, err := s.run(ctx, next.arm, next.number)
		if ctx.Err() != nil { // an incomplete run does not count
			if err != nil {
				s.result.warn("cleanup", "%v", err)
			}
			break
		}
		s.runTime += time.Since(begin)
		s.runCount++
		if err != nil {
			run = &Run{Settings: next.arm.Map(), Number: next.number, Start: begin, Error: err.Error()}
			s.failures[next.arm.String()]++
			text := fmt.Sprintf("%s, run %d: %v", next.arm, next.number+1, err)
			if s.failures[next.arm.String()] == maxFailuresInRow {
				text += "; its other runs are left out"
			}
			s.note(text)
		} else {
			s.failures[next.arm.String()] = 0
		}
		s.result.Measurements = append(s.result.Measurements, *run)
		s.save()
	}
	res := s.summarize()
	s.save()
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	return res, s.saveErr
}

// note passes a text for the user to Options.Note.
func (s *sweeper) note(text string) {
	if s.options.Note != nil {
		s.options.Note(text)
	}
}

// noteOnce passes a message to the user and adds it to the result's warnings, only the first one for each code.
func (s *sweeper) noteOnce(code, format string, args ...any) {
	if !s.notedCodes[code] {
		s.notedCodes[code] = true
		s.result.warn(code, format, args...)
		s.note(fmt.Sprintf(format, args...))
	}
}

// save passes the result so far to Options.Save. The first of several errors in sequence is noted; the next save tries again.
func (s *sweeper) save() {
	if s.options.Save == nil {
		return
	}
	s.result.summarize()
	err := s.options.Save(s.result)
	if err != nil && s.saveErr == nil {
		s.note(fmt.Sprintf("%v; the sweep continues and tries again after the next run", err))
	}
	s.saveErr = err
}

func (s *sweeper) summarize() *Result {
	s.result.summarize()
	return s.result
}

// A pendingRun is a run of an arm that is not finished.
type pendingRun struct {
	arm    Settings
	number int
}

// pendingRuns returns the runs to execute: in each round all arms in a random order, which is equal for equal seeds, without finished runs. It
// appends the finished runs of the arms to the result, so it is called once. A failed run is not finished.
func (s *sweeper) pendingRuns() (out []pendingRun) {
	done := map[string]bool{}
	for _, r := range s.options.FinishedRuns {
		if r.Error == "" {
			done[runKey(r.Settings, r.Number)] = true
		}
	}
	random := rand.New(rand.NewPCG(s.options.Seed, 5))
	for n := range s.options.Runs {
		for _, i := range random.Perm(len(s.arms)) {
			if !done[runKey(s.arms[i].Map(), n)] {
				out = append(out, pendingRun{s.arms[i], n})
			}
		}
	}
	for _, r := range s.options.FinishedRuns { // keep the runs of this sweep's arms; failed ones are repeated
		if r.Error == "" && r.Number < s.options.Runs && slices.ContainsFunc(s.arms, func(a Settings) bool { return runKey(a.Map(), 0) == runKey(r.Settings, 0) }) {
			s.result.Measurements = append(s.result.Measurements, r)
		}
	}
	return out
}

// reportProgress reports that run i (from 0) of n begins, with the remaining time, from the mean of the runs so far.
func (s *sweeper) reportProgress(i, n int, arm Settings) {
	if s.options.Progress == nil {
		return
	}
	perRun := s.options.Warmup + s.options.Measure + s.options.Trace + 2*time.Second
	if s.runCount > 0 {
		perRun = s.runTime / time.Duration(s.runCount)
	}
	s.options.Progress(Progress{Done: i, Total: n, Remaining: time.Duration(n-i) * perRun, Arm: arm})
}

// measureSaturation measures the capacity of each combination of the service's settings whose load is a share of the capacity. The result has it, in
// requests a second, by settings; those that it has already are not measured again.
func (s *sweeper) measureSaturation(ctx context.Context) error {
	if s.result.Saturation == nil {
		s.result.Saturation = map[string]float64{}
	}
	for _, arm := range s.arms {
		name := arm.withoutLoad().String()
		if arm.Get(LoadShare) == "" || s.result.Saturation[name] > 0 || ctx.Err() != nil {
			continue
		}
		s.reportProgress(0, len(s.arms)*s.options.Runs, arm)
		up, err := s.startService(ctx, arm)
		var r *load.Result
		if err == nil {
			o := s.loadOptions(up.targets, 0)
			o.Phases, o.ClosedClients, o.Warmup = []load.Phase{{Duration: s.options.Measure}}, 16*max(1, runtime.NumCPU()), s.options.Warmup
			r, err = load.Run(ctx, o)
		}
		err = errors.Join(err, up.stop())
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("measuring the capacity of %s: %w", name, err)
		case r.AchievedPerS <= 0:
			return fmt.Errorf("measuring the capacity of %s: no request was answered", name)
		}
		s.result.Saturation[name] = r.AchievedPerS
	}
	return nil
}

// loadOptions returns the load of one run. Runs of the same number have the same schedule in every
// arm.
func (s *sweeper) loadOptions(targets []load.Target, number int) load.Options {
	o := s.options.Load
	o.Targets, o.Seed, o.CPUs = targets, s.options.Seed+uint64(number)*1000, s.loadCPUs
	if o.Pace = s.options.PaceShared; s.hasOwnCPUs {
		o.Pace = s.options.Pace
	}
	return o
}

// phases returns the arm's load for a duration; a share of the capacity requires measureSaturation.
func (s *sweeper) phases(arm Settings, d time.Duration) ([]load.Phase, error) {
	if v := arm.Get(LoadShare); v != "" {
		share, err := parseShare(v)
		rate := share * s.result.Saturation[arm.withoutLoad().String()]
		return []load.Phase{{StartRate: rate, EndRate: rate, Duration: d}}, err
	}
	return load.ParseRate(arm.Get(Rate), d)
}

// run starts the service of an arm, executes run number (from 0), and stops the service. A run without answers is an error.
func (s *sweeper) run(ctx context.Context, arm Settings, number int) (run *Run, err error) {
	u, err := s.startService(ctx, arm)
	defer func() { err = errors.Join(err, u.stop()) }()
	if err != nil {
		return nil, err
	}
	run = &Run{Settings: arm.Map(), Number: number, Start: time.Now()}
	o := s.loadOptions(u.targets, number)
	if s.options.Warmup > 0 {
		if o.Phases, err = s.phases(arm, s.options.Warmup); err != nil {
			return nil, err
		}
		if _, err := load.Run(ctx, o); err != nil {
			return nil, err
		}
		if err := u.checkAlive(); err != nil {
			return nil, err
		}
	}
	if o.Phases, err = s.phases(arm, s.options.Measure); err != nil {
		return nil, err
	}
	watch := u.watchUsage()
	run.Load, err = load.Run(ctx, o)
	watch(run)
	if err != nil {
		return nil, err
	}
	if err := u.checkAlive(); err != nil {
		return nil, err
	}
	if run.Load.Requests == run.Load.Errors {
		return nil, fmt.Errorf("no request was answered: %s%s", firstReason(run.Load), u.instances[0].output.lastLines())
	}
	for _, w := range run.Load.Warnings {
		run.Warnings = append(run.Warnings, w.Code)
	}
	if !run.Load.Valid {
		var texts []string
		for _, w := range run.Load.Warnings {
			texts = append(texts, w.Text)
		}
		s.noteOnce("invalid", "run %d of %s is not valid, and others may not be, for the same reasons (each run's warnings are in the JSON): %s", number+1, arm, strings.Join(texts, "; "))
	}
	if s.options.Trace > 0 && !s.cannotTrace {
		s.traceRun(ctx, u, arm, number, run)
	}
	return run, nil
}

// firstReason returns the most frequent error of a load's result, for a result without answers.
func firstReason(r *load.Result) string {
	if len(r.Reasons) == 0 {
		return "it does not answer"
	}
	return r.Reasons[0].Text
}

// traceRun records a trace of the service under the same load and adds its causes to the run. A failure is only a warning.
func (s *sweeper) traceRun(ctx context.Context, u *runningService, arm Settings, number int, run *Run) {
	o := s.loadOptions(u.targets, number)
	o.Seed += 500
	loading, cancel := context.WithCancel(ctx)
	var err error
	if o.Phases, err = s.phases(arm, s.options.Trace+10*time.Second); err != nil {
		cancel()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = load.Run(loading, o)
	}()
	defer func() { cancel(); <-done }()
	rep, err := recordAndExplain(ctx, u.pprof, s.options.Trace, arm.Get(LoadShare) != "")
	if err != nil {
		if ctx.Err() == nil {
			var re *record.Error
			if s.cannotTrace = errors.As(err, &re); s.cannotTrace {
				s.noteOnce("no-trace", "no trace can be recorded, so there are no causes: %v", err)
			} else {
				run.Warnings = append(run.Warnings, "no-trace")
			}
		}
		return
	}
	run.Causes = sumCauses(rep)
	if c := rep.Capacity; c != nil && len(c.Limits) > 0 {
		run.PredictedLimit = &c.Limits[0]
	}
	if run.GCs == nil { // a Go program without gctrace lines had no collection
		run.GCs, run.GCCPUNS = new(int64), new(int64)
	}
}

// recordAndExplain records a trace of length d from the service's profiling handlers (pprof, a URL) and explains it, with host
// samples, which show throttling. withCapacity adds the analysis of capacity.
func recordAndExplain(ctx context.Context, pprof string, d time.Duration, withCapacity bool) (*report.Report, error) {
	dir, err := os.MkdirTemp("", "whylate-sweep-")
	if err != nil {
		return nil, fmt.Errorf("keeping the trace: %w", err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "x"+record.BundleExt)
	if _, err := record.Save(ctx, pprof, record.Options{Duration: d, NoCPU: true, NoAllocs: true, Proxy: "none"}, name, "", nil); err != nil {
		return nil, err
	}
	b, err := bundle.Open(name)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	trace, _, err := b.Trace()
	if err != nil {
		return nil, err
	}
	defer trace.Close()
	opts := explain.Options{Name: "sweep", Slowest: -1}
	if withCapacity {
		opts.Capacity = new(capacity.Question)
	}
	if host, err := b.HostSamples(); err == nil {
		opts.Host = bytes.NewReader(host)
	}
	return explain.Explain(ctx, trace, opts)
}
