package sweep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/freeport"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/output/words"
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

// prepare finds out what can be limited and pinned. restore undoes what it did to this process.
func (s *sweeper) prepare() (restore func(), err error) {
	if s.o.Group != "" {
		if s.above, err = cpugroup.At(s.o.Group); err != nil {
			return nil, err
		}
	}
	if n, err := cpugroup.RemoveLeft(owner, s.above); err != nil {
		s.noteOnce("left", "removing the cgroups of an earlier sweep: %v", err)
	} else if n > 0 {
		s.note(fmt.Sprintf("removed %d cgroups of an earlier sweep", n))
	}
	quota, procs, memory := 0.0, 0, false
	for _, a := range s.arms {
		q, _ := strconv.ParseFloat(a.Get(Quota), 64)
		p, _ := strconv.Atoi(a.Get(GOMAXPROCS))
		quota, procs = max(quota, q), max(procs, p)
		memory = memory || a.Get(Memory) != ""
	}
	trial, groupErr := cpugroup.New(cpugroup.Options{Above: s.above, Usage: true, Owner: owner})
	if groupErr == nil {
		groupErr = trial.Remove()
	}
	s.canGroup = groupErr == nil
	if !s.canGroup {
		if s.o.Group != "" {
			return nil, groupErr
		}
		s.noteOnce("no-cgroup", "no cgroup can be made, so --quota and --memory have no effect: only GOMAXPROCS, the other settings and the choice of CPUs apply (%v); run as root, or name a cgroup that is delegated to you with --cgroup", groupErr)
	}
	all := cpugroup.OwnCPUs()
	need := int(math.Ceil(quota))
	if need == 0 {
		need = min(max(procs, 1), len(all))
	}
	own := max(1, len(all)/4)
	switch {
	case len(s.o.CPUs) > 0 || len(s.o.LoadCPUs) > 0:
		s.cpus = s.o.CPUs
		if len(s.o.LoadCPUs) > 0 {
			if err := cpugroup.PinSelf(s.o.LoadCPUs); err != nil {
				return nil, err
			}
			s.loadCPUs = len(s.o.LoadCPUs)
		}
		s.apart = len(s.cpus) > 0 && s.loadCPUs > 0 && !slices.ContainsFunc(s.cpus, func(c int) bool { return slices.Contains(s.o.LoadCPUs, c) })
	case len(all)-own >= need && len(all) > 1:
		s.cpus, s.apart, s.loadCPUs = all[:len(all)-own], true, own
		if err := cpugroup.PinSelf(all[len(all)-own:]); err != nil {
			return nil, err
		}
	default:
		s.noteOnce("shared-cpus", "the load generator shares the service's %d CPUs, so its work is part of the measurement: use more CPUs than the service may use, or --cpus and --load-cpus", len(all))
	}
	if s.loadCPUs == 0 {
		s.loadCPUs = len(all)
	}
	s.res.CPUs, s.res.LoadCPUs = s.cpus, s.loadCPUs
	// A goroutine that sleeps in the kernel holds a P for a moment.
	was := runtime.GOMAXPROCS(s.loadCPUs + 1)
	return func() {
		runtime.GOMAXPROCS(was)
		_ = cpugroup.PinSelf(all)
	}, nil
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

// up is a service that is running: one instance or more.
type up struct {
	instances []*instance
	targets   []load.Target
	pprof     string
}

// up starts the service of an arm and waits until it is ready. The result is to be taken down also after an error.
func (s *sweeper) up(ctx context.Context, arm Settings) (*up, error) {
	u := &up{}
	n := 1
	if v := arm.Get(Instances); v != "" {
		n, _ = strconv.Atoi(v)
	}
	quota, _ := strconv.ParseFloat(arm.Get(Quota), 64)
	memory := int64(0)
	if v := arm.Get(Memory); v != "" {
		memory, _ = words.ParseBytes(v)
	}
	if !s.canGroup {
		quota, memory = 0, 0
	}
	for i := range n {
		port := ""
		if slices.ContainsFunc(append(slices.Clone(s.o.Command), s.o.Load.Targets[0].URL), func(a string) bool { return strings.Contains(a, "{port}") }) {
			ports, err := freeport.Find(1)
			if err != nil {
				return u, err
			}
			port = ports[0]
		}
		fill := strings.NewReplacer("{port}", port, "{instance}", strconv.Itoa(i)).Replace
		var args []string
		for _, a := range s.o.Command {
			args = append(args, fill(a))
		}
		for deadline := time.Now().Add(5 * time.Second); port == "" && inUse(s.o.Load.Targets[0].URL); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) || ctx.Err() != nil {
				return u, fmt.Errorf("a process of the previous run still listens at %s", redacted(s.o.Load.Targets[0].URL))
			}
		}
		in, err := s.start(args, environment(s.o.Env, arm), quota/float64(n), memory/int64(n))
		if err != nil {
			return u, err
		}
		u.instances = append(u.instances, in)
		for _, t := range s.o.Load.Targets {
			t.URL = fill(t.URL)
			u.targets = append(u.targets, t)
		}
		ready := u.targets[len(u.targets)-len(s.o.Load.Targets)].URL
		if i == 0 {
			if u.pprof = fill(s.o.Pprof); u.pprof == "" {
				u.pprof = origin(ready)
			}
		}
		if s.o.Ready != "" {
			ready = fill(s.o.Ready)
		}
		if err := in.ready(ctx, ready, s.o.ReadyTimeout); err != nil {
			return u, err
		}
	}
	return u, nil
}

func (u *up) down() error {
	var errs []error
	for _, in := range u.instances {
		errs = append(errs, in.stop())
	}
	return errors.Join(errs...)
}

func origin(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Scheme + "://" + u.Host
	}
	return address
}

func redacted(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return "the URL"
}

// environment is that of the sweep with an arm's settings.
func environment(base []string, arm Settings) []string {
	env := slices.Clone(base)
	debug := "gctrace=1"
	for _, e := range base {
		if v, ok := strings.CutPrefix(e, "GODEBUG="); ok && v != "" {
			debug = v + ",gctrace=1"
		}
	}
	for _, x := range arm {
		switch x.Name {
		case GOMAXPROCS, GOGC, GOMEMLIMIT:
			env = append(env, strings.ToUpper(x.Name)+"="+x.Value)
		case Quota, Memory, Instances, Rate, LoadShare:
		default:
			env = append(env, x.Name+"="+x.Value)
			if x.Name == "GODEBUG" {
				debug = x.Value + ",gctrace=1"
			}
		}
	}
	return append(env, "GODEBUG="+debug)
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

// alive returns an error if an instance has ended.
func (u *up) alive() error {
	for _, in := range u.instances {
		if text := in.process.Ended(); text != "" {
			if in.group != nil && in.group.OOMKills() > 0 {
				text += ", out of memory"
			}
			return fmt.Errorf("the service ended during the run (%s)%s", text, in.output.tail())
		}
	}
	return nil
}

// watch begins to count what the service uses. The returned function puts it into a run.
func (u *up) watch() func(*Run) {
	var before []counters
	for _, in := range u.instances {
		before = append(before, in.counters(false))
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	var samples, memory, peak, threads int64
	go func() {
		defer close(ended)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			var now counters
			for _, in := range u.instances {
				c := in.counters(true)
				now.memory += c.memory
				now.threads += c.threads
			}
			samples++
			memory += now.memory
			peak, threads = max(peak, now.memory), max(threads, now.threads)
		}
	}()
	return func(r *Run) {
		close(stop)
		<-ended
		grouped, gc := true, false
		var stat cpugroup.Stat
		var gcs, gcCPU, peaks int64
		for i, in := range u.instances {
			a, b := before[i], in.counters(false)
			r.CPUNS += b.cpu - a.cpu
			r.ContextSwitches += max(0, b.switches-a.switches)
			r.OOMKills += b.oom
			peaks += b.peak
			threads = max(threads, b.threads)
			grouped = grouped && b.grouped && a.grouped
			less := b.stat.Less(a.stat)
			stat.Periods += less.Periods
			stat.Throttled += less.Throttled
			stat.ThrottledNS += less.ThrottledNS
			gc = gc || b.gc
			gcs += b.gcs - a.gcs
			gcCPU += b.gcCPU - a.gcCPU
		}
		r.MemoryPeak, r.Threads = max(peak, peaks), threads
		r.MemoryMean = memory / max(1, samples)
		if grouped {
			r.Periods, r.ThrottledPeriods, r.ThrottledNS = &stat.Periods, &stat.Throttled, &stat.ThrottledNS
		}
		if gc {
			r.GCs, r.GCCPUNS = &gcs, &gcCPU
		}
	}
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
