package text

import (
	"bufio"
	"strings"

	"github.com/whylate/whylate/internal/output/termtext"
)

type style = termtext.Style

const (
	plain, bold, dim             = termtext.Plain, termtext.Bold, termtext.Dim
	yellow, green, cyan, boldRed = termtext.Yellow, termtext.Green, termtext.Cyan, termtext.BoldRed
)

// A span is escaped text in one style.
type span struct {
	style style
	text  string
}

// widthOf returns the columns that the spans take on a terminal.
func widthOf(spans []span) int {
	n := 0
	for _, s := range spans {
		n += termtext.Width(s.text)
	}
	return n
}

// padTo appends spaces up to the given width.
func padTo(spans []span, columns int) []span {
	if n := columns - widthOf(spans); n > 0 {
		return append(spans, span{plain, strings.Repeat(" ", n)})
	}
	return spans
}

// padRight returns a span padded with spaces on its right to a width of columns, padLeft on its left.
func padRight(s style, text string, columns int) span { return span{s, termtext.Pad(text, columns)} }
func padLeft(s style, text string, columns int) span  { return span{s, termtext.PadLeft(text, columns)} }

// A printer writes lines of spans. Errors stay in the bufio.Writer.
type printer struct {
	out   *bufio.Writer
	color bool
	width int
}

// noBreak is a space at which running text is not broken, so that a fact stays on one line.
const noBreak = "\u00a0"

// fact returns a text that is not broken.
func fact(text string) string { return strings.ReplaceAll(text, " ", noBreak) }

// line writes one line without spaces at its end, and cuts it at the page's width.
func (p *printer) line(spans ...span) {
	spans = cut(spans, p.width)
	for len(spans) > 0 {
		last := &spans[len(spans)-1]
		trimmed := strings.TrimRight(last.text, " ")
		if trimmed != "" {
			spans = append(spans[:len(spans)-1:len(spans)-1], span{last.style, trimmed})
			break
		}
		spans = spans[:len(spans)-1]
	}
	for _, s := range spans {
		text := strings.ReplaceAll(s.text, noBreak, " ")
		if p.color && strings.TrimSpace(text) != "" {
			text = s.style.Paint(text)
		}
		p.out.WriteString(text)
	}
	p.out.WriteByte('\n')
}

// cut returns spans that are at most max columns wide together.
func cut(spans []span, max int) []span {
	used := 0
	for i, s := range spans {
		w := termtext.Width(s.text)
		if used+w > max {
			return append(spans[:i:i], span{s.style, termtext.Head(s.text, max-used)})
		}
		used += w
	}
	return spans
}

// paragraph writes spans as running text, broken at spaces, every line indented. head is in the indentation of the first line, and is
// no wider.
func (p *printer) paragraph(head span, indent int, spans ...span) {
	p.runningText([]span{padRight(head.style, head.text, indent)}, indent, spans)
}

// runningText writes a paragraph whose first line begins with the spans of first, which are indent columns wide.
func (p *printer) runningText(first []span, indent int, spans []span) {
	line, used := first, indent
	for _, word := range splitWords(spans) {
		word = cut(word, p.width-indent)
		w := widthOf(word)
		if used > indent && used+1+w > p.width {
			p.line(line...)
			line, used = []span{{plain, strings.Repeat(" ", indent)}}, indent
		}
		if used > indent {
			used++
			// Words of one style become one span: this needs fewer escape sequences, and users can search for the text.
			if last := &line[len(line)-1]; last.style == word[0].style {
				last.text += " " + word[0].text
				word = word[1:]
			} else {
				line = append(line, span{plain, " "})
			}
		}
		line, used = append(line, word...), used+w
	}
	p.line(line...)
}

// splitWords splits spans at their spaces. A word may consist of several spans, such as a name in bold and the comma after it.
func splitWords(spans []span) [][]span {
	var words [][]span
	open := false // whether the last word can still grow
	for _, s := range spans {
		for i, part := range strings.Split(s.text, " ") {
			if i > 0 {
				open = false
			}
			if part == "" {
				continue
			}
			if !open {
				words = append(words, nil)
			}
			words[len(words)-1] = append(words[len(words)-1], span{s.style, part})
			open = true
		}
	}
	return words
}
