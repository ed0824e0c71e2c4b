package probe

import (
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/schedstat"
)

const (
	// alertDuration is how long ticks remain fast after a sign of throttling, so that bursts
	// every few seconds are measured completely.
	alert = 10 * time.Second
	// startDuration is how long ticks are fast after the start, when most processes are
	// busiest.
	beginning = 2 * time.Second
	// nearLimitShare is the share of its limit from which on a process has fast ticks. An
	// evenly spread smaller use is not throttled; bursts that are throttled nevertheless
	// show in the counters.
	near = 0.5
	// pollInterval is the interval at which counters are read without throttling.
	lookEvery = time.Second
	// threadsPerSecond bounds the reading of schedstat files, each of which costs about
	// 3 µs: with more threads they are read less often.
	threadsPerSecond = 32
	// movedInterval is the interval of checks whether the process was moved to another
	// cgroup.
	movedEvery = 10 * time.Second
)

// state is the measuring goroutine's state, guarded by Probe.mu.
type state struct {
	snap Snapshot

	start     time.Duration // start of the current tick
	cpuStart  time.Duration
	cpuOK     bool
	rate      float64 // CPUs used without freezes, a moving average; 0 if unknown
	fastUntil time.Duration
	quota     float64

	sampler  *cgroup.Sampler
	options  cgroup.Options
	last     cgroup.Stat
	lastOK   bool
	sum      cgroup.Throttling // throttling measured by earlier samplers
	first    cgroup.Stat
	most     cgroup.Throttling // largest throttling reported so far
	unsplit  cgroup.Throttling // throttling since run delays were last read
	nextLook time.Duration
	nextMove time.Duration

	threads   *schedstat.Reader
	delay     time.Duration
	delayOK   bool
	nextDelay time.Duration
	stolen    *stolen
	steal     time.Duration
	stealOK   bool
}

func (s *state) open(opts Options) {
	s.options = opts.Cgroup
	s.fastUntil = beginning
	s.sum.Verdict = cgroup.VerdictNone
	s.unsplit.Verdict = cgroup.VerdictNone
	s.nextMove = movedEvery
	s.openSampler()
	if opts.Cgroup.PID == 0 && opts.Cgroup.FS == nil {
		s.threads = schedstat.New(0)
		s.stolen = newStolen()
	}
	s.look(&opts, 0)
}

func (s *state) openSampler() {
	s.sampler, s.lastOK = nil, false
	sampler, err := cgroup.NewSampler(s.options)
	if err != nil {
		return
	}
	s.sampler = sampler
	if s.sampler.Sample(&s.last) == nil {
		s.lastOK = true
		s.first = s.last
		if s.last.Has&(cgroup.HasBandwidth|cgroup.HasLocal) != 0 {
			s.snap.Has |= HasThrottling
		}
	}
}

func (s *state) close() {
	if s.sampler != nil {
		s.counters() // what happened since the last look
		s.sampler.Close()
		s.sampler = nil
	}
	s.threads.Close()
	s.stolen.close()
}

func (s *state) interval(o *Options) time.Duration {
	if s.start < s.fastUntil {
		return o.Interval
	}
	return o.IdleInterval
}

// updateUsualCPUs adds the CPU use of a tick without a freeze to usualCPUs.
func (s *state) settle(used float64) {
	if s.rate == 0 {
		s.rate = used
		return
	}
	s.rate += (used - s.rate) / 2
}

func (s *state) nearLimit(used, procs float64, now, interval time.Duration) {
	limit := procs
	if s.quota > 0 {
		limit = min(limit, s.quota)
	}
	if used >= near*limit {
		s.fastUntil = max(s.fastUntil, now+2*time.Second)
	}
}

// readCounters reads the cgroup's counters and returns their growth since the previous
// reading.
func (s *state) counters() cgroup.Throttling {
	unknown := cgroup.Throttling{Verdict: cgroup.VerdictUnknown, How: "no throttling counter can be read"}
	if s.sampler == nil {
		return unknown
	}
	var now cgroup.Stat
	if s.sampler.Sample(&now) != nil {
		s.lastOK = false
		return unknown
	}
	if !s.lastOK {
		s.last, s.lastOK = now, true
		return unknown
	}
	t := cgroup.Compare(&s.last, &now)
	if backwards(&s.last, &now) {
		// The group was replaced: keep the sums and start a new difference.
		s.sum, s.first = s.total(), now
	}
	s.last = now
	add(&s.unsplit, t)
	return t
}

// total returns the throttling since the start. The difference of a sampler's first and
// last reading is more exact than a sum over short windows. The result never falls.
func (s *state) total() cgroup.Throttling {
	t := s.sum
	if s.lastOK {
		add(&t, cgroup.Compare(&s.first, &s.last))
	}
	// The ancestor's part is a difference of two counters. It may shrink a little when
	// the own counter is updated later.
	s.most.Own = max(s.most.Own, t.Own)
	s.most.Ancestor = max(s.most.Ancestor, t.Ancestor)
	s.most.Periods = max(s.most.Periods, t.Periods)
	s.most.ThrottledPeriods = max(s.most.ThrottledPeriods, t.ThrottledPeriods)
	s.most.Verdict, s.most.How = t.Verdict, t.How
	return s.most
}

func backwards(from, to *cgroup.Stat) bool {
	return to.Throttled < from.Throttled || to.Periods < from.Periods || to.Local < from.Local && to.Has&cgroup.HasLocal != 0
}

// addThrottling adds a later window to sum. The verdict is the later window's, unless that
// is none.
func add(sum *cgroup.Throttling, t cgroup.Throttling) {
	sum.Own += t.Own
	sum.Ancestor += t.Ancestor
	sum.Periods += t.Periods
	sum.ThrottledPeriods += t.ThrottledPeriods
	if t.Verdict != cgroup.VerdictNone || sum.Verdict == cgroup.VerdictNone {
		sum.Verdict, sum.How = t.Verdict, t.How
	}
}

// poll reads the counters, the threads and the limits that are due.
func (s *state) look(o *Options, now time.Duration) {
	if now < s.nextLook {
		return
	}
	s.nextLook = now + max(lookEvery, o.Interval)
	if s.interval(o) != o.Interval {
		// Far from the limit ticks are rare, so counters are read at each tick.
		s.nextLook = now
	}
	if now >= s.nextMove {
		s.nextMove = now + movedEvery
		if s.sampler != nil && s.sampler.Moved() {
			s.counters()
			s.sum = s.total()
			s.sampler.Close()
			s.openSampler()
		}
	}
	if s.sampler != nil {
		t := s.counters()
		if t.Own > 0 || t.Ancestor > 0 || t.ThrottledPeriods > 0 {
			s.fastUntil = max(s.fastUntil, now+alert)
		}
	}
	if now >= s.nextDelay {
		s.lookAtThreads(now)
		s.lookAtBounds()
	}
}

func (s *state) lookAtBounds() {
	var b cgroup.Tightest
	s.quota = 0
	if s.sampler != nil && s.sampler.SampleLimits(&b) == nil {
		s.quota = b.Quota
	}
}

func (s *state) lookAtThreads(now time.Duration) {
	s.nextDelay = now + lookEvery
	if _, delay, n, ok := s.threads.Read(); ok {
		s.nextDelay = now + lookEvery*time.Duration(1+n/threadsPerSecond)
		s.snap.Has |= HasRunQueue
		if s.delayOK {
			s.split(delay - s.delay)
		}
		s.delay, s.delayOK = delay, true
	}
	s.unsplit = cgroup.Throttling{Verdict: cgroup.VerdictNone}
	if steal, ok := s.stolen.read(); ok {
		s.snap.Has |= HasSteal
		if s.stealOK {
			s.snap.Steal += max(0, steal-s.steal)
		}
		s.steal, s.stealOK = steal, true
	}
}

// splitRunDelay adds a window's run delay to RunQueue if no quota throttled the process in
// it, else to Unsplit. Neither falls.
func (s *state) split(delay time.Duration) {
	quota := s.unsplit.Own + s.unsplit.Ancestor
	if s.unsplit.Verdict == cgroup.VerdictNone && quota == 0 {
		s.snap.RunQueue += max(0, delay)
		return
	}
	s.snap.Unsplit += max(0, delay-quota)
}
