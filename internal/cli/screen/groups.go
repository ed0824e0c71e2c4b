package screen

import (
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
)

const unknown = "–"

// median returns a group's p50 as text, or the sign for an unknown value.
func median(g *watch.Group) string {
	if g.P50NS == nil {
		return unknown
	}
	return words.Duration(*g.P50NS)
}

// slowLatency returns a group's p99 as text; if that is unknown, its slowest request after "≤", or the sign for an unknown value.
func slowLatency(g *watch.Group) string {
	switch {
	case g.P99NS != nil:
		return words.Duration(*g.P99NS)
	case g.MaxNS != nil:
		return "≤" + words.Duration(*g.MaxNS)
	}
	return unknown
}

// groupLines returns a table of groups: requests per second, p50, p99 and causes of slow requests, as far as columns allow. hidden is the number of
// groups that are not in the list, for the head.
func (a *App) groupLines(list []watch.Group, hidden, columns int) []string {
	var out []string
	two := columns < narrow
	figures := 9 + 9
	rate := columns >= 60
	if rate {
		figures += 8
	}
	bar := 10
	switch {
	case columns >= 130:
		bar = 20
	case two:
		bar = 8
	}
	name := 12
	for i := range list {
		name = max(name, termtext.Width(list[i].Name))
	}
	name = min(name, max(columns/4, 12))
	if two {
		name = columns - figures
	}
	head := newLine(columns, a.color).addLeft(dim, "group", name)
	if rate {
		head.addRight(dim, "per s", 8)
	}
	head.addRight(dim, "p50", 9).addRight(dim, "p99", 9)
	if !two {
		head.add(dim, "  slow requests spent their time on")
	}
	out = append(out, head.String())
	for i := range list {
		g := &list[i]
		look, strong := plain, bold
		if g.Idle {
			look, strong = dim, dim
		}
		l := newLine(columns, a.color).addLeft(look, g.Name, name)
		if rate {
			l.addRight(look, perSecond(g), 8)
		}
		l.addRight(look, median(g), 9).addRight(strong, slowLatency(g), 9)
		if two {
			out = append(out, l.String())
			l = newLine(columns, a.color)
		}
		l.add(plain, "  ")
		a.bar(l, g.Causes, bar)
		if len(g.Causes) > 0 {
			l.add(plain, " ")
			addLargestCause(l, &g.Causes[0], look)
		} else if g.Open > 0 {
			l.add(dim, " "+words.Count(g.Open, g.Kind.RequestNoun(), g.Kind.RequestNoun()+"s")+" still running")
		}
		out = append(out, l.String())
	}
	if hidden > 0 {
		out[0] = head.add(dim, "  and "+words.Count(hidden, "more group", "more groups")).String()
	}
	return out
}

// addLargestCause adds the share, the cause and the place of c to the line: the cause in words if they fit, else by its name in reports.
func addLargestCause(l *line, c *watch.Part, look style) {
	l.add(look, words.Percent(c.Share)+" ")
	name := c.Words
	if termtext.Width(name)+1+termtext.Width(c.Place) > l.room() && c.Place != "" {
		name = string(c.Cause)
	}
	l.add(look, name+" ").add(dim, names.SiteText(c.Site.OwnLine(), max(l.room(), 8)))
}

// perSecond returns the requests per second of a group in the last poll as text, or the sign for an unknown value if there were none.
func perSecond(g *watch.Group) string {
	if g.Count == 0 {
		return unknown
	}
	if g.PerSecond < 9.95 {
		return strconv.FormatFloat(g.PerSecond, 'f', 1, 64)
	}
	return words.ShortNumber(int(g.PerSecond + 0.5))
}

// shades distinguish the parts of a bar without colours, the largest first.
var shades = [...]string{"█", "▓", "▒", "░"}

// bar adds a bar of the given number of cells to the line, in which each cause takes its share and dots the rest.
func (a *App) bar(l *line, causes []watch.Part, cells int) {
	drawn, sum := 0, 0.0
	for i, c := range causes {
		sum += c.Share
		n := min(max(int(sum*float64(cells)+0.5)-drawn, 0), cells-drawn)
		cell := "█"
		if !a.color {
			cell = shades[min(i, len(shades)-1)]
		}
		l.add(names.CauseStyle(c.Cause), strings.Repeat(cell, n))
		drawn += n
	}
	l.add(dim, strings.Repeat("·", cells-drawn))
}

// eighths are the heights of a point.
var eighths = []rune("▁▂▃▄▅▆▇█")

// historyLines returns two lines: a label with the range, and a row of bars, one a poll, of the latency of a group's slow requests, in the colours of
// their largest causes.
func (a *App) historyLines(g *watch.Group, columns int, now time.Time) []string {
	points := g.History[max(len(g.History)-(columns-1), 0):]
	var smallest, largest int64
	count := 0
	for _, p := range points {
		if p.NS == nil {
			continue
		}
		if count++; count == 1 {
			smallest, largest = *p.NS, *p.NS
		}
		smallest, largest = min(smallest, *p.NS), max(largest, *p.NS)
	}
	title := "slowest 1% of " + g.Name
	period := ""
	if len(points) > 0 {
		period = " in " + seconds(now.Sub(points[0].Time))
	}
	label := newLine(columns, a.color)
	text := ""
	if count > 0 {
		text = ": " + words.Duration(smallest) + " to " + words.Duration(largest) + period
	}
	label.add(dim, termtext.Head(title, max(columns-termtext.Width(text), 10))).add(dim, text)
	l := newLine(columns, a.color)
	for _, p := range points {
		if p.NS == nil {
			l.add(dim, "·")
			continue
		}
		level := 0
		if largest > 0 {
			level = int(float64(*p.NS) / float64(largest) * float64(len(eighths)-1))
		}
		l.add(names.CauseStyle(p.Cause), string(eighths[level]))
	}
	return []string{label.String(), l.String()}
}
