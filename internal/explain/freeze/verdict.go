package freeze

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/report"
)

// A Verdict is what a whole trace says. Only the kernel's counters can say that it was an ancestor's quota, or none at all.
type Verdict struct {
	report.Throttle
	by        lock
	single    [256]bool
	intervals []Interval
}

// IsFreeze reports whether candidates of a class were freezes.
func (v *Verdict) IsFreeze(c Class) bool { return v.single[c] }

// Intervals are the freezes, in order of time.
func (v *Verdict) Intervals() []Interval { return v.intervals }

// Bounds for saying that there was no sign of throttling.
const (
	enoughNS = 2e9   // a trace must hold so many periods
	turns    = 21e6  // code without events is silent for so long
	turning  = 8e6   // silences shorter than that are the kernel's turns between threads
	littleOf = 0.002 // share of the trace
	mostlyOf = 0.8
)

// Verdict decides on what was fed so far. More may be fed later.
func (d *Detector) Verdict() Verdict {
	var v Verdict
	v.single[Held] = true
	length := d.since - d.from
	final := d.find(true)
	if d.now.sure() && !final.sure() && len(d.kept) < leastEnds {
		final = d.now
	}
	switch d.Known.Verdict {
	case report.ThrottleNone:
		v.Verdict, v.Confidence, v.How = report.ThrottleNone, 1, "measured by the kernel"
		return v
	case report.ThrottleOwn, report.ThrottleAncestor:
		// It is known that there were freezes; the question is which silences they are.
		if l := d.known(); l.score >= knownScore && !(final.sure() && final.period == l.period) {
			final = l
		}
	}
	v.R, v.N = final.r, final.n
	if final.sure() {
		d.own(&v, final)
		return v
	}
	v.Verdict = report.ThrottleUnknown
	var odd int64
	long := 0
	for i := range d.kept {
		s := &d.kept[i]
		switch {
		case s.Running == 0:
		case s.Length() > ownTurns:
			long++
			odd += s.Length()
		case s.Length() > turning && (s.Stopped == 0 || s.Length() > turns):
			odd += s.Length()
		}
	}
	switch few := d.few(); {
	case final.score >= someScore && final.doubt != "" && final.doubt != manyOthers:
		v.PeriodNS, v.Suspect = final.period, final.k
		v.How = fmt.Sprintf("%d of %d silences end in step with a clock of %s, but %s", final.k, final.n, millis(final.period), final.doubt)
	case few > 0:
		v.Suspect = few
		v.How = fmt.Sprintf("%d silences of %s and more while goroutines ran, too few to judge whether they keep to a clock; a period of %s would fit", few, millis(longFreeze), millis(defaultPeriod))
	case length < enoughNS:
		v.How = fmt.Sprintf("%s of trace are too few periods to judge", millis(length))
	case float64(d.idle) > mostlyOf*float64(length):
		v.How = "the process was idle: too little ran for a limit to show"
	case long == 0 && float64(odd) <= littleOf*float64(length):
		// Only measurements allow to say that there was none: if one CPU of several is throttled, or all
		// threads are in system calls during a freeze, there is no silence.
		v.How = "no sign of throttling: the threads never fell silent together for longer than running code does by itself; the kernel's counters would show it"
	case long == 0:
		v.How = fmt.Sprintf("short silences while goroutines ran, %s in total, in step with no clock", millis(odd))
	default:
		v.How = fmt.Sprintf("%d long silences while goroutines ran, in step with no clock: other processes, or a quota and other processes", long)
	}
	return v
}

// few returns how many silences are longer than turns, if they are too few to
// show a period and all end at one phase of the usual one; 0 otherwise. A single
// one fits any phase.
func (d *Detector) few() int {
	ends, _ := d.ends(longFreeze)
	if len(ends) < 2 || len(ends) >= leastEnds {
		return 0
	}
	if l := test(ends, defaultPeriod, 0); l.k < len(ends) {
		return 0
	}
	return len(ends)
}

func (d *Detector) own(v *Verdict, l lock) {
	v.Verdict, v.by, v.PeriodNS = report.ThrottleOwn, l, l.period
	v.CPUs = d.cpus()
	age := d.age(&l)
	for i := range d.kept {
		d.kept[i].shift = min(age, d.kept[i].Length()/2)
	}
	sum := d.dropped
	sum.add(d.kept, &l, v.CPUs)
	v.Freezes, v.LostWallNS, v.LostCPUNS = sum.freezes, sum.wall, sum.cpu
	v.Confidence = min(0.99, float64(l.k)/float64(l.n)*0.5+0.49)
	v.single[Locked] = true
	for i := range d.kept {
		s := &d.kept[i]
		if !l.holds(s) {
			continue
		}
		v.intervals = append(v.intervals, Interval{s.Start + s.shift, s.End})
		v.single[s.class] = true
	}
	v.single[0] = false
	v.How = fmt.Sprintf("%d of %d silences while goroutines ran end at one phase of a clock of %s (R %.2f): a quota held threads back until its refill: the process's own limit, one above it, or its virtual machine's; a trace alone cannot distinguish them",
		l.k, l.n, millis(l.period), l.r)
}

// cpus is how many CPUs the process had at most at once: as Known says, or
// GOMAXPROCS, unless far fewer threads resumed together throughout the trace.
func (d *Detector) cpus() int {
	procs := max(d.procs, 1)
	if d.Known.CPUs > 0 {
		return min(d.Known.CPUs, procs)
	}
	var prompt []int
	for i := range d.kept {
		if s := &d.kept[i]; s.Running > 1 && s.Length() > singled {
			prompt = append(prompt, s.Prompt)
		}
	}
	if len(prompt) < 10 {
		return procs
	}
	slices.Sort(prompt)
	// The highest number that at least one of eight freezes shows.
	if seen := max(prompt[len(prompt)-1-len(prompt)/8], 2); 2*seen <= procs {
		return seen
	}
	return procs
}

func millis(ns int64) string { return fmt.Sprintf("%.4g ms", float64(ns)/1e6) }
