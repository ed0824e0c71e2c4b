package groups

import (
	"math"

	"github.com/whylate/whylate/report"
)

// minValues returns how many values a quantile needs: at least one is expected beyond it, and five for the median.
func minValues(q float64) int64 {
	n := int64(math.Round(1 / (1 - q))) // the floating-point result is slightly less or more
	return max(n, 5)
}

// latencyOf returns the latencies of a histogram, with the quantiles that have enough values.
func latencyOf(h *histogram) report.Latency {
	var out report.Latency
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

// quantiles returns the quantiles of a histogram that have enough values.
func quantiles(h *histogram) report.Quantiles {
	l := latencyOf(h)
	return report.Quantiles{P50: l.P50, P99: l.P99, Max: l.Max}
}
