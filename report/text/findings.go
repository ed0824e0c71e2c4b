package text

import (
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Limits on the text about findings.
const (
	maxEvidence = 3
	maxListed   = 4
	maxTitle    = 400 // columns
)

// findings writes the major findings in full, and the lesser ones in one paragraph.
func (p *page) findings() {
	weighty, lesser := verdict.SplitFindings(p.report, p.verdicts())
	p.outcome()
	head := span{bold, "change"}
	for _, f := range weighty {
		p.line()
		p.finding(head, f)
		head = span{}
	}
	if len(lesser) > 0 {
		p.line()
		p.listFindings(span{dim, "also"}, lesser)
	}
}

// finding writes a finding's fault, evidence, fix and predicted gain, in a few lines.
func (p *page) finding(head span, f *report.Finding) {
	st := names.SeverityStyle(f.Severity)
	title := []span{{st, "[" + termtext.Head(f.Severity, 10) + "]"}, {plain, " "}, {bold, p.sentence(f.Title)}}
	if len(p.report.Groups) > 1 {
		title = append(title, p.groupsOf(f)...)
	}
	p.paragraph(head, indent, title...)
	hangingIndent := indent + 4
	mark := func(s string) span { return span{dim, strings.Repeat(" ", indent) + s} }
	if place := siteSpans(f.Site, p.width-hangingIndent); place != nil && !strings.Contains(f.Title, names.Position(f.Site)) {
		p.paragraph(mark("at"), hangingIndent, append(place, prefixSpans(", ", callerSpans(f.Site, p.width-hangingIndent))...)...)
	} else if callerPlace := callerSpans(f.Site, p.width-hangingIndent); callerPlace != nil && !strings.Contains(f.Title, names.Position(f.Site.OwnLine())) {
		p.paragraph(mark("at"), hangingIndent, callerPlace...)
	}
	if spans := p.evidence(f.Evidence); len(spans) > 0 {
		p.paragraph(mark(""), hangingIndent, spans...)
	}
	if f.Fix != "" {
		p.paragraph(mark("do"), hangingIndent, span{plain, p.sentence(f.Fix)})
	}
	p.paragraph(mark(""), hangingIndent, p.gain(f)...)
	for i := range f.AskedBy[:min(len(f.AskedBy), maxGroups)] {
		p.paragraph(mark(""), hangingIndent, p.askedBy(&f.AskedBy[i])...)
	}
	if f.Predicted != nil && f.Predicted.Check != nil {
		p.paragraph(mark(""), hangingIndent, crossCheck(f.Predicted.Check)...)
	}
}

// sentence shortens a rule's text and its long words, so that a paragraph can break it.
func (p *page) sentence(s string) string { return breakable(termtext.Head(s, maxTitle), p.width/2) }

// maxGroups is how many groups of one fault are named.
const maxGroups = 2

// groupsOf names the groups in which a fault was found, unless its title does.
func (p *page) groupsOf(f *report.Finding) []span {
	var spans []span
	n := 0
	for i := range p.report.Findings[:min(len(p.report.Findings), verdict.MaxExamined)] {
		o := &p.report.Findings[i]
		if o.Ignored != "" || !verdict.IsSameFault(f, o) {
			continue
		}
		g := p.report.Group(o.Group)
		if g == nil {
			continue
		}
		name := words.FuncName(g.Name)
		if n++; n > maxGroups || strings.Contains(f.Title, name+" ") || strings.Contains(f.Title, name+",") {
			continue
		}
		lead := " · "
		if len(spans) > 0 {
			lead = ", "
		}
		spans = append(spans, span{dim, lead}, span{dim, names.GroupName(g, p.width-indent-6)})
	}
	if n > maxGroups {
		spans = append(spans, span{dim, " and " + words.Count(n-maxGroups, "more group", "more groups")})
	}
	return spans
}

// evidence writes the first facts behind a finding.
func (p *page) evidence(list []report.Evidence) []span {
	var spans []span
	for i, e := range list[:min(len(list), maxEvidence)] {
		if i > 0 {
			spans = append(spans, span{plain, "; "})
		}
		spans = append(spans, span{plain, p.sentence(e.Text)})
		if value := names.Value(e); value != "" {
			spans = append(spans, span{plain, ": "}, span{bold, value})
		}
	}
	return spans
}

// gain describes the gain that a fix would have, its confidence, the numbers that decided the severity, and the rule.
func (p *page) gain(f *report.Finding) []span {
	spans := append(p.predictedGain(f, false), span{plain, "; "})
	if d := f.Decided; d != nil {
		spans = append(spans, span{plain, "severity " + termtext.Head(f.Severity, 10) + ": " + words.PercentOr0(d.Share) + " and " + words.Duration(d.NS) + decidedBy(d) + " (limits: " + words.PercentOr0(d.LeastShare) + ", " + words.Rough(d.LeastNS) + "); "})
	}
	return append(spans, span{dim, "whylate rules " + termtext.Head(f.Code, 12)})
}

// predictedGain describes the predicted gain of a fix, and the confidence in the cause. If short is set, it omits the ranges of
// estimates, and mentions only a confidence below usualCertainty.
func (p *page) predictedGain(f *report.Finding, short bool) []span {
	var spans []span
	formatEstimate := estimate
	if short {
		formatEstimate = expected
	}
	g := p.report.Group(f.Group)
	isRun := g != nil && g.Kind == report.KindRun
	switch pr := f.Predicted; {
	case pr != nil:
		var p50, p99 *int64
		if g != nil {
			p50, p99 = g.LatencyNS.P50, g.LatencyNS.P99
		}
		if pr.FromArrival {
			p50, p99 = pr.WasP50NS, pr.WasP99NS
		}
		switch {
		case p50 == nil && pr.MaxNS != nil:
			what := "max"
			if isRun {
				what = "run"
			}
			spans = append(spans, latencyChange(what, pr.WasMaxNS, pr.MaxNS, formatEstimate)...)
		case onlyMax(pr):
			spans = append(spans, span{plain, "p50 and p99 stay, max " + beforeArrow(pr.WasMaxNS)}, span{green, formatEstimate(*pr.MaxNS)})
		default: // the slow ones first: the verdict is about them
			name, before, slow := "p99", p99, &pr.P99NS
			if p99 == nil && pr.MaxNS != nil { // the requests are too few for a p99
				name, before, slow = "max", pr.WasMaxNS, pr.MaxNS
			}
			spans = append(spans, latencyChange(name, before, slow, formatEstimate)...)
			if savesMostAtP90(pr) {
				spans = append(append(spans, span{plain, ", "}), latencyChange("p90", pr.WasP90NS, pr.P90NS, formatEstimate)...)
			}
			spans = append(append(spans, span{plain, ", "}), latencyChange("p50", p50, &pr.P50NS, formatEstimate)...)
		}
		if p50 != nil && p99 != nil && !onlyMax(pr) && savesMostAtMaximum(pr) {
			spans = append(append(spans, span{plain, ", "}), latencyChange("max", pr.WasMaxNS, pr.MaxNS, formatEstimate)...)
		}
		spans = append(spans, span{plain, p.condition(pr, g)})
	case f.Share > 0 && isRun:
		spans = append(spans, span{plain, words.Percent(f.Share) + " of the run"})
	case f.Share > 0:
		base := " of the requests' time"
		if g != nil && g.Backlog != nil && f.Queue != nil {
			base = " of the messages' time from arrival to done"
		}
		spans = append(spans, span{plain, words.Percent(f.Share) + base})
	case short && len(f.Evidence) > 0:
		spans = append(spans, span{plain, names.Evidence(p.sentence(f.Evidence[0].Text), f.Evidence[0])})
	}
	if f.Predicted == nil && len(spans) > 0 {
		spans = append(spans, span{plain, "; what a fix gains cannot be predicted"})
	}
	certainty := "cause " + words.PercentOr0(f.Confidence) + " certain"
	switch {
	case short && f.Confidence < usualCertainty:
		certainty = "cause only " + words.PercentOr0(f.Confidence) + " certain" + p.doubt(f)
	case short && len(spans) > 0:
		return spans
	case f.Confidence > 0.995:
		certainty = "cause certain"
	}
	if len(spans) > 0 {
		certainty = "; " + certainty
	}
	return append(spans, span{plain, certainty})
}

// usualCertainty is the least confidence in a cause that the first screen does not mention.
const usualCertainty = 0.8

// condition says with which change, and for which requests of a group, a prediction is, in parentheses; "" if it needs no words.
func (p *page) condition(pr *report.Predicted, g *report.Group) string {
	if pr.Change == "" {
		return ""
	}
	says := "with " + pr.Change
	if pr.ChangeText != "" {
		says = termtext.Head(pr.ChangeText, 80)
	}
	if g != nil && g.Named && g.Kind.IsCall() {
		if withoutHandler, all := p.report.CountWithoutHandler(); withoutHandler > 0 { // fast ones of this handler may be among the others
			says += ", for " + words.Number(int64(g.Count)) + " of the " + words.Number(int64(all)) + " requests"
		}
	}
	if pr.FromArrival {
		says += ", from arrival to done"
	}
	return p.sentence(" (" + says + ")")
}

// askedBy describes the time that requests of another group lose to a fault, because they wait for its group over the network, and the
// gain that a fix would have for them.
func (p *page) askedBy(a *report.AskedBy) []span {
	name := a.Name
	var p50, p99 *int64
	if g := p.report.Group(a.Group); g != nil {
		name, p50, p99 = names.GroupName(g, p.width-indent-6), g.LatencyNS.P50, g.LatencyNS.P99
	}
	spans := []span{{plain, "requests of " + name + " wait for this over the network: " + words.Percent(a.Share) + " of their time, " + words.Duration(a.EachNS) + " of each"}}
	if pr := a.Predicted; pr != nil {
		spans = append(append(spans, span{plain, "; with the same change "}), latencyChange("p99", p99, &pr.P99NS, estimate)...)
		spans = append(append(spans, span{plain, ", "}), latencyChange("p50", p50, &pr.P50NS, estimate)...)
	}
	return spans
}

// decidedBy names the requests from which a severity's numbers are.
func decidedBy(d *report.Decided) string {
	switch d.Requests {
	case report.DecidedByAll:
		return " of each request"
	case report.DecidedBySlow:
		return " of each slow request"
	}
	return " of each request of the other slow band"
}

// onlyMax reports whether a change affects so few requests that it moves only the maximum.
func onlyMax(p *report.Predicted) bool {
	return p.MaxNS != nil && p.WasMaxNS != nil && p.WasP99NS != nil && p.MaxNS.Est < *p.WasMaxNS && float64(p.P99NS.Est) > 0.99*float64(*p.WasP99NS)
}

// savesMostAtP90 reports whether one request in ten becomes shorter by more than the median and the 99th percentile do.
func savesMostAtP90(p *report.Predicted) bool {
	if p.P90NS == nil || p.WasP90NS == nil || p.WasP50NS == nil || p.WasP99NS == nil {
		return false
	}
	return *p.WasP90NS-p.P90NS.Est > max(*p.WasP50NS-p.P50NS.Est, *p.WasP99NS-p.P99NS.Est)
}

// savesMostAtMaximum reports whether the slowest request becomes shorter by far more than the percentiles do.
func savesMostAtMaximum(p *report.Predicted) bool {
	return p.MaxNS != nil && p.WasMaxNS != nil && p.WasP99NS != nil && *p.WasMaxNS-p.MaxNS.Est > 10*max(*p.WasP99NS-p.P99NS.Est, 0)
}

// latencyChange writes a percentile before and after a change: "stays" if it changes by less than 1 %, or perhaps by less than 5 %, and the
// range of the prediction if that includes the latency before.
func latencyChange(name string, before *int64, e *report.Estimate, formatEstimate func(report.Estimate) string) []span {
	isExact := e.Low == e.High || before != nil && formatEstimate(*e) == words.Rough(*before)
	switch {
	case before == nil:
	case names.IsUnsureGain(*before, e) && float64(e.Low) > (1-threshold.MinorShare)*float64(*before), isExact && float64(e.Est) > 0.99*float64(*before) && float64(e.Est) < 1.01*float64(*before):
		return []span{{plain, fact(name + " stays " + words.Duration(*before))}}
	case names.IsUnsureGain(*before, e):
		return []span{{plain, fact(name+" ") + beforeArrow(before) + names.UnsureGain(e)}}
	}
	return []span{{plain, fact(name + " ")}, {green, beforeArrow(before) + formatEstimate(*e)}}
}

// beforeArrow writes the latency before a change, followed by an arrow; it is empty if the latency is unknown.
func beforeArrow(ns *int64) string {
	if ns == nil {
		return ""
	}
	return fact(words.Duration(*ns) + " → ")
}

// longTitle is how long a folded title may be: the JSON has it all.
const longTitle = 200

// listFindings lists findings by their titles.
func (p *page) listFindings(head span, list []*report.Finding) {
	var spans []span
	severity := report.Severity("")
	for i, f := range list[:min(len(list), maxListed)] {
		if i > 0 {
			spans = append(spans, span{plain, "; "})
		}
		if f.Severity != severity {
			severity = f.Severity
			spans = append(spans, span{dim, termtext.Head(severity, 10) + ": "})
		}
		spans = append(spans, span{plain, breakable(termtext.Head(verdict.ShortTitle(f.Title), longTitle), p.width/2) + " "}, span{dim, "(" + termtext.Head(f.Code, 12) + ")"})
	}
	if n := len(list) - maxListed; n > 0 {
		spans = append(spans, span{dim, "; and " + words.Number(int64(n)) + " more in the JSON"})
	}
	p.paragraph(head, indent, spans...)
}
