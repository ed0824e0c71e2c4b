package cputime

import (
	"runtime"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/must"
)

// TestCPUTime tests that this thread's work counts in the process's time, and does not exceed wall time.
func TestCPUTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := time.Now()
	process, hasClock := Process()
	thread, knownThread := Thread()
	if runtime.GOOS != "linux" && (!hasClock || !knownThread) {
		t.Skip("not measurable here")
	}
	for now := thread; now < thread+5*time.Millisecond; now, _ = Thread() {
		must.True(t, time.Since(begin) <= 20*time.Second, "the thread has no CPU time")
	}
	process2, ok := Process()
	thread2, ok2 := Thread()
	wall := time.Since(begin)
	if !hasClock || !knownThread || !ok || !ok2 || thread2-thread < 5*time.Millisecond || thread2-thread > wall+time.Millisecond || process2-process < 4*time.Millisecond || process2 < thread2 {
		t.Errorf("in %v the thread had %v, the process %v", wall, thread2-thread, process2-process)
	}
}
