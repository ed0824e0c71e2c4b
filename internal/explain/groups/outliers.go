package groups

import (
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// outlierFactor is how many times as slow as what is usual outliers are. The same bounds make service/flight keep a recording.
const outlierFactor = 4

// outlierThreshold returns from which latency on requests are outliers, far slower than what is usual: than 99 of a hundred
// where that is known of enough requests, else than three quarters. It is 0 where too few tell.
func outlierThreshold(lat *histogram) int64 {
	if lat.count < scale.Enough {
		return 0
	}
	quantile := 0.75
	if lat.count >= 100*report.TailRequests {
		quantile = 0.99
	}
	limit := lat.quantile(quantile)
	return max(outlierFactor*limit, limit+scale.Slice)
}
