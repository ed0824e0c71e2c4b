package text

import (
	"bufio"
	"bytes"
	"strings"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Limits on the short form: a terminal of 24 lines shows all of it, including the number of findings that are left out.
const (
	screenLines  = 23
	causeLines   = 3
	findingLines = 4
	maxRank      = 6
)

// A block is a rendered part of the short form. Blocks of a high rank are left out first.
type block struct {
	text    []byte
	rank    int
	finding bool // of high or medium severity
}

func (b *block) lines() int { return bytes.Count(b.text, []byte{'\n'}) }

// shortForm writes the short form: why, change, next. It leaves out blocks that do not fit on one screen, by rank, and counts the
// findings among these. The first block of each part is always shown.
func (p *page) shortForm() {
	var blocks []block
	add := func(rank int, finding bool, write func(*page)) {
		if text := p.render(write); len(text) > 0 {
			blocks = append(blocks, block{text, rank, finding})
		}
	}
	add(0, false, (*page).header)
	head := span{bold, "why"}
	list := p.verdicts()
	for i := range list {
		v := &list[i]
		g := p.report.Group(v.Group)
		if g == nil {
			continue
		}
		add(2*i, false, func(p *page) {
			p.line()
			p.groupVerdict(g, v, head, causeLines)
		})
		head = span{}
	}
	weighty, lesser := p.splitFindings()
	head = span{bold, "change"}
	faults := 0
	for i, f := range weighty {
		fault := !f.Code.OfMachine() || len(weighty) == 1
		add(2*faults+faults%2, true, func(p *page) {
			if i == 0 {
				p.line()
			}
			p.shortFinding(head, f, fault)
		})
		if fault {
			faults++
		}
		head = span{}
	}
	if len(lesser) > 0 {
		rank := 5
		if len(weighty) == 0 {
			rank = 1
		}
		add(rank, false, func(p *page) {
			if len(weighty) == 0 {
				p.line()
			}
			p.lesserFindings(lesserHeading(weighty), lesser)
		})
	}
	note := -1 // its block
	if n := len(p.report.Input.Warnings); n > 0 {
		note = len(blocks)
		add(3, false, func(p *page) {
			p.line()
			w := p.report.Input.Warnings[0]
			note := fitLines([]span{{plain, p.sentence(w.Text)}}, p.width-indent, 2)
			if n > 1 {
				note = append(note, span{dim, " (and " + words.Number(int64(n-1)) + " more)"})
			}
			p.paragraph(span{yellow, "note" + raised(1)}, indent, note...)
		})
	}
	last := p.render((*page).next)

	used := bytes.Count(last, []byte{'\n'})
	shown := make([]bool, len(blocks))
	hidden := 0
	for rank := range maxRank + 1 {
		for i := range blocks {
			if b := &blocks[i]; b.rank == rank && (rank == 0 || used+b.lines() <= screenLines) {
				shown[i], used = true, used+b.lines()
			}
		}
	}
	for i := range blocks {
		if !shown[i] && blocks[i].finding {
			hidden++
		}
	}
	for i := range blocks {
		if shown[i] {
			p.out.Write(blocks[i].text)
		}
	}
	var omitted []string
	if hidden > 0 {
		omitted = append(omitted, words.Count(hidden, "finding", "findings")+" of high or medium severity")
	}
	if note >= 0 && !shown[note] {
		omitted = append(omitted, "note"+p.marks())
	}
	if len(omitted) > 0 {
		p.line(padRight(dim, "left out", indent), span{dim, strings.Join(omitted, " and ")})
	}
	p.out.Write(last)
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

// shortFinding writes a finding in at most four lines: the fault, its place and, if advise is set, the fix and its gain.
func (p *page) shortFinding(head span, f *report.Finding, advise bool) {
	st := names.SeverityStyle(f.Severity)
	hangingIndent := indent + 9
	room := p.width - hangingIndent
	title := []span{{bold, p.sentence(shortenTitle(f.Title))}}
	if len(p.report.Groups) > 1 {
		title = append(title, p.groupsOf(f)...)
	}
	if place := siteSpans(f.Site, room); place != nil && !strings.Contains(f.Title, names.Position(f.Site)) {
		title = append(append(title, span{plain, ", at "}), place...)
	}
	title = fitLines(title, room, 2)
	if !advise {
		title = append(title, span{dim, " (" + termtext.Head(f.Code, 12) + ")"})
	}
	p.runningText([]span{padRight(head.style, head.text, indent), padRight(st, "["+termtext.Head(f.Severity, 6)+"]", hangingIndent-indent)}, hangingIndent, title)
	if !advise {
		return
	}
	if f.Fix != "" {
		do := []span{{plain, p.sentence(f.Fix)}}
		p.paragraph(span{dim, strings.Repeat(" ", indent) + "do"}, hangingIndent, fitLines(do, room, findingLines-1-linesOf(title, room))...)
	}
	label := "gain"
	if f.Predicted == nil {
		label = "cost" // the lost time is known, the gain of a fix is not
	}
	gain := append(p.predictedGain(f, true), span{dim, termtext.Head(f.Code, 12)})
	p.paragraph(span{dim, strings.Repeat(" ", indent) + label}, hangingIndent, fitLines(gain, room, 1)...)
}

// lesserFindings writes the title of the first finding, and the codes of the others.
func (p *page) lesserFindings(head span, list []*report.Finding) {
	f := list[0]
	room := p.width - indent
	spans := append(fitLines([]span{{plain, p.sentence(shortenTitle(f.Title))}}, room, 1), span{dim, " (" + termtext.Head(f.Severity, 10) + ", " + termtext.Head(f.Code, 12) + ")"})
	if len(list) > 1 {
		var codes []string
		for _, f := range list[1:min(len(list), 1+maxListed)] {
			codes = append(codes, termtext.Head(f.Code, 12))
		}
		if len(list) > 1+maxListed {
			codes = append(codes, termtext.Ellipsis)
		}
		spans = append(spans, span{dim, "; " + strings.Join(codes, ", ")})
	}
	p.paragraph(head, indent, spans...)
}

// fitLines returns as many of the spans as fit into lines of room columns. It does not cut a span, which may be a name, except the
// first: that is cut at the end of a clause or a word. An ellipsis replaces the rest.
func fitLines(spans []span, room, lines int) []span {
	if linesOf(spans, room) <= lines {
		return spans
	}
	ellipsis := span{dim, " " + termtext.Ellipsis}
	for i := len(spans) - 1; i > 0; i-- {
		// Words before a name stay with it.
		if last := spans[i-1].style; i > 1 && (last == plain || last == dim) {
			continue
		}
		if fitting := append(spans[:i:i], ellipsis); linesOf(fitting, room) <= lines {
			return fitting
		}
	}
	for columns := room * lines; columns > 8; columns -= 8 {
		if fitting := []span{clause(spans[0], columns), ellipsis}; linesOf(fitting, room) <= lines {
			return fitting
		}
	}
	return []span{{spans[0].style, termtext.Head(spans[0].text, room)}}
}

// linesOf returns how many lines of room columns a paragraph takes.
func linesOf(spans []span, room int) int {
	lines, used := 1, 0
	for _, word := range splitWords(spans) {
		switch w := min(widthOf(word), room); {
		case used == 0:
			used = w
		case used+1+w > room:
			lines, used = lines+1, w
		default:
			used += 1 + w
		}
	}
	return lines
}

// clause returns the beginning of a sentence that fits: up to the end of a clause that is not in parentheses, else of a word.
func clause(s span, columns int) span {
	head := strings.TrimSuffix(termtext.Head(s.text, columns), termtext.Ellipsis)
	if head == s.text {
		return s
	}
	end := strings.LastIndexByte(head, ' ')
	for i := len(head) - 2; i > len(head)/2; i-- {
		if head[i+1] == ' ' && strings.IndexByte(";:,", head[i]) >= 0 && strings.Count(head[:i], "(") == strings.Count(head[:i], ")") {
			end = i
			break
		}
	}
	return span{s.style, head[:max(end, 0)]}
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
