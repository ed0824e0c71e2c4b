package record

import (
	"fmt"
	"net/http"
	"strings"
)

// AddHeaders adds headers of the form "Name: value". Source names the origin of the list in errors.
// Errors have the number of a header, never its content.
func AddHeaders(h http.Header, source string, lines []string) error {
	for i, line := range lines {
		name, value, found := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !found || !isToken(name) {
			return &Error{Kind: Usage, Op: "reading headers", URL: source, Text: fmt.Sprintf("number %d is not of the form 'Name: value'", i+1)}
		}
		if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return &Error{Kind: Usage, Op: "reading headers", URL: source, Text: fmt.Sprintf("number %d has a control character in its value", i+1)}
		}
		h.Add(name, value)
	}
	return nil
}

// isToken reports whether s may be the name of a header (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return false
		}
		return !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// SplitHeaderLines splits the content of a file or variable into headers, one a line. It skips blank
// lines and lines that begin with #.
func SplitHeaderLines(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}
