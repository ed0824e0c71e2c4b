package freeze

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/report"
)

// A Verdict is the result for a whole trace: which candidates were freezes, and the report's throttling section. Whether an
// ancestor's quota stopped the process, or that none did, only the kernel's counters can show.
type Verdict struct {
	report.Throttle
	lock          phaseLock
	freezeClasses [256]bool
	intervals     []Interval
}

// IsFreeze reports whether the candidates of a class were freezes.
func (v *Verdict) IsFreeze(c Class) bool { return v.freezeClasses[c] }

// Intervals returns the freezes in order of time.
func (v *Verdict) Intervals() []Interval { return v.intervals }

// Bounds for the absence of signs of throttling.
const (
	minTraceNS      = 2e9   // a shorter trace has too few periods
	maxTurnNS       = 21e6  // code without events is silent for so long between preemptions
	kernelTurnNS    = 8e6   // shorter silences are time slices of the kernel
	negligibleShare = 0.002 // of the trace
	idleShare       = 0.8   // of the trace
)

// Verdict decides, from the generations so far, whether a quota throttled the process and which silences were freezes. Without
// proof the verdict is ThrottleUnknown, with the reason as text. More generations may be added later.
func (d *Detector) Verdict() (v Verdict) {
	v.freezeClasses[KnownHold] = true
	length := d.end - d.start
	final := d.findLock(true)
	if d.current.isSure() && !final.isSure() && len(d.silences) < minEnds {
		final = d.current
	}
	switch d.Kernel.Verdict {
	case report.ThrottleNone:
		v.Verdict, v.Confidence, v.Text = report.ThrottleNone, 1, "measured by the kernel"
		return v
	case report.ThrottleOwn, report.ThrottleAncestor:
		// There were freezes; find out which silences they are.
		if l := d.findKnownLock(); l.score >= minKnownScore && !(final.isSure() && final.period == l.period) {
			final = l
		}
	}
	v.R, v.N = final.meanResultant, final.tested
	if final.isSure() {
		d.fillOwnQuota(&v, final)
		return v
	}
	v.Verdict = report.ThrottleUnknown
	var unexplainedNS int64
	long := 0
	for s := range entry.Each(d.silences) {
		switch {
		case s.Running == 0:
		case s.Length() > maxBusySilenceNS:
			long++
			unexplainedNS += s.Length()
		case s.Length() > kernelTurnNS && (s.Stopped == 0 || s.Length() > maxTurnNS):
			unexplainedNS += s.Length()
		}
	}
	switch longCount := d.countFewLong(); {
	case d.isFromOutside:
		v.Text = "a trace made from outside the process does not show freezes; the kernel's counters do"
	case final.score >= minSuspectScore && final.doubt != "" && final.doubt != manyOthers:
		v.PeriodNS, v.Suspect = final.period, final.inWindow
		v.Text = fmt.Sprintf("%d of %d silences end in step with a clock of %s, but %s", final.inWindow, final.tested, formatMillis(final.period), final.doubt)
	case longCount > 0:
		v.Suspect = longCount
		v.Text = fmt.Sprintf("%d silences of %s and more while goroutines ran, too few to judge whether they keep to a clock; a period of %s would fit", longCount, formatMillis(longFreezeNS), formatMillis(defaultPeriod))
	case length < minTraceNS:
		v.Text = fmt.Sprintf("%s of trace are too few periods to judge", formatMillis(length))
	case float64(d.idleNS) > idleShare*float64(length):
		v.Text = "the process was idle: too little ran for a limit to show"
	case long == 0 && float64(unexplainedNS) <= negligibleShare*float64(length):
		// Only a measurement can show that there was no throttling: if one CPU of several is throttled, or all threads
		// are in system calls during a freeze, there is no silence.
		v.Text = "no sign of throttling: the threads never fell silent together for longer than running code does by itself; the kernel's counters would show it"
	case long == 0:
		v.Text = fmt.Sprintf("short silences while goroutines ran, %s in total, in step with no clock", formatMillis(unexplainedNS))
	default:
		v.Text = fmt.Sprintf("%d long silences while goroutines ran, in step with no clock: other processes, or a quota and other processes", long)
	}
	return v
}

// countFewLong returns the number of silences of at least longFreezeNS, if they are too few to prove a period but all end at
// one phase of the default period; otherwise 0. A single silence fits any phase.
func (d *Detector) countFewLong() int {
	ends, _ := d.silenceEnds(longFreezeNS)
	if len(ends) < 2 || len(ends) >= minEnds {
		return 0
	}
	if l := testPeriod(ends, defaultPeriod, 0); l.inWindow < len(ends) {
		return 0
	}
	return len(ends)
}

// fillOwnQuota sets the verdict to throttling by the process's own quota, with the freezes of phase lock l.
func (d *Detector) fillOwnQuota(v *Verdict, l phaseLock) {
	v.Verdict, v.lock, v.PeriodNS = report.ThrottleOwn, l, l.period
	v.CPUs = d.cpuCount()
	age := d.meanEventAge(&l)
	for i := range d.silences {
		d.silences[i].startShift = min(age, d.silences[i].Length()/2)
	}
	sum := d.droppedLoss
	sum.addFreezes(d.silences, &l, v.CPUs)
	v.Freezes, v.LostWallNS, v.LostCPUNS = sum.freezes, sum.wallNS, sum.cpuNS
	v.Confidence = min(0.99, float64(l.inWindow)/float64(l.tested)*0.5+0.49)
	v.freezeClasses[InPhase] = true
	for s := range entry.Each(d.silences) {
		if !l.isFreeze(s) {
			continue
		}
		v.intervals = append(v.intervals, Interval{s.Start + s.startShift, s.End})
		v.freezeClasses[s.class] = true
	}
	v.freezeClasses[0] = false
	v.Text = fmt.Sprintf("%d of %d silences while goroutines ran end at one phase of a clock of %s (R %.2f): a quota held threads back until its refill: the process's own limit, one above it, or its virtual machine's; a trace alone cannot distinguish them",
		l.inWindow, l.tested, formatMillis(l.period), l.meanResultant)
}

// cpuCount estimates how many CPUs the process could use at once: KernelLimits.CPUs or GOMAXPROCS, or less if far fewer threads
// resumed together throughout the trace.
func (d *Detector) cpuCount() int {
	procs := max(d.maxProcs, 1)
	if d.Kernel.CPUs > 0 {
		return min(d.Kernel.CPUs, procs)
	}
	var prompt []int
	for i := range d.silences {
		if s := &d.silences[i]; s.Running > 1 && s.Length() > minSingleNS {
			prompt = append(prompt, s.Prompt)
		}
	}
	if len(prompt) < 10 {
		return procs
	}
	slices.Sort(prompt)
	// The highest number that at least one eighth of the freezes shows.
	if promptThreads := max(prompt[len(prompt)-1-len(prompt)/8], 2); 2*promptThreads <= procs {
		return promptThreads
	}
	return procs
}

func formatMillis(ns int64) string { return fmt.Sprintf("%.4g ms", float64(ns)/1e6) }
