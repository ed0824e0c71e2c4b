package load

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Limits of one run.
const (
	MaxDuration = time.Hour
	MaxRequests = 10_000_000 // a schedule of 10 bytes a request
	MaxRate     = 1_000_000  // requests a second
	maxPhases   = 100
)

// A Phase is a stretch of a run. Its rate, in requests a second, goes evenly from From to To.
type Phase struct {
	From, To float64
	Duration time.Duration
}

// count returns how many requests are due in the phase.
func (p Phase) count() float64 { return (p.From + p.To) / 2 * p.Duration.Seconds() }

// at returns when, in seconds from the phase's start, n requests have been due: the inverse of the integral of the rate.
// For a ramp that is the solution of from*t + (to-from)/(2*d)*t^2 = n, in the form that loses no digits where the ramp is
// nearly flat.
func (p Phase) at(n float64) float64 {
	slope := (p.To - p.From) / p.Duration.Seconds()
	root := math.Sqrt(max(0, p.From*p.From+2*slope*n))
	if p.From+root == 0 {
		return 0
	}
	return min(2*n/(p.From+root), p.Duration.Seconds())
}

// ParseRate reads "500" (constant), "100..1000" (a ramp), or "100,200,100..400" (steps, each for an equal part of d).
func ParseRate(s string, d time.Duration) ([]Phase, error) {
	if d <= 0 || d > MaxDuration {
		return nil, fmt.Errorf("a duration of %v is too long: the longest is %v", d, MaxDuration)
	}
	parts := strings.Split(s, ",")
	if len(parts) > maxPhases {
		return nil, fmt.Errorf("%d steps of the rate are more than %d", len(parts), maxPhases)
	}
	phases := make([]Phase, 0, len(parts))
	for _, part := range parts {
		from, to, ramp := strings.Cut(strings.TrimSpace(part), "..")
		p := Phase{Duration: d / time.Duration(len(parts))}
		var err error
		if p.From, err = parseRate(from); err != nil {
			return nil, err
		}
		if p.To = p.From; ramp {
			if p.To, err = parseRate(to); err != nil {
				return nil, err
			}
		}
		phases = append(phases, p)
	}
	return phases, nil
}

func parseRate(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) || v > MaxRate {
		return 0, fmt.Errorf("rate %q: write requests a second, more than 0 and at most %d, such as 500, a ramp 100..1000, or steps 100,200,400", s, MaxRate)
	}
	return v, nil
}

// Arrivals say how requests are spread over time.
type Arrivals string

const (
	// Poisson arrivals know nothing of each other, as those of many users: gaps are exponential. It is the default, because
	// even spacing hides queueing.
	Poisson Arrivals = "poisson"
	// Constant arrivals are evenly spaced.
	Constant Arrivals = "constant"
)

// A Schedule says when requests are to start, and which. It does not change during a run.
type Schedule struct {
	due    []int64 // ns from the start, ascending
	target []uint16
	end    int64
}

// Len returns the number of requests.
func (s *Schedule) Len() int { return len(s.due) }

// NewSchedule lays a run out. Equal arguments give equal schedules. weights are those of the targets, each at least 1.
func NewSchedule(phases []Phase, arrivals Arrivals, seed uint64, weights []int) (*Schedule, error) {
	var n float64
	var total time.Duration
	for _, p := range phases {
		if p.Duration <= 0 || !(p.From > 0) || !(p.To > 0) {
			return nil, fmt.Errorf("a phase of %v from %g to %g requests per second is not possible", p.Duration, p.From, p.To)
		}
		n += p.count()
		total += p.Duration
	}
	switch {
	case total <= 0 || total > MaxDuration:
		return nil, fmt.Errorf("a run of %v: give a duration up to %v", total, MaxDuration)
	case n > MaxRequests:
		return nil, fmt.Errorf("the run would send %.0f requests, more than %d: lower the rate or the duration", n, MaxRequests)
	}
	count := int(math.Round(n))
	s := &Schedule{due: make([]int64, 0, count), end: int64(total)}
	for _, at := range positions(count, arrivals, rand.New(rand.NewPCG(seed, 1))) {
		at *= n / float64(max(1, count))
		var base time.Duration
		i := 0
		for ; i < len(phases)-1 && at >= phases[i].count(); i++ {
			at -= phases[i].count()
			base += phases[i].Duration
		}
		s.due = append(s.due, min(int64(base)+int64(phases[i].at(at)*1e9), int64(total)-1))
	}
	s.target = pick(len(s.due), weights, rand.New(rand.NewPCG(seed, 2)))
	return s, nil
}

// positions returns, in order, where n arrivals lie in a stretch of length n on which one is due on average in each unit.
// Those of a Poisson process of which the number of arrivals is given are n independent uniform ones (Kingman, Poisson
// Processes, 1993, section 2.4), in order the partial sums of n+1 exponential gaps over their sum. So a run sends exactly
// what was asked for, and runs differ by less.
func positions(n int, arrivals Arrivals, random *rand.Rand) []float64 {
	out := make([]float64, n)
	if arrivals == Constant {
		for i := range out {
			out[i] = float64(i)
		}
		return out
	}
	sum := 0.0
	for i := range out {
		sum += random.ExpFloat64()
		out[i] = sum
	}
	sum += random.ExpFloat64()
	for i := range out {
		out[i] *= float64(n) / sum
	}
	return out
}

// pick draws n targets by their weights.
func pick(n int, weights []int, random *rand.Rand) []uint16 {
	out := make([]uint16, n)
	sum := 0
	for _, w := range weights {
		sum += w
	}
	if len(weights) < 2 || sum <= 0 {
		return out
	}
	for i := range out {
		at := random.IntN(sum)
		for t, w := range weights {
			if at -= w; at < 0 {
				out[i] = uint16(t)
				break
			}
		}
	}
	return out
}
