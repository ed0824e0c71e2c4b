// Package termtext escapes and shortens text of any origin (names of functions and files, errors, server answers) for a
// terminal: no text can move the cursor, change colours or the direction of writing, or break a table's columns.
package termtext

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Ellipsis replaces omitted text. It is one column wide.
const Ellipsis = "…"

// maxMarks is the largest number of consecutive combining marks that is not escaped: enough for the letters of any script, too
// few to reach the lines above.
const maxMarks = 2

// Escape returns s with everything invisible written as a Go escape sequence (\n, \x1b, \u202e): control and format
// characters, line and paragraph separators, spaces other than ' ', private and unassigned code points, bytes that are not
// UTF-8, and more than two consecutive combining marks. The result has no line break and is valid UTF-8.
func Escape(s string) string {
	if isVisibleASCII(s) {
		return s
	}
	var b strings.Builder
	marks := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		marks = escapeRune(&b, s[i:i+n], r, marks)
		i += n
	}
	return b.String()
}

// escapeRune appends one rune, decoded from raw, escaped if necessary. marks is the number of consecutive combining marks before it; it returns that
// number after it.
func escapeRune(b *strings.Builder, raw string, r rune, marks int) int {
	switch {
	case r >= ' ' && r <= '~': // the most frequent case, before the slower search in Unicode's tables
		b.WriteString(raw)
	case r == utf8.RuneError && len(raw) == 1:
		fmt.Fprintf(b, `\x%02x`, raw[0])
		return 0
	case unicode.In(r, unicode.Mn, unicode.Me):
		if marks++; marks <= maxMarks {
			b.WriteString(raw)
		} else {
			fmt.Fprintf(b, `\u%04x`, r)
		}
		return marks
	case unicode.IsPrint(r):
		b.WriteString(raw)
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\t':
		b.WriteString(`\t`)
	case r == '\r':
		b.WriteString(`\r`)
	case r < 0x80:
		fmt.Fprintf(b, `\x%02x`, r)
	case r <= 0xffff:
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		fmt.Fprintf(b, `\U%08x`, r)
	}
	return 0
}

// isVisibleASCII reports whether all of s is visible ASCII.
func isVisibleASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Width returns the number of terminal columns that escaped text takes.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// runeWidth returns the columns of a rune by Unicode's East Asian Width (UAX #11): wide and fullwidth take two, combining marks none, ambiguous ones
// are taken as narrow.
func runeWidth(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Head returns text escaped and, if it is wider than max columns, cut at its end with an ellipsis. The work does not grow with the length of text
// beyond max. It is "" if max is below 1.
func Head[S ~string](text S, max int) string {
	if max <= 0 {
		return ""
	}
	s, cut := clipHead(string(text), max)
	s = Escape(s)
	if !cut && Width(s) <= max {
		return s
	}
	return firstColumns(s, max-1) + Ellipsis
}

// Middle returns s escaped and, if it is wider than max columns, with an ellipsis in its middle. The end, which is more useful in names of functions
// and files, gets two thirds of the columns. It is "" if max is below 1.
func Middle(s string, max int) string {
	if max <= 0 {
		return ""
	}
	head, headCut := clipHead(s, max)
	tail, tailCut := clipTail(s, max)
	if !headCut && !tailCut {
		if e := Escape(s); Width(e) <= max {
			return e
		}
	}
	front := (max - 1) / 3
	return firstColumns(Escape(head), front) + Ellipsis + lastColumns(Escape(tail), max-1-front)
}

// clipBytes is the largest number of bytes of one column: a letter of four bytes with its marks.
const clipBytes = 4 * (1 + maxMarks)

// clipHead returns the leading bytes of s that max columns can show, up to the end of a rune, and whether it cut s.
func clipHead(s string, max int) (string, bool) {
	limit := clipBytes * (max + 1)
	if len(s) <= limit {
		return s, false
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) && limit > clipBytes*max {
		limit--
	}
	return s[:limit], true
}

// clipTail returns the end of s, from the beginning of a rune, and whether it cut s. It bounds the time that measuring a long
// text takes: the end has at most clipBytes*(max+1) bytes, enough for max columns but perhaps for more, so the caller still cuts
// it to max columns.
func clipTail(s string, max int) (string, bool) {
	limit := clipBytes * (max + 1)
	if len(s) <= limit {
		return s, false
	}
	start := len(s) - limit
	for start < len(s)-clipBytes*max && !utf8.RuneStart(s[start]) {
		start++
	}
	return s[start:], true
}

// firstColumns returns the longest start of s that is at most max columns wide.
func firstColumns(s string, max int) string {
	w := 0
	for i, r := range s {
		if w += runeWidth(r); w > max {
			return s[:i]
		}
	}
	return s
}

// lastColumns returns the longest end of s that is at most max columns wide and does not begin with a combining mark.
func lastColumns(s string, max int) string {
	w, start := 0, len(s)
	for i := len(s); i > 0; {
		r, n := utf8.DecodeLastRuneInString(s[:i])
		rw := runeWidth(r)
		if w += rw; w > max {
			break
		}
		i -= n
		if rw > 0 {
			start = i
		}
	}
	return s[start:]
}

// Wrap breaks escaped words into lines of at most the given number of columns. A wider word has a separate line.
func Wrap(words []string, columns int) []string {
	var out []string
	used := columns
	for _, word := range words {
		n := Width(word)
		if used+1+n <= columns {
			out[len(out)-1] += " " + word
			used += 1 + n
		} else {
			out = append(out, word)
			used = n
		}
	}
	return out
}

// Pad returns s followed by spaces up to the given width.
func Pad(s string, columns int) string {
	if w := Width(s); w < columns {
		return s + strings.Repeat(" ", columns-w)
	}
	return s
}

// PadLeft returns s with spaces before it up to the given width.
func PadLeft(s string, columns int) string {
	if w := Width(s); w < columns {
		return strings.Repeat(" ", columns-w) + s
	}
	return s
}

// Table returns rows of escaped text as lines that begin with indent. The first leftColumns columns are aligned to the left, the others to the right.
// It overwrites the cells of rows with padded ones.
func Table(indent string, rows [][]string, leftColumns int) string {
	var widths []int
	for _, row := range rows {
		widths = append(widths, make([]int, max(0, len(row)-len(widths)))...)
		for i, cell := range row {
			widths[i] = max(widths[i], Width(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			if row[i] = PadLeft(cell, widths[i]); i < leftColumns {
				row[i] = Pad(cell, widths[i])
			}
		}
		b.WriteString(indent + strings.Join(row, "  ") + "\n")
	}
	return b.String()
}
