// Package markname says how requests are called in a trace: by what marks them, and by
// what tells of them elsewhere.
package markname

import (
	"strings"
	"unicode"
)

// Max is how long a name is, in bytes.
const Max = 200

// Clean bounds a name and leaves out what a line of text cannot hold.
func Clean(s string) string {
	if len(s) > Max {
		s = s[:Max]
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '_'
		}
		return r
	}, s), "_")
}
