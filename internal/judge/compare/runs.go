package compare

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
)

// runsConfidence is the confidence of the interval of one number over runs: readers expect 95 % of such an interval. The confidence of
// differences is Confidence.
const runsConfidence = 0.95

// resamples is the number of resamples of a bootstrap.
const resamples = 1000

// An Interval is a number with its bounds, null if there are too few runs.
type Interval struct {
	Est  float64  `json:"est"`
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
}

// Scale says how a number varies from run to run.
type Scale int

const (
	// Ratio is for latencies, rates and sizes, which vary by a factor: the estimate is the geometric mean.
	Ratio Scale = iota
	// Sum is for counts and times that may be zero: the estimate is the mean.
	Sum
)

// RunsInterval estimates the mean number of runs, with a 95 % interval. Each run started a new process, so runs are
// independent and the bootstrap draws single ones, not blocks. With few runs, the resamples have few different values. So not
// their percentiles are used, but their standard error, times Student's quantile, and times sqrt(n/(n-1)) because drawing from
// n values makes it too small (Hesterberg, What Teachers Should Know about the Bootstrap, 2015, section 4.1).
func RunsInterval(values []float64, scale Scale) Interval {
	x, back := toScale(scale, values)
	if len(x[0]) == 0 {
		return Interval{}
	}
	m := meanOf(x[0])
	out := Interval{Est: back(m)}
	if n := len(x[0]); n > 1 {
		half := studentQuantile(1-(1-runsConfidence)/2, n-1) * standardError(x[0])
		low, high := back(m-half), back(m+half)
		if scale == Sum && slices.Min(values) >= 0 {
			low = max(0, low)
		}
		out.Low, out.High = &low, &high
	}
	return out
}

// A RunsChange is the difference of a number between two arms of runs: a ratio minus 1 if both are positive and of scale
// Ratio, else a difference.
type RunsChange struct {
	Interval
	// Relative says that the numbers are ratios to the first arm.
	Relative bool `json:"relative"`
	Evidence bool `json:"evidence"`
}

// CompareRuns compares the runs of arm b with those of arm a: the difference b less a, or b/a less 1 on the scale Ratio. Without two runs each it has
// no interval. There is evidence of a difference if a 99 % interval does not contain zero. The degrees of freedom are Welch's (The generalization of
// Student's problem when several different population variances are involved, 1947).
func CompareRuns(a, b []float64, scale Scale) RunsChange {
	x, _ := toScale(scale, a, b)
	out := RunsChange{Relative: scale == Ratio && allPositive(a) && allPositive(b)}
	if len(a) == 0 || len(b) == 0 {
		return out
	}
	back := func(v float64) float64 { return v }
	if out.Relative {
		back = func(v float64) float64 { return math.Exp(v) - 1 }
	}
	delta := meanOf(x[1]) - meanOf(x[0])
	out.Est = back(delta)
	if len(a) < 2 || len(b) < 2 {
		return out
	}
	sa, sb := standardError(x[0]), standardError(x[1])
	se := math.Hypot(sa, sb)
	if se == 0 {
		out.Low, out.High, out.Evidence = &out.Est, &out.Est, delta != 0
		return out
	}
	df := math.Pow(se, 4) / (math.Pow(sa, 4)/float64(len(a)-1) + math.Pow(sb, 4)/float64(len(b)-1))
	half := studentQuantile(1-(1-Confidence)/2, max(1, int(df))) * se
	low, high := back(delta-half), back(delta+half)
	out.Low, out.High = &low, &high
	out.Evidence = low > 0 || high < 0
	return out
}

// toScale returns numbers as they are averaged, and the inverse function. The scale Ratio requires that all are positive;
// otherwise the scale is Sum.
func toScale(scale Scale, all ...[]float64) ([][]float64, func(float64) float64) {
	for _, v := range all {
		if !allPositive(v) {
			scale = Sum
		}
	}
	if scale == Sum {
		return all, func(v float64) float64 { return v }
	}
	out := make([][]float64, len(all))
	for i, v := range all {
		for _, x := range v {
			out[i] = append(out[i], math.Log(x))
		}
	}
	return out, math.Exp
}

func allPositive(v []float64) bool {
	return !slices.ContainsFunc(v, func(x float64) bool { return !(x > 0) })
}

// meanOf returns the mean of v; NaN if v is empty.
func meanOf(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// standardError returns the standard error of the mean of v by the bootstrap, always the same for the same values; 0 for fewer than two.
func standardError(v []float64) float64 {
	n := len(v)
	if n < 2 {
		return 0
	}
	h := fnv.New64a()
	for _, x := range v {
		h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)))
	}
	random := rand.New(rand.NewPCG(h.Sum64(), 2))
	m, sum := meanOf(v), 0.0
	for range resamples {
		s := 0.0
		for range n {
			s += v[random.IntN(n)]
		}
		d := s/float64(n) - m
		sum += d * d
	}
	return math.Sqrt(sum / resamples * float64(n) / float64(n-1))
}
