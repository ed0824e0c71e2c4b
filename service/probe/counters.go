package probe

import (
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/schedstat"
)

const (
	// alertDuration is how long ticks remain fast after a sign of throttling, so that bursts
	// every few seconds are measured completely.
	alertDuration = 10 * time.Second
	// startDuration is how long ticks are fast after the start, when most processes are
	// busiest.
	startDuration = 2 * time.Second
	// nearLimitShare is the share of its limit from which on a process has fast ticks. An
	// evenly spread smaller use is not throttled; bursts that are throttled nevertheless
	// show in the counters.
	nearLimitShare = 0.5
	// pollInterval is the interval at which counters are read without throttling.
	pollInterval = time.Second
	// threadsPerSecond bounds the reading of schedstat files, each of which costs about
	// 3 µs: with more threads they are read less often.
	threadsPerSecond = 32
	// movedInterval is the interval of checks whether the process was moved to another
	// cgroup.
	movedInterval = 10 * time.Second
)

// state is the measuring goroutine's state, guarded by Probe.mu.
type state struct {
	snap Snapshot

	tickStart time.Duration // start of the current tick
	cpuStart  time.Duration
	cpuOK     bool
	usualCPUs float64 // CPUs used without freezes, a moving average; 0 if unknown
	fastUntil time.Duration
	quota     float64

	sampler         *cgroup.Sampler
	options         cgroup.Options
	lastStat        cgroup.Stat
	lastStatOK      bool
	earlierSamplers cgroup.Throttling // throttling measured by earlier samplers
	firstStat       cgroup.Stat
	reported        cgroup.Throttling // largest throttling reported so far
	unsplit         cgroup.Throttling // throttling since run delays were last read
	nextPoll        time.Duration
	nextMovedCheck  time.Duration

	threads        *schedstat.Reader
	runDelay       time.Duration
	runDelayOK     bool
	nextThreadRead time.Duration
	stealReader    *stealReader
	lastSteal      time.Duration
	lastStealOK    bool
}

// open opens the counters and reads them for the first time.
func (s *state) open(opts Options) {
	s.options = opts.Cgroup
	s.fastUntil = startDuration
	s.earlierSamplers.Verdict = cgroup.VerdictNone
	s.unsplit.Verdict = cgroup.VerdictNone
	s.nextMovedCheck = movedInterval
	s.openSampler()
	if opts.Cgroup.PID == 0 && opts.Cgroup.FS == nil {
		s.threads = schedstat.New(0)
		s.stealReader = newStealReader()
	}
	s.poll(&opts, 0)
}

// openSampler opens the counters of the process's current group.
func (s *state) openSampler() {
	s.sampler, s.lastStatOK = nil, false
	sampler, err := cgroup.NewSampler(s.options)
	if err != nil {
		return
	}
	s.sampler = sampler
	if s.sampler.Sample(&s.lastStat) == nil {
		s.lastStatOK = true
		s.firstStat = s.lastStat
		if s.lastStat.Has&(cgroup.HasBandwidth|cgroup.HasLocal) != 0 {
			s.snap.Has |= HasThrottling
		}
	}
}

// close adds the throttling since the last poll, and closes the counters.
func (s *state) close() {
	if s.sampler != nil {
		s.readCounters() // throttling since the last poll
		s.sampler.Close()
		s.sampler = nil
	}
	s.threads.Close()
	s.stealReader.close()
}

// interval returns the present interval between ticks: the short one of Options until fastUntil, else the idle one.
func (s *state) interval(o *Options) time.Duration {
	if s.tickStart < s.fastUntil {
		return o.Interval
	}
	return o.IdleInterval
}

// updateUsualCPUs moves usualCPUs half of the way to the number of CPUs used in a tick without a freeze.
func (s *state) updateUsualCPUs(usedCPUs float64) {
	if s.usualCPUs == 0 {
		s.usualCPUs = usedCPUs
		return
	}
	s.usualCPUs += (usedCPUs - s.usualCPUs) / 2
}

// speedUpNearLimit makes ticks fast until two seconds after now (time since the start) if the process used nearly as many CPUs as procs (GOMAXPROCS)
// and its quota allow.
func (s *state) speedUpNearLimit(used, procs float64, now time.Duration) {
	limit := procs
	if s.quota > 0 {
		limit = min(limit, s.quota)
	}
	if used >= nearLimitShare*limit {
		s.fastUntil = max(s.fastUntil, now+2*time.Second)
	}
}

// readCounters reads the cgroup's counters, and returns their growth since the previous reading, which it also adds to unsplit. The verdict is
// unknown if one of the two readings is missing.
func (s *state) readCounters() cgroup.Throttling {
	unknown := cgroup.Throttling{Verdict: cgroup.VerdictUnknown, Evidence: "no throttling counter can be read"}
	if s.sampler == nil {
		return unknown
	}
	var now cgroup.Stat
	if s.sampler.Sample(&now) != nil {
		s.lastStatOK = false
		return unknown
	}
	if !s.lastStatOK {
		s.lastStat, s.lastStatOK = now, true
		return unknown
	}
	t := cgroup.Compare(&s.lastStat, &now)
	if wentBackwards(&s.lastStat, &now) {
		// The group was replaced: keep the sums and start a new difference.
		s.earlierSamplers, s.firstStat = s.total(), now
	}
	s.lastStat = now
	addThrottling(&s.unsplit, t)
	return t
}

// total returns the throttling since the start. The difference of a sampler's first and
// last reading is more exact than a sum over short windows. The result never falls.
func (s *state) total() cgroup.Throttling {
	t := s.earlierSamplers
	if s.lastStatOK {
		addThrottling(&t, cgroup.Compare(&s.firstStat, &s.lastStat))
	}
	// The ancestor's part is a difference of two counters. It may shrink a little when
	// the own counter is updated later.
	s.reported.Own = max(s.reported.Own, t.Own)
	s.reported.Ancestor = max(s.reported.Ancestor, t.Ancestor)
	s.reported.Periods = max(s.reported.Periods, t.Periods)
	s.reported.ThrottledPeriods = max(s.reported.ThrottledPeriods, t.ThrottledPeriods)
	s.reported.Verdict, s.reported.Evidence = t.Verdict, t.Evidence
	return s.reported
}

// wentBackwards reports whether a counter fell, because the group was replaced.
func wentBackwards(from, to *cgroup.Stat) bool {
	return to.Throttled < from.Throttled || to.Periods < from.Periods || to.Local < from.Local && to.Has&cgroup.HasLocal != 0
}

// addThrottling adds a later window to sum. The verdict is the later window's, unless that
// is none.
func addThrottling(sum *cgroup.Throttling, t cgroup.Throttling) {
	sum.Own += t.Own
	sum.Ancestor += t.Ancestor
	sum.Periods += t.Periods
	sum.ThrottledPeriods += t.ThrottledPeriods
	if t.Verdict != cgroup.VerdictNone || sum.Verdict == cgroup.VerdictNone {
		sum.Verdict, sum.Evidence = t.Verdict, t.Evidence
	}
}

// poll reads those of the counters, the threads and the limits that are due at now, the time since the start, and adds them to the snapshot.
func (s *state) poll(o *Options, now time.Duration) {
	if now < s.nextPoll {
		return
	}
	s.nextPoll = now + max(pollInterval, o.Interval)
	if s.interval(o) != o.Interval {
		// Far from the limit ticks are rare, so counters are read at each tick.
		s.nextPoll = now
	}
	if now >= s.nextMovedCheck {
		s.nextMovedCheck = now + movedInterval
		if s.sampler != nil && s.sampler.Moved() {
			s.readCounters()
			s.earlierSamplers = s.total()
			s.sampler.Close()
			s.openSampler()
		}
	}
	if s.sampler != nil {
		t := s.readCounters()
		if t.Own > 0 || t.Ancestor > 0 || t.ThrottledPeriods > 0 {
			s.fastUntil = max(s.fastUntil, now+alertDuration)
		}
	}
	if now >= s.nextThreadRead {
		s.readThreads(now)
		s.readQuota()
	}
}

// readQuota sets s.quota to the tightest quota, in CPUs; 0 without one.
func (s *state) readQuota() {
	var b cgroup.Tightest
	s.quota = 0
	if s.sampler != nil && s.sampler.SampleLimits(&b) == nil {
		s.quota = b.Quota
	}
}

// readThreads adds the growth of the threads' run delays and of the stolen time to the snapshot, and begins a new window of unsplit.
func (s *state) readThreads(now time.Duration) {
	s.nextThreadRead = now + pollInterval
	if _, delay, n, ok := s.threads.Read(); ok {
		s.nextThreadRead = now + pollInterval*time.Duration(1+n/threadsPerSecond)
		s.snap.Has |= HasRunQueue
		if s.runDelayOK {
			s.splitRunDelay(delay - s.runDelay)
		}
		s.runDelay, s.runDelayOK = delay, true
	}
	s.unsplit = cgroup.Throttling{Verdict: cgroup.VerdictNone}
	if steal, ok := s.stealReader.read(); ok {
		s.snap.Has |= HasSteal
		if s.lastStealOK {
			s.snap.Steal += max(0, steal-s.lastSteal)
		}
		s.lastSteal, s.lastStealOK = steal, true
	}
}

// splitRunDelay adds a window's run delay to RunQueue if no quota throttled the process in it, else its part beyond the throttled time to Unsplit.
// Neither sum falls.
func (s *state) splitRunDelay(delay time.Duration) {
	quota := s.unsplit.Own + s.unsplit.Ancestor
	if s.unsplit.Verdict == cgroup.VerdictNone && quota == 0 {
		s.snap.RunQueue += max(0, delay)
		return
	}
	s.snap.Unsplit += max(0, delay-quota)
}
