// Package markname cleans names of requests in the same way for package mark and for
// packages that report them elsewhere.
package markname

import (
	"strings"
	"unicode"
)

// Max is how long a name is, in bytes.
const Max = 200

// Clean cuts a name to Max bytes and replaces control characters and invalid UTF-8 by underscores.
func Clean(s string) string {
	if len(s) > Max {
		s = s[:Max]
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(s, "_")) // Map writes three bytes for each that is not valid
}
