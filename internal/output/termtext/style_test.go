package termtext

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

func TestPaint(t *testing.T) {
	check.Equal(t, Plain.Paint("a"), "a", "plain text became")
	if got, want := BoldRed.Paint("a"), "\x1b[1;31ma\x1b[0m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
