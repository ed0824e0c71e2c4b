package text

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// indent is the column in which text begins after a heading.
const indent = 9

// verdict writes what slow requests spent their time on: the beginning of a sentence, and a line for each cause in it.
func (p *page) verdict() {
	list := p.verdicts()
	head := p.verdictHead()
	for i := range list {
		g := p.report.Group(list[i].Group)
		if g == nil {
			continue
		}
		p.line()
		p.groupVerdict(g, &list[i], head)
		head = span{}
	}
}

// verdictHead returns the heading of the verdicts: why requests are late or, if none is, where they wait.
func (p *page) verdictHead() span {
	if o := verdict.NewOutcome(p.report, p.verdicts()); o != nil && !o.State.HasFault() {
		return span{bold, "where"}
	}
	return span{bold, "why"}
}

// verdicts returns the report's verdicts, or those of the selected band. It computes them for reports of older versions, which have
// none.
func (p *page) verdicts() []report.Verdict {
	if p.report.Verdict == nil || p.opts.Band != "" {
		return verdict.BandVerdicts(p.report, p.opts.Band)
	}
	return p.report.Verdict
}

// groupVerdict writes the verdict of one group.
func (p *page) groupVerdict(g *report.Group, v *report.Verdict, head span) {
	var list []*report.VerdictCause
	eachWidth := 0
	for i := range v.Causes {
		if c := &v.Causes[i]; c.InSentence {
			list = append(list, c)
			eachWidth = max(eachWidth, termtext.Width(words.Duration(c.EachNS)))
		}
	}
	name := span{bold, names.GroupName(g, p.width-indent-2)}
	if len(list) == 0 {
		p.paragraph(head, indent, name, span{plain, ": no request ended in the trace."})
	} else {
		p.paragraph(head, indent, span{plain, termtext.Head(v.Lead, 60) + " "}, name, span{plain, " " + termtext.Head(v.Range, 120) + " " + verdict.SpentText(v, g)})
	}
	for _, c := range list {
		p.verdictCause(c, eachWidth)
	}
	if v.Remark != "" {
		p.paragraph(span{}, indent, span{plain, termtext.Head(v.Remark, 300)})
	}
	if v.Held != "" {
		p.paragraph(span{}, indent, span{boldRed, termtext.Head(v.Held, 300)})
	}
	p.open(g, v.Open)
}

// comparison writes a table of the groups that are about as slow as the first, or have the same cause: a line for each, with its largest
// cause and the rule of its first finding.
func (p *page) comparison(rows []verdict.GroupRow) {
	const countWidth, latencyWidth, ruleWidth = 9, 11, 8
	nameWidth, mostName := 0, (p.width-indent-countWidth-2*latencyWidth-ruleWidth)/2
	for i := range rows {
		nameWidth = max(nameWidth, 1+termtext.Width(names.GroupName(p.report.Group(rows[i].Group), mostName-1)))
	}
	left := p.width - indent - nameWidth - countWidth - 2*latencyWidth - ruleWidth - 2
	margin := span{plain, strings.Repeat(" ", indent)}
	p.line()
	p.line(margin, padRight(dim, "groups", nameWidth), padLeft(dim, "requests", countWidth), padLeft(dim, "p50", latencyWidth), padLeft(dim, "p99", latencyWidth), padRight(dim, "  most of the slow ones", left+2), padRight(dim, " change", ruleWidth))
	for i := range rows {
		row := &rows[i]
		g := p.report.Group(row.Group)
		latency := g.SenderLatency()
		slowText := words.DurationOrUnknown(latency.P99)
		if latency.P99 == nil {
			slowText = "max " + words.DurationOrUnknown(latency.Max)
		}
		rule := words.Unknown
		if k := slices.IndexFunc(p.report.Findings, func(f report.Finding) bool { return f.ID == row.Finding }); k >= 0 {
			rule = termtext.Head(p.report.Findings[k].Code, ruleWidth-1)
		}
		p.line(margin, padRight(bold, names.GroupName(g, nameWidth-1), nameWidth), padLeft(plain, words.ShortNumber(g.Count), countWidth), padLeft(plain, words.DurationOrUnknown(latency.P50), latencyWidth),
			padLeft(plain, slowText, latencyWidth), span{plain, "  "}, padRight(names.CauseStyle(row.Cause), termtext.Head(row.Text, left), left), padRight(dim, " "+rule, ruleWidth))
	}
}

// open writes the requests that had not ended, if one of them is late: it may hang. A request that is no older than others were at
// their end is not remarkable.
func (p *page) open(g *report.Group, o *report.VerdictOpen) {
	if o == nil || !o.Late {
		return
	}
	spans := []span{{boldRed, names.CountRequests(g, o.Count) + " still running"}, {plain, " at the end of the trace, the oldest for " + words.Duration(o.OldestNS)}}
	if place := siteSpans(o.Site, p.width-indent-2); place != nil {
		spans = append(append(append(spans, span{plain, " in "}), place...), prefixSpans(", ", callerSpans(o.Site, p.width-indent-2))...)
	}
	p.paragraph(span{}, indent, spans...)
}

// verdictCause writes a cause's share of a band's time, the mean time per request, and what the time was spent on.
func (p *page) verdictCause(c *report.VerdictCause, eachWidth int) {
	numbers := termtext.PadLeft(words.Percent(c.Share), 4) + "  " + termtext.PadLeft(words.Duration(c.EachNS), eachWidth)
	hangingIndent := indent + termtext.Width(numbers) + 2
	var spans []span
	for _, piece := range verdict.Describe(c, p.width-hangingIndent-2) {
		st := [...]style{verdict.Plain: plain, verdict.Strong: bold, verdict.Function: plain, verdict.Position: cyan, verdict.Remark: dim}[piece.Style]
		spans = append(spans, span{st, piece.Text})
	}
	p.paragraph(span{shareStyle(c.Share, true), strings.Repeat(" ", indent) + numbers}, hangingIndent, spans...)
}

// shareStyle returns the style of a share: larger shares are more conspicuous.
func shareStyle(share float64, always bool) style {
	switch {
	case share >= 0.3:
		return boldRed
	case share >= 0.1:
		return yellow
	case always:
		return bold
	}
	return plain
}

// estimate writes a prediction and its range. A model has at most two significant digits, however narrow its range; a range narrower
// than these is left out. A latency that the change does not affect is written as measured.
func estimate(e report.Estimate) string {
	if e.Low == e.High {
		return words.Duration(e.Est)
	}
	est, low, high := words.Rough(e.Est), words.Rough(e.Low), words.Rough(e.High)
	if low == est && high == est {
		return "about " + est
	}
	return est + " (" + low + " to " + high + ")"
}

// expected writes a prediction for the first screen: a number if it is known, else its range or, if that has no lower end, the upper end.
func expected(e report.Estimate) string {
	switch {
	case e.Low == e.High:
		return words.Duration(e.Est)
	case e.IsNumber():
		return words.Rough(e.Est)
	case e.Low == 0:
		return "below " + words.Rough(e.High)
	}
	return words.Rough(e.Low) + " to " + words.Rough(e.High)
}

// crossCheck compares a prediction with requests that spent only as much time in the cause as the change leaves. If they differ, it
// says what the reason may be.
func crossCheck(c *report.Check) []span {
	spentText := "at most " + words.Rough(c.AtMostNS)
	if c.AtLeastNS > 0 {
		spentText = words.Rough(c.AtLeastNS) + " to " + words.Rough(c.AtMostNS)
	}
	comparison := words.Count(c.Requests, "request", "requests") + " of this trace spent " + spentText + " there: p50 " + words.Duration(c.P50NS) + ", "
	predicted := " predicted"
	if c.CauseRemoved {
		predicted += " without it"
	}
	switch {
	case c.Agrees && !c.CauseRemoved:
		return []span{{plain, "cross-check: "}, {dim, comparison + "in line with the prediction"}}
	case c.Agrees:
		return []span{{plain, "cross-check: "}, {dim, comparison + "in line with the " + words.Rough(c.PredictedNS.Est) + predicted}}
	}
	explanation := "another cause makes them slow, which may remain, or they are of another kind"
	if c.P50NS < c.PredictedNS.Est {
		explanation = "they may be lighter requests"
	}
	return []span{{yellow, "caution: "}, {plain, comparison + "where " + estimate(c.PredictedNS) + " is" + predicted + "; " + explanation}}
}

// goals writes whether latencies meet their goals, and which changes would make them.
func (p *page) goals() {
	for i := range p.report.Goals {
		g := &p.report.Goals[i]
		p.line()
		head := span{bold, "goal"}
		text := []span{{bold, breakable(termtext.Head(words.FuncName(g.Name), 200), p.width/2)}, {plain, ": " + g.Percentile + " of at most " + words.Duration(g.MostNS) + " "}}
		switch pr := g.Predicted; {
		case g.IsNS == nil:
			text = append(text, span{dim, "is not known: there were too few requests"})
		case g.Kept:
			text = append(text, span{green, "is met: " + words.Duration(*g.IsNS)})
		case pr == nil:
			text = append(text, span{plain, "is missed: it is " + words.Duration(*g.IsNS) + ", and no change can be predicted"})
		default:
			estimated := pr.P99NS
			if g.Percentile == "p50" {
				estimated = pr.P50NS
			}
			if g.Reached {
				text = append(text, span{plain, "is reached, from " + words.Duration(*g.IsNS) + " to "}, span{green, estimate(estimated)}, span{plain, ", by "})
			} else {
				text = append(text, span{plain, "is missed: it is " + words.Duration(*g.IsNS) + "; no three changes reach it. The closest is "}, span{plain, estimate(estimated)}, span{plain, ", by "})
			}
			text = append(text, span{plain, breakable(termtext.Head(pr.Change, 400), p.width/2)})
		}
		p.paragraph(head, indent, text...)
	}
}

// whatIf writes the predicted gain of the changes of --what-if for each affected group, or that they affect none. WhatIf is nil
// without --what-if: then it writes nothing.
func (p *page) whatIf() {
	head := span{bold, "what if"}
	for i := range p.report.WhatIf {
		w := &p.report.WhatIf[i]
		pr := &w.Predicted
		p.line()
		text := []span{{plain, breakable(termtext.Head(pr.Change, 400), p.width/2)}, {dim, " in "}, {bold, breakable(termtext.Head(words.FuncName(w.Name), 200), p.width/2)}, {plain, ": "}}
		text = append(append(text, latencyChange("p50", pr.WasP50NS, &pr.P50NS, estimate)...), span{plain, ", "})
		text = append(text, latencyChange("p99", pr.WasP99NS, &pr.P99NS, estimate)...)
		if pr.WasP99NS == nil {
			text = append(text, span{dim, " (from few requests)"})
		}
		p.paragraph(head, indent, text...)
		head = span{}
		if pr.Check != nil {
			p.paragraph(head, indent+2, crossCheck(pr.Check)...)
		}
	}
	if n := len(p.report.WhatIf); n > 0 && p.report.WhatIf[n-1].Note != "" { // the same for all groups
		p.paragraph(head, indent+2, span{dim, p.sentence(p.report.WhatIf[n-1].Note)})
	}
	if p.report.WhatIf != nil && len(p.report.WhatIf) == 0 {
		p.line()
		p.paragraph(head, indent, span{plain, "no group of requests is affected by the change"})
	}
}
