package cli

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestNamePattern: a name as printed by a report matches itself, a regular expression stays one, and other text is an error.
// It detects a name copied from a report that is not accepted.
func TestNamePattern(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"main.(*store).reserve", "main.(*store).reserve", true},
		{"(*store).reserve$", "main.(*store).reserve", true},
		{"(*store).reserve$", "main.(*store).reserved", false},
		{"(*store).reserve", "main.(*store)_reserve", false},
		{"server.(*ipQueue[...]).push", "a.com/server.(*ipQueue[...]).push", true},
		{"res.rve$", "main.(*store).reserve", true},
	} {
		match, err := namePattern(c.pattern)
		check.True(t, err == nil && match.MatchString(c.name) == c.want, "%s of %s: %v, %v", c.pattern, c.name, match, err)
	}
	if _, err := namePattern("reserve("); err == nil {
		t.Error("half of a group is a pattern")
	}
}
