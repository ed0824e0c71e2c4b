package budget

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// The sentences of violations and notes. check.go decides which are used.

const (
	// maxNames bounds a list of names in a sentence.
	maxNames = 8
	// placeWidth bounds a place in a sentence.
	placeWidth = 100

	backText = "; whylate verify had called it fixed"
)

func truncatedText(rep *report.Report) string {
	return fmt.Sprintf("the trace is cut: only its first %s are checked", words.Duration(rep.Input.DurationNS))
}

func noRequestsText(g *report.Group, l *Limit) string {
	return fmt.Sprintf("%s: %s cannot be checked: no request ended within the trace; %d were still running", words.FuncName(g.Name), l.Metric(), g.Open.Count)
}

// noGroupText returns why a limit cannot be checked in a report: it has no group of that name, or no requests.
func noGroupText(rep *report.Report, l *Limit) string {
	if l.Group == "" {
		return fmt.Sprintf("%s cannot be checked: %s has no requests", l.Metric(), rep.Input.Name)
	}
	return fmt.Sprintf("%s of %s cannot be checked: no group has that name; %s", l.Metric(), l.Group, groupNames(rep))
}

// groupNames returns a clause with the names of the report's groups, the first maxNames of them.
func groupNames(rep *report.Report) string {
	var names []string
	for i := range rep.Groups {
		names = append(names, words.FuncName(rep.Groups[i].Name))
	}
	switch {
	case len(names) == 0:
		return "there are no groups"
	case len(names) > maxNames:
		return "the groups are " + strings.Join(names[:maxNames], ", ") + fmt.Sprintf(" and %d more", len(names)-maxNames)
	}
	return "the groups are " + strings.Join(names, ", ")
}

// fewText says that a latency is unknown, because it needs the given number of requests.
func fewText(g *report.Group, l *Limit, need int) string {
	s := fmt.Sprintf("%s: %s cannot be known from %s, it needs about %s: record longer, or under more load", words.FuncName(g.Name), l.Stat,
		names.CountRequests(g, g.Count), words.Number(int64(need)))
	if g.Open.Count > 0 {
		s += fmt.Sprintf("; %d are still running, the oldest for %s", g.Open.Count, words.Duration(g.Open.OldestNS))
	}
	return s
}

// latencyText says that a latency exceeds its budget, and names its largest cause, if that is not nil.
func latencyText(g *report.Group, l *Limit, ns int64, largestCause *report.Cause) string {
	s := fmt.Sprintf("%s: %s is %s, over the budget of %s", words.FuncName(g.Name), l.Stat, words.Duration(ns), words.Duration(l.NS))
	if largestCause != nil {
		s += fmt.Sprintf("; %s of that time is %s", words.Share(largestCause.Share), causeText(largestCause.Cause, largestCause.Kind, largestCause.Site))
	}
	return s
}

func noBandText(g *report.Group, l *Limit) string {
	return fmt.Sprintf("%s: the share of %s is unknown: none of %[4]s lies in band %[3]s", words.FuncName(g.Name), l.Cause, l.Band, names.CountRequests(g, g.Count))
}

// shareText says that a cause's share exceeds its budget, and names its largest row, if that is not nil.
func shareText(g *report.Group, l *Limit, share float64, largestCause *report.Cause) string {
	band := "band " + string(l.Band)
	if l.Band == report.BandAll {
		band = "all requests"
	}
	s := fmt.Sprintf("%s: %s takes %s of the time of %s, over the budget of %s", words.FuncName(g.Name), l.Cause, words.Share(share), band, words.Share(l.Share))
	if largestCause != nil {
		s += "; most of it is " + causeText(largestCause.Cause, largestCause.Kind, largestCause.Site)
	}
	return s
}

// causeText returns a cause with its site, or with its kind if the site is not known.
func causeText(name report.CauseName, kind string, site *report.Site) string {
	cause := string(name)
	switch p := names.SiteText(site, placeWidth); {
	case p != "":
		return cause + " at " + p
	case kind != "":
		return cause + " (" + kind + ")"
	}
	return cause
}

// findingText describes a finding in a group, or in the whole report if group is "".
func findingText(group string, f *report.Finding) string {
	s := f.Title
	if group != "" {
		s = words.FuncName(group) + ": " + s
	}
	if p := names.SiteText(f.Site, placeWidth); p != "" && !strings.Contains(f.Title, names.Position(f.Site)) {
		s += " at " + p
	}
	if f.Fix != "" {
		s += "; " + f.Fix
	}
	return s
}

// vanishedText says that a group of the baseline was not compared, because a report does not have it.
func vanishedText(group string, rep *report.Report) string {
	return fmt.Sprintf("%s is in the baseline but not in %s: it was not compared", words.FuncName(group), rep.Input.Name)
}

func appearedText(group string) string {
	return words.FuncName(group) + " is not in the baseline: it was not compared"
}

func movedText(g *compare.Group) string {
	return fmt.Sprintf("%s: not compared with the baseline, because requests moved to or from it (%d → %d): all requests of the server were compared", words.FuncName(g.Name), g.OldCount, g.NewCount)
}

func notComparedText(g *compare.Group, number string) string {
	return fmt.Sprintf("%s: %s cannot be compared with the baseline: too few requests or intervals", words.FuncName(g.Name), number)
}

// growthText says that a group's latency grew, and names the row that grew most, if that is not nil.
func growthText(g *compare.Group, grown []compare.Number, largestRow *compare.Row) string {
	var texts []string
	for _, l := range grown {
		texts = append(texts, fmt.Sprintf("%s %s, was %s (%s)", l.Name, words.Duration(*l.New), words.Duration(*l.Old), words.Change(l.Ratio())))
	}
	s := fmt.Sprintf("%s: slower than the baseline: %s", words.FuncName(g.Name), strings.Join(texts, ", "))
	if largestRow != nil {
		s += fmt.Sprintf("; mostly by %s, +%s a request", causeText(largestRow.Cause, largestRow.Kind, largestRow.Site()), words.Duration(largestRow.DeltaNS))
	}
	return s
}
