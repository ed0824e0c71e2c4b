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
	Locked Class = 1
	single Class = 2
	// Held is the class of silences in which something held the whole process: see Detector.Held.
	Held Class = 255
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
	// least is the shortest silence looked at. The scheduler of the kernel lets
	// threads run in turns of about that length.
	least = 3e6
	// ownTurns is longer than running code is silent by itself: the runtime's
	// monitor looks every 10 ms and stops what has run for 10 ms.
	ownTurns = 22e6
	// singled is the shortest silence that is a candidate before a period is
	// known.
	singled = 12e6
	// maxKept bounds the silences kept.
	maxKept = 4096
)

// A Detector is fed with the generations of a trace, in order. It may be read
// by many goroutines between two calls of Add.
type Detector struct {
	// Known holds facts from outside of the trace. It may be set until Verdict is called.
	Known Known
	// Held are the intervals in which something else than a quota is known to have held the whole process, in order of
	// time: silences in them are decided. It may be set before the first Add.
	Held []Interval

	kept    []silence   // in order of time
	quiet   []Interval  // long ones, whatever ran; the first
	may     []Candidate // of them
	dropped lost        // of those not kept any more
	since   int64
	from    int64
	idle    int64 // in silences while nothing ran
	procs   int
	singles int
	gens    int
	nextTry int
	lost    bool // there are dropped ones
	now     lock // the period as far as it is known
}

// Known holds limits by the kernel's counters, if they were read.
type Known struct {
	CPUs     int   // that the process could use at once; 0: not known
	PeriodNS int64 // of its quota; 0: not known, or there is none
	// Verdict is own, ancestor or none if that was measured for all of the trace.
	Verdict report.ThrottleVerdict
}

// stuck reports whether a thread that ran no goroutine kept a P for longer than
// any does unless it is held back: in the scheduler for microseconds, in a
// system call until the runtime's monitor takes the P, after at most two of its
// looks. Without a P a thread may have slept. That is no evidence of a clock,
// so it has no part in the verdict; see lock.holds.
func (s *silence) stuck() bool {
	return s.Between > 0 && s.Length() >= singled || s.callStuck()
}

func (s *silence) callStuck() bool { return s.Called > 0 && s.Length() >= longFreeze }

// threads is how many threads a freeze held back, as far as is known.
func (s *silence) threads() int {
	n := s.Running
	if s.Resumed == 0 {
		n += s.Between
		if s.callStuck() {
			n += s.Called
		}
		if n == 0 && s.ready {
			n = 1
		}
	}
	return n
}

// lost is what freezes took.
type lost struct {
	freezes   int
	wall, cpu int64
}

// Add looks at the next generation.
func (d *Detector) Add(g *timeline.Gen) {
	if d.from == 0 {
		d.from = g.Base
	}
	for _, p := range g.Procs {
		d.procs = max(d.procs, p.N)
	}
	first, may := len(d.kept), len(d.may)
	var loads loads
	for _, s := range silences(g, d.since, least) {
		if s.Running == 0 {
			d.idle += s.End - s.Start
		}
		if s.Length() >= ownTurns && len(d.quiet) < maxKept {
			d.quiet = append(d.quiet, s.Interval)
		}
		if h, ok := d.held(s.Interval); ok {
			d.may = append(d.may, Candidate{h, Held})
			continue
		}
		s.ready = s.Running == 0 && s.Length() >= singled && loads.ready(g, s.Start, s.End)
		if s.Running > 0 || s.stuck() || s.ready {
			d.kept = append(d.kept, s)
		}
	}
	d.since = g.End
	d.gens++
	if first == len(d.kept) {
		return
	}
	if !d.now.sure() && d.gens >= d.nextTry {
		// Seldom: looking for a period takes time.
		d.now = d.find(d.nextTry == 0 || d.gens >= 8)
		d.nextTry = d.gens + max(1, d.gens/2)
	}
	age := d.age(&d.now)
	for i := first; i < len(d.kept); i++ {
		s := &d.kept[i]
		d.classify(s)
		if s.class != 0 {
			d.may = append(d.may, Candidate{Interval{s.Start + min(age, s.Length()/2), s.End}, s.class})
		}
	}
	slices.SortFunc(d.may[may:], func(a, b Candidate) int { return cmp.Compare(a.End, b.End) })
	d.shorten()
}

// held returns the part of a silence in which the process is known to have been held.
func (d *Detector) held(s Interval) (Interval, bool) {
	i, _ := slices.BinarySearchFunc(d.Held, s.Start, func(h Interval, t int64) int { return cmp.Compare(h.End, t+1) })
	if i == len(d.Held) || d.Held[i].Start >= s.End {
		return Interval{}, false
	}
	return Interval{max(s.Start, d.Held[i].Start), min(s.End, d.Held[i].End)}, true
}

// loads is how many goroutines were ready to run in each step of a generation,
// once that was asked for.
type loads struct {
	list []timeline.Load
	step int64
}

// loadStep is short against the silences that are asked about.
const loadStep = 2e6

// ready reports whether a goroutine was ready to run all through a stretch of a
// generation; what of it lies in the one before is not looked at.
func (l *loads) ready(g *timeline.Gen, from, to int64) bool {
	if l.list == nil {
		l.list, l.step = g.Loads(g.End, loadStep)
	}
	begin := g.Base - g.Base%l.step // of the first step
	n := 0
	for i := int((max(from, g.Base) - begin + l.step - 1) / l.step); i < len(l.list) && begin+int64(i+1)*l.step <= to; i++ {
		if l.list[i].Runnable < l.step*95/100 {
			return false
		}
		n++
	}
	return n > 0
}

// Quiet returns the silences that are longer than code is silent by itself, whatever ran, in order of time: of a long
// trace the first. What it returned before stays valid.
func (d *Detector) Quiet() []Interval { return d.quiet }

// Skip says that a generation is missing: what was before cannot be joined.
func (d *Detector) Skip() { d.since = 0 }

// age is how long ago the last event was at an instant in which the process was
// not held back, on average (the mean age of a renewal process, Cox, "Renewal
// Theory", 1962): as much later than its silence a freeze begins.
func (d *Detector) age(by *lock) int64 {
	if len(d.kept) == 0 {
		return 0
	}
	from := d.from
	if d.lost {
		from = d.kept[0].Start
	}
	square, running := 0.0, float64(d.since-from)
	for i := range d.kept {
		s := &d.kept[i]
		switch l := float64(s.Length()); {
		case by.sure() && by.holds(s) || s.Running > 0 && s.Length() >= ownTurns:
			running -= l
		case s.Running > 0:
			square += l * l
		}
	}
	if running <= 0 {
		return 0
	}
	return min(int64(square/(2*running)), mostAge)
}

// mostAge bounds age: the runtime's monitor looks at running code every 10 ms.
const mostAge = 10e6

// classify gives a silence its class.
func (d *Detector) classify(s *silence) {
	switch {
	case d.now.sure():
		if d.now.holds(s) {
			s.class = Locked
		}
	case (s.Resumed > 0 && s.Length() >= singled || s.stuck() || s.ready) && d.singles < 250:
		s.class = single + Class(d.singles)
		d.singles++
	}
}

// shorten forgets the oldest silences of a long trace.
func (d *Detector) shorten() {
	if len(d.kept) < maxKept {
		return
	}
	old := d.kept[:len(d.kept)-maxKept/2]
	if d.now.sure() {
		d.dropped.add(old, &d.now, d.cpus())
	}
	d.kept = append(d.kept[:0], d.kept[len(old):]...)
	d.may = append(d.may[:0], d.may[d.firstAfter(d.kept[0].Start):]...)
	d.lost = true
}

// Any reports whether there are candidates for [from, to).
func (d *Detector) Any(from, to int64) bool {
	i := d.firstAfter(from - BurstNS)
	return i < len(d.may) && d.may[i].Start < to
}

// firstAfter returns the index of the first candidate that ends at t or later.
func (d *Detector) firstAfter(t int64) int {
	return sort.Search(len(d.may), func(i int) bool { return d.may[i].End >= t })
}

// Candidates calls f for each candidate that overlaps [from, to) or ends within
// BurstNS before it, in order of time.
func (d *Detector) Candidates(from, to int64, f func(Candidate)) {
	for i := d.firstAfter(from - BurstNS); i < len(d.may) && d.may[i].Start < to; i++ {
		f(d.may[i])
	}
}

func (l *lost) add(all []silence, by *lock, cpus int) {
	for i := range all {
		s := &all[i]
		if by.holds(s) {
			l.freezes++
			l.wall += s.Length() - s.shift
			// The kernel counts to the refill, not until a thread has run.
			l.cpu += max(s.Length()-s.shift-by.after(s), 0) * int64(min(s.threads(), cpus))
		}
	}
}
