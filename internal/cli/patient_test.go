package cli

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestIsPatient checks which verbs must end within a second of an interrupt.
func TestIsPatient(t *testing.T) {
	for line, want := range map[string]bool{
		"explain x.trace": false, "export --to perfetto -o y x.trace": false, "view x.trace": false, "check x.trace": false, "diff a b": false, "verify a b": false,
		"record http://x": true, "load http://x": true, "demo": true, "watch http://x": true,
	} {
		check.Equal(t, isPatient(strings.Fields(line), allVerbs()...), want, "%q", line)
	}
}
