package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestLimitFollowsLiveData: the heap's limit follows what is live also while nothing is read, since a report can be most of it; and what
// was before is back in the end. Were it followed only while bytes are read, the collector would run back to back afterwards.
func TestLimitFollowsLiveData(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	_, restore := holdMemory(0)
	live := make([]byte, 2*usualMemory)
	runtime.GC()
	for end := time.Now().Add(time.Minute); debug.SetMemoryLimit(-1) < int64(len(live)); time.Sleep(adjustEvery) {
		if time.Now().After(end) {
			t.Errorf("%d bytes are live, and the limit is still %d", len(live), debug.SetMemoryLimit(-1))
			break
		}
	}
	runtime.KeepAlive(live)
	restore()
	if after := debug.SetMemoryLimit(-1); after != before {
		t.Errorf("the limit was %d and is %d", before, after)
	}
}
