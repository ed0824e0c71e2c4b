package probe

import (
	"cmp"
	"runtime"
	"sync"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/cputime"
	"github.com/whylate/whylate/service/internal/guard"
)

// Options configure a probe. The zero value of each field means its default.
type Options struct {
	// Interval is the time between ticks while the process is near its limit
	// or was throttled: 10 ms, and at least 1 ms.
	Interval time.Duration
	// IdleInterval is the time between ticks otherwise: 250 ms, and at least
	// Interval.
	IdleInterval time.Duration
	// Threshold is the shortest freeze that is reported, by its minimum length: 5 ms.
	// A much lower threshold reports the ordinary run queue of a busy machine.
	Threshold time.Duration
	// OnFreeze, if not nil, is called at the end of each freeze by the measuring
	// goroutine, so nothing is measured while it runs. A panic in it is reported to
	// slog.Default.
	OnFreeze func(Freeze)
	// Cgroup selects the process whose counters are read; the zero value is this process.
	Cgroup cgroup.Options
}

// A Freeze is an interval of wall time in which the kernel did not run the
// process, although at least the probe's goroutine was runnable.
type Freeze struct {
	// Start is End less Likely. End is when the probe ran again.
	Start, End time.Time
	// Min and Max bound the freeze's length, and Likely is the best estimate. Min and
	// Max differ by no more than an interval.
	Min, Likely, Max time.Duration
	// CPU is Likely times the number of CPUs that the process used before. The
	// kernel's throttled time is equal if each busy thread has a CPU. It is larger on
	// machines with more CPUs, because it counts every CPU on which a thread waits.
	CPU time.Duration
	// Verdict is own or ancestor if a quota of that level throttled the process since
	// the previous reading of the counters. It is none if they did not grow, so that
	// the run queue or the hypervisor was the cause, and unknown if the counters
	// cannot be read or do not decide.
	Verdict cgroup.Verdict
	// Evidence describes the evidence for the verdict.
	Evidence string
	// Throttled is the growth of the kernel's counters since their previous reading:
	// lost CPU time and throttled periods. One freeze may have several periods if the
	// probe waits for a P behind one busy goroutine. Throttled is measured; the lengths
	// above are estimates.
	Throttled cgroup.Throttling
}

// A Probe measures from Start to Stop. Its methods may be called
// concurrently.
type Probe struct {
	opts     Options
	started  time.Time
	stop     chan struct{}
	stopOnce sync.Once
	done     chan struct{}
	guard    guard.Guard

	mu    sync.Mutex
	state state
}

// Start starts a probe. It never fails: Snapshot.Has shows which parts can be measured.
func Start(opts Options) *Probe {
	p := newProbe(opts)
	go p.run()
	return p
}

// newProbe returns a probe that does not tick yet, with defaults for options that are zero.
// It opens the counters.
func newProbe(opts Options) *Probe {
	opts.Interval = cmp.Or(opts.Interval, 10*time.Millisecond)
	opts.Interval = max(opts.Interval, time.Millisecond)
	opts.IdleInterval = cmp.Or(opts.IdleInterval, 250*time.Millisecond)
	opts.IdleInterval = max(opts.IdleInterval, opts.Interval)
	if opts.Threshold <= 0 {
		opts.Threshold = 5 * time.Millisecond
	}
	p := &Probe{opts: opts, started: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	_ = p.guard.Do("probe: opening the counters", func() { p.state.open(opts) })
	return p
}

// Stop ends the measurement and waits for the goroutine to end. It must not be
// called from OnFreeze. Snapshot still works afterwards.
func (p *Probe) Stop() {
	p.stopOnce.Do(func() { close(p.stop) })
	<-p.done
}

// Snapshot copies the measurements so far into s. It does not allocate.
func (p *Probe) Snapshot(s *Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*s = p.state.snap
	s.Started = p.started
	s.Taken = time.Now()
	s.Interval = p.state.interval(&p.opts)
	s.Throttled = cgroup.Throttling{Verdict: cgroup.VerdictUnknown, Evidence: "no throttling counter can be read"}
	if s.Has&HasThrottling != 0 {
		s.Throttled = p.state.total()
	}
}

// run measures until Stop. A panic in it, which the guard reports, ends the measurement.
func (p *Probe) run() {
	defer close(p.done)
	defer func() { _ = p.guard.Do("probe: closing the counters", p.close) }()
	_ = p.guard.Do("probe: the measurement", p.measure)
}

// measure runs ticks until Stop.
func (p *Probe) measure() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		interval := p.beginTick()
		timer.Reset(interval)
		select {
		case <-p.stop:
			return
		case <-timer.C:
		}
		if f, frozen := p.endTick(interval); frozen {
			p.report(f)
		}
	}
}

// report calls OnFreeze.
// report calls OnFreeze.
func (p *Probe) report(f Freeze) {
	if p.opts.OnFreeze != nil {
		_ = p.guard.Do("probe.Options.OnFreeze", func() { p.opts.OnFreeze(f) })
	}
}

func (p *Probe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.close()
}

// beginTick records the start of a tick, in time and CPU time, and returns the tick's intended length.
func (p *Probe) beginTick() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.state
	s.cpuStart, s.cpuOK = cputime.Process()
	s.tickStart = time.Since(p.started)
	return s.interval(&p.opts)
}

// endTick evaluates a tick with the intended length interval and adds it to the snapshot. It returns the freeze, and true, if the kernel did not run
// the process for at least Options.Threshold. It does not allocate, except after a move of the process to another cgroup.
func (p *Probe) endTick(interval time.Duration) (Freeze, bool) {
	end := time.Now()
	now := end.Sub(p.started)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.state
	cpu, ok := cputime.Process()
	t := tick{
		previous:     s.tickStart,
		due:          s.tickStart + interval,
		fired:        now,
		cpu:          cpu - s.cpuStart,
		procs:        float64(min(runtime.GOMAXPROCS(0), runtime.NumCPU())),
		usualCPUs:    s.usualCPUs,
		fastInterval: p.opts.Interval,
	}
	s.snap.Ticks++
	s.snap.Lateness.Record(t.fired - t.due)
	if !ok || !s.cpuOK {
		s.poll(&p.opts, now)
		return Freeze{}, false
	}
	s.snap.Has |= HasFreezes
	estimate := t.estimate()
	s.snap.WaitP.Record(estimate.waitP)
	usedCPUs := float64(t.cpu) / float64(max(1, t.fired-t.previous))
	if estimate.min < p.opts.Threshold {
		if interval == p.opts.Interval {
			s.updateUsualCPUs(usedCPUs)
		}
		s.speedUpNearLimit(usedCPUs, t.procs, now)
		s.poll(&p.opts, now)
		return Freeze{}, false
	}

	cpus := cmp.Or(min(s.usualCPUs, t.procs), t.procs)
	f := Freeze{
		Start: end.Add(-estimate.likely), End: end,
		Min: estimate.min, Likely: estimate.likely, Max: estimate.max,
		CPU: time.Duration(float64(estimate.likely) * cpus),
	}
	throttling := s.readCounters()
	f.Verdict, f.Evidence, f.Throttled = throttling.Verdict, throttling.Evidence, throttling
	s.snap.Freezes.Record(f.Likely)
	s.snap.FreezeTime += f.Likely
	s.snap.FreezeCPU += f.CPU
	s.snap.freezesByVerdict[verdictIndex(f.Verdict)].Record(f.Likely)
	if f.Verdict != cgroup.VerdictNone {
		// If other processes caused the freeze, faster ticks would only use more CPU.
		s.fastUntil = now + alertDuration
	}
	s.poll(&p.opts, now)
	return f, true
}
