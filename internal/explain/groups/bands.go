package groups

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/report"
)

// A bucketRange is the latency buckets of a band, the last one included.
type bucketRange struct{ first, last int32 }

func (b bucketRange) contains(bucket int32) bool { return b.first <= bucket && bucket <= b.last }

// bands divides a group's requests by latency (all, p50-p90, p90-p99, above p99, outliers) and returns the causes of each band.
// A coarse bucket belongs to the band that contains the median of its requests, so the bounds of a band are exact to the width
// of a bucket, 3 %.
func (w rowWriter) bands(group *group) []report.Band {
	order := group.latencies.coarseCounts()
	lines, shares := map[causeRowKey]rowSite{}, w.siteSharesOf(group)
	band := func(name report.BandName, buckets []bucketCount) report.Band {
		b := report.Band{Band: name, Causes: []report.Cause{}}
		if len(buckets) == 0 {
			return b
		}
		covered := bucketRange{buckets[0].bucket, buckets[len(buckets)-1].bucket}
		b.FromNS, b.ToNS = loglinear.LowerBound(covered.first, coarseBits), loglinear.LowerBound(covered.last+1, coarseBits)
		for i := range buckets {
			b.Count += int(buckets[i].count)
		}
		b.Causes = w.causeRows(group, covered, b.Count, shares, lines)
		return b
	}
	middles := make([]float64, len(order)) // of each bucket, as a quantile
	cumulative := int64(0)
	for i, b := range order {
		middles[i] = (float64(cumulative) + float64(b.count)/2) / float64(group.latencies.count)
		cumulative += b.count
	}
	firstAt := func(q float64) int { i, _ := slices.BinarySearch(middles, q); return i }
	p90, p99 := firstAt(0.9), firstAt(0.99)
	slowest := order[min(p99, max(len(order)-1, 0)):]
	out := []report.Band{
		band(report.BandAll, order), band(report.Band5090, order[firstAt(0.5):p90]), band(report.Band9099, order[p90:p99]),
		band(report.Band99, slowest),
	}
	if limit := outlierThreshold(&group.latencies); limit > 0 {
		first := slices.IndexFunc(order, func(b bucketCount) bool { return loglinear.LowerBound(b.bucket, coarseBits) >= limit })
		if first >= 0 {
			out = append(out, band(report.BandOutliers, order[first:]))
		}
	}
	return out
}

// withMaxRoutes returns a copy of bands in which each cause has at most MaxRoutes chains of waits.
func withMaxRoutes(bands []report.Band) []report.Band {
	out := slices.Clone(bands)
	for i := range out {
		out[i].Causes = slices.Clone(out[i].Causes)
		for k := range out[i].Causes {
			row := &out[i].Causes[k]
			row.Routes = row.Routes[:min(len(row.Routes), MaxRoutes)]
		}
	}
	return out
}
