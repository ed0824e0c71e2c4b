package groups

import (
	"math"

	"github.com/whylate/whylate/report"
)

// minValues returns the least number of values for which quantile q is reported: at least one value is expected above the
// quantile, and the median needs five.
func minValues(q float64) int64 {
	n := int64(math.Round(1 / (1 - q))) // the floating-point result is slightly less or more
	return max(n, 5)
}

// latencyOf returns the mean, maximum and percentiles of a histogram; a percentile with too few values is nil.
func latencyOf(h *histogram) (out report.Latency) {
	if h.count == 0 {
		return out
	}
	q := func(q float64) *int64 {
		if h.count < minValues(q) {
			return nil
		}
		v := h.quantile(q)
		return &v
	}
	meanNS, maxNS := h.sum/h.count, h.max
	out.Mean, out.Max = &meanNS, &maxNS
	out.P50, out.P90, out.P99, out.P999 = q(0.5), q(0.9), q(0.99), q(0.999)
	return out
}

// LatencyOf returns the quantiles of a sorted list for which it has enough values. They point into the list.
func LatencyOf(sorted []int64) (out report.Latency) {
	n := len(sorted)
	if n == 0 {
		return out
	}
	sum := int64(0)
	for _, v := range sorted {
		sum += v
	}
	q := func(q float64) *int64 {
		if int64(n) < minValues(q) {
			return nil
		}
		return &sorted[int(q*float64(n-1))]
	}
	mean := sum / int64(n)
	return report.Latency{Mean: &mean, P50: q(0.5), P90: q(0.9), P99: q(0.99), P999: q(0.999), Max: &sorted[n-1]}
}

// quantiles returns the median, 99th percentile and maximum of a histogram; nil where there are too few values.
func quantiles(h *histogram) report.Quantiles {
	l := latencyOf(h)
	return report.Quantiles{P50: l.P50, P99: l.P99, Max: l.Max}
}
