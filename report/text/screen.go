package text

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Limits on the short form. What a reader must know is written even if it takes more lines.
const (
	screenLines = 26
	maxRank     = 7
	maxSentence = 320 // columns
)

// A block is a rendered part of the short form. Blocks of a high rank are left out first.
type block struct {
	text []byte
	rank int
	note string // what the last line says if the block is left out
}

func (b *block) lines() int { return bytes.Count(b.text, []byte{'\n'}) }

// shortForm writes the short form: why, change, next. No sentence is cut. Blocks that do not fit on one screen are left out, by rank,
// but never the first verdict, a finding of high severity, or the first finding; the last line counts the omitted findings and notes.
func (p *page) shortForm() {
	var blocks []block
	add := func(rank int, note string, write func(*page)) {
		if text := p.render(write); len(text) > 0 {
			blocks = append(blocks, block{text, rank, note})
		}
	}
	add(0, "", (*page).header)
	weighty, lesser := p.splitFindings()
	add(0, "", func(p *page) { p.nothingMajor(weighty) })
	isQuiet := len(blocks) > 1
	faults := slices.DeleteFunc(slices.Clone(weighty), func(f *report.Finding) bool { return f.Code.OfMachine() }) // it has no remedy in the service
	if len(faults) == 0 {
		faults = weighty
	}
	machine := slices.IndexFunc(p.report.Findings, func(f report.Finding) bool { return f.Code.OfMachine() && f.Ignored == "" })
	isBusy := machine >= 0 && !slices.Contains(faults, &p.report.Findings[machine])
	busy := func(p *page) {
		f := &p.report.Findings[machine]
		p.paragraph(span{dim, "busy"}, indent, span{plain, p.sentence(f.Title) + "; " + p.sentence(cmp.Or(f.Remedy, f.Fix))}, span{dim, " · " + termtext.Head(f.Code, 12)})
	}
	if isQuiet && isBusy { // it weakens that result
		add(0, "", busy)
	}
	head := span{bold, "why"}
	list := p.verdicts()
	for i := range list {
		v := &list[i]
		g := p.report.Group(v.Group)
		if g == nil {
			continue
		}
		add(min(3*i, maxRank), "", func(p *page) {
			p.line()
			p.groupVerdict(g, v, head)
		})
		head = span{}
	}
	head = span{bold, remedyHead(faults)}
	for i, f := range faults {
		rank := 2
		if f.Severity == report.SeverityHigh || i == 0 {
			rank = 0
		}
		add(rank, "finding", func(p *page) {
			if i == 0 {
				p.line()
			}
			p.shortFinding(head, f, slices.ContainsFunc(faults[:i], func(o *report.Finding) bool {
				return o.Group == f.Group && o.Code != f.Code && o.Remedy != "" && o.Remedy == f.Remedy
			}))
		})
		if i+1 < len(faults) {
			head = span{bold, p.followingHead(faults[i+1], faults[:i+1])}
		}
	}
	if !isQuiet && isBusy {
		add(0, "", busy)
	}
	rest := slices.DeleteFunc(append(slices.Clone(weighty), lesser...), func(f *report.Finding) bool {
		return f == p.intended() || slices.Contains(faults, f) || f.Code.OfMachine() || p.isSaid(f)
	})
	lesserBlock := func(hidden string) func(*page) {
		return func(p *page) {
			if len(faults) == 0 && (isQuiet || !isBusy) {
				p.line()
			}
			p.lesserFindings(span{dim, "also"}, rest, hidden)
		}
	}
	if len(rest) > 0 {
		add(4, "also", lesserBlock(""))
	}
	head = span{yellow, "note"}
	for _, w := range p.report.Input.Warnings {
		if w.Code == report.WarnUnnamedRequests {
			continue // a part of the sentences about named groups
		}
		add(5, "note", func(p *page) {
			if head.text != "" {
				p.line()
			}
			p.paragraph(head, indent, span{plain, p.sentence(termtext.Head(w.Text, maxSentence))})
		})
		head = span{}
	}
	last := p.render((*page).next)

	used := bytes.Count(last, []byte{'\n'})
	shown := make([]bool, len(blocks))
	for rank := range maxRank + 1 {
		for i := range blocks {
			if b := &blocks[i]; b.rank == rank && (rank == 0 || used+b.lines() <= screenLines) {
				shown[i], used = true, used+b.lines()
			}
		}
	}
	hidden := map[string]int{}
	for i := range blocks {
		if !shown[i] {
			hidden[blocks[i].note]++
		}
	}
	var omitted []string
	if n := hidden["finding"]; n > 0 {
		omitted = append(omitted, words.Count(n, "more finding", "more findings")+" of medium severity")
	}
	if n := hidden["note"]; n > 0 {
		omitted = append(omitted, words.Count(n, "note", "notes"))
	}
	omittedText := strings.Join(omitted, " and ")
	for i := range blocks {
		if b := &blocks[i]; shown[i] && b.note == "also" {
			p.out.Write(p.render(lesserBlock(omittedText)))
			omittedText = ""
		} else if shown[i] {
			p.out.Write(b.text)
		}
	}
	if omittedText != "" {
		p.paragraph(span{dim, "also"}, indent, span{dim, omittedText + ": --full"})
	}
	p.out.Write(last)
}

// nothingMajor writes that no finding is major, if none of the weighty ones is, and how many rules could find one.
func (p *page) nothingMajor(weighty []*report.Finding) {
	if p.report.Judged == nil || len(p.report.Groups) == 0 || len(weighty) > 0 && weighty[len(weighty)-1].Severity.IsMajor() {
		return // a report of an earlier version does not have Judged
	}
	result := "nothing to change"
	if len(weighty) > 0 && weighty[0].Code != report.RuleSlowPeer && weighty[0].Code != report.RuleSlowClient {
		result = "nothing urgent"
	} else if len(weighty) > 0 {
		result = "nothing to change here"
	}
	requests, latency, protocol, all := 0, report.Latency{}, "", 0
	for i := range p.report.Groups {
		all += p.report.Groups[i].Count
	}
	for i := range p.report.Servers {
		if s := &p.report.Servers[i]; s.Count > requests && 2*s.Count >= all { // else most of the work is elsewhere
			if requests, latency = s.Count, s.LatencyNS; s.Count < all {
				protocol = s.Kind.Protocol() + " "
			}
		}
	}
	groups, bound := "", ""
	if requests == 0 { // no server: of each group
		for i := range p.report.Groups {
			g := &p.report.Groups[i]
			requests += g.Count
			p99 := g.SenderLatency().P99
			if len(p.report.Groups) > 1 { // the bound of several is the maximum of a group without a p99
				p99 = cmp.Or(p99, g.SenderLatency().Max)
			}
			if p99 != nil && (latency.P99 == nil || *p99 > *latency.P99) {
				latency.P99 = p99
			}
			if ns := g.SenderLatency().Max; ns != nil && (latency.Max == nil || *ns > *latency.Max) {
				latency.Max = ns
			}
		}
		if n := len(p.report.Groups); n > 1 {
			groups, bound = fmt.Sprintf(" of %d groups", n), "at most "
		}
	}
	text := words.Count(requests, protocol+"request", protocol+"requests") + groups
	switch {
	case runCount(p.report) > 0:
		text = words.Count(runCount(p.report), "run", "runs") + " of " + words.Duration(p.report.Groups[0].TotalNS)
	case latency.P99 != nil:
		text += ", p99 " + bound + words.Duration(*latency.P99)
	case latency.Max != nil:
		text += ", max " + words.Duration(*latency.Max)
	}
	switch f := p.intended(); {
	case len(weighty) > 0 && weighty[0].Code == report.RuleSlowPeer && weighty[0].Share >= 0.5:
		text += ", mostly a peer's answer"
	case f != nil:
		text += ", as intended: " + p.sentence(shortenTitle(f.Title))
	}
	if work := p.mainWork(); work != "" && result == "nothing to change" {
		text += ", mostly computing" + work
	}
	judged := p.report.Judged
	text += fmt.Sprintf("; %d of %s clear", len(judged.Clear), words.Count(judged.Rules, "rule", "rules"))
	if n := len(judged.Found); n > 0 && len(weighty) == 0 {
		text += fmt.Sprintf(", %d with lesser facts", n)
	}
	if len(judged.Blind) > 0 {
		blind, reasons := 0, make([]string, len(judged.Blind))
		for i := range judged.Blind {
			blind += len(judged.Blind[i].Codes)
			reasons[i] = termtext.Head(judged.Blind[i].Text, 60)
		}
		text += fmt.Sprintf(", %d not judged (%s)", blind, strings.Join(reasons, ", "))
	}
	p.line()
	p.paragraph(span{bold, "found"}, indent, span{bold, result}, span{plain, ": " + text + "."})
}

// mainWork returns a phrase for the only thing that makes requests faster if at least half of the first verdict's time is computing: less
// work. It is "" for other verdicts.
func (p *page) mainWork() string {
	v := p.verdicts()
	if len(v) == 0 || len(v[0].Causes) == 0 || v[0].Causes[0].Cause != report.CauseCPU || v[0].Causes[0].Share < 0.5 {
		return ""
	}
	c := &v[0].Causes[0]
	if g := p.report.Group(v[0].Group); len(c.Sites) > 0 && c.Sites[0].Share >= 0.5 && g != nil && g.Named {
		return ": only less work in " + names.SiteFunc(c.Sites[0].Site, p.width/2) + " makes them faster"
	}
	return ": only less work makes them faster"
}

// intended returns the finding that says of the first cause of the first verdict that it is no fault, such as a stream's pace; nil if
// there is none.
func (p *page) intended() *report.Finding {
	v := p.verdicts()
	if len(v) == 0 || len(v[0].Causes) == 0 {
		return nil
	}
	all := p.report.Findings[:min(len(p.report.Findings), maxExamined)]
	i := slices.IndexFunc(all, func(f report.Finding) bool {
		return f.Severity == report.SeverityInfo && f.Group == v[0].Group && f.Cause == v[0].Causes[0].Cause && f.Share >= 0.5 && len(f.Changes) == 0 &&
			(f.Code == report.RuleSlowPeer || f.Code == report.RuleSleep) && f.Ignored == ""
	})
	if i < 0 {
		return nil
	}
	return &all[i]
}

// remedyHead returns the heading of what to do about findings: a change of the service, or a question to the owner of a peer or client.
func remedyHead(list []*report.Finding) string {
	switch {
	case len(list) == 0 || list[0].Severity.IsMajor():
		return "change"
	case list[0].Code == report.RuleSlowPeer:
		return "peer"
	case list[0].Code == report.RuleSlowClient:
		return "client"
	}
	return "minor"
}

// followingHead returns the heading of a change after others: "then" if it gains something in addition, "or" if one of them alone gains
// as much as all, "and" if it is about other requests.
func (p *page) followingHead(f *report.Finding, earlier []*report.Finding) string {
	g := p.report.Group(f.Group)
	if f.Combined == nil || f.Predicted == nil || g == nil {
		return "and"
	}
	isClose := func(a, b *report.Estimate, beforeNS *int64) bool { // within 2 % of the latency without a change
		return a == nil || b == nil || beforeNS == nil || a.Est-b.Est < *beforeNS/50
	}
	all := f.Combined
	gainsAll := func(o *report.Finding) bool {
		pr := o.Predicted
		return o.Group == f.Group && pr != nil && isClose(&pr.P50NS, &all.P50NS, cmp.Or(pr.WasP50NS, g.LatencyNS.P50)) &&
			isClose(&pr.P99NS, &all.P99NS, cmp.Or(pr.WasP99NS, g.LatencyNS.P99)) && isClose(pr.MaxNS, all.MaxNS, pr.WasMaxNS)
	}
	if gainsAll(f) || slices.ContainsFunc(earlier, gainsAll) {
		return "or"
	}
	return "then"
}

// render returns the text that write writes to a page.
func (p *page) render(write func(*page)) []byte {
	var b bytes.Buffer
	copied := *p
	copied.out = bufio.NewWriter(&b)
	write(&copied)
	copied.out.Flush() // into a buffer: no error
	return b.Bytes()
}

// shortFinding writes a finding in few lines: the fault, its place, what to do first and what that gains. isRepeated says that an earlier
// finding has the same remedy.
func (p *page) shortFinding(head span, f *report.Finding, isRepeated bool) {
	st := names.SeverityStyle(f.Severity)
	hangingIndent := indent + 9
	title := []span{{bold, p.sentence(termtext.Head(shortenTitle(f.Title), maxSentence))}}
	if place := siteSpans(f.Site, p.width-hangingIndent); place != nil && !strings.Contains(f.Title, names.Position(f.Site)) {
		title = append(append(title, span{plain, ", at "}), place...)
	}
	if len(p.report.Groups) > 1 {
		title = append(title, p.groupsOf(f)...)
	}
	title = append(title, span{dim, " · " + termtext.Head(f.Code, 12)})
	p.runningText([]span{padRight(head.style, head.text, indent), padRight(st, "["+termtext.Head(f.Severity, 6)+"]", hangingIndent-indent)}, hangingIndent, title)
	if remedy := cmp.Or(f.Remedy, f.Fix); isRepeated {
		p.paragraph(span{dim, strings.Repeat(" ", indent) + "do"}, hangingIndent, span{plain, "the same change"})
	} else if remedy != "" {
		p.paragraph(span{dim, strings.Repeat(" ", indent) + "do"}, hangingIndent, span{plain, p.sentence(termtext.Head(remedy, maxSentence))})
	}
	mark := func(label string) span { return span{dim, strings.Repeat(" ", indent) + label} }
	if f.Doubt != "" && f.Confidence < leastCertainty {
		p.paragraph(mark("sure"), hangingIndent, span{plain, "only " + words.PercentOr0(f.Confidence) + p.doubt(f)})
		return
	}
	label := "gain"
	if f.Predicted == nil {
		label = "cost" // the lost time is known, the gain of a fix is not
	}
	if gain := p.predictedGain(f, true); len(gain) > 1 { // more than the confidence
		if g := p.report.Group(f.Group); g != nil && len(p.report.Groups) > 1 && f.Predicted != nil {
			gain = append([]span{{dim, names.GroupName(g, p.width/2) + ": "}}, gain...)
		}
		p.paragraph(mark(label), hangingIndent, gain...)
	}
	if f.Combined != nil && head.text == "then" {
		combined := *f
		combined.Predicted, combined.Confidence = f.Combined, 1
		p.paragraph(mark("all"), hangingIndent, p.predictedGain(&combined, true)...)
	}
}

// leastCertainty is the confidence in a cause below which the first screen shows no gain, but why the cause is uncertain.
const leastCertainty = 0.5

// doubt writes why a finding is not certain, after a colon.
func (p *page) doubt(f *report.Finding) string {
	if f.Doubt == "" {
		return ""
	}
	return ": " + p.sentence(f.Doubt)
}

// lesserFindings writes the title of the first finding, how many others there are, and what else is hidden.
func (p *page) lesserFindings(head span, list []*report.Finding, hidden string) {
	f := list[0]
	spans := []span{{plain, p.sentence(shortenTitle(f.Title))}, {dim, " · " + termtext.Head(f.Severity, 10) + ", " + termtext.Head(f.Code, 12)}}
	if n := len(list) - 1; n > 0 {
		spans = append(spans, span{dim, "; " + words.Number(int64(n)) + " more"})
	}
	if hidden != "" {
		spans = append(spans, span{dim, "; " + hidden})
	}
	if len(spans) > 2 {
		spans = append(spans, span{dim, ": --full"})
	}
	p.paragraph(head, indent, spans...)
}

// isSaid reports whether the short form says elsewhere what a finding says: in its first line, about how many requests its percentiles
// are, or in a line of a verdict, what computes.
func (p *page) isSaid(f *report.Finding) bool {
	switch f.Code {
	case report.RuleFewRequests, report.RuleBiasedNames:
		return true
	case report.RuleComputes:
		return f.Severity == report.SeverityInfo
	}
	return false
}

// Line returns a report in one line, for a chat: the first cause of the first group, and the first finding.
func Line(r *report.Report) string {
	var b strings.Builder
	b.WriteString(termtext.Middle(r.Input.Name, 40))
	for _, v := range r.Verdict {
		g := r.Group(v.Group)
		if g == nil {
			continue
		}
		b.WriteString(": " + names.GroupName(g, 60) + " " + termtext.Head(v.Range, 60))
		for j := range v.Causes {
			if c := &v.Causes[j]; c.InSentence {
				b.WriteString(", " + words.Percent(c.Share) + " " + verdict.Join(verdict.Describe(c, 60)))
				break
			}
		}
		break
	}
	if len(r.Groups) == 0 {
		b.WriteString(": no requests were found")
	}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Ignored == "" {
			b.WriteString(". " + termtext.Head(f.Code, 12) + " (" + termtext.Head(f.Severity, 10) + "): " + termtext.Head(shortenTitle(f.Title), longTitle))
			break
		}
	}
	return b.String()
}
