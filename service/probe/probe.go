package probe

import (
	"cmp"
	"runtime"
	"sync"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/cputime"
)

// Options of a probe. The zero value is useful.
type Options struct {
	// Interval is the time between ticks while the process is near its limit
	// or was throttled; 0 is 10 ms, and less than 1 ms is taken as 1 ms.
	Interval time.Duration
	// IdleInterval is the time between ticks otherwise; 0 is 250 ms, and less
	// than Interval is taken as Interval.
	IdleInterval time.Duration
	// Threshold is how long the process must certainly have been kept from
	// running for a Freeze to be reported; 0 is 5 ms. Below some milliseconds
	// the ordinary run queue of a busy machine is reported.
	Threshold time.Duration
	// OnFreeze is called for each freeze when it has ended, by the goroutine
	// that measures: while it runs nothing is measured, and a panic in it ends
	// the process. nil is none.
	OnFreeze func(Freeze)
	// Cgroup says where the counters are read; the zero value is this process.
	Cgroup cgroup.Options
}

// A Freeze is a stretch of wall time for which the kernel did not run the
// process although it had something to run: at least the probe's own timer.
type Freeze struct {
	// Start is End less Likely. End is when the probe ran again.
	Start, End time.Time
	// Least is certain, Most is possible, Likely in between; they differ by no
	// more than an interval.
	Least, Likely, Most time.Duration
	// CPU is Likely times the number of CPUs that the process used when it
	// last ran. The kernel's throttled time is the same where there are as
	// many CPUs as busy threads, and more where there are more: it counts every
	// CPU on which any thread waits.
	CPU time.Duration
	// Verdict is own or ancestor if a quota of that level held the process
	// back since the last look at the counters; none if they stood still, so
	// that the run queue or the hypervisor was it; unknown where they cannot
	// tell.
	Verdict cgroup.Verdict
	// How says what the verdict rests on.
	How string
	// Throttled is what the kernel's counters say of the time since the last
	// look at them: CPU time lost and throttled periods. A probe that waits for a
	// P behind one busy goroutine sees several periods as one freeze; these are
	// then more than one. It is measured; the lengths above are estimates.
	Throttled cgroup.Throttling
}

// Fields says which parts of a Snapshot were measured.
type Fields uint

const (
	// HasFreezes: freezes and the waits for a P. Without it only Lateness.
	HasFreezes Fields = 1 << iota
	// HasThrottling: Throttled, and what comes with it.
	HasThrottling
	// HasRunQueue: RunQueue and Unsplit.
	HasRunQueue
	// HasSteal: Steal.
	HasSteal
)

// A Snapshot is what a probe measured since it was started. It is a plain
// value and holds nothing of the probe.
type Snapshot struct {
	Has            Fields
	Started, Taken time.Time
	// Interval is the one in force now.
	Interval time.Duration
	Ticks    uint64

	// Lateness is how late each tick's timer went off, and WaitP the part of
	// it for which the probe waited for a P, as far as can be told.
	Lateness, WaitP Histogram
	// Freezes are their likely lengths; FreezeTime is their sum and FreezeCPU
	// that of Freeze.CPU.
	Freezes    Histogram
	FreezeTime time.Duration
	FreezeCPU  time.Duration
	by         [verdicts]Histogram // the same by verdict

	// Throttled is by the kernel's counters; its Verdict is over the whole
	// time.
	Throttled cgroup.Throttling
	// RunQueue is the time threads were runnable without running in seconds
	// in which no quota held them back. Unsplit is the same in the other
	// seconds, less the throttled time: more threads than CPUs can wait behind
	// one quota, so it may be the quota's, or neighbours'. Both are summed over
	// threads; what a thread waited between the last reading and its end is in neither.
	RunQueue, Unsplit time.Duration
	// Steal is what the hypervisor took from the whole machine, summed over
	// CPUs.
	Steal time.Duration
}

// verdicts is how many there are.
const verdicts = 4

// slot is the index of a verdict in Snapshot.by.
func slot(v cgroup.Verdict) int {
	switch v {
	case cgroup.VerdictOwn:
		return 0
	case cgroup.VerdictAncestor:
		return 1
	case cgroup.VerdictNone:
		return 2
	}
	return 3
}

// FreezesBy returns the likely lengths of the freezes with one verdict. It
// points into s.
func (s *Snapshot) FreezesBy(v cgroup.Verdict) *Histogram { return &s.by[slot(v)] }

// Lost returns the CPU time that quotas took since the start, and whether it was
// measured: by the kernel's counters where there are any, else by timer, which
// sees from a quarter to nine tenths of it, by kind of load (docs/probe.md).
func (s *Snapshot) Lost() (cpu time.Duration, measured bool) {
	if s.Has&HasThrottling != 0 && s.Throttled.Verdict != cgroup.VerdictUnknown {
		return s.Throttled.Own + s.Throttled.Ancestor, true
	}
	return s.FreezeCPU, false
}

// A Probe measures from Start to Stop. Its methods may be called
// concurrently.
type Probe struct {
	opts  Options
	begun time.Time
	stop  chan struct{}
	once  sync.Once
	done  chan struct{}

	mu    sync.Mutex
	state state
}

// Start starts a probe. It never fails: what cannot be measured here is
// missing in Snapshot.Has.
func Start(opts Options) *Probe {
	p := newProbe(opts)
	go p.run()
	return p
}

func newProbe(opts Options) *Probe {
	opts.Interval = cmp.Or(opts.Interval, 10*time.Millisecond)
	opts.Interval = max(opts.Interval, time.Millisecond)
	opts.IdleInterval = cmp.Or(opts.IdleInterval, 250*time.Millisecond)
	opts.IdleInterval = max(opts.IdleInterval, opts.Interval)
	if opts.Threshold <= 0 {
		opts.Threshold = 5 * time.Millisecond
	}
	p := &Probe{opts: opts, begun: time.Now(), stop: make(chan struct{}), done: make(chan struct{})}
	p.state.open(opts)
	return p
}

// Stop ends the measurement and waits for the goroutine to end; it must not be
// called from OnFreeze. The last snapshot can still be read.
func (p *Probe) Stop() {
	p.once.Do(func() { close(p.stop) })
	<-p.done
}

// Snapshot copies what was measured so far into s. It does not allocate.
func (p *Probe) Snapshot(s *Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*s = p.state.snap
	s.Started = p.begun
	s.Taken = time.Now()
	s.Interval = p.state.interval(&p.opts)
	s.Throttled = cgroup.Throttling{Verdict: cgroup.VerdictUnknown, How: "no throttling counter can be read"}
	if s.Has&HasThrottling != 0 {
		s.Throttled = p.state.total()
	}
}

func (p *Probe) run() {
	defer close(p.done)
	defer p.close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		interval := p.begin()
		timer.Reset(interval)
		select {
		case <-p.stop:
			return
		case <-timer.C:
		}
		if f, frozen := p.tick(interval); frozen && p.opts.OnFreeze != nil {
			p.opts.OnFreeze(f)
		}
	}
}

func (p *Probe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.close()
}

// begin notes where a tick starts and returns how long it is to be.
func (p *Probe) begin() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.state
	s.cpuStart, s.cpuOK = cputime.Process()
	s.start = time.Since(p.begun)
	return s.interval(&p.opts)
}

// tick accounts for one tick that was to take interval. It does not allocate,
// but for the rare case that the process was moved to another cgroup.
func (p *Probe) tick(interval time.Duration) (Freeze, bool) {
	end := time.Now()
	now := end.Sub(p.begun)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.state
	cpu, ok := cputime.Process()
	t := tick{
		prev:  s.start,
		due:   s.start + interval,
		now:   now,
		cpu:   cpu - s.cpuStart,
		procs: float64(min(runtime.GOMAXPROCS(0), runtime.NumCPU())),
		rate:  s.rate,
		fast:  p.opts.Interval,
	}
	s.snap.Ticks++
	s.snap.Lateness.Record(t.now - t.due)
	if !ok || !s.cpuOK {
		s.look(&p.opts, now)
		return Freeze{}, false
	}
	s.snap.Has |= HasFreezes
	lost := t.lost()
	s.snap.WaitP.Record(lost.wait)
	used := float64(t.cpu) / float64(max(1, t.now-t.prev))
	if lost.least < p.opts.Threshold {
		if interval == p.opts.Interval {
			s.settle(used)
		}
		s.nearLimit(used, t.procs, now, interval)
		s.look(&p.opts, now)
		return Freeze{}, false
	}

	cpus := cmp.Or(min(s.rate, t.procs), t.procs)
	f := Freeze{
		Start: end.Add(-lost.likely), End: end,
		Least: lost.least, Likely: lost.likely, Most: lost.most,
		CPU: time.Duration(float64(lost.likely) * cpus),
	}
	th := s.counters()
	f.Verdict, f.How, f.Throttled = th.Verdict, th.How, th
	s.snap.Freezes.Record(f.Likely)
	s.snap.FreezeTime += f.Likely
	s.snap.FreezeCPU += f.CPU
	s.snap.by[slot(f.Verdict)].Record(f.Likely)
	if f.Verdict != cgroup.VerdictNone {
		// Neighbours on a crowded machine are no reason to use more CPU.
		s.fastUntil = now + alert
	}
	s.look(&p.opts, now)
	return f, true
}
