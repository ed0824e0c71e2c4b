package server

import (
	"cmp"
	"slices"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/report"
)

// A chart shows the time of a request by cause, over time: bars, whose parts are causes, and versions where they begin.
type chart struct {
	Width, Height int
	Bars          []bar
	Marks         []mark
	Legend        []legend
	Most          int64 // ns, at the top
	Step          time.Duration
}

type bar struct {
	X, Width, Y, Height float64
	Color, Says         string
}

type mark struct {
	X     float64
	Label string
}

type legend struct {
	Cause, Color string
	NS           int64 // a request, over the whole range
}

// colors are those of causes, distinguished also by people who do not see red and green.
var colors = []string{"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#994455", "#117733", "#ddcc77", "#882255", "#44aa99", "#332288", "#999933", "#661100", "#888888"}

func colorOf(cause string) string {
	i := slices.Index(report.Causes(), report.CauseName(cause))
	return colors[(i+len(colors))%len(colors)]
}

const chartWidth, chartHeight = 1100, 220

// draw lays out a chart; nil if there is nothing to show.
func draw(points []store.Point, versions []store.Version, in store.Selection, step time.Duration) *chart {
	type interval struct {
		requests, ns int64
		by           map[string]int64
	}
	at := make(map[time.Time]*interval)
	total := make(map[string]int64)
	var requests int64
	for _, p := range points {
		x := at[p.Start]
		if x == nil {
			x = &interval{by: make(map[string]int64)}
			at[p.Start] = x
		}
		if p.Cause == "" {
			x.requests = rows.AddClamped(x.requests, p.Requests)
			requests = rows.AddClamped(requests, p.Requests)
			continue
		}
		x.ns = rows.AddClamped(x.ns, p.NS)
		x.by[p.Cause] = rows.AddClamped(x.by[p.Cause], p.NS)
		total[p.Cause] = rows.AddClamped(total[p.Cause], p.NS)
	}
	c := &chart{Width: chartWidth, Height: chartHeight, Step: step}
	for _, x := range at {
		if x.requests > 0 {
			c.Most = max(c.Most, x.ns/x.requests)
		}
	}
	if c.Most == 0 {
		return nil
	}
	for cause, ns := range total {
		c.Legend = append(c.Legend, legend{cause, colorOf(cause), ns / max(1, requests)})
	}
	slices.SortFunc(c.Legend, func(a, b legend) int { return cmp.Compare(b.NS, a.NS) })
	begin := in.From.Truncate(step)
	if len(points) > 0 { // in order of time: nothing is known of before
		begin = points[0].Start
	}
	all := max(in.To.Sub(begin), 10*step)
	x := func(t time.Time) float64 { return chartWidth * float64(t.Sub(begin)) / float64(all) }
	for start, v := range at {
		if v.requests == 0 {
			continue
		}
		upto := float64(chartHeight)
		for _, l := range c.Legend {
			each := v.by[l.Cause] / v.requests
			h := chartHeight * float64(each) / float64(c.Most)
			if h < 0.2 {
				continue
			}
			upto -= h
			c.Bars = append(c.Bars, bar{x(start), max(1.5, chartWidth*float64(step)/float64(all)-0.5), upto, h, l.Color,
				start.UTC().Format("2006-01-02 15:04") + ": " + took(each) + " a request, " + l.Cause})
		}
	}
	slices.SortFunc(c.Bars, func(a, b bar) int { return int(1000 * (a.X - b.X)) })
	for _, v := range versions {
		if !v.First.Before(begin) {
			c.Marks = append(c.Marks, mark{x(v.First), v.Version})
		}
	}
	return c
}
