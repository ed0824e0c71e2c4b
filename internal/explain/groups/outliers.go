package groups

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// outlierFactor is by how many times outliers exceed the usual latency. Package service/flight uses the same bounds for
// recordings.
const outlierFactor = 4

// outlierThreshold returns the latency from which requests are outliers: far above the 99th percentile, if there are enough
// requests for it, else above the third quartile. It is 0 if there are too few requests.
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
