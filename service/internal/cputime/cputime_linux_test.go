package cputime

import (
	"runtime"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/must"
)

// TestWork tests that a thread's work counts in its time and the process's, and a sleep in neither.
func TestWork(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	process, ok := Process()
	thread, ok2 := Thread()
	must.True(t, ok && ok2, "the kernel does not say")
	const minimum = 20 * time.Millisecond
	for {
		now, ok := Thread()
		must.True(t, ok, "the kernel does not say any more")
		if now-thread >= minimum {
			break
		}
	}
	// The process's other threads are accounted for at their next tick, this one at once.
	if after, ok := Process(); !ok || after-process < minimum {
		t.Errorf("the process used %v more CPU while one thread used %v, %t", after-process, minimum, ok)
	}
	thread, _ = Thread()
	time.Sleep(minimum)
	if now, ok := Thread(); !ok || now-thread >= minimum {
		t.Errorf("a thread that slept used %v, %t", now-thread, ok)
	}
}
