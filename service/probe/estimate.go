package probe

import "time"

// A tick is what the probe knows when its timer has gone off. Times are
// nanoseconds on one monotonic clock.
type tick struct {
	prev, due, now time.Duration
	// cpu is the CPU time the process used from prev to now.
	cpu time.Duration
	// procs is the number of CPUs the process's Go code could use at once.
	procs float64
	// rate is how many CPUs it used on average when it last ran undisturbed.
	rate float64
	// fast is the shortest interval between ticks.
	fast time.Duration
}

// A stretch is how long the kernel kept the process from running within one
// tick, as far as timer and CPU clock show.
type stretch struct {
	// least is certain: even if all CPU time of the tick was used after the
	// timer was due, so much of the lateness is not explained by it.
	least time.Duration
	// most is what remains of the whole tick after its CPU time.
	most time.Duration
	// likely takes the process to have used CPU at its usual rate before and
	// after the stretch.
	likely time.Duration
	// wait is the lateness that CPU time explains: the timer waited for a P.
	wait time.Duration
}

// lost separates two reasons why a timer goes off late.
//
// If the goroutine waited for a P, then all Ps were running something: the
// process used procs CPUs for as long as the wait lasted. If the kernel kept
// its threads from running, it used none. So the lateness less CPU time over
// procs is what the kernel took. CPU time is known for the whole tick only,
// not from the moment the timer was due; hence a least and a most, which
// differ by no more than the tick's interval.
func (t tick) lost() stretch {
	late := t.now - t.due
	if late <= 0 {
		return stretch{}
	}
	procs := max(1, t.procs)
	busy := time.Duration(float64(t.cpu) / procs)
	s := stretch{
		least: max(0, late-busy),
		// A stretch may have begun before the timer was due, but after the
		// last tick. When ticks are far apart that says little.
		most: max(0, min(t.now-t.prev-busy, late+t.fast)),
	}
	s.least = min(s.least, s.most)
	s.likely = s.most
	if t.rate > 0 {
		ran := time.Duration(float64(t.cpu) / min(t.rate, procs))
		s.likely = min(s.most, max(s.least, t.now-t.prev-ran))
	}
	s.wait = late - min(late, s.likely)
	return s
}
