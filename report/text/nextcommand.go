package text

import (
	"regexp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// next proposes the next command.
func (p *page) next() {
	if p.opts.Command == "" || len(p.report.Groups) == 0 {
		return
	}
	command := termtext.Head(p.opts.Command, 2*p.width)
	var hint string
	switch {
	case !p.opts.Full && !p.opts.AllGroups && p.opts.Band == "":
		hint = " --full"
	case !p.opts.AllGroups && p.nextGroup() != nil:
		hint = " --group " + words.ShellQuote(p.uniqueNamePattern(p.nextGroup()))
	case p.whatIfChange() != "":
		hint = " --what-if " + words.ShellQuote(p.whatIfChange())
	case p.opts.Band == "":
		hint = " --band " + string(p.report.Groups[0].Tail().Band)
	default:
		hint = " --json"
	}
	// Users paste the command, so it is never cut: it continues on a second line, as in a shell, or is left out.
	const continuation, extraIndent = " \\", 4
	room := p.width - indent
	switch {
	case termtext.Width(command+hint) <= room:
		p.line()
		p.line(padRight(bold, "next", indent), span{plain, command + hint})
	case termtext.Width(command+continuation) <= room && termtext.Width(hint)+extraIndent <= room:
		p.line()
		p.line(padRight(bold, "next", indent), span{plain, command + continuation})
		p.line(span{plain, strings.Repeat(" ", indent+extraIndent) + strings.TrimSpace(hint)})
	}
}

// nextGroup returns the group to propose next, of those that are shown in short: the group of the first major finding, else the one
// whose slowest requests took the most time. It returns nil if the finding's group is shown in full, or if no other group has a
// name, enough requests, and at least a tenth of the time of the group shown in full.
func (p *page) nextGroup() *report.Group {
	const minRequests, minLossRatio = 10, 0.1
	lost := func(g *report.Group) float64 {
		switch {
		case g.LatencyNS.P99 != nil:
			return float64(*g.LatencyNS.P99) * float64(g.Count)
		case g.LatencyNS.Max != nil:
			return float64(*g.LatencyNS.Max) * float64(g.Count)
		}
		return 0
	}
	var worst *report.Group
	first := p.firstMajorFinding()
	for i := range p.report.Groups {
		g := &p.report.Groups[i]
		isFindings := first != nil && first.Group == g.ID
		switch {
		case i == 0 && isFindings:
			return nil // the first thing to change is shown in full
		case i == 0 || !g.Named || g.Count < minRequests || g.Streaming:
		case isFindings:
			return g
		case lost(g) >= minLossRatio*lost(&p.report.Groups[0]) && (worst == nil || lost(g) > lost(worst)):
			worst = g
		}
	}
	return worst
}

// firstMajorFinding returns the first major finding, nil if there is none.
func (p *page) firstMajorFinding() *report.Finding {
	for i := range p.report.Findings {
		if f := &p.report.Findings[i]; f.Ignored == "" && f.Severity.IsMajor() {
			return f
		}
	}
	return nil
}

// whatIfChange returns the --what-if for the change that the first finding advises. It is empty if the report has a --what-if
// already, or if there are several changes.
func (p *page) whatIfChange() string {
	f := p.firstMajorFinding()
	if f == nil || len(f.Changes) != 1 || len(p.report.WhatIf) > 0 || strings.ContainsAny(f.Changes[0].Text, " \t\n") {
		return ""
	}
	return f.Changes[0].Text
}

// namePattern returns a regular expression that finds a group by the end of its name.
func namePattern(name string) string {
	if i := strings.LastIndexAny(name, "./ "); i >= 0 && i+1 < len(name) {
		name = name[i+1:]
	}
	return suffixPattern(name)
}

// uniqueNamePattern returns a regular expression with the shortest end of the group's name that no other group's name has.
func (p *page) uniqueNamePattern(g *report.Group) string {
	for i := len(g.Name) - 1; i > 0; i-- {
		if !strings.ContainsRune("./ ", rune(g.Name[i])) || i+1 == len(g.Name) {
			continue
		}
		end := g.Name[i+1:]
		if !slices.ContainsFunc(p.report.Groups, func(o report.Group) bool { return o.ID != g.ID && strings.HasSuffix(o.Name, end) }) {
			return suffixPattern(end)
		}
	}
	return namePattern(g.Name)
}

// suffixPattern returns a regular expression for names that end with this one.
func suffixPattern(name string) string {
	if len(name) > 60 {
		name = name[len(name)-60:]
	}
	return termtext.Escape(regexp.QuoteMeta(name)) + "$"
}
