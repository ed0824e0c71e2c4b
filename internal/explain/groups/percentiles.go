package groups

import (
	"math"

	"github.com/whylate/whylate/report"
)

// least returns how many values a quantile needs to mean something: at least
// one is expected beyond it, and for the median a handful.
func least(q float64) int64 {
	n := int64(math.Round(1 / (1 - q))) // in floating point it is a little less or more
	return max(n, 5)
}

func latency(h *histogram) report.Latency {
	var l report.Latency
	if h.n == 0 {
		return l
	}
	q := func(q float64) *int64 {
		if h.n < least(q) {
			return nil
		}
		v := h.quantile(q)
		return &v
	}
	mean, top := h.sum/h.n, h.max
	l.Mean, l.Max = &mean, &top
	l.P50, l.P90, l.P99, l.P999 = q(0.5), q(0.9), q(0.99), q(0.999)
	return l
}

func quantiles(h *histogram) report.Quantiles {
	l := latency(h)
	return report.Quantiles{P50: l.P50, P99: l.P99, Max: l.Max}
}
