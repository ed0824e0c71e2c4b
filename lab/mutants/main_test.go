package main

import (
	"strings"
	"testing"
	"time"
)

// A package whose tests fail anyway would count each change as caught.
func TestFailsUnchanged(t *testing.T) {
	for binary, want := range map[string]string{"/bin/true": "", "/bin/false": "the tests of . fail without a change"} {
		tr := &trial{timeout: time.Minute, binaries: map[string]string{" .": binary}, unchangedRuns: map[string]error{}}
		if err := tr.runUnchanged(".", false); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v; want %q", binary, err, want)
		}
	}
}
