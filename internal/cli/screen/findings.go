package screen

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// shownFindings returns the findings to show: all but those of severity info.
func shownFindings(s *watch.State) []watch.Finding {
	var out []watch.Finding
	for _, f := range s.Findings {
		if f.Severity != report.SeverityInfo {
			out = append(out, f)
		}
	}
	return out
}

// findingLines returns at most lines lines, a head first: one for each finding, as far as they fit, and, if lines are free, the rest of the sentence
// and the fix of the first ones. For an empty list it is one line.
func (a *App) findingLines(list []watch.Finding, columns, lines int, now time.Time) []string {
	if len(list) == 0 {
		return []string{newLine(columns, a.color).add(dim, "no finding in the last look").String()}
	}
	out := []string{newLine(columns, a.color).add(dim, "findings").String()}
	n := len(list)
	if n > lines-1 {
		n = max(lines-2, 0)
	}
	if n == 0 {
		f := &list[0]
		return []string{newLine(columns, a.color).add(dim, words.Count(len(list), "finding", "findings")+": ").add(names.SeverityStyle(f.Severity), string(f.Severity)+" ").add(plain, f.Title).String()}
	}
	spare := lines - 1 - n
	if n < len(list) {
		spare = 0
	}
	for i := range list[:n] {
		f := &list[i]
		isGone := f.State == watch.StateGone
		look, text, when, whenLook := names.SeverityStyle(f.Severity), plain, "", dim
		switch f.State {
		case watch.StateNew, watch.StateAgain:
			when, whenLook = string(f.State), bold
		case watch.StateStill:
			when = seconds(f.LastSeen.Sub(f.FirstSeen))
		case watch.StateGone:
			look, text, when = dim, dim, "gone "+seconds(now.Sub(f.LastSeen))
		}
		l := newLine(columns, a.color).addLeft(look, string(f.Severity), 7)
		if columns >= 60 {
			l.addLeft(dim, string(f.Code), 7)
		}
		l.addLeft(whenLook, when, 10)
		if columns >= 100 {
			frequency := ""
			if f.SeenPolls < f.PollsSince && !isGone {
				frequency = fmt.Sprintf("%d of %d", f.SeenPolls, f.PollsSince)
			}
			l.addLeft(dim, frequency, 10)
		}
		indent := l.used
		title, in := f.Title, inGroups(f)
		if isGone || spare == 0 {
			out = append(out, l.add(text, title).add(dim, in).String())
			continue
		}
		all := breakText(title+in, columns-indent, 3)
		if len(all) == 0 { // there is no free column
			out = append(out, l.String())
			continue
		}
		out = append(out, l.add(text, all[0]).String())
		for _, t := range all[1:min(len(all), 1+spare)] {
			out = append(out, newLine(columns, a.color).addLeft(plain, "", indent).add(text, t).String())
			spare--
		}
		if f.Fix == "" || f.Severity == report.SeverityLow || spare == 0 {
			continue
		}
		for _, t := range breakText("do: "+f.Fix, columns-indent, min(spare, 2)) {
			out = append(out, newLine(columns, a.color).addLeft(plain, "", indent).add(dim, t).String())
			spare--
		}
	}
	if n < len(list) && len(out) < lines {
		out = append(out, newLine(columns, a.color).add(dim, "and "+strconv.Itoa(len(list)-n)+" more").String())
	}
	return out
}

// inGroups returns a phrase with the groups of a finding, which begins with ", in"; "" if it has none.
func inGroups(f *watch.Finding) string {
	switch len(f.Groups) {
	case 0:
		return ""
	case 1, 2:
		return ", in " + strings.Join(f.Groups, ", ")
	}
	return ", in " + f.Groups[0] + " and " + strconv.Itoa(len(f.Groups)-1) + " more groups"
}
