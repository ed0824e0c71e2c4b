package probe

import "time"

// A tick has the measurements of one timer. previous, due and fired are readings of
// one monotonic clock.
type tick struct {
	previous, due, fired time.Duration
	// cpu is the process's CPU time from previous to fired.
	cpu time.Duration
	// procs is the number of CPUs that Go code could use at the same time.
	procs float64
	// usualCPUs is the number of CPUs that the process uses without freezes.
	usualCPUs float64
	// fastInterval is the shortest interval between ticks.
	fastInterval time.Duration
}

// A freezeEstimate is the time within one tick in which the kernel did not run the
// process, estimated from the timer and the CPU clock.
type freezeEstimate struct {
	// min is the part of the lateness that remains unexplained even if the process used
	// all CPU time of the tick after the timer was due.
	min time.Duration
	// max is the tick's length less its CPU time.
	max time.Duration
	// likely assumes that the process used usualCPUs before and after the freeze.
	likely time.Duration
	// waitP is the rest of the lateness, in which the probe's goroutine waited for a P.
	waitP time.Duration
}

// estimate separates the two causes of a timer's lateness.
//
// If the goroutine waited for a P, all Ps were busy, so the process used procs CPUs
// during the wait. If the kernel did not run its threads, it used none. So the freeze
// is the lateness less CPU time divided by procs. The CPU time is known for the whole
// tick only, not since the timer was due. So the result has a minimum and a maximum,
// which differ by no more than the tick's interval.
func (t tick) estimate() freezeEstimate {
	late := t.fired - t.due
	if late <= 0 {
		return freezeEstimate{}
	}
	procs := max(1, t.procs)
	busy := time.Duration(float64(t.cpu) / procs)
	s := freezeEstimate{
		min: max(0, late-busy),
		// The freeze may have begun before the timer was due, but after the last tick.
		// For long ticks fastInterval is a better bound.
		max: max(0, min(t.fired-t.previous-busy, late+t.fastInterval)),
	}
	s.min = min(s.min, s.max)
	s.likely = s.max
	if t.usualCPUs > 0 {
		runTime := time.Duration(float64(t.cpu) / min(t.usualCPUs, procs))
		s.likely = min(s.max, max(s.min, t.fired-t.previous-runTime))
	}
	s.waitP = late - min(late, s.likely)
	return s
}
