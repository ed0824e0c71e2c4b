package screen

import (
	"strings"
	"unicode/utf8"

	"github.com/whylate/whylate/internal/output/termtext"
)

type style = termtext.Style

const (
	plain, bold, dim     = termtext.Plain, termtext.Bold, termtext.Dim
	reverse, red, yellow = termtext.Reverse, termtext.Red, termtext.Yellow

	reset = termtext.Reset
)

// A line is text of at most max columns.
type line struct {
	b         strings.Builder
	used, max int
	color     bool
}

// newLine returns an empty line of at most columns columns. Without color, styles are ignored.
func newLine(columns int, color bool) *line { return &line{max: columns, color: color} }

// add appends text in a style, as far as it fits, and returns l. Control characters are escaped, so that no text can disturb the terminal.
func (l *line) add(s style, text string) *line {
	text = termtext.Head(text, l.max-l.used)
	if text == "" {
		return l
	}
	l.used += termtext.Width(text)
	if l.color {
		text = s.Paint(text)
	}
	l.b.WriteString(text)
	return l
}

// addLeft adds text in a column of the given width, cut in its middle if it is too wide.
func (l *line) addLeft(s style, text string, columns int) *line {
	return l.add(s, termtext.Pad(termtext.Middle(text, columns), columns))
}

// addRight is addLeft for text at the end of the column.
func (l *line) addRight(s style, text string, columns int) *line {
	return l.add(s, termtext.PadLeft(termtext.Head(text, columns), columns))
}

// room returns the number of free columns.
func (l *line) room() int { return l.max - l.used }

func (l *line) String() string { return l.b.String() }

// breakText breaks plain text into at most maxLines lines of at most columns columns; what does not fit is cut.
func breakText(text string, columns, maxLines int) []string {
	if columns < 1 || maxLines < 1 {
		return nil
	}
	words := strings.Fields(termtext.Head(text, columns*maxLines))
	for i := range words {
		words[i] = termtext.Head(words[i], columns)
	}
	out := termtext.Wrap(words, columns)
	if len(out) > maxLines {
		out = append(out[:maxLines-1], termtext.Head(out[maxLines-1]+" "+out[maxLines], columns))
	}
	return out
}

// wrap divides a text, which may have colours of our own writers, into lines of at most columns columns, between words if
// possible. A colour at a break continues on the next line.
func wrap(text string, columns int) []string {
	columns = max(columns, 1)
	var out []string
	current := "" // the line so far
	on, used := "", 0
	space, onThere := -1, "" // the last space in it, and the colour there
	flush := func() {
		line, rest := current, ""
		if space > 0 && (space == len(current)-1 || visibleWidth(current[space:]) <= columns/2) {
			line, rest = current[:space], onThere+current[space+1:]
		} else {
			rest = on
		}
		if onThere != "" || on != "" {
			line += reset
		}
		out = append(out, line)
		current, used, space = rest, visibleWidth(rest), -1
	}
	for i := 0; i < len(text); {
		if text[i] == 0x1b {
			end := strings.IndexByte(text[i:], 'm')
			if end < 0 {
				break
			}
			seq := text[i : i+end+1]
			if on += seq; seq == reset || seq == "\x1b[m" {
				on = ""
			}
			current += seq
			i += end + 1
			continue
		}
		_, n := utf8.DecodeRuneInString(text[i:])
		char := text[i : i+n]
		w := termtext.Width(char)
		if used+w > columns {
			if char == " " {
				space, onThere = len(current), on
				current += " " // the break replaces it
				flush()
				i += n
				continue
			}
			flush()
		}
		if char == " " && strings.TrimSpace(current) != "" {
			space, onThere = len(current), on
		}
		current += char
		used += w
		i += n
	}
	return append(out, current)
}
