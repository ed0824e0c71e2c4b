package probe

import (
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/schedstat"
)

const (
	// alert is how long ticks stay fast after any sign of throttling: some
	// scrapes of a minute or a burst every few seconds are then seen whole.
	alert = 10 * time.Second
	// beginning is how long ticks are fast at first: most processes are busiest
	// when they start.
	beginning = 2 * time.Second
	// near is the share of its limit from which on a process is watched
	// closely. Spread over a period, less than that cannot be throttled;
	// bursts that are throttled all the same show in the counters.
	near = 0.5
	// lookEvery is the pace of the counters when nothing happens.
	lookEvery = time.Second
	// threadsPerSecond bounds the reading of schedstat files: with more
	// threads it is done less often. One costs some 3 µs.
	threadsPerSecond = 32
	// movedEvery is the pace of looking whether the process was moved to
	// another cgroup.
	movedEvery = 10 * time.Second
)

// state is what the measuring goroutine knows; Probe.mu guards it.
type state struct {
	snap Snapshot

	start     time.Duration // of the tick that is under way
	cpuStart  time.Duration
	cpuOK     bool
	rate      float64 // CPUs used when last undisturbed; 0 before that is known
	fastUntil time.Duration
	quota     float64

	sampler  *cgroup.Sampler
	options  cgroup.Options
	last     cgroup.Stat
	lastOK   bool
	sum      cgroup.Throttling // of earlier samplers
	first    cgroup.Stat
	most     cgroup.Throttling // reported so far
	unsplit  cgroup.Throttling // since run delay was last read
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

// settle follows the process's undisturbed use of CPUs over a few ticks.
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

// counters reads the cgroup's counters and says how much they grew since the last
// time.
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
		// The group was replaced: keep the sums and begin again.
		s.sum, s.first = s.total(), now
	}
	s.last = now
	add(&s.unsplit, t)
	return t
}

// total is the throttling since the start. Differences of a sampler's first
// and last reading are more exact than a sum of verdicts over short windows.
// Counters never fall: a replaced group begins a new difference.
func (s *state) total() cgroup.Throttling {
	t := s.sum
	if s.lastOK {
		add(&t, cgroup.Compare(&s.first, &s.last))
	}
	// What belongs to an ancestor is a difference of two clocks, which may
	// shrink a little when the own one catches up.
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

// add puts two windows together. The verdict is the later's, unless that
// measured nothing and the earlier did.
func add(sum *cgroup.Throttling, t cgroup.Throttling) {
	sum.Own += t.Own
	sum.Ancestor += t.Ancestor
	sum.Periods += t.Periods
	sum.ThrottledPeriods += t.ThrottledPeriods
	if t.Verdict != cgroup.VerdictNone || sum.Verdict == cgroup.VerdictNone {
		sum.Verdict, sum.How = t.Verdict, t.How
	}
}

// look reads what changes slowly, when it is time.
func (s *state) look(o *Options, now time.Duration) {
	if now < s.nextLook {
		return
	}
	s.nextLook = now + max(lookEvery, o.Interval)
	if s.interval(o) != o.Interval {
		// Far from the limit ticks are rare, so counters are read at each.
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

// split gives a window's run delay to the run queue if no quota held the
// process back in it. Neither grows by less than nothing.
func (s *state) split(delay time.Duration) {
	quota := s.unsplit.Own + s.unsplit.Ancestor
	if s.unsplit.Verdict == cgroup.VerdictNone && quota == 0 {
		s.snap.RunQueue += max(0, delay)
		return
	}
	s.snap.Unsplit += max(0, delay-quota)
}
