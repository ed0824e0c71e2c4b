// Package freeze finds, in a bare trace, the stretches in which the kernel held
// the process's threads back because the CPU quota of its cgroup was used up.
//
// In a freeze all threads fall silent while goroutines are shown running. That
// alone proves nothing: a program that computes is silent for 10 to 20 ms at a
// time, and one beside busy neighbours for longer. The evidence is the clock:
// the kernel refills a quota once a period (100 ms by default) by a timer that
// keeps its phase for the life of the group, so freezes end at one phase of the
// period, while what neighbours cause ends at any. docs/throttling.md has the
// method, its limits, and what it was measured on.
package freeze

import (
	"cmp"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// Class says which decision a candidate falls under: see Detector.Candidates.
// 0 is none.
type Class uint8

// Locked is the class of silences that were found at the phase of a period that
// was sure by then. Before, each has a class of its own, from single on.
const (
	InPhase     Class = 1
	firstSingle Class = 2
	// KnownHold is the class of silences in which something held the whole process: see Detector.Held.
	KnownHold Class = 255
)

// An Interval is a part of the trace's time.
type Interval struct{ Start, End int64 }

// Length returns how long it lasts.
func (i Interval) Length() int64 { return i.End - i.Start }

// A Candidate is an interval that may turn out to be a freeze.
type Candidate struct {
	Interval
	Class Class
}

// BurstNS is how long after a freeze what fell due in it is made up for: a
// wake then was late.
const BurstNS = 3e6

// Bounds on silences.
const (
	// minSilenceNS is the shortest silence looked at. The scheduler of the kernel lets
	// threads run in turns of about that length.
	minSilenceNS = 3e6
	// maxBusySilenceNS is longer than running code is silent by itself: the runtime's
	// monitor looks every 10 ms and stops what has run for 10 ms.
	maxBusySilenceNS = 22e6
	// minSingleNS is the shortest silence that is a candidate before a period is
	// known.
	minSingleNS = 12e6
	// maxSilences bounds the silences kept.
	maxSilences = 4096
)

// A Detector is fed with the generations of a trace, in order. It may be read
// by many goroutines between two calls of Add.
type Detector struct {
	// Kernel holds facts from outside of the trace. It may be set until Verdict is called.
	Kernel KernelLimits
	// KnownHolds are the intervals in which something else than a quota is known to have held the whole process, in order of
	// time: silences in them are decided. It may be set before the first Add.
	KnownHolds []Interval

	silences     []silence   // in order of time
	longSilences []Interval  // long ones, whatever ran; the first
	candidates   []Candidate // of them
	droppedLoss  loss        // of those not kept any more
	end          int64
	start        int64
	idleNS       int64 // in silences while nothing ran
	maxProcs     int
	singleCount  int
	generations  int
	nextSearch   int
	hasDropped   bool      // there are dropped ones
	current      phaseLock // the period as far as it is known
}

// KernelLimits holds limits by the kernel's counters, if they were read.
type KernelLimits struct {
	CPUs     int   // that the process could use at once; 0: not known
	PeriodNS int64 // of its quota; 0: not known, or there is none
	// Verdict is own, ancestor or none if that was measured for all of the trace.
	Verdict report.ThrottleVerdict
}

// hasStuckThread reports whether a thread that ran no goroutine kept a P for longer than
// any does unless it is held back: in the scheduler for microseconds, in a
// system call until the runtime's monitor takes the P, after at most two of its
// looks. Without a P a thread may have slept. That is no evidence of a clock,
// so it has no part in the verdict; see lock.holds.
func (s *silence) hasStuckThread() bool {
	return s.InScheduler > 0 && s.Length() >= minSingleNS || s.hasStuckSyscall()
}

func (s *silence) hasStuckSyscall() bool { return s.InSyscall > 0 && s.Length() >= longFreezeNS }

// heldThreads is how many threads a freeze held back, as far as is known.
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

// loss is what freezes took.
type loss struct {
	freezes       int
	wallNS, cpuNS int64
}

// Add looks at the next generation.
func (d *Detector) Add(g *timeline.Gen) {
	if d.start == 0 {
		d.start = g.Base
	}
	for _, p := range g.Procs {
		d.maxProcs = max(d.maxProcs, p.N)
	}
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
		if s.Running > 0 || s.hasStuckThread() || s.hasReadyGoroutine {
			d.silences = append(d.silences, s)
		}
	}
	d.end = g.End
	d.generations++
	if firstSilence == len(d.silences) {
		return
	}
	if !d.current.isSure() && d.generations >= d.nextSearch {
		// Seldom: looking for a period takes time.
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

// knownHold returns the part of a silence in which the process is known to have been held.
func (d *Detector) knownHold(s Interval) (Interval, bool) {
	i, _ := slices.BinarySearchFunc(d.KnownHolds, s.Start, func(h Interval, t int64) int { return cmp.Compare(h.End, t+1) })
	if i == len(d.KnownHolds) || d.KnownHolds[i].Start >= s.End {
		return Interval{}, false
	}
	return Interval{max(s.Start, d.KnownHolds[i].Start), min(s.End, d.KnownHolds[i].End)}, true
}

// goroutineLoads is how many goroutines were ready to run in each step of a generation,
// once that was asked for.
type goroutineLoads struct {
	steps  []timeline.Load
	stepNS int64
}

// loadStepNS is short against the silences that are asked about.
const loadStepNS = 2e6

// hasReadyGoroutine reports whether a goroutine was ready to run all through a stretch of a
// generation; what of it lies in the one before is not looked at.
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

// LongSilences returns the silences that are longer than code is silent by itself, whatever ran, in order of time: of a long
// trace the first. What it returned before stays valid.
func (d *Detector) LongSilences() []Interval { return d.longSilences }

// SkipGeneration says that a generation is missing: what was before cannot be joined.
func (d *Detector) SkipGeneration() { d.end = 0 }

// meanEventAge is how long ago the last event was at an instant in which the process was
// not held back, on average (the mean age of a renewal process, Cox, "Renewal
// Theory", 1962): as much later than its silence a freeze begins.
func (d *Detector) meanEventAge(lock *phaseLock) int64 {
	if len(d.silences) == 0 {
		return 0
	}
	from := d.start
	if d.hasDropped {
		from = d.silences[0].Start
	}
	squares, running := 0.0, float64(d.end-from)
	for i := range d.silences {
		s := &d.silences[i]
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

// maxEventAge bounds age: the runtime's monitor looks at running code every 10 ms.
const maxEventAge = 10e6

// classify gives a silence its class.
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

// dropOldSilences forgets the oldest silences of a long trace.
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

// HasCandidates reports whether there are candidates for [from, to).
func (d *Detector) HasCandidates(from, to int64) bool {
	i := d.firstCandidateAfter(from - BurstNS)
	return i < len(d.candidates) && d.candidates[i].Start < to
}

// firstCandidateAfter returns the index of the first candidate that ends at t or later.
func (d *Detector) firstCandidateAfter(t int64) int {
	return sort.Search(len(d.candidates), func(i int) bool { return d.candidates[i].End >= t })
}

// EachCandidate calls f for each candidate that overlaps [from, to) or ends within
// BurstNS before it, in order of time.
func (d *Detector) EachCandidate(from, to int64, f func(Candidate)) {
	for i := d.firstCandidateAfter(from - BurstNS); i < len(d.candidates) && d.candidates[i].Start < to; i++ {
		f(d.candidates[i])
	}
}

func (l *loss) addFreezes(silences []silence, lock *phaseLock, cpus int) {
	for i := range silences {
		s := &silences[i]
		if lock.isFreeze(s) {
			l.freezes++
			l.wallNS += s.Length() - s.startShift
			// The kernel counts to the refill, not until a thread has run.
			l.cpuNS += max(s.Length()-s.startShift-lock.delayAfterRefill(s), 0) * int64(min(s.heldThreads(), cpus))
		}
	}
}
