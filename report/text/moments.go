package text

import (
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// maxMoments bounds the moments that are shown.
const maxMoments = 10

// moments writes the moments at which several of a group's slowest requests began, and the events at them.
func (p *page) moments() {
	head, group := span{bold, "moments"}, ""
	for i := range p.report.Moments[:min(len(p.report.Moments), maxMoments)] {
		m := &p.report.Moments[i]
		if m.Group != group {
			p.line()
			group = m.Group
			p.momentsOf(head, m)
			head = span{}
		}
		text := "at " + words.Duration(m.StartNS) + ": " + words.Number(int64(m.Slow)) + " within " + words.Duration(max(m.EndNS-m.StartNS, 1)) + ", " +
			verdict.Words(&report.VerdictCause{Cause: m.Cause})
		for k := range m.With {
			text += "; " + termtext.Head(m.With[k].Text, 200)
		}
		p.paragraph(span{}, indent+2, span{plain, breakable(text, p.width/2)})
	}
}

// momentsOf writes how many of a group's slowest requests its moments contain.
func (p *page) momentsOf(head span, first *report.Moment) {
	n, ns := 0, int64(0)
	for i := range p.report.Moments {
		if m := &p.report.Moments[i]; m.Group == first.Group {
			n += m.Slow
			ns += m.EndNS - m.StartNS
		}
	}
	text := words.Number(int64(n)) + " of the " + words.Number(int64(first.SlowestRequests)) + " slowest requests"
	if g := p.report.Group(first.Group); g != nil {
		text += " of " + names.GroupName(g, p.width-indent)
	}
	part := float64(ns) / float64(max(p.report.Input.DurationNS, 1))
	p.paragraph(head, indent, span{plain, text + " began in short intervals, " + words.Percent(part) + " of the time:"})
}
