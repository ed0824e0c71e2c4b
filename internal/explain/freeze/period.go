package freeze

import (
	"math"
	"slices"
)

// A phaseLock is a period together with the phase at which silences end: the sign of a quota's refill timer.
type phaseLock struct {
	period           int64
	phase            int64   // the earliest end of a period's freeze, modulo period
	window           int64   // how much later than the phase other freezes end
	score            float64 // the logarithm of the odds against chance
	meanResultant    float64 // Rayleigh's R of the ends of the examined silences
	tested, inWindow int     // silences examined, and those that end in the window
	shortest         int64   // the minimal length of the examined silences
	knownFromKernel  bool    // the kernel's counters show that a quota stopped the process
	doubt            string  // why the silences may not be freezes although they keep to a clock
}

// isSure reports whether silences that end at the phase are certainly freezes.
func (l *phaseLock) isSure() bool {
	return l.period != 0 && (l.knownFromKernel || l.score >= minSureScore && l.doubt == "")
}

// Minimal scores: logarithms of the odds against chance.
const (
	minKnownScore   = 3  // 1 in 20
	minSureScore    = 12 // 1 in 160,000
	minSuspectScore = 6  // 1 in 400
)

// defaultPeriod is the period of nearly every quota.
const defaultPeriod = 100e6

// isFreeze reports whether a silence is a freeze of this period: it includes the refill of the quota and ends at it, or a
// little later because other processes have the CPUs. If no resumed goroutine shows that the threads were stopped, but only a
// stuck thread or a ready goroutine, the silence must end within the window.
func (l *phaseLock) isFreeze(s *silence) bool {
	delay := l.delayAfterRefill(s)
	return s.Length()-delay >= minSilenceNS &&
		(s.Resumed > 0 && delay <= l.maxDelay() || (s.hasStuckThread() || s.hasReadyGoroutine) && delay <= l.window)
}

// delayAfterRefill returns how long after a refill a silence ended, in ns.
func (l *phaseLock) delayAfterRefill(s *silence) int64 {
	return max((s.End-l.phase+clockToleranceNS)%l.period-clockToleranceNS, 0)
}

// maxDelay returns the longest time after the refill at which a freeze may end, in ns.
func (l *phaseLock) maxDelay() int64 { return max(l.window, l.period*15/100) }

// clockToleranceNS is the tolerance for differences between clocks and for rounding.
const clockToleranceNS = 500e3

// windowOf returns the width, in ns, of the window in which the freezes of a period end: threads resume on their CPUs within
// milliseconds.
func windowOf(period int64) int64 { return min(max(period/20, 1.5e6), 6e6) }

// findLock searches for the period and phase at which most silences end. Without allPeriods, it tests only the default period
// of 100 ms. It repeats the search for silences of several minimal lengths and returns the result with the highest score, one
// without a doubt first.
func (d *Detector) findLock(allPeriods bool) (best phaseLock) {
	for _, shortest := range []int64{22e6, 16e6, 12e6, 8e6, 5e6, 3e6} {
		l := d.findLockOfLength(shortest, allPeriods)
		if l.score >= minSuspectScore {
			d.setDoubt(&l)
		}
		if l.isSure() == best.isSure() && l.score > best.score || l.isSure() && !best.isSure() {
			best = l
		}
	}
	return best
}

// findLockOfLength searches for the period and phase of the silences of at least length shortest: for defaultPeriod, and for all
// others too if allPeriods. The result is zero if they are too few.
func (d *Detector) findLockOfLength(shortest int64, allPeriods bool) (best phaseLock) {
	ends, lengths := d.silenceEnds(shortest)
	if len(ends) < minEnds {
		return best
	}
	slices.Sort(lengths)
	usualLength := lengths[len(lengths)*3/4]
	byDefault := testPeriod(ends, defaultPeriod, math.Log(lengthSets))
	if allPeriods && !(byDefault.score >= minSureScore && float64(byDefault.inWindow) >= 0.9*float64(byDefault.tested)) {
		best.score = max(byDefault.score, minKnownScore) // lower scores show nothing
		eachPeriod(func(period int64) {
			if period < usualLength {
				return // threads would have run in between
			}
			if logOddsBound(ends, period, math.Log(lengthSets*triedPeriods)) <= best.score {
				return
			}
			if l := testPeriod(ends, period, math.Log(lengthSets*triedPeriods)); l.score > best.score {
				best = l
			}
		})
	}
	// Ends that keep to a period also keep to its divisors and, half of them, to its multiples: prefer the default
	// unless another period explains more.
	if best.period == 0 || byDefault.score >= best.score || byDefault.score >= minSuspectScore && float64(byDefault.inWindow) >= 0.9*float64(best.inWindow) {
		best = byDefault
	}
	best.shortest = shortest
	return best
}

// silenceEnds returns the ends and lengths of the latest maxEnds silences of at least length shortest that ended with a resumed
// thread, the latest first.
func (d *Detector) silenceEnds(shortest int64) (ends, lengths []int64) {
	for i := len(d.silences) - 1; i >= 0 && len(ends) < maxEnds; i-- {
		if s := &d.silences[i]; s.Resumed > 0 && s.Length() >= shortest {
			ends = append(ends, s.End)
			lengths = append(lengths, s.Length())
		}
	}
	return ends, lengths
}

// findKnownLock searches for the phase of a quota whose period and effect the kernel's counters have shown, so that the period
// needs no proof.
func (d *Detector) findKnownLock() (best phaseLock) {
	period := d.Kernel.PeriodNS
	if period <= 0 {
		period = defaultPeriod
	}
	for _, shortest := range []int64{22e6, 12e6, 5e6, 3e6} {
		ends, _ := d.silenceEnds(shortest)
		if len(ends) < 2 {
			continue
		}
		if l := testPeriod(ends, period, 0); l.score > best.score {
			l.shortest = shortest
			best = l
		}
	}
	if best.score >= minKnownScore {
		d.setDoubt(&best)
		best.doubt, best.knownFromKernel = "", true
	}
	return best
}

// Bounds of the search.
const (
	minEnds      = 5    // silences that can show a period, at least
	maxEnds      = 400  // silences examined, at most
	lengthSets   = 6    // minimal lengths tried
	triedPeriods = 1100 // periods tried
)

// eachPeriod calls f for the periods to try, in ns: whole milliseconds from 10 to 1000, and half milliseconds below 100.
func eachPeriod(f func(int64)) {
	for p := int64(10e6); p < 100e6; p += 500e3 {
		f(p)
	}
	for p := int64(100e6); p <= 1000e6; p += 1e6 {
		f(p)
	}
}

// testPeriod finds the phase of a period at which the most ends fall into one window. The score is the logarithm of the odds
// against so many by chance: Chernoff's bound on the binomial tail, corrected for the number of tests (tried is the logarithm
// of the number of periods and lengths).
func testPeriod(ends []int64, period int64, tried float64) phaseLock {
	lock := phaseLock{period: period, window: windowOf(period), tested: len(ends)}
	phases := make([]int64, 0, 2*len(ends))
	for _, e := range ends {
		phases = append(phases, e%period)
	}
	slices.Sort(phases)
	for _, p := range phases[:len(ends)] {
		phases = append(phases, p+period)
	}
	for i, j := 0, 0; i < len(ends); i++ {
		for j < len(phases) && phases[j]-phases[i] <= lock.window {
			j++
		}
		if k := min(j-i, len(ends)); k > lock.inWindow {
			lock.inWindow, lock.phase = k, phases[i]
		}
	}
	lock.score = logOdds(lock.inWindow, lock.tested, lock.window, period, tried)
	return lock
}

// logOdds returns the logarithm of the odds against k of n ends in one window of a period by chance; see testPeriod.
func logOdds(k, n int, window, period int64, tried float64) float64 {
	return float64(n-1)*divergence(float64(k-1)/float64(n-1), float64(window)/float64(period)) - math.Log(float64(n)) - tried
}

// logOddsBound returns a fast upper bound of testPeriod's score for a period (ns) and the same ends (ns) and tried: no window
// contains more ends than six adjacent intervals of a quarter of its width, of which the last one of the period may be shorter.
func logOddsBound(ends []int64, period int64, tried float64) float64 {
	window := windowOf(period)
	width := (window + 3) / 4
	n := (period + width - 1) / width
	var counts [maxIntervals]int32
	for _, e := range ends {
		counts[e%period/width]++
	}
	copy(counts[n:], counts[:5])
	sum, endCount := int32(0), int32(0)
	for i := range n + 5 {
		if sum += counts[i]; i >= 6 {
			sum -= counts[i-6]
		}
		endCount = max(endCount, sum)
	}
	return logOdds(min(int(endCount), len(ends)), len(ends), window, period, tried)
}

// maxIntervals bounds the intervals of logOddsBound: those of a period of 1000 ms with windows of 6 ms, and the first ones again.
const maxIntervals = 672

// divergence returns the Kullback-Leibler divergence between two coins with the probabilities p and q; 0 unless p is above q.
func divergence(p, q float64) float64 {
	if p <= q || q >= 1 {
		return 0
	}
	d := p * math.Log(p/q)
	if p < 1 {
		d += (1 - p) * math.Log((1-p)/(1-q))
	}
	return d
}

// setDoubt sets meanResultant and doubt of a phase lock: whether the silences may instead be work that a timer of the service
// starts or ends. The differences are:
//
//   - A freeze also stops sysmon, so code is silent for longer than sysmon lets it run; after the freeze sysmon
//     preempts what has run too long. Work of constant length that a timer starts is silent for at most two of
//     sysmon's intervals, and ends without preemption.
//   - A clock refills a quota, but the work uses it up: ends of freezes keep to the clock more closely than
//     beginnings. If a timer starts the work, the beginnings keep to it more closely.
//   - No thread resumes before the refill: ends are spread to one side only.
//   - A freeze stops all threads, and they resume together.
func (d *Detector) setDoubt(lock *phaseLock) {
	var nearOffsets, ends, starts, lengths []int64
	stopped, resumedTogether, sumCos, sumSin := 0, 0, 0.0, 0.0
	examined := 0
	for i := range d.silences {
		s := &d.silences[i]
		if s.Resumed == 0 || s.Length() < lock.shortest {
			continue
		}
		examined++
		angle := 2 * math.Pi * float64(s.End%lock.period) / float64(lock.period)
		sumCos, sumSin = sumCos+math.Cos(angle), sumSin+math.Sin(angle)
		offset := wrapOffset(s.End-lock.phase, lock.period)
		if offset >= -lock.maxDelay() && offset <= lock.maxDelay() {
			nearOffsets = append(nearOffsets, offset)
		}
		if offset < -clockToleranceNS || offset > lock.maxDelay() {
			continue
		}
		ends = append(ends, offset)
		starts = append(starts, wrapOffset(s.Start-lock.phase, lock.period))
		lengths = append(lengths, s.Length())
		if s.Stopped > 0 {
			stopped++
		}
		if s.Resumed > 1 {
			resumedTogether++
		}
	}
	lock.meanResultant = math.Hypot(sumCos, sumSin) / float64(max(examined, 1))
	n := len(ends)
	if n < minEnds {
		lock.doubt = "too few silences"
		return
	}
	slices.Sort(lengths)
	tight := 2*halfSpread(ends, lock.period) <= halfSpread(starts, lock.period)
	sharp := isSharp(nearOffsets, lock.period)
	switch long := lengths[n/2] >= longFreezeNS; {
	case 10*n < 6*examined && 2*lock.inWindow < lock.tested:
		lock.doubt = manyOthers
	case !sharp:
		lock.doubt = "not as sharply as the refill of a quota does"
	case long && (tight || 7*stopped >= n):
	case !long && tight && 2*resumedTogether >= n:
	default:
		lock.doubt = "a timer of the service's own could start or end them"
	}
}

const manyOthers = "as many others do not"

// longFreezeNS is longer than any code is silent when it runs, with a reserve for a late sysmon.
const longFreezeNS = 30e6

// wrapOffset maps a time difference to (-period/2, period/2].
func wrapOffset(t, period int64) int64 {
	t %= period
	switch {
	case t > period/2:
		t -= period
	case t <= -period/2:
		t += period
	}
	return t
}

// halfSpread returns the width of the shortest interval of the period that contains half of the offsets: how closely they keep
// to the period.
func halfSpread(offs []int64, period int64) int64 {
	o := slices.Clone(offs)
	slices.Sort(o)
	n, half := len(o), (len(o)+1)/2
	for _, v := range o[:n] {
		o = append(o, v+period)
	}
	best := period
	for i := range n {
		best = min(best, o[i+half-1]-o[i])
	}
	return best
}

// isSharp reports whether offsets of silence ends are distributed as the refill of a quota causes: none well before the refill,
// many at it, others later because their threads wait for a CPU. If other processes with their own quota take the CPUs,
// silences end when that quota is used up, which is spread.
func isSharp(offs []int64, period int64) bool {
	sorted := slices.Clone(offs)
	slices.Sort(sorted)
	width := min(2e6, period/25)
	dense, densest, edge := 0, 0, 0
	for i, j := 0, 0; i < len(sorted); i++ {
		for j < len(sorted) && sorted[j]-sorted[i] <= width {
			j++
		}
		if j-i > dense {
			dense, densest = j-i, i
		}
		if i == len(sorted)/30 { // ignores a few early ends
			edge = j - i
		}
	}
	before, _ := slices.BinarySearch(sorted, sorted[densest]-width/2)
	if 20*before > 3*len(sorted) {
		return false
	}
	reach := sorted[len(sorted)-1-len(sorted)/20] - sorted[len(sorted)/20]
	if reach <= 5e6 || 50*dense >= 21*len(sorted) {
		return true
	}
	// Compare with the number at the edge of an even distribution.
	evenShare, n := float64(width)/float64(reach), float64(len(sorted))
	return n*divergence(float64(edge)/n, evenShare) >= 4
}
