// Package freeze detects throttling in a trace: the intervals in which the kernel stopped all threads of the process
// because the CPU quota of its cgroup was used up.
//
// In a freeze all threads are silent (write no events) while goroutines are recorded as running. That alone proves
// nothing: a program that computes is silent for 10 to 20 ms at a time, and longer if other processes take its CPUs.
// The evidence is a clock. The kernel refills a quota once a period (100 ms by default), by a timer whose phase does
// not change during the life of the cgroup. So freezes end at one phase of the period, while silences with other
// causes end at any phase.
//
// A Detector reads the generations of a trace in order. While it reads, it offers candidates; at the end its Verdict
// decides which of them were freezes. docs/throttling.md describes the method, its limits, and how it was measured.
package freeze

import (
	"cmp"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// A Class is a set of candidates that are decided together: all of them were freezes, or none. 0 is no class.
type Class uint8

const (
	// Classes. A silence that ends at the phase of a period that is already certain has the class InPhase. Before that, each
	// silence has its own class, from firstSingle on.
	InPhase     Class = 1
	firstSingle Class = 2
	// KnownHold is the class of silences within Detector.KnownHolds.
	KnownHold Class = 255
)

// An Interval is a part of the trace's time.
type Interval struct{ Start, End int64 }

// Length returns the length of the interval in ns.
func (i Interval) Length() int64 { return i.End - i.Start }

// A Candidate is an interval that may turn out to be a freeze. The Verdict decides by its class.
type Candidate struct {
	Interval
	Class Class
}

// BurstNS is how long after a freeze overdue wakes happen: a wake within that time was late because of the freeze.
const BurstNS = 3e6

// Bounds on silences.
const (
	// minSilenceNS is the shortest silence that is examined. The kernel's scheduler lets threads alternate in time
	// slices of about that length.
	minSilenceNS = 3e6
	// maxBusySilenceNS is longer than code that runs is silent: sysmon preempts every 10 ms what has run for 10 ms.
	maxBusySilenceNS = 22e6
	// minSingleNS is the shortest silence that is a candidate before a period is known.
	minSingleNS = 12e6
	// maxSilences bounds the silences that are stored.
	maxSilences = 4096
)

// A Detector finds freezes in the generations of a trace, which must be added in order. Between two calls of Add
// several goroutines may read it.
type Detector struct {
	// Kernel holds facts from the kernel's counters. It may be set until Verdict is called.
	Kernel KernelLimits
	// KnownHolds are the intervals, in order of time, in which the whole process is known to have been held by
	// something other than a quota. Silences in them are not examined. It may be set before the first call of Add.
	KnownHolds []Interval

	// Observed, if not nil, returns the intervals in [from, to) in which the kernel's events show that the process was held
	// back; isKnown is false where there are none. Silences of which it is known are not examined.
	Observed func(from, to int64) (held []Interval, isKnown bool)

	silences      []silence   // in order of time
	longSilences  []Interval  // silences longer than maxBusySilenceNS, whatever ran; at most maxSilences of them
	candidates    []Candidate // in order of time
	droppedLoss   loss        // of the silences that were dropped
	end           int64       // of the generations so far
	start         int64
	idleNS        int64 // total length of silences in which nothing ran
	maxProcs      int
	isFromOutside bool // the trace has too few events to infer freezes
	singleCount   int
	generations   int
	nextSearch    int       // the number of generations at which to search for a period again
	hasDropped    bool      // silences were dropped
	current       phaseLock // the period as far as it is known
}

// KernelLimits are facts from the kernel's counters, if they were read.
type KernelLimits struct {
	CPUs     int   // that the process could use at once; 0 if unknown
	PeriodNS int64 // of its quota; 0 if unknown or without a quota
	// Verdict is ThrottleOwn, ThrottleAncestor or ThrottleNone if that was measured for the whole trace.
	Verdict report.ThrottleVerdict
}

// hasStuckThread reports whether a thread without a goroutine held a P for longer than any thread does unless the kernel stops
// it. In the scheduler a thread holds a P for microseconds; in a system call until sysmon takes it, at its second check at the
// latest. (A thread without a P may have slept.) A stuck thread is no evidence of a clock, so it does not contribute to the
// verdict; see phaseLock.isFreeze.
func (s *silence) hasStuckThread() bool {
	return s.InScheduler > 0 && s.Length() >= minSingleNS || s.hasStuckSyscall()
}

// hasStuckSyscall reports whether a thread held a P in a system call for as long as only a freeze explains.
func (s *silence) hasStuckSyscall() bool { return s.InSyscall > 0 && s.Length() >= longFreezeNS }

// heldThreads returns the number of threads that a freeze stopped, as far as the trace shows them.
func (s *silence) heldThreads() int {
	n := s.Running
	if s.Resumed == 0 {
		n += s.InScheduler
		if s.hasStuckSyscall() {
			n += s.InSyscall
		}
		if n == 0 && s.hasReadyGoroutine {
			n = 1
		}
	}
	return n
}

// A loss is the number of freezes and the time that they took: wallNS of the process, cpuNS summed over its CPUs.
type loss struct {
	freezes       int
	wallNS, cpuNS int64
}

// Add examines the silences of the next generation, the intervals in which no thread wrote an event: it stores those that may be
// freezes, and adds candidates for them.
func (d *Detector) Add(g *timeline.Gen) {
	d.start = cmp.Or(d.start, g.Base)
	for _, p := range g.Procs {
		d.maxProcs = max(d.maxProcs, p.N)
	}
	d.isFromOutside = d.isFromOutside || g.PsUnknown
	firstSilence, firstCandidate := len(d.silences), len(d.candidates)
	var loads goroutineLoads
	for _, s := range silencesOf(g, d.end, minSilenceNS) {
		if s.Running == 0 {
			d.idleNS += s.End - s.Start
		}
		if s.Length() >= maxBusySilenceNS && len(d.longSilences) < maxSilences {
			d.longSilences = append(d.longSilences, s.Interval)
		}
		if h, ok := d.knownHold(s.Interval); ok {
			d.candidates = append(d.candidates, Candidate{h, KnownHold})
			continue
		}
		s.hasReadyGoroutine = s.Running == 0 && s.Length() >= minSingleNS && loads.hasReadyGoroutine(g, s.Start, s.End)
		if held, isKnown := d.observedHolds(s.Interval); isKnown {
			for _, h := range held {
				d.candidates = append(d.candidates, Candidate{h, KnownHold})
			}
			continue
		}
		// A trace from outside has too few events: goroutines that only compute are silent in it between two preemptions.
		if !g.PsUnknown && (s.Running > 0 || s.hasStuckThread() || s.hasReadyGoroutine) {
			d.silences = append(d.silences, s)
		}
	}
	d.end = g.End
	d.generations++
	if firstSilence == len(d.silences) {
		return
	}
	if !d.current.isSure() && d.generations >= d.nextSearch {
		// The search takes time, so it is not repeated for every generation.
		d.current = d.findLock(d.nextSearch == 0 || d.generations >= 8)
		d.nextSearch = d.generations + max(1, d.generations/2)
	}
	age := d.meanEventAge(&d.current)
	for i := firstSilence; i < len(d.silences); i++ {
		s := &d.silences[i]
		d.classify(s)
		if s.class != 0 {
			d.candidates = append(d.candidates, Candidate{Interval{s.Start + min(age, s.Length()/2), s.End}, s.class})
		}
	}
	slices.SortFunc(d.candidates[firstCandidate:], func(a, b Candidate) int { return cmp.Compare(a.End, b.End) })
	d.dropOldSilences()
}

// observedHolds returns the intervals within a silence in which the kernel's events show that the process was held back; isKnown is
// false without such events.
func (d *Detector) observedHolds(s Interval) (held []Interval, isKnown bool) {
	if d.Observed == nil {
		return nil, false
	}
	return d.Observed(s.Start, s.End)
}

// knownHold returns the part of a silence in which the process is known to have been stopped by something other than a quota
// (KnownHolds); false if there is none.
func (d *Detector) knownHold(s Interval) (held Interval, ok bool) {
	i, _ := slices.BinarySearchFunc(d.KnownHolds, s.Start, func(h Interval, t int64) int { return cmp.Compare(h.End, t+1) })
	if i == len(d.KnownHolds) || d.KnownHolds[i].Start >= s.End {
		return Interval{}, false
	}
	return Interval{max(s.Start, d.KnownHolds[i].Start), min(s.End, d.KnownHolds[i].End)}, true
}

// goroutineLoads has the number of ready goroutines in each step of a generation, computed on demand.
type goroutineLoads struct {
	steps  []timeline.Load
	stepNS int64
}

// loadStepNS is short compared with the silences for which loads are needed.
const loadStepNS = 2e6

// hasReadyGoroutine reports whether some goroutine was ready to run in every whole step in [from, to), and there is such a step.
// The part of the interval before the generation is ignored.
func (l *goroutineLoads) hasReadyGoroutine(g *timeline.Gen, from, to int64) bool {
	if l.steps == nil {
		l.steps, l.stepNS = g.Loads(g.End, loadStepNS)
	}
	begin := g.Base - g.Base%l.stepNS // of the first step
	n := 0
	for i := int((max(from, g.Base) - begin + l.stepNS - 1) / l.stepNS); i < len(l.steps) && begin+int64(i+1)*l.stepNS <= to; i++ {
		if l.steps[i].Runnable < l.stepNS*95/100 {
			return false
		}
		n++
	}
	return n > 0
}

// LongSilences returns the silences longer than running code is silent, in order of time, whether or not a goroutine ran. In a
// long trace it has only the first ones. Earlier results stay valid.
func (d *Detector) LongSilences() []Interval { return d.longSilences }

// SkipGeneration must be called if the next generation is missing: silences before it do not continue.
func (d *Detector) SkipGeneration() { d.end = 0 }

// meanEventAge returns the mean time, in ns, from the last event before a random instant of normal running time to that instant
// (the mean age of a renewal process, Cox, "Renewal Theory", 1962). A freeze begins about that much later than its silence.
func (d *Detector) meanEventAge(lock *phaseLock) int64 {
	if len(d.silences) == 0 {
		return 0
	}
	from := d.start
	if d.hasDropped {
		from = d.silences[0].Start
	}
	squares, running := 0.0, float64(d.end-from)
	for s := range entry.Each(d.silences) {
		switch l := float64(s.Length()); {
		case lock.isSure() && lock.isFreeze(s) || s.Running > 0 && s.Length() >= maxBusySilenceNS:
			running -= l
		case s.Running > 0:
			squares += l * l
		}
	}
	if running <= 0 {
		return 0
	}
	return min(int64(squares/(2*running)), maxEventAge)
}

// maxEventAge bounds meanEventAge: sysmon checks running code every 10 ms.
const maxEventAge = 10e6

// classify sets the class of a silence: InPhase if it fits a period that is certain, its own class if it may be a freeze and no
// period is certain yet, else 0.
func (d *Detector) classify(s *silence) {
	switch {
	case d.current.isSure():
		if d.current.isFreeze(s) {
			s.class = InPhase
		}
	case (s.Resumed > 0 && s.Length() >= minSingleNS || s.hasStuckThread() || s.hasReadyGoroutine) && d.singleCount < 250:
		s.class = firstSingle + Class(d.singleCount)
		d.singleCount++
	}
}

// dropOldSilences drops the oldest silences of a long trace, and adds the freezes among them to droppedLoss.
func (d *Detector) dropOldSilences() {
	if len(d.silences) < maxSilences {
		return
	}
	old := d.silences[:len(d.silences)-maxSilences/2]
	if d.current.isSure() {
		d.droppedLoss.addFreezes(old, &d.current, d.cpuCount())
	}
	d.silences = append(d.silences[:0], d.silences[len(old):]...)
	d.candidates = append(d.candidates[:0], d.candidates[d.firstCandidateAfter(d.silences[0].Start):]...)
	d.hasDropped = true
}

// HasCandidates reports whether EachCandidate would call its function for [from, to).
func (d *Detector) HasCandidates(from, to int64) bool {
	i := d.firstCandidateAfter(from - BurstNS)
	return i < len(d.candidates) && d.candidates[i].Start < to
}

// firstCandidateAfter returns the index of the first candidate that ends at t or later.
func (d *Detector) firstCandidateAfter(t int64) int {
	return sort.Search(len(d.candidates), func(i int) bool { return d.candidates[i].End >= t })
}

// EachCandidate calls f for each candidate that overlaps [from, to) or ends within BurstNS before it, in order of time.
func (d *Detector) EachCandidate(from, to int64, f func(Candidate)) {
	for i := d.firstCandidateAfter(from - BurstNS); i < len(d.candidates) && d.candidates[i].Start < to; i++ {
		f(d.candidates[i])
	}
}

// addFreezes adds the silences that are freezes by a phase lock. At most cpus threads of a freeze would have run.
func (l *loss) addFreezes(silences []silence, lock *phaseLock, cpus int) {
	for s := range entry.Each(silences) {
		if lock.isFreeze(s) {
			l.freezes++
			l.wallNS += s.Length() - s.startShift
			// The kernel counts until the refill, not until a thread runs.
			l.cpuNS += max(s.Length()-s.startShift-lock.delayAfterRefill(s), 0) * int64(min(s.heldThreads(), cpus))
		}
	}
}
