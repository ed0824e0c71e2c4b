package freeze

import (
	"math"
	"slices"
)

// A lock is a period at one phase of which silences end.
type lock struct {
	period int64
	phase  int64 // the earliest end of a period's freeze, mod period
	window int64 // how much later others end
	score  float64
	r      float64 // Rayleigh's R of the ends of the silences looked at
	n, k   int     // silences looked at, and those in the window
	least  int64   // their shortest length
	given  bool    // that a quota held the process back is known from elsewhere
	doubt  string  // why, although in step with a clock, these are no freezes for sure
}

// sure says that the silences are freezes.
func (l *lock) sure() bool {
	return l.period != 0 && (l.given || l.score >= sureScore && l.doubt == "")
}

// Thresholds of the logarithm of odds against chance.
const (
	knownScore = 3  // 1 in 20
	sureScore  = 12 // 1 in 160,000
	someScore  = 6  // 1 in 400
)

// defaultPeriod is what nearly every quota has.
const defaultPeriod = 100e6

// holds reports whether a silence is a freeze of the period: it was under way
// when the quota was refilled and ended then, or a little later because the
// threads wait for CPUs that others have. Where no running thread shows that,
// but one that is stuck does, or a goroutine that is ready and has none, it must
// end as closely as those by which the period was found.
func (l *lock) holds(s *silence) bool {
	after := l.after(s)
	if s.Length()-after < least {
		return false
	}
	return s.Resumed > 0 && after <= l.late() || (s.stuck() || s.ready) && after <= l.window
}

// after is how long after the refill a silence ended.
func (l *lock) after(s *silence) int64 {
	return max((s.End-l.phase+early)%l.period-early, 0)
}

// late is how long after the refill a freeze may end.
func (l *lock) late() int64 { return max(l.window, l.period*15/100) }

// early is what clocks and rounding may differ by.
const early = 500e3

// windowOf is the window of a period: threads resume on their CPUs within
// milliseconds.
func windowOf(period int64) int64 { return min(max(period/20, 1.5e6), 6e6) }

// find looks for a period at one phase of which silences end. Without all, only
// the default period is tried. Of several answers, by silences of different
// lengths, the surest without a doubt counts.
func (d *Detector) find(all bool) (best lock) {
	for _, shortest := range []int64{22e6, 16e6, 12e6, 8e6, 5e6, 3e6} {
		l := d.ofLength(shortest, all)
		if l.score >= someScore {
			d.judge(&l)
		}
		if l.sure() == best.sure() && l.score > best.score || l.sure() && !best.sure() {
			best = l
		}
	}
	return best
}

// ofLength looks at silences of a length at least.
func (d *Detector) ofLength(shortest int64, all bool) (best lock) {
	ends, lengths := d.ends(shortest)
	if len(ends) < leastEnds {
		return best
	}
	slices.Sort(lengths)
	usual := lengths[len(lengths)*3/4]
	prior := test(ends, defaultPeriod, math.Log(sets))
	if all && !(prior.score >= sureScore && float64(prior.k) >= 0.9*float64(prior.n)) {
		best.score = max(prior.score, knownScore) // less says nothing
		eachPeriod(func(period int64) {
			if period < usual {
				return // threads would have run meanwhile
			}
			if atMost(ends, period, math.Log(sets*periods)) <= best.score {
				return
			}
			if l := test(ends, period, math.Log(sets*periods)); l.score > best.score {
				best = l
			}
		})
	}
	// Ends in step with a period are in step with its divisors and, half of them,
	// with its multiples: the default is believed unless another explains more.
	if best.period == 0 || prior.score >= best.score || prior.score >= someScore && float64(prior.k) >= 0.9*float64(best.k) {
		best = prior
	}
	best.least = shortest
	return best
}

// ends returns when the last silences of a length at least ended, and their lengths, the last one first.
func (d *Detector) ends(shortest int64) (ends, lengths []int64) {
	for i := len(d.kept) - 1; i >= 0 && len(ends) < maxEnds; i-- {
		if s := &d.kept[i]; s.Resumed > 0 && s.Length() >= shortest {
			ends = append(ends, s.End)
			lengths = append(lengths, s.Length())
		}
	}
	return ends, lengths
}

// known finds the phase of a quota whose period is known, and that it held the
// process back: there is nothing to doubt then.
func (d *Detector) known() (best lock) {
	period := d.Known.PeriodNS
	if period <= 0 {
		period = defaultPeriod
	}
	for _, shortest := range []int64{22e6, 12e6, 5e6, 3e6} {
		ends, _ := d.ends(shortest)
		if len(ends) < 2 {
			continue
		}
		if l := test(ends, period, 0); l.score > best.score {
			l.least = shortest
			best = l
		}
	}
	if best.score >= knownScore {
		d.judge(&best)
		best.doubt, best.given = "", true
	}
	return best
}

// leastEnds is how few silences may show a period, maxEnds how many are looked at.
const (
	leastEnds = 5
	maxEnds   = 400
	sets      = 6
	periods   = 1100
)

// eachPeriod calls f for the periods tried: whole milliseconds from 10 to 1000,
// and halves up to 100.
func eachPeriod(f func(int64)) {
	for p := int64(10e6); p < 100e6; p += 500e3 {
		f(p)
	}
	for p := int64(100e6); p <= 1000e6; p += 1e6 {
		f(p)
	}
}

// test finds the window of a period with most ends. Its score is the logarithm
// of the odds against as many by chance: Chernoff's bound on the binomial
// tail, less what was tried.
func test(ends []int64, period int64, tried float64) lock {
	l := lock{period: period, window: windowOf(period), n: len(ends)}
	ph := make([]int64, 0, 2*len(ends))
	for _, e := range ends {
		ph = append(ph, e%period)
	}
	slices.Sort(ph)
	for _, p := range ph[:len(ends)] {
		ph = append(ph, p+period)
	}
	for i, j := 0, 0; i < len(ends); i++ {
		for j < len(ph) && ph[j]-ph[i] <= l.window {
			j++
		}
		if k := min(j-i, len(ends)); k > l.k {
			l.k, l.phase = k, ph[i]
		}
	}
	l.score = score(l.k, l.n, l.window, period, tried)
	return l
}

func score(k, n int, window, period int64, tried float64) float64 {
	return float64(n-1)*divergence(float64(k-1)/float64(n-1), float64(window)/float64(period)) - math.Log(float64(n)) - tried
}

// atMost is a quick bound on test's score: no window holds more than two
// neighbouring stretches of its width.
func atMost(ends []int64, period int64, tried float64) float64 {
	window := windowOf(period)
	var in [maxStretches]int32
	last := (period - 1) / window
	for _, e := range ends {
		in[e%period/window]++
	}
	k := in[last] + in[0]
	if last > 0 {
		k += in[last-1] // the last stretch may be shorter
	}
	for i := range last {
		k = max(k, in[i]+in[i+1])
	}
	return score(min(int(k), len(ends)), len(ends), window, period, tried)
}

// maxStretches bounds how many windows a period has: 1000 ms of 6 ms.
const maxStretches = 168

// divergence is that of Kullback and Leibler between two coins, 0 where p is
// not above q.
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

// judge asks whether silences that end in step with a clock are freezes, or
// work that a timer of the service's own starts or ends. What tells them apart:
//
//   - In a freeze the runtime's monitor is held back as well, so that code is
//     silent for longer than it lets code run; then it stops what has run too
//     long. Work of constant length that a timer starts is silent for at most
//     two of its turns, and ends by itself.
//   - A quota is refilled by the clock, but used up by the work: ends are in
//     step more closely than beginnings. Where a timer starts the work, its
//     beginnings are.
//   - Nothing resumes before the refill: ends are spread to one side.
//   - All threads are held back and resume together.
func (d *Detector) judge(l *lock) {
	var near, ends, starts, lengths []int64
	stopped, together, x, y := 0, 0, 0.0, 0.0
	seen := 0
	for i := range d.kept {
		s := &d.kept[i]
		if s.Resumed == 0 || s.Length() < l.least {
			continue
		}
		seen++
		a := 2 * math.Pi * float64(s.End%l.period) / float64(l.period)
		x, y = x+math.Cos(a), y+math.Sin(a)
		off := around(s.End-l.phase, l.period)
		if off >= -l.late() && off <= l.late() {
			near = append(near, off)
		}
		if off < -early || off > l.late() {
			continue
		}
		ends = append(ends, off)
		starts = append(starts, around(s.Start-l.phase, l.period))
		lengths = append(lengths, s.Length())
		if s.Stopped > 0 {
			stopped++
		}
		if s.Resumed > 1 {
			together++
		}
	}
	l.r = math.Hypot(x, y) / float64(max(seen, 1))
	n := len(ends)
	if n < leastEnds {
		l.doubt = "too few silences"
		return
	}
	slices.Sort(lengths)
	tight := 2*spread(ends, l.period) <= spread(starts, l.period)
	sharp := isSharp(near, l.period)
	switch long := lengths[n/2] >= longFreeze; {
	case 10*n < 6*seen && 2*l.k < l.n:
		l.doubt = manyOthers
	case !sharp:
		l.doubt = "not as sharply as the refill of a quota does"
	case long && (tight || 7*stopped >= n):
	case !long && tight && 2*together >= n:
	default:
		l.doubt = "a timer of the service's own could start or end them"
	}
}

const manyOthers = "as many others do not"

// longFreeze is longer than any code is silent by itself, with room for a
// monitor that is late.
const longFreeze = 30e6

// around brings a difference of times to (-period/2, period/2].
func around(t, period int64) int64 {
	t %= period
	switch {
	case t > period/2:
		t -= period
	case t <= -period/2:
		t += period
	}
	return t
}

// spread is the width of the shortest stretch of the period that holds half of
// the offsets.
func spread(offs []int64, period int64) int64 {
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

// isSharp reports whether ends of silences are as the refill of a quota makes
// them: none well before it, many right at it, others later because their
// threads wait for a CPU. What neighbours with a quota of their own leave over
// ends where they have used it up, which is spread.
func isSharp(offs []int64, period int64) bool {
	o := slices.Clone(offs)
	slices.Sort(o)
	width := min(2e6, period/25)
	dense, at, edge := 0, 0, 0
	for i, j := 0, 0; i < len(o); i++ {
		for j < len(o) && o[j]-o[i] <= width {
			j++
		}
		if j-i > dense {
			dense, at = j-i, i
		}
		if i == len(o)/30 { // but for a straggler
			edge = j - i
		}
	}
	before, _ := slices.BinarySearch(o, o[at]-width/2)
	if 20*before > 3*len(o) {
		return false
	}
	reach := o[len(o)-1-len(o)/20] - o[len(o)/20]
	if reach <= 5e6 || 50*dense >= 21*len(o) {
		return true
	}
	// Would as many be at the edge if they were spread evenly?
	even, n := float64(width)/float64(reach), float64(len(o))
	return n*divergence(float64(edge)/n, even) >= 4
}
