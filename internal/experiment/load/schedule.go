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

// A Phase is a part of a run. Its rate, in requests per second, changes linearly from StartRate to
// EndRate.
type Phase struct {
	StartRate, EndRate float64
	Duration           time.Duration
}

// requestCount returns the number of requests due in the phase.
func (p Phase) requestCount() float64 { return (p.StartRate + p.EndRate) / 2 * p.Duration.Seconds() }

// timeOf returns the time, in seconds from the phase's start, until which count requests are due: the
// inverse of the integral of the rate. For a ramp it is the solution of start*t +
// (end-start)/(2*d)*t^2 = count, in the form that loses no digits if the ramp is nearly flat.
func (p Phase) timeOf(count float64) float64 {
	slope := (p.EndRate - p.StartRate) / p.Duration.Seconds()
	root := math.Sqrt(max(0, p.StartRate*p.StartRate+2*slope*count))
	if p.StartRate+root == 0 {
		return 0
	}
	return min(2*count/(p.StartRate+root), p.Duration.Seconds())
}

// ParseRate parses the rate of a run of length d, in requests a second: "500" (constant), "100..1000" (a ramp), or "100,200,100..400" (steps, each
// for an equal part of d).
func ParseRate(s string, d time.Duration) ([]Phase, error) {
	if d <= 0 || d > MaxDuration {
		return nil, fmt.Errorf("a duration of %v is too long: the longest is %v", d, MaxDuration)
	}
	steps := strings.Split(s, ",")
	if len(steps) > maxPhases {
		return nil, fmt.Errorf("%d steps of the rate are more than %d", len(steps), maxPhases)
	}
	phases := make([]Phase, 0, len(steps))
	for _, step := range steps {
		start, end, isRamp := strings.Cut(strings.TrimSpace(step), "..")
		p := Phase{Duration: d / time.Duration(len(steps))}
		var err error
		if p.StartRate, err = parseRate(start); err != nil {
			return nil, err
		}
		if p.EndRate = p.StartRate; isRamp {
			if p.EndRate, err = parseRate(end); err != nil {
				return nil, err
			}
		}
		phases = append(phases, p)
	}
	return phases, nil
}

// parseRate parses a number of requests per second, above 0 and at most MaxRate.
func parseRate(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) || v > MaxRate {
		return 0, fmt.Errorf("rate %q: write requests a second, more than 0 and at most %d, such as 500, a ramp 100..1000, or steps 100,200,400", s, MaxRate)
	}
	return v, nil
}

// Arrivals is the distribution of requests over time.
type Arrivals string

const (
	// Poisson arrivals are independent of each other, like those of many users: gaps are exponential.
	// It is the default, because even spacing hides queueing.
	Poisson Arrivals = "poisson"
	// Constant arrivals are evenly spaced.
	Constant Arrivals = "constant"
)

// A Schedule has the start times and targets of all requests. It does not change during a run.
type Schedule struct {
	dueTimes []int64 // ns from the start, ascending
	targets  []uint16
	duration int64
}

// Len returns the number of requests.
func (s *Schedule) Len() int { return len(s.dueTimes) }

// NewSchedule computes the schedule of a run. Equal arguments give equal schedules. Weights are those
// of the targets, each at least 1.
func NewSchedule(phases []Phase, arrivals Arrivals, seed uint64, weights []int) (*Schedule, error) {
	var expected float64
	var total time.Duration
	for _, p := range phases {
		if p.Duration <= 0 || !(p.StartRate > 0) || !(p.EndRate > 0) {
			return nil, fmt.Errorf("a phase of %v from %g to %g requests per second is not possible", p.Duration, p.StartRate, p.EndRate)
		}
		expected += p.requestCount()
		total += p.Duration
	}
	switch {
	case total <= 0 || total > MaxDuration:
		return nil, fmt.Errorf("a run of %v: give a duration up to %v", total, MaxDuration)
	case expected > MaxRequests:
		return nil, fmt.Errorf("the run would send %.0f requests, more than %d: lower the rate or the duration", expected, MaxRequests)
	}
	count := int(math.Round(expected))
	s := &Schedule{dueTimes: make([]int64, 0, count), duration: int64(total)}
	for _, position := range positions(count, arrivals, rand.New(rand.NewPCG(seed, 1))) {
		position *= expected / float64(max(1, count))
		var base time.Duration
		i := 0
		for ; i < len(phases)-1 && position >= phases[i].requestCount(); i++ {
			position -= phases[i].requestCount()
			base += phases[i].Duration
		}
		s.dueTimes = append(s.dueTimes, min(int64(base)+int64(phases[i].timeOf(position)*1e9), int64(total)-1))
	}
	s.targets = drawTargets(len(s.dueTimes), weights, rand.New(rand.NewPCG(seed, 2)))
	return s, nil
}

// positions returns n sorted arrivals in an interval of length n, with one arrival per unit on
// average. Given their number, the arrivals of a Poisson process are n independent uniform values
// (Kingman, Poisson Processes, 1993, section 2.4); sorted, they are the partial sums of n+1
// exponential gaps over their sum. So a run sends exactly the requested number, and runs differ less.
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

// drawTargets returns n random indexes of targets, each with a probability in proportion to its weight.
func drawTargets(n int, weights []int, random *rand.Rand) []uint16 {
	out := make([]uint16, n)
	sum := 0
	for _, w := range weights {
		sum += w
	}
	if len(weights) < 2 || sum <= 0 {
		return out
	}
	for i := range out {
		weight := random.IntN(sum)
		for t, w := range weights {
			if weight -= w; weight < 0 {
				out[i] = uint16(t)
				break
			}
		}
	}
	return out
}
