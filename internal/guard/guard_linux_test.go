package guard

import (
	"io"
	"slices"
	"strings"
	"testing"
)

// TestRefuses: what is no command is an error, not a hang.
func TestRefuses(t *testing.T) {
	for _, in := range []string{"", "x\n", "{}\n"} {
		if err := Run(strings.NewReader(in), io.Discard); err == nil {
			t.Errorf("%q is guarded", in)
		}
	}
}

// TestLines: a line of any length costs one buffer, and its rest is not a line of its own.
func TestLines(t *testing.T) {
	var got []string
	lines(strings.NewReader("a\n"+strings.Repeat("x", 100<<10)+"\nlast"), func(l string) { got = append(got, l) })
	if want := []string{"a", strings.Repeat("x", 8<<10), "last"}; !slices.Equal(got, want) {
		t.Errorf("%d lines", len(got))
	}
}
