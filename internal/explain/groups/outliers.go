package groups

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// outlierFactor is how many times longer than the usual latency an outlier takes. Package service/flight uses the same bounds
// for recordings.
const outlierFactor = 4

// outlierThreshold returns the latency in ns from which requests are outliers: outlierFactor times the 99th percentile, or the
// third quartile if there are too few requests for that. It is 0 if there are too few requests for any.
func outlierThreshold(lat *histogram) int64 {
	if lat.count < threshold.MedianSample {
		return 0
	}
	quantile := 0.75
	if lat.count >= 100*report.TailRequests {
		quantile = 0.99
	}
	limit := lat.quantile(quantile)
	return max(outlierFactor*limit, limit+threshold.TimeSliceNS)
}
