package groups

import (
	"github.com/whylate/whylate/internal/explain/loglinear"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// bands divides the group's requests by latency. A coarse bucket belongs to
// the band in which the middle one of its requests lies, so a band's borders
// are exact to a bucket's width, 3 %.
func (w writer) bands(g *group, r *report.Group) {
	counts := map[int32]int64{}
	g.lat.each(func(b int32, c int64) { counts[coarse(b)] += c })
	order := keysOf(counts)
	limits := []struct {
		name   report.BandName
		lo, hi float64
	}{{report.BandAll, 0, 1}, {report.Band5090, 0.5, 0.9}, {report.Band9099, 0.9, 0.99}, {report.Band99, 0.99, 1}}
	lines, runs := map[rowKey]siteFrom{}, w.shownIn(g)
	for _, l := range limits {
		in := map[int32]bool{}
		band := report.Band{Band: l.name, Causes: []report.Cause{}}
		seen := int64(0)
		for i, b := range order {
			c := counts[b]
			mid := (float64(seen) + float64(c)/2) / float64(g.lat.n)
			seen += c
			top := i == len(order)-1 && l.hi == 1
			if mid < l.lo && !top || mid >= l.hi && !top {
				continue
			}
			if band.Count == 0 {
				band.FromNS = loglinear.Least(b, coarseBits)
			}
			band.ToNS = loglinear.Least(b+1, coarseBits)
			band.Count += int(c)
			in[b] = true
		}
		if band.Count > 0 {
			band.Causes = w.causeRows(g, in, band.Count, runs, lines)
		}
		r.Bands = append(r.Bands, band)
	}
	w.outliers(g, r, counts, order, runs, lines)
}

// Outliers are more than so many times as slow as what is usual, and so much slower. The same bounds make service/flight
// keep a recording.
const (
	outlierFactor = 4
)

// outliers adds the band of requests that were far slower than what is usual, if there are such: than 99 of a hundred
// where that is known of enough requests, else than three quarters.
func (w writer) outliers(g *group, r *report.Group, counts map[int32]int64, order []int32, runs shown, lines map[rowKey]siteFrom) {
	if g.lat.n < scale.Enough {
		return
	}
	usual := 0.75
	if g.lat.n >= 100*report.TailRequests {
		usual = 0.99
	}
	limit := g.lat.quantile(usual)
	limit = max(outlierFactor*limit, limit+scale.Slice)
	band := report.Band{Band: report.BandOutliers, Causes: []report.Cause{}}
	in := map[int32]bool{}
	for _, b := range order {
		if loglinear.Least(b, coarseBits) < limit {
			continue
		}
		if band.Count == 0 {
			band.FromNS = loglinear.Least(b, coarseBits)
		}
		band.ToNS = loglinear.Least(b+1, coarseBits)
		band.Count += int(counts[b])
		in[b] = true
	}
	if band.Count > 0 {
		band.Causes = w.causeRows(g, in, band.Count, runs, lines)
		r.Bands = append(r.Bands, band)
	}
}
