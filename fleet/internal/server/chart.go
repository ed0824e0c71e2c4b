package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/report"
)

// A chart shows the mean time of a request by cause over time. Each bar is the time of one cause in one interval; bars of an
// interval are stacked. Marks show where versions begin.
type chart struct {
	Width, Height int
	Bars          []bar
	VersionMarks  []versionMark
	Legend        []legendEntry
	MaxNS         int64 // the highest mean, at the top of the chart
	Step          time.Duration
}

type bar struct {
	X, Width, Y, Height float64
	Color, Tooltip      string
}

type versionMark struct {
	X     float64
	Label string
}

type legendEntry struct {
	Cause, Color string
	NS           int64 // mean of a request over the whole period
}

// colors are the colors of causes, distinct also with red-green color blindness.
var colors = []string{"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#994455", "#117733", "#ddcc77", "#882255", "#44aa99", "#332288", "#e69f00", "#999933", "#661100", "#888888"}

func colorOf(cause string) string {
	i := slices.Index(report.Causes(), report.CauseName(cause))
	return colors[(i+len(colors))%len(colors)]
}

const chartWidth, chartHeight = 1100, 220

// newChart lays out a chart, nil if no request is in the points.
func newChart(points []store.Point, versions []store.Version, sel store.Selection, step time.Duration) *chart {
	type interval struct {
		requests, ns int64
		nsByCause    map[string]int64
	}
	intervals := make(map[time.Time]*interval)
	totals := make(map[string]int64)
	var requests int64
	for _, p := range points {
		bucket := intervals[p.Start]
		if bucket == nil {
			bucket = &interval{nsByCause: make(map[string]int64)}
			intervals[p.Start] = bucket
		}
		if p.Cause == "" {
			bucket.requests = rows.AddClamped(bucket.requests, p.Requests)
			requests = rows.AddClamped(requests, p.Requests)
			continue
		}
		bucket.ns = rows.AddClamped(bucket.ns, p.NS)
		bucket.nsByCause[p.Cause] = rows.AddClamped(bucket.nsByCause[p.Cause], p.NS)
		totals[p.Cause] = rows.AddClamped(totals[p.Cause], p.NS)
	}
	drawn := &chart{Width: chartWidth, Height: chartHeight, Step: step}
	for _, bucket := range intervals {
		if bucket.requests > 0 {
			drawn.MaxNS = max(drawn.MaxNS, bucket.ns/bucket.requests)
		}
	}
	if drawn.MaxNS == 0 {
		return nil
	}
	for cause, ns := range totals {
		drawn.Legend = append(drawn.Legend, legendEntry{cause, colorOf(cause), ns / max(1, requests)})
	}
	slices.SortFunc(drawn.Legend, func(a, b legendEntry) int { return cmp.Compare(b.NS, a.NS) })
	begin := sel.From.Truncate(step)
	if len(points) > 0 { // points are in order of time
		begin = points[0].Start
	}
	span := max(sel.To.Sub(begin), 10*step)
	xOf := func(t time.Time) float64 { return chartWidth * float64(t.Sub(begin)) / float64(span) }
	for start, bucket := range intervals {
		if bucket.requests == 0 {
			continue
		}
		top := float64(chartHeight)
		for _, l := range drawn.Legend {
			meanNS := bucket.nsByCause[l.Cause] / bucket.requests
			height := chartHeight * float64(meanNS) / float64(drawn.MaxNS)
			if height < 0.2 {
				continue
			}
			top -= height
			drawn.Bars = append(drawn.Bars, bar{xOf(start), max(1.5, chartWidth*float64(step)/float64(span)-0.5), top, height, l.Color,
				start.UTC().Format("2006-01-02 15:04") + ": " + formatDuration(meanNS) + " a request, " + l.Cause})
		}
	}
	slices.SortFunc(drawn.Bars, func(a, b bar) int { return int(1000 * (a.X - b.X)) })
	for _, v := range versions {
		if !v.First.Before(begin) {
			drawn.VersionMarks = append(drawn.VersionMarks, versionMark{xOf(v.First), v.Version})
		}
	}
	return drawn
}
