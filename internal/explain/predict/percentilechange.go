package predict

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// A point is a value, such as a latency in ns, and the number of requests that it represents.
type point struct{ value, weight float64 }

// quantile returns the value at the q-quantile of weighted points by nearest rank, as in the report. It sorts the points, of
// which there must be one.
func quantile(points []point, q float64) float64 {
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.value, b.value) })
	total := 0.0
	for _, p := range points {
		total += p.weight
	}
	cumulative, rank := 0.0, math.Floor(q*max(total-1, 0)+1e-6)+1
	for _, p := range points {
		if cumulative += p.weight; cumulative >= rank*(1-1e-9) {
			return p.value
		}
	}
	return points[len(points)-1].value
}

// estimatePercentile predicts the q-quantile of a group's latency. The sample gives the change of the quantile; it is applied
// to fullValue, the quantile of all requests (nil: unknown, the sample's is used). hasSetting widens the range and allows
// slower results.
func estimatePercentile(samples *series, q float64, fullValue *int64, hasSetting bool) report.Estimate {
	sampleValue := quantile(samples.before, q)
	original := sampleValue
	if fullValue != nil {
		original = float64(*fullValue)
	}
	margin, maxValue := threshold.NoiseShare, original
	minShare := 0.0
	if hasSetting { // only a setting can make requests slower
		margin, maxValue, minShare = settingsMargin, math.Inf(1), minShareOfLow
	}
	predictedBy := func(v int) float64 {
		if x := quantile(samples.after[v], q); x != sampleValue {
			return min(samples.extrapolate(v, sampleValue, x, original), maxValue)
		}
		return original
	}
	estimate, lowest, highest := predictedBy(est), predictedBy(low), predictedBy(high)
	lowest, highest = min(lowest, estimate), max(highest, estimate)
	slower := max(estimate, lowest, highest) > original
	if q > 0.9 && estimate < original {
		// The slowest requests after a change often have causes that the trace does not contain: stalls of the machine, of
		// the client, of peers. In the experiments of docs/predict.md two thirds of the measured 99th percentiles were
		// between 0.75 and 1.75 times the predicted ones.
		lowFactor, highFactor := samples.tailRange(q)
		lowest, highest = min(lowest, 0.75*lowFactor*estimate), max(highest, min(original, 1.75*highFactor*estimate))
	}
	if !hasSetting && estimate <= threshold.MinorShare*original {
		lowest = 0 // what remains is mostly wake-ups and cold caches, which also depend on the waits that are gone
	}
	if slower {
		return report.Estimate{
			Est: roundToThreeDigits(estimate, estimate), Low: roundToThreeDigits(max(0, lowest-margin*math.Abs(original-lowest)), original),
			High: roundToThreeDigits(highest+margin*(highest-original), highest+margin*(highest-original)),
		}
	}
	return report.Estimate{
		Est: roundToThreeDigits(estimate, original), Low: roundToThreeDigits(max(minShare*lowest, lowest-margin*(original-lowest)), original),
		High: roundToThreeDigits(highest+margin*(original-highest), original),
	}
}

// tailRange returns by which factors the q-quantile of all requests may be below and above that of the recorded ones, with a
// confidence of 95 % each, after the change. Of few requests, one or none is beyond the quantile, by chance. Low: the slowest
// requests that may all be beyond it do not count. High: more requests are beyond it than recorded, and the tail is
// exponential from the median on.
func (s *series) tailRange(q float64) (lowFactor, highFactor float64) {
	points := s.after[est]
	value, median, requests, heaviest := quantile(points, q), quantile(points, 0.5), 0.0, 1.0
	for _, p := range points {
		if requests += p.weight; p.value >= value {
			heaviest = max(heaviest, p.weight) // a sampled request represents so many
		}
	}
	beyond := (1 - q) * requests
	if q == 1 {
		beyond = 1
	}
	if value <= 0 || requests < 2 || beyond > threshold.TailSample {
		return 1, 1
	}
	byChance := 0.0 // so many sampled requests may be beyond it
	for poissonBelow(byChance+1, beyond/heaviest) < 0.95 {
		byChance++
	}
	rank := requests - math.Floor(q*(requests-1)) // of the value, from the slowest on
	most := rank                                  // requests may be beyond it on average
	for poissonBelow(rank, most) > 0.05 {
		most += 0.1
	}
	lowFactor = min(1, quantile(points, max(0.5, 1-byChance*heaviest/(requests-1)))/value)
	decay := max(math.Log(requests/2/rank), 0.5) // from the median to the value, in multiples of the tail's mean
	return lowFactor, 1 + (1-median/value)*math.Log(most/beyond)/decay
}

// poissonBelow returns the probability of fewer than k events if their mean number is mean.
func poissonBelow(k, mean float64) float64 {
	sum, term := 0.0, math.Exp(-mean)
	for i := 1.0; i <= k; i++ {
		sum, term = sum+term, term*mean/i
	}
	return sum
}

// nearLengthRatio bounds the ratio of the latencies that extrapolate compares: the sample's median may be in the stratum next
// to that of the group's.
const nearLengthRatio = 1.5

// extrapolate carries a change from one latency to another: if the change turns latency from into changed, it returns what
// latency to becomes (in variant v, all in ns). If the change takes the same time from each request (a sleep), the rest grows
// with the latency; if it takes a share, the rest is proportional. A least-squares fit over requests of similar latency decides
// between the two: with a share alone, 400 ms less of 440 in a sample with median 412 predicted 35 ms where 58 was measured.
func (s *series) extrapolate(v int, from, changed, to float64) float64 {
	share := changed / from * to
	if changed > from || to == from {
		return share
	}
	var n, l, y, ll, ly float64
	for _, r := range s.requests {
		if latency := float64(r.Latency); latency*nearLengthRatio > from && latency < from*nearLengthRatio {
			w := r.weight
			n, l, y, ll, ly = n+w, l+w*latency, y+w*r.latencies[v], ll+w*latency*latency, ly+w*latency*r.latencies[v]
		}
	}
	spread := ll - l*l/max(n, 1)
	if spread < 1e-6*ll {
		return share
	}
	slope := min(max((ly-l*y/n)/spread, changed/from), 1)
	if carried := changed + slope*(to-from); carried > 0 {
		return carried
	}
	return share
}

// settingsMargin is the margin of predictions for settings, in place of threshold.NoiseShare: a setting changes the process,
// while the models are about what requests waited for. minShareOfLow bounds an improvement: what remains is not known to be
// less than this share of the lowest model.
const (
	settingsMargin = 0.15
	minShareOfLow  = 0.6
)

// roundToThreeDigits rounds a latency of x ns to three significant digits, which is more than its accuracy; at most original. An
// x equal to original stays exact.
func roundToThreeDigits(x, original float64) int64 {
	if x == original {
		return int64(original)
	}
	step := 1.0
	for x/step >= 1000 {
		step *= 10
	}
	return min(int64(math.Round(x/step)*step), int64(original))
}
