package mark

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
)

// TestWord tests that a status is one word of at most 40 printable characters.
func TestWord(t *testing.T) {
	for s, want := range map[string]bool{
		"": false, "x": true, "2xx": true, "!": true, "~": true, strings.Repeat("x", 40): true, strings.Repeat("x", 41): false,
		"a b": false, " ": false, "\x7f": false, "é": false, "a\n": false, "\x1b[2J": false,
	} {
		check.Equal(t, isWord(s), want, "%q is a word: %v", s, !want)
	}
}
