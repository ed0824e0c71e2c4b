package tune

import (
	"testing"
	"time"

	"github.com/whylate/whylate/service/cgroup"
)

// TestWindowOfMemory tests that the memory bound is the tightest of the kernel's limit or Options.MemoryLimit, memory.high, and a
// GOMEMLIMIT set by hand that leaves room for other memory.
func TestWindowOfMemory(t *testing.T) {
	for _, c := range []struct {
		name             string
		kernel, high     int64
		provided, byHand int64
		memory           int64
		safe             bool
	}{
		{"nothing", 0, 0, 0, 0, 0, false},
		{"the kernel's", 1000, 0, 0, 0, 1000, false},
		{"slowed only", 0, 800, 0, 0, 800, false},
		{"slowed before", 1000, 800, 0, 0, 800, false},
		{"slowed after", 1000, 1200, 0, 0, 1000, false},
		{"given", 1000, 0, 600, 0, 600, false},
		{"by hand alone", 0, 0, 0, 500, 500, true},
		{"by hand with room", 1000, 0, 0, 970, 970, true},
		{"by hand without", 1000, 0, 0, 971, 1000, false},
		{"by hand beside the bound", 1000, 800, 0, 777, 800, false},
	} {
		tuner := &Tuner{policyCyclesAt: time.Unix(100, 0), policyCycles: 7}
		in := &tuner.current
		in.readAt, in.goStats.cycles, in.goStats.memoryLimit = time.Unix(103, 0), 9, noMemoryLimit
		in.bounds = cgroup.Tightest{Memory: c.kernel, High: c.high}
		if c.provided > 0 {
			in.providedLimit, in.providedSource = c.provided, "the program"
		}
		tuner.memory.env = "set"
		if c.byHand > 0 {
			in.goStats.memoryLimit = c.byHand
		}
		if w := tuner.gcWindow(); w.memoryBound != c.memory || w.bounded != c.safe || w.limitOurs {
			t.Errorf("%s: memory %d, safe %v, ours %v", c.name, w.memoryBound, w.bounded, w.limitOurs)
		}
	}
}

// TestWindowOfCycles tests that a window has the collections and the time since the last poll with collections. The first poll
// starts a window.
func TestWindowOfCycles(t *testing.T) {
	tuner := &Tuner{}
	tuner.memory.env = "set"
	for i, c := range []struct {
		second, cycles uint64
		want           uint64
		elapsed        time.Duration
		sinceCycles    uint64
	}{{10, 40, 0, time.Duration(0), 40}, {11, 40, 0, 0, 40}, {12, 43, 3, 2 * time.Second, 43}, {13, 43, 0, 0, 43}, {15, 44, 1, 3 * time.Second, 44}} {
		tuner.polls++
		tuner.current.readAt, tuner.current.goStats.cycles = time.Unix(int64(c.second), 0), c.cycles
		w := tuner.gcWindow()
		if i > 0 && (w.cycles != c.want || w.elapsed != c.elapsed) || i == 0 && w.cycles != 0 || tuner.policyCycles != c.sinceCycles {
			t.Errorf("look %d: %d collections in %v, %d seen", i+1, w.cycles, w.elapsed, tuner.policyCycles)
		}
	}
}
