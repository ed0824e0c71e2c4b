package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

// TestLimitThatCannotHold: live data above the user's limit raise the limit, and restore returns the excess. Otherwise the
// collector would run without pause, and the report would not have the excess. It returns 0 for a limit that was kept.
func TestLimitThatCannotHold(t *testing.T) {
	const max = 128 << 20
	runtime.GC() // what other tests left is not live
	adjust, restore := limitMemory(max)
	adjust()
	if excess := restore(); excess > 0 {
		t.Errorf("with little that is live %d bytes more than the limit were told", excess)
	}
	adjust, restore = limitMemory(max)
	live := make([]byte, 3*max)
	runtime.GC()
	adjust()
	if limit := debug.SetMemoryLimit(-1); limit <= int64(len(live)) {
		t.Errorf("%d bytes are live, and the limit is %d", len(live), limit)
	}
	// The collector's next goal leaves room for the allocations between two collections; the limit itself is above it by what the runtime takes off.
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	if metrics.Read(goal); goal[0].Value.Uint64() < uint64(len(live)+len(live)/20) {
		t.Errorf("%d bytes are live, and the collector begins again at %d", len(live), goal[0].Value.Uint64())
	}
	runtime.KeepAlive(live)
	if excess := restore(); excess < 2*max || excess > 3*max {
		t.Errorf("%d bytes were live with a limit of %d, and %d more were told", len(live), max, excess)
	}
}

// TestLimitFollowsLiveData: the heap's limit follows the live data even while nothing is read, since a report can have most of
// them, and the former limit is restored at the end. If the limit followed only while bytes are read, the collector would run
// without pause afterwards.
func TestLimitFollowsLiveData(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	_, restore := limitMemory(0)
	live := make([]byte, 2*defaultMemoryLimit)
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
