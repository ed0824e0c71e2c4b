package tune

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

const mib = 1 << 20

func TestMemoryFor(t *testing.T) {
	for _, c := range []struct {
		name string
		in   memoryInput
		want int64
	}{
		{"no limit", memoryInput{ratio: 0.9}, noMemoryLimit},
		{"the ratio", memoryInput{limit: 1000 * mib, ratio: 0.9, current: noMemoryLimit}, 900 * mib},
		{"less other memory", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 200 * mib, current: noMemoryLimit}, 700 * mib},
		{"less what is reserved", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 100 * mib, reserve: 200 * mib, current: noMemoryLimit}, 700 * mib},
		{"whole MiB", memoryInput{limit: 1000*mib + 12345, ratio: 0.9, current: noMemoryLimit}, 900 * mib},
		{"a small container", memoryInput{limit: 64 * mib, ratio: 0.9, current: noMemoryLimit}, 57 * mib},
		{"a tiny one", memoryInput{limit: 12 * mib, ratio: 0.9, otherMemory: 11 * mib, current: noMemoryLimit}, 1 * mib},
		{"the live heap comes first", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 600 * mib, needed: 500 * mib, current: noMemoryLimit}, 500 * mib},
		{"but the ceiling before it", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 600 * mib, needed: 990 * mib, current: noMemoryLimit}, 900 * mib},
		{"the guard gave way: nine tenths, never none", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 600 * mib, relaxed: true, current: 300 * mib}, 900 * mib},
		{"the guard gave way under a low ratio", memoryInput{limit: 1000 * mib, ratio: 0.5, otherMemory: 100 * mib, relaxed: true, current: 400 * mib}, 900 * mib},
		{"memory.high alone", memoryInput{high: 800 * mib, ratio: 0.9, current: noMemoryLimit}, 760 * mib},
		{"memory.high below the limit", memoryInput{limit: 1000 * mib, high: 800 * mib, ratio: 0.9, current: noMemoryLimit}, 760 * mib},
		{"memory.high that does not matter", memoryInput{limit: 1000 * mib, high: 990 * mib, ratio: 0.9, current: noMemoryLimit}, 900 * mib},
		{"GOGC's share", memoryInput{limit: 1000 * mib, ratio: 0.9, target: 0.7, otherMemory: 100 * mib, current: noMemoryLimit}, 600 * mib},
		{"GOGC's share above the ratio", memoryInput{limit: 1000 * mib, ratio: 0.5, target: 0.7, current: noMemoryLimit}, 500 * mib},
		{"other memory moved a little", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 205 * mib, current: 700 * mib}, 700 * mib},
		{"it grew", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 220 * mib, current: 700 * mib}, 680 * mib},
		{"it shrank a little", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 180 * mib, current: 700 * mib, settled: true}, 700 * mib},
		{"it shrank just now", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 100 * mib, current: 700 * mib}, 700 * mib},
		{"it shrank a while ago", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 100 * mib, current: 700 * mib, settled: true}, 800 * mib},
		{"the live heap grew: at once", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: 600 * mib, needed: 500 * mib, current: 300 * mib}, 500 * mib},
		{"more Go than charged", memoryInput{limit: 1000 * mib, ratio: 0.9, otherMemory: -5 * mib, current: noMemoryLimit}, 900 * mib},
	} {
		got, reason := memoryFor(c.in)
		check.True(t, got == c.want && reason != "", "%s: %s (%s), want %s", c.name, bytesText(got), reason, bytesText(c.want))
	}
}

// TestMemoryForIsNeverOutOfBounds tests random inputs: GOMEMLIMIT is never above the
// ceiling, never below the memory that the live heap needs (up to the ceiling), and is
// always set if the group has a limit.
func TestMemoryForIsNeverOutOfBounds(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	randomBytes := func() int64 { return r.Int64N(2000 * mib) }
	for range 20000 {
		in := memoryInput{limit: 2*mib + randomBytes(), ratio: 0.1 + 0.9*r.Float64(), otherMemory: randomBytes(), needed: randomBytes(), relaxed: r.IntN(3) == 0, settled: true}
		if r.IntN(2) == 0 {
			in.high = 2*mib + randomBytes()
		}
		if r.IntN(2) == 0 {
			in.target = memoryTarget
		}
		got, _ := memoryFor(in)
		ceiling := max(in.ceiling(), mib)
		must.True(t, got <= ceiling && got >= min(ceiling, in.needed) && got >= mib, "%+v: %s, ceiling %s", in, bytesText(got), bytesText(ceiling))
	}
}

func TestEffectiveGOGC(t *testing.T) {
	// 100 MiB live, goal 200 MiB: GOGC 100. A limit that cuts the goal to 110
	// MiB leaves 10.
	check.Equal(t, effectiveGOGC(gcWindow{live: 100 * mib, goal: 200 * mib}), 100, "no limit")
	check.Equal(t, effectiveGOGC(gcWindow{live: 90 * mib, stacks: 8 * mib, globals: 2 * mib, goal: 100 * mib}), 10, "cut goal")
	if got := effectiveGOGC(gcWindow{}); !math.IsInf(got, 1) {
		t.Errorf("empty heap: %v", got)
	}
}

func TestGCShare(t *testing.T) {
	for _, c := range []struct {
		name     string
		gc, busy float64
		real     float64
		want     float64
	}{
		{"no quota: both clocks agree", 1, 10, 10, 0.1},
		{"quota 0.5 with 2 Ps: busy runs four times as fast", 4, 40, 10, 0.1},
		{"with C code", 1, 5, 10, 0.1},
		{"nothing ran", 0, 0, 0, -1},
		{"the counters went backwards", -1, 5, 5, -1},
		{"all of it", 9, 8, 8, 1},
	} {
		check.Equal(t, gcShare(gcTimes{}, gcTimes{gcSeconds: c.gc, busySeconds: c.busy, realSeconds: c.real}), c.want, "%s", c.name)
	}
}

// A simulatedHeap is a service under the tuner's two memory policies: the pacer's formula
// gives the goal, and the collector's share falls as the goal grows.
type simulatedHeap struct {
	live, memory, otherMemory int64
	// foreignLimit is a GOMEMLIMIT that other code set; 0 is none.
	foreignLimit int64
	applied      bool // GOMEMLIMIT is applied, not only observed
	gogc         int
	// cost is the collector's share at GOGC 100.
	cost  float64
	limit int64
}

func (h *simulatedHeap) input(s *gcState) memoryInput {
	in := memoryInput{limit: h.memory, ratio: 0.9, otherMemory: h.otherMemory, needed: h.live + h.live/10, relaxed: s.relaxed, settled: true}
	if s.baseGOGC > 0 && h.gogc > s.baseGOGC {
		in.target = memoryTarget
	}
	return in
}

func (h *simulatedHeap) window(s *gcState) gcWindow {
	h.limit = noMemoryLimit
	in := h.input(s)
	switch {
	case h.foreignLimit != 0:
		h.limit = h.foreignLimit
	case h.applied || in.target > 0:
		h.limit, _ = memoryFor(in)
	}
	w := gcWindow{cycles: 1, elapsed: time.Second, live: h.live, gogc: h.gogc, memoryBound: h.memory, otherMemory: h.otherMemory, gomemlimit: h.limit, limitOurs: h.applied && h.foreignLimit == 0}
	w.goal = h.live + h.live*int64(h.gogc)/100
	if h.limit != noMemoryLimit {
		w.goal = max(h.live, min(w.goal, h.limit))
	}
	w.slack = w.limitOurs && h.limit < in.ceiling()
	in.relaxed, in.target = false, 0
	w.unrelaxedLimit, _ = memoryFor(in)
	w.bounded = h.memory > 0
	if h.foreignLimit != 0 {
		w.memoryBound, w.otherMemory = h.foreignLimit, 0
	}
	w.gcShare = min(0.9, h.cost*100/max(1, effectiveGOGC(w)))
	return w
}

// run simulates n collections and applies the decisions.
func (h *simulatedHeap) run(s *gcState, n int) (decisions []gcDecision) {
	for range n {
		d := s.step(h.window(s))
		if d.gogc != h.gogc || d.relax || d.restore || d.alarm {
			decisions = append(decisions, d)
		}
		h.gogc = d.gogc
	}
	return decisions
}

func TestGOGCIsRaisedTowardsTheTarget(t *testing.T) {
	h := simulatedHeap{live: 100 * mib, memory: 1000 * mib, gogc: 100, cost: 0.3}
	var s gcState
	before := h.gogc
	for range 100 {
		d := s.step(h.window(&s))
		must.True(t, float64(d.gogc) <= math.Ceil(1.5*float64(before)), "a step from %d to %d", before, d.gogc)
		check.False(t, d.gogc != h.gogc && !strings.Contains(d.reason, "70%"), "reason %q", d.reason)
		h.gogc, before = d.gogc, d.gogc
		if h.window(&s); h.gogc > 100 && h.limit != 700*mib {
			t.Fatalf("GOGC %d with a limit of %s", h.gogc, bytesText(h.limit))
		}
	}
	// 700 MiB would allow 600; 400 is the cap.
	check.True(t, h.gogc == 400, "GOGC %d, want 400", h.gogc)
	// The live heap grows: GOGC falls at the next collection, and never below the base.
	h.live = 250 * mib
	if d := s.step(h.window(&s)); d.gogc != 180 {
		t.Errorf("at 250 MiB live: GOGC %d, want 180", d.gogc)
	}
	h.live, h.gogc = 650*mib, 180
	if d := s.step(h.window(&s)); d.gogc != 100 {
		t.Errorf("at 650 MiB live: GOGC %d, want the base of 100", d.gogc)
	}
}

// TestGOGCDoesNotFlap tests that a live heap that varies by a fifth changes GOGC few times.
func TestGOGCDoesNotFlap(t *testing.T) {
	h := simulatedHeap{memory: 1000 * mib, gogc: 100, cost: 0.3}
	var s gcState
	changes := 0
	for i := range 2000 {
		h.live = int64(180+30*math.Sin(float64(i)/7)) * mib
		changes += len(h.run(&s, 1))
	}
	check.True(t, changes <= 8, "%d changes in 2000 collections", changes)
	check.True(t, h.gogc >= 200, "GOGC ended at %d", h.gogc)
	// For a heap that needs the room every minute, the rests grow.
	changes = 0
	for i := range 20000 {
		h.live = 150 * mib
		if i%400 > 350 {
			h.live = 330 * mib
		}
		changes += len(h.run(&s, 1))
	}
	check.True(t, changes <= 120, "%d changes in 20000 collections with 50 swings", changes)
}

func TestGOGCIsLeftAlone(t *testing.T) {
	for name, h := range map[string]simulatedHeap{
		"collecting is cheap": {live: 100 * mib, memory: 1000 * mib, gogc: 100, cost: 0.03},
		"no memory limit":     {live: 100 * mib, gogc: 100, cost: 0.3},
		"no room":             {live: 400 * mib, memory: 1000 * mib, gogc: 100, cost: 0.3},
		"other memory":        {live: 100 * mib, memory: 1000 * mib, otherMemory: 550 * mib, gogc: 100, cost: 0.15},
		"off":                 {live: 100 * mib, memory: 1000 * mib, gogc: -1, cost: 0.3},
	} {
		var s gcState
		if got := h.run(&s, 50); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestGOGCNeverStaysUpUnsafely tests that GOGC falls when no limit bounds the heap any more.
func TestGOGCNeverStaysUpUnsafely(t *testing.T) {
	h := simulatedHeap{live: 100 * mib, memory: 1000 * mib, gogc: 100, cost: 0.3}
	var s gcState
	h.run(&s, 100)
	w := h.window(&s)
	w.bounded = false
	if d := s.step(w); h.gogc <= 100 || d.gogc != 100 {
		t.Errorf("GOGC %d, then %d", h.gogc, d.gogc)
	}
}

func TestTheGuardGivesOtherMemoryUp(t *testing.T) {
	h := simulatedHeap{live: 500 * mib, memory: 1000 * mib, otherMemory: 450 * mib, gogc: 100, applied: true, cost: 0.1}
	var s gcState
	if got := h.run(&s, 9); len(got) != 0 || h.limit != 550*mib {
		t.Fatalf("before ten collections: %+v, limit %s", got, bytesText(h.limit))
	}
	got := h.run(&s, 1)
	must.True(t, len(got) == 1 && got[0].relax && got[0].alarm && got[0].gogc == 100, "at the tenth: %+v", got)
	if got := h.run(&s, 100); len(got) != 0 || h.limit != 900*mib {
		t.Errorf("while the live heap stays: %+v, limit %s", got, bytesText(h.limit))
	}
	// The live heap fills nine tenths as well: an alarm, and the limit stays.
	h.live = 880 * mib
	if got := h.run(&s, 100); len(got) != 1 || !got[0].alarm || got[0].relax || h.limit != 900*mib {
		t.Errorf("a live heap of 880 MiB: %+v, limit %s", got, bytesText(h.limit))
	}
	h.live = 250 * mib
	if got := h.run(&s, 19); len(got) != 0 {
		t.Errorf("before it is calm: %+v", got)
	}
	if got := h.run(&s, 1); len(got) != 1 || !got[0].restore {
		t.Errorf("when calm: %+v", got)
	}
	h.window(&s)
	check.Equal(t, h.limit, 450*mib, "limit %s", bytesText(h.limit))
}

func TestTheGuardOnlyAlarmsAboutAForeignLimit(t *testing.T) {
	h := simulatedHeap{live: 880 * mib, memory: 1000 * mib, foreignLimit: 900 * mib, gogc: 100, cost: 0.1}
	var s gcState
	got := h.run(&s, 200)
	check.True(t, len(got) == 1 && got[0].alarm && !got[0].relax, "%+v", got)
	// The service recovers and thrashes again: a second alarm.
	h.live, h.cost = 100*mib, 0.01
	h.run(&s, cyclesToCalm)
	h.live = 880 * mib
	if got := h.run(&s, 50); len(got) != 1 || !got[0].alarm {
		t.Errorf("the second time: %+v", got)
	}
}

// TestTheGuardWatchesWithoutGOGC tests that the guard works with GOGC=off, when only the limit
// starts collections.
func TestTheGuardWatchesWithoutGOGC(t *testing.T) {
	var s gcState
	w := gcWindow{cycles: 1, elapsed: time.Second, live: 880 * mib, goal: 890 * mib, gogc: -1, memoryBound: 1000 * mib, gomemlimit: 900 * mib, limitOurs: true, gcShare: 0.4}
	for range cyclesToThrash - 1 {
		must.False(t, s.step(w).alarm, "too early")
	}
	if d := s.step(w); !d.alarm || d.gogc != -1 {
		t.Errorf("%+v", d)
	}
}

func TestAHeavyCollectorWithoutALimitIsNoThrashing(t *testing.T) {
	h := simulatedHeap{live: 400 * mib, memory: 1000 * mib, gogc: 100, cost: 0.5}
	var s gcState
	if got := h.run(&s, 100); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
