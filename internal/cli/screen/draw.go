// Package screen shows the states of package watch on a whole terminal, or line by line if there is none. Drawing is a
// function from the state and the size to lines; [Terminal] shows these on a real terminal.
package screen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
)

// A Pane is one service on the screen.
type Pane struct {
	watch.State
	// Doing is the current activity: "tracing". DoingUntil, if not zero, is its end: "next in 3s".
	Doing      string
	DoingUntil time.Time
}

// Sizes from which panes are next to each other, or above each other.
const (
	sideBySide = 56
	aboveOther = 11
)

// Draw draws the panes on the given columns and lines. It returns at most that many lines, none wider.
func (a *App) Draw(columns, lines int, now time.Time) []string {
	if columns < 1 || lines < 1 {
		return nil
	}
	if a.page != nil {
		return a.page.draw(columns, lines, a.color)
	}
	body := max(lines-1, 1)
	var out []string
	switch n := len(a.panes); {
	case n == 1:
		out = a.pane(0, columns, body, now)
	case columns/n >= sideBySide:
		width := (columns - 3*(n-1)) / n
		parts := make([][]string, n)
		for i := range parts {
			parts[i] = a.pane(i, width, body, now)
		}
		for row := range body {
			var b strings.Builder
			for i, part := range parts {
				if i > 0 {
					b.WriteString(newLine(3, a.color).add(dim, " │ ").String())
				}
				text := ""
				if row < len(part) {
					text = part[row]
				}
				b.WriteString(text + strings.Repeat(" ", max(width-visibleWidth(text), 0)))
			}
			out = append(out, strings.TrimRight(b.String(), " "))
		}
	case body/n >= aboveOther:
		for i := range a.panes {
			height := body / n
			if i == n-1 {
				height = body - len(out)
			}
			part := a.pane(i, columns, height-1, now)
			for len(part) < height {
				part = append(part, "")
			}
			out = append(out, part...)
		}
	default:
		for i := range a.panes {
			if i != a.focus {
				out = append(out, a.summaryLine(i, columns, now))
			}
		}
		out = out[:min(len(out), max(body/3, 1))]
		out = append(out, a.pane(a.focus, columns, body-len(out), now)...)
	}
	out = out[:min(len(out), body)]
	for len(out) < lines-1 {
		out = append(out, "")
	}
	return append(out, a.footer(columns, now))[:min(len(out)+1, lines)]
}

// visibleWidth returns how many columns a drawn line takes: its text without the sequences of colours.
func visibleWidth(text string) int {
	for {
		escape := strings.IndexByte(text, 0x1b)
		if escape < 0 {
			return termtext.Width(text)
		}
		end := strings.IndexByte(text[escape:], 'm')
		if end < 0 {
			return termtext.Width(text[:escape])
		}
		text = text[:escape] + text[escape+end+1:]
	}
}

// footer returns the last line: the message, until its end, else the keys.
func (a *App) footer(columns int, now time.Time) string {
	l := newLine(columns, a.color)
	if a.message != "" && now.Before(a.messageEnd) {
		return l.add(bold, " "+a.message).String()
	}
	keys := [][2]string{{"e", "explain"}, {"s", "save"}, {"d", "compare"}}
	if columns < 58 {
		return l.add(bold, " e s d").add(dim, " for the last look").add(bold, "  ?").add(dim, " help").add(bold, "  q").add(dim, " quit").String()
	}
	if len(a.panes) > 1 {
		keys = append(keys, [2]string{"tab", "next"})
	}
	for _, k := range append(keys, [2]string{"?", "help"}, [2]string{"q", "quit"}) {
		l.add(bold, " "+k[0]).add(dim, " "+k[1]+" ")
	}
	return l.String()
}

// summaryLine returns a line of at most columns columns about the service with index i: its problem, activity or slowest group.
func (a *App) summaryLine(i, columns int, now time.Time) string {
	p := &a.panes[i]
	l := newLine(columns, a.color).add(dim, strconv.Itoa(i+1)+" ").addLeft(plain, p.Service, min(max(columns/3, 12), 30)).add(plain, " ")
	switch {
	case p.Failures > 0:
		return l.add(red, p.Problem).String()
	case len(p.Groups) == 0:
		return l.add(dim, doingText(p, now)).String()
	}
	g := &p.Groups[0]
	l.add(plain, g.Name+" ").add(bold, slowLatency(g)+" ")
	if len(g.Causes) > 0 {
		l.add(names.CauseStyle(g.Causes[0].Cause), words.Percent(g.Causes[0].Share)+" "+g.Causes[0].Words)
	}
	return l.String()
}

// doingText returns the present activity of a pane, with the time until the next one if that is known; "" without one.
func doingText(p *Pane, now time.Time) string {
	if p.DoingUntil.IsZero() {
		return p.Doing
	}
	remaining := p.DoingUntil.Sub(now)
	if remaining <= 0 {
		return p.Doing + " now"
	}
	return p.Doing + " in " + seconds(remaining)
}

// seconds formats a duration in whole seconds, at least one, minutes and hours: "1m30s", "2h".
func seconds(d time.Duration) string {
	text := max(d.Round(time.Second), time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = text[:len(text)-2]
	}
	if strings.HasSuffix(text, "h0m") {
		text = text[:len(text)-2]
	}
	return text
}

// pane returns the lines that show the service with index i: at most lines of at most columns columns. Findings and groups share them, and findings
// have at least a third.
func (a *App) pane(i, columns, lines int, now time.Time) []string {
	p := &a.panes[i]
	var out []string
	add := func(l *line) { out = append(out, l.String()) }
	line := func() *line { return newLine(columns, a.color) }

	state := doingText(p, now)
	name := bold
	if len(a.panes) > 1 && i == a.focus {
		name = bold + ";" + reverse
	}
	head := line()
	if len(a.panes) > 1 {
		head.add(dim, strconv.Itoa(i+1)+" ")
	}
	head.add(name, termtext.Middle(p.Service, max(head.room()-termtext.Width(state)-2, 10)))
	add(head.add(dim, strings.Repeat(" ", max(head.room()-termtext.Width(state), 1))).add(dim, state))
	if p.Failures > 0 {
		text := p.Problem
		if p.TriedSince != nil && p.Failures > 1 {
			text += fmt.Sprintf(" (%d times since %s)", p.Failures, p.TriedSince.Format("15:04:05"))
		}
		for _, t := range breakText(text, columns, 4) {
			add(line().add(red, t))
		}
		if p.ReportAt != nil {
			add(line().add(dim, "below: the look of "+seconds(now.Sub(*p.ReportAt))+" ago"))
		}
	}
	if p.Polls == 0 {
		return out[:min(len(out), lines)]
	}
	for _, t := range breakText(pollText(&p.State, columns), columns, 2) {
		add(line().add(dim, t))
	}
	if p.Note != "" {
		for _, t := range breakText(p.Note, columns, 2) {
			add(line().add(yellow, t))
		}
	}
	groups := slices.DeleteFunc(slices.Clone(p.Groups), func(g watch.Group) bool { return g.MaxNS == nil && g.Open == 0 })
	free := lines - len(out)
	if len(groups) == 0 {
		add(line())
		for _, t := range breakText("No requests were found in the last look: the service has no load, or the look is too short (--window).", columns, 2) {
			add(line().add(plain, t))
		}
	}
	// Findings and groups share the remaining lines; findings have at least a third of them.
	perGroup := 1
	if columns < narrow {
		perGroup = 2
	}
	history := 0
	if free >= 9 && len(groups) > 0 && len(groups[0].History) > 1 {
		history = 3
	}
	shown := shownFindings(&p.State)
	forFindings := min(len(shown)+1, max((free-history)/3, 2))
	if len(shown) == 0 {
		forFindings = 2
	}
	forGroups := free - history - forFindings - 2
	n := min(max(forGroups/perGroup, 1), len(groups))
	if len(groups) > 0 {
		add(line())
		out = append(out, a.groupLines(groups[:n], len(groups)-n, columns)...)
	}
	if history > 0 {
		add(line())
		out = append(out, a.historyLines(&groups[0], columns, now)...)
	}
	add(line())
	out = append(out, a.findingLines(shown, columns, max(lines-len(out), 1), now)...)
	return out[:min(len(out), lines)]
}

// narrow is the width below which a group takes two lines.
const narrow = 72

// pollText describes the last poll and its cost; more of it from 60 columns on.
func pollText(s *watch.State, columns int) string {
	source := words.Rough(s.DurationNS) + " of trace"
	if s.Snapshot {
		source = "the flight recorder's last " + words.Rough(s.DurationNS)
	}
	text := fmt.Sprintf("%s, %s, %s, every %s · estimated cost %s", source, words.Bytes(s.Bytes), words.Count(s.Requests, "request", "requests"),
		seconds(time.Duration(s.Cost.IntervalNS)), cost(s.Cost.Share))
	switch {
	case s.Cost.Exceeded:
		text += fmt.Sprintf(", above the budget of %s", cost(s.Cost.Budget))
	case columns >= 60:
		text += " of its CPUs (budget " + cost(s.Cost.Budget) + ")"
	}
	return text
}

// cost returns a share (0 to 1) of the service's CPUs as a percentage with two significant digits.
func cost(share float64) string {
	switch {
	case share <= 0:
		return "0%"
	case share < 0.0001:
		return "<0.01%"
	}
	return strconv.FormatFloat(100*share, 'g', 2, 64) + "%"
}
