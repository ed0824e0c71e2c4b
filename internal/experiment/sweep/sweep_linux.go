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
	"github.com/whylate/whylate/report"
)

type sweeper struct {
	o        *Options
	arms     []Settings
	res      *Result
	above    *cpugroup.Group
	canGroup bool
	cpus     []int // of the service; empty: all
	apart    bool  // the generator has CPUs of its own
	loadCPUs int
	noTrace  bool // the service serves none
	noted    map[string]bool
	took     time.Duration // by the runs made now
	made     int
	failures map[string]int // runs that failed in a row, by arm
	saveErr  error
}

// giveUp is how many runs of an arm may fail in a row before its others are left out.
const giveUp = 3

// Do makes the runs of a sweep that are not done yet and returns what all of them showed. If ctx ends, the result is of
// the runs that were finished, with ctx's error. An error of Save comes with a result, too.
func Do(ctx context.Context, o Options) (*Result, error) {
	arms, err := o.check()
	if err != nil {
		return nil, err
	}
	s := &sweeper{o: &o, arms: arms, noted: map[string]bool{}, failures: map[string]int{}}
	s.res = newResult(&o, arms)
	restore, err := s.prepare()
	if err != nil {
		return nil, err
	}
	defer restore()
	if !strings.Contains(o.Load.Targets[0].URL, "{port}") && inUse(o.Load.Targets[0].URL) {
		return nil, fmt.Errorf("another process already listens at %s: stop it, or let the service use another port", redacted(o.Load.Targets[0].URL))
	}
	if err := s.saturate(ctx); err != nil {
		return s.finish(), err
	}
	order := s.order()
	for i, next := range order {
		if ctx.Err() != nil {
			break
		}
		if s.failures[next.arm.String()] >= giveUp {
			continue
		}
		s.progress(i, len(order), next.arm)
		begin := time.Now()
		run, err := s.run(ctx, next.arm, next.number)
		if ctx.Err() != nil { // a part of a run is none
			if err != nil {
				s.res.warn("cleanup", "%v", err)
			}
			break
		}
		s.took += time.Since(begin)
		s.made++
		if err != nil {
			run = &Run{Settings: next.arm.Map(), Number: next.number, Start: begin, Error: err.Error()}
			s.failures[next.arm.String()]++
			text := fmt.Sprintf("%s, run %d: %v", next.arm, next.number+1, err)
			if s.failures[next.arm.String()] == giveUp {
				text += "; its other runs are left out"
			}
			s.note(text)
		} else {
			s.failures[next.arm.String()] = 0
		}
		s.res.Measurements = append(s.res.Measurements, *run)
		s.save()
	}
	res := s.finish()
	s.save()
	if ctx.Err() != nil {
		return res, context.Cause(ctx)
	}
	return res, s.saveErr
}

func (s *sweeper) note(text string) {
	if s.o.Note != nil {
		s.o.Note(text)
	}
}

// noteOnce says something once, and keeps it with the result.
func (s *sweeper) noteOnce(code, format string, args ...any) {
	if !s.noted[code] {
		s.noted[code] = true
		s.res.warn(code, format, args...)
		s.note(fmt.Sprintf(format, args...))
	}
}

func (s *sweeper) save() {
	if s.o.Save == nil {
		return
	}
	s.res.sum()
	err := s.o.Save(s.res)
	if err != nil && s.saveErr == nil {
		s.note(fmt.Sprintf("%v; the sweep continues and tries again after the next run", err))
	}
	s.saveErr = err
}

func (s *sweeper) finish() *Result {
	s.res.sum()
	return s.res
}

// A next run.
type next struct {
	arm    Settings
	number int
}

// order returns the runs that are to be made, each round of all arms in a random order. It is the same for equal seeds,
// and runs that were made before are left out of it.
func (s *sweeper) order() (out []next) {
	done := map[string]bool{}
	for _, r := range s.o.Done {
		if r.Error == "" {
			done[key(r.Settings, r.Number)] = true
		}
	}
	random := rand.New(rand.NewPCG(s.o.Seed, 5))
	for n := range s.o.Runs {
		for _, i := range random.Perm(len(s.arms)) {
			if !done[key(s.arms[i].Map(), n)] {
				out = append(out, next{s.arms[i], n})
			}
		}
	}
	for _, r := range s.o.Done { // those of this sweep, and no failed ones, which are made again
		if r.Error == "" && r.Number < s.o.Runs && slices.ContainsFunc(s.arms, func(a Settings) bool { return key(a.Map(), 0) == key(r.Settings, 0) }) {
			s.res.Measurements = append(s.res.Measurements, r)
		}
	}
	return out
}

func (s *sweeper) progress(i, n int, arm Settings) {
	if s.o.Progress == nil {
		return
	}
	each := s.o.Warmup + s.o.Measure + s.o.Trace + 2*time.Second
	if s.made > 0 {
		each = s.took / time.Duration(s.made)
	}
	s.o.Progress(Progress{Done: i, Total: n, Left: time.Duration(n-i) * each, Arm: arm})
}

// saturate measures what each combination of the service's settings can do at most, where the load is a share of that.
func (s *sweeper) saturate(ctx context.Context) error {
	if s.res.Saturation == nil {
		s.res.Saturation = map[string]float64{}
	}
	for _, arm := range s.arms {
		name := arm.service().String()
		if arm.Get(LoadShare) == "" || s.res.Saturation[name] > 0 || ctx.Err() != nil {
			continue
		}
		s.progress(0, len(s.arms)*s.o.Runs, arm)
		up, err := s.up(ctx, arm)
		var r *load.Result
		if err == nil {
			o := s.load(up.targets, 0)
			o.Phases, o.Closed, o.Warmup = []load.Phase{{Duration: s.o.Measure}}, 16*max(1, runtime.NumCPU()), s.o.Warmup
			r, err = load.Run(ctx, o)
		}
		err = errors.Join(err, up.down())
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("measuring the capacity of %s: %w", name, err)
		case r.AchievedPerS <= 0:
			return fmt.Errorf("measuring the capacity of %s: no request was answered", name)
		}
		s.res.Saturation[name] = r.AchievedPerS
	}
	return nil
}

// load makes the load of one run. Runs of the same number have the same schedule in every arm.
func (s *sweeper) load(targets []load.Target, number int) load.Options {
	o := s.o.Load
	o.Targets, o.Seed, o.CPUs = targets, s.o.Seed+uint64(number)*1000, s.loadCPUs
	if o.Pace = s.o.PaceShared; s.apart {
		o.Pace = s.o.Pace
	}
	return o
}

// phases returns the arm's load for a time.
func (s *sweeper) phases(arm Settings, d time.Duration) ([]load.Phase, error) {
	if v := arm.Get(LoadShare); v != "" {
		share, err := parseShare(v)
		rate := share * s.res.Saturation[arm.service().String()]
		return []load.Phase{{From: rate, To: rate, Duration: d}}, err
	}
	return load.ParseRate(arm.Get(Rate), d)
}

// run makes one run.
func (s *sweeper) run(ctx context.Context, arm Settings, number int) (run *Run, err error) {
	u, err := s.up(ctx, arm)
	defer func() { err = errors.Join(err, u.down()) }()
	if err != nil {
		return nil, err
	}
	run = &Run{Settings: arm.Map(), Number: number, Start: time.Now()}
	o := s.load(u.targets, number)
	if s.o.Warmup > 0 {
		if o.Phases, err = s.phases(arm, s.o.Warmup); err != nil {
			return nil, err
		}
		if _, err := load.Run(ctx, o); err != nil {
			return nil, err
		}
		if err := u.alive(); err != nil {
			return nil, err
		}
	}
	if o.Phases, err = s.phases(arm, s.o.Measure); err != nil {
		return nil, err
	}
	watch := u.watch()
	run.Load, err = load.Run(ctx, o)
	watch(run)
	if err != nil {
		return nil, err
	}
	if err := u.alive(); err != nil {
		return nil, err
	}
	if run.Load.Requests == run.Load.Errors {
		return nil, fmt.Errorf("no request was answered: %s%s", reasons(run.Load), u.instances[0].output.tail())
	}
	for _, w := range run.Load.Warnings {
		run.Warnings = append(run.Warnings, w.Code)
	}
	if !run.Load.Valid {
		var why []string
		for _, w := range run.Load.Warnings {
			why = append(why, w.Text)
		}
		s.noteOnce("invalid", "run %d of %s is not valid, and others may not be, for the same reasons (each run's warnings are in the JSON): %s", number+1, arm, strings.Join(why, "; "))
	}
	if s.o.Trace > 0 && !s.noTrace {
		s.trace(ctx, u, arm, number, run)
	}
	return run, nil
}

func reasons(r *load.Result) string {
	if len(r.Reasons) == 0 {
		return "it does not answer"
	}
	return r.Reasons[0].Text
}

// trace records the service under the same load and explains the recording.
func (s *sweeper) trace(ctx context.Context, u *up, arm Settings, number int, run *Run) {
	o := s.load(u.targets, number)
	o.Seed += 500
	loading, cancel := context.WithCancel(ctx)
	var err error
	if o.Phases, err = s.phases(arm, s.o.Trace+10*time.Second); err != nil {
		cancel()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = load.Run(loading, o)
	}()
	defer func() { cancel(); <-done }()
	rep, err := recordAndExplain(ctx, u.pprof, s.o.Trace)
	if err != nil {
		if ctx.Err() == nil {
			var re *record.Error
			if s.noTrace = errors.As(err, &re); s.noTrace {
				s.noteOnce("no-trace", "no trace can be recorded, so there are no causes: %v", err)
			} else {
				run.Warnings = append(run.Warnings, "no-trace")
			}
		}
		return
	}
	run.Causes = causesOf(rep)
	if run.GCs == nil { // a Go program that printed nothing did not collect
		run.GCs, run.GCCPUNS = new(int64), new(int64)
	}
}

// recordAndExplain records a trace, with samples of the host, which know throttling.
func recordAndExplain(ctx context.Context, pprof string, d time.Duration) (*report.Report, error) {
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
	if host, err := b.HostSamples(); err == nil {
		opts.Host = bytes.NewReader(host)
	}
	return explain.Explain(ctx, trace, opts)
}
