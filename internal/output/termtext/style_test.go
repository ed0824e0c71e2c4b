package termtext

import "testing"

func TestPaint(t *testing.T) {
	if got := Plain.Paint("a"); got != "a" {
		t.Errorf("plain text became %q", got)
	}
	if got, want := BoldRed.Paint("a"), "\x1b[1;31ma\x1b[0m"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
