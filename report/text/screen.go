package text

import (
	"bufio"
	"bytes"
	"cmp"
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

// inComparison is the note of a verdict that the comparison of groups replaces.
const inComparison = "in the comparison"

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
	weighty, lesser := verdict.SplitFindings(p.report, p.verdicts())
	add(0, "", (*page).outcome)
	isQuiet := len(blocks) > 1
	faults := weighty
	if len(faults) > 0 && !faults[0].Code.OfMachine() { // it took less of the time
		faults = slices.DeleteFunc(slices.Clone(weighty), func(f *report.Finding) bool { return f.Code.OfMachine() })
	}
	machine := slices.IndexFunc(p.report.Findings, func(f report.Finding) bool { return f.Code.OfMachine() && f.Ignored == "" })
	isBusy := machine >= 0 && !slices.Contains(faults, &p.report.Findings[machine]) && !(len(faults) > 0 && faults[0].DoubtedBy.OfMachine()) // else the doubt says it
	busy := func(p *page) {
		f, head, remedy := &p.report.Findings[machine], "busy", ""
		if !isQuiet {
			head, remedy = "also", "; "+p.sentence(cmp.Or(f.Remedy, f.Fix))
		}
		p.paragraph(span{dim, head}, indent, span{plain, p.sentence(f.Title) + remedy}, span{dim, " · " + termtext.Head(f.Code, 12)})
	}
	if isQuiet && isBusy { // it weakens that result
		add(0, "", busy)
	}
	head := p.verdictHead()
	list := p.verdicts()
	compared := verdict.CompareGroups(p.report, list)
	for i := range list {
		v := &list[i]
		g := p.report.Group(v.Group)
		if g == nil {
			continue
		}
		note := ""
		if i > 0 && (v.Open == nil || !v.Open.Late) && slices.ContainsFunc(compared, func(row verdict.GroupRow) bool { return row.Group == v.Group }) {
			note = inComparison
		}
		add(min(3*i, maxRank), note, func(p *page) {
			p.line()
			p.groupVerdict(g, v, head)
		})
		if head = (span{}); i == 0 && len(compared) > 0 {
			add(1, "comparison", func(p *page) { p.comparison(compared) })
		}
	}
	head = span{bold, remedyHead(faults)}
	for i, f := range faults {
		rank := 2
		if f.Severity == report.SeverityHigh || i == 0 || i == 1 && faults[0].Code.OfMachine() {
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
	intended := verdict.Intended(p.report, list)
	rest := slices.DeleteFunc(append(slices.Clone(weighty), lesser...), func(f *report.Finding) bool {
		return f == intended || slices.Contains(faults, f) || f.Code.OfMachine() || p.isSaid(f)
	})
	lesserBlock := func(hidden string) func(*page) {
		return func(p *page) {
			if len(faults) == 0 && (isQuiet || !isBusy) {
				p.line()
			}
			head := span{dim, "also"}
			if !isQuiet && isBusy { // it continues that list
				head = span{}
			}
			p.lesserFindings(head, rest, hidden)
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
	shown, omitted := selectBlocks(blocks, bytes.Count(last, []byte{'\n'}))
	for i := range blocks {
		if b := &blocks[i]; shown[i] && b.note == "also" {
			p.out.Write(p.render(lesserBlock(omitted)))
			omitted = ""
		} else if shown[i] {
			p.out.Write(b.text)
		}
	}
	if omitted != "" {
		p.paragraph(span{dim, "also"}, indent, span{dim, omitted + ": --full"})
	}
	p.out.Write(last)
}

// selectBlocks returns which blocks fit on the screen in addition to used lines, and counts the omitted findings and notes in words.
func selectBlocks(blocks []block, used int) (shown []bool, omittedText string) {
	shown = make([]bool, len(blocks))
	isCompared, hidden := false, map[string]int{}
	for rank := range maxRank + 1 {
		for i := range blocks {
			if b := &blocks[i]; b.rank == rank && (rank == 0 || used+b.lines() <= screenLines) && (b.note != inComparison || !isCompared) {
				shown[i], used, isCompared = true, used+b.lines(), isCompared || b.note == "comparison"
			}
		}
	}
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
	return shown, strings.Join(omitted, " and ")
}

// outcome writes the conclusion if no finding is a reason to change the service.
func (p *page) outcome() {
	o := verdict.NewOutcome(p.report, p.verdicts())
	if o == nil || o.State == verdict.StateChange {
		return
	}
	p.line()
	text := ": " + o.Text + "; " + o.Rules + "."
	if o.Command != "" {
		text += " To know it: " + o.Command
	}
	p.paragraph(span{bold, "found"}, indent, span{bold, o.Result}, span{plain, p.sentence(text)})
}

// remedyHead returns the heading of what to do about findings: a change of the service, or a question to the owner of a peer or client.
func remedyHead(list []*report.Finding) string {
	switch {
	case len(list) > 0 && list[0].Code.OfMachine():
		return "machine"
	case len(list) > 0 && (verdict.IsOfPeer(list[0]) || list[0].Code == report.RuleSlowPeer && !list[0].InService && !list[0].Severity.IsMajor()):
		return "peer"
	case len(list) == 0 || list[0].Severity.IsMajor():
		return "change"
	case list[0].Code == report.RuleSlowClient:
		return "client"
	}
	return "minor"
}

// followingHead returns the heading of a change after others: "then" if it gains something in addition, "or" if one of them alone gains
// as much as all, "and" if it is about other requests.
func (p *page) followingHead(f *report.Finding, earlier []*report.Finding) string {
	g := p.report.Group(f.Group)
	switch {
	case len(earlier) == 1 && earlier[0].Code.OfMachine():
		return "also"
	case f.Combined == nil || f.Predicted == nil || g == nil:
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
	title := []span{{bold, p.sentence(termtext.Head(verdict.ShortTitle(f.Title), maxSentence))}}
	if place := siteSpans(f.Site, p.width-hangingIndent); place != nil && !strings.Contains(f.Title, names.Position(f.Site.OwnLine())) {
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
	switch isDoubtful := f.Doubt != "" && f.Confidence < leastCertainty; {
	case isDoubtful && f.DoubtedBy.OfMachine(): // how probable it is on a free machine is not known
		p.paragraph(mark("but"), hangingIndent, span{plain, p.sentence(f.Doubt)})
		return
	case isDoubtful:
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
	spans := []span{{plain, p.sentence(verdict.ShortTitle(f.Title))}, {dim, " · " + termtext.Head(f.Severity, 10) + ", " + termtext.Head(f.Code, 12)}}
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
			b.WriteString(". " + termtext.Head(f.Code, 12) + " (" + termtext.Head(f.Severity, 10) + "): " + termtext.Head(verdict.ShortTitle(f.Title), longTitle))
			break
		}
	}
	return b.String()
}
