//go:build go1.25 && unix

package flight

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// TestSignal tests that a signal leads to a recording that names it.
func TestSignal(t *testing.T) {
	dir := t.TempDir()
	r := start(t, Options{Dir: dir, Signals: []os.Signal{syscall.SIGUSR1}})
	must.Do(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	waitUntil(t, "a recording", func() bool { return r.State().Kept == 1 })
	if s := r.State(); kindOf(s.Last) != KindAsked {
		t.Errorf("kept is %s", s.Last)
	}
	data, err := os.ReadFile(dir + "/" + r.State().Last)
	check.True(t, err == nil && strings.Contains(string(data), "signal: user defined signal 1"), "it does not say why: %v", err)
}
