package server

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
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
	Cause, Tooltip      string
}

type versionMark struct {
	X     float64
	Label string
}

type legendEntry struct {
	Cause string
	NS    int64 // mean of a request over the whole period
}

// causeClass returns the CSS class of a cause's color, "c-other" for an unknown cause.
func causeClass(cause string) string {
	if slices.Contains(report.Causes(), report.CauseName(cause)) {
		return "c-" + cause
	}
	return "c-other"
}

// causeColors returns the CSS rules for the classes of causeClass, with the colors that causes have on the pages of reports.
func causeColors() template.CSS {
	var rules strings.Builder
	for _, cause := range html.CauseColors() {
		fmt.Fprintf(&rules, ".c-%s{fill:%[2]s;background:%[2]s}", cause[0], cause[1])
	}
	return template.CSS(rules.String())
}

const chartWidth, chartHeight = 1100, 220

// newChart lays out a chart of bars, one for each step: the mean time of a request, stacked by cause, with a mark where a version first
// appeared. It returns nil if no point has time.
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
		drawn.Legend = append(drawn.Legend, legendEntry{cause, ns / max(1, requests)})
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
			drawn.Bars = append(drawn.Bars, bar{xOf(start), max(1.5, chartWidth*float64(step)/float64(span)-0.5), top, height, l.Cause,
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

// stepOf returns the shortest of several intervals, from a minute to six hours, that divides the period of a selection into at
// most 150; a day for a longer period.
func stepOf(sel store.Selection) time.Duration {
	for _, step := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour} {
		if sel.To.Sub(sel.From) <= 150*step {
			return step
		}
	}
	return 24 * time.Hour
}
