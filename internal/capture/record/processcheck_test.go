package record

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestIsSameCommand: a program may have removed its verb from os.Args; another program has other or
// more arguments.
func TestIsSameCommand(t *testing.T) {
	const actual = "/app\x00serve\x00-v\x00x"
	for reported, want := range map[string]bool{actual: true, "/app\x00-v\x00x": true, "serve\x00-v\x00x": true, "/app\x00serve\x00x": false, "/app\x00x": false, "/app": false, "/app\x00-v\x00y": false, "/app\x00x\x00-v": false, actual + "\x00y": false} {
		check.Equal(t, isSameCommand(reported, actual), want, "%q", reported)
	}
}
