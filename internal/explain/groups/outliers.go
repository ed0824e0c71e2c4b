package groups

import (
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// outlierFactor is how many times as slow as what is usual outliers are. The same bounds make service/flight keep a recording.
const outlierFactor = 4

// outliersFrom returns from which latency on requests are outliers, far slower than what is usual: than 99 of a hundred
// where that is known of enough requests, else than three quarters. It is 0 where too few tell.
func outliersFrom(lat *histogram) int64 {
	if lat.n < scale.Enough {
		return 0
	}
	usual := 0.75
	if lat.n >= 100*report.TailRequests {
		usual = 0.99
	}
	limit := lat.quantile(usual)
	return max(outlierFactor*limit, limit+scale.Slice)
}
