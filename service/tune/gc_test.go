package tune

import (
	"math"
	"strings"
	"testing"
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
		{"less other memory", memoryInput{limit: 1000 * mib, ratio: 0.9, other: 200 * mib, current: noMemoryLimit}, 700 * mib},
		{"whole MiB", memoryInput{limit: 1000*mib + 12345, ratio: 0.9, current: noMemoryLimit}, 900 * mib},
		{"too small a limit", memoryInput{limit: 64 * mib, ratio: 0.9, current: noMemoryLimit}, noMemoryLimit},
		{"just enough", memoryInput{limit: 128 * mib, ratio: 0.5, current: noMemoryLimit}, 64 * mib},
		{"too much other memory", memoryInput{limit: 1000 * mib, ratio: 0.9, other: 850 * mib, current: 900 * mib}, noMemoryLimit},
		{"other memory moved a little", memoryInput{limit: 1000 * mib, ratio: 0.9, other: 205 * mib, current: 700 * mib}, 700 * mib},
		{"it grew", memoryInput{limit: 1000 * mib, ratio: 0.9, other: 220 * mib, current: 700 * mib}, 680 * mib},
		{"it shrank a little", memoryInput{limit: 1000 * mib, ratio: 0.9, other: 180 * mib, current: 700 * mib}, 700 * mib},
		{"it shrank", memoryInput{limit: 1000 * mib, ratio: 0.9, other: 100 * mib, current: 700 * mib}, 800 * mib},
		{"more Go than charged", memoryInput{limit: 1000 * mib, ratio: 0.9, other: -5 * mib, current: noMemoryLimit}, 900 * mib},
	} {
		got, reason := memoryFor(c.in)
		if got != c.want || reason == "" {
			t.Errorf("%s: %s (%s), want %s", c.name, bytesText(got), reason, bytesText(c.want))
		}
	}
}

func TestEffectiveGOGC(t *testing.T) {
	// 100 MiB live, goal 200 MiB: GOGC 100. A limit that cuts the goal to 110
	// MiB leaves 10.
	if got := effectiveGOGC(gcWindow{live: 100 * mib, goal: 200 * mib}); got != 100 {
		t.Errorf("no limit: %v", got)
	}
	if got := effectiveGOGC(gcWindow{live: 90 * mib, stacks: 8 * mib, globals: 2 * mib, goal: 100 * mib}); got != 10 {
		t.Errorf("cut goal: %v", got)
	}
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
		{"C code beside", 1, 5, 10, 0.1},
		{"nothing ran", 0, 0, 0, -1},
		{"the counters went backwards", -1, 5, 5, -1},
		{"all of it", 9, 8, 8, 1},
	} {
		if got := gcShare(gcTimes{}, gcTimes{gc: c.gc, busy: c.busy, real: c.real}); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// heap is a service with a constant live heap: the pacer's rules give the
// goal, and the collector's share falls as the goal grows.
type heap struct {
	live, memory, limit int64
	gogc                int
	ours                bool
	// cost is the collector's share at GOGC 100.
	cost float64
}

func (h *heap) window() gcWindow {
	goal := h.live + h.live*int64(h.gogc)/100
	if h.limit != noMemoryLimit {
		goal = max(h.live, min(goal, h.limit))
	}
	w := gcWindow{cycles: 1, live: h.live, goal: goal, gogc: h.gogc, memory: h.memory, limit: h.limit, ours: h.ours}
	w.share = min(0.9, h.cost*100/max(1, effectiveGOGC(w)))
	return w
}

// run feeds n collections, following the decisions.
func (h *heap) run(s *gcState, n int) (decisions []gcDecision) {
	for range n {
		d := s.step(h.window())
		if d.gogc != h.gogc || d.lift || d.restore || d.alarm {
			decisions = append(decisions, d)
		}
		h.gogc = d.gogc
		if d.lift {
			h.limit = noMemoryLimit
		}
		if d.restore {
			h.limit = s.liftedLimit
		}
	}
	return decisions
}

func TestGOGCIsRaisedTowardsTheTarget(t *testing.T) {
	h := heap{live: 100 * mib, memory: 1000 * mib, limit: noMemoryLimit, gogc: 100, cost: 0.3}
	var s gcState
	before := h.gogc
	for range 100 {
		d := s.step(h.window())
		if float64(d.gogc) > math.Ceil(1.5*float64(before)) {
			t.Fatalf("a step from %d to %d", before, d.gogc)
		}
		if d.gogc != h.gogc && !strings.Contains(d.reason, "70 %") {
			t.Errorf("reason %q", d.reason)
		}
		h.gogc, before = d.gogc, d.gogc
	}
	// 700 MiB would allow 600; 400 is the cap.
	if h.gogc != 400 {
		t.Errorf("GOGC %d, want 400", h.gogc)
	}
	// The live heap grows: down at once, and never below the base.
	h.live = 300 * mib
	if d := s.step(h.window()); d.gogc != 133 {
		t.Errorf("at 300 MiB live: GOGC %d, want 133", d.gogc)
	}
	h.live, h.gogc = 650*mib, 133
	if d := s.step(h.window()); d.gogc != 100 {
		t.Errorf("at 650 MiB live: GOGC %d, want the base of 100", d.gogc)
	}
}

func TestGOGCIsLeftAlone(t *testing.T) {
	for name, h := range map[string]heap{
		"collecting is cheap": {live: 100 * mib, memory: 1000 * mib, limit: noMemoryLimit, gogc: 100, cost: 0.03},
		"no memory limit":     {live: 100 * mib, limit: noMemoryLimit, gogc: 100, cost: 0.3},
		"no room":             {live: 400 * mib, memory: 1000 * mib, limit: noMemoryLimit, gogc: 100, cost: 0.3},
		"off":                 {live: 100 * mib, memory: 1000 * mib, limit: noMemoryLimit, gogc: -1, cost: 0.3},
	} {
		var s gcState
		if got := h.run(&s, 50); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestTheGuardLiftsALimitThatStrangles(t *testing.T) {
	h := heap{live: 880 * mib, memory: 1000 * mib, limit: 900 * mib, gogc: 100, ours: true, cost: 0.1}
	var s gcState
	got := h.run(&s, 9)
	if len(got) != 0 {
		t.Fatalf("before ten collections: %+v", got)
	}
	got = h.run(&s, 1)
	if len(got) != 1 || !got[0].lift || !got[0].alarm || got[0].gogc != 100 {
		t.Fatalf("at the tenth: %+v", got)
	}
	if got := h.run(&s, 100); len(got) != 0 {
		t.Errorf("while the live heap stays: %+v", got)
	}
	h.live = 400 * mib
	got = h.run(&s, 19)
	if len(got) != 0 {
		t.Errorf("before it is calm: %+v", got)
	}
	got = h.run(&s, 1)
	if len(got) != 1 || !got[0].restore {
		t.Errorf("when calm: %+v", got)
	}
	if h.limit != 900*mib {
		t.Errorf("limit %s", bytesText(h.limit))
	}
}

func TestTheGuardOnlyAlarmsAboutAForeignLimit(t *testing.T) {
	h := heap{live: 880 * mib, memory: 1000 * mib, limit: 900 * mib, gogc: 100, cost: 0.1}
	var s gcState
	got := h.run(&s, 200)
	if len(got) != 1 || !got[0].alarm || got[0].lift {
		t.Errorf("%+v", got)
	}
	// It recovers, and falls ill again: a second alarm.
	h.live = 100 * mib
	h.gogc = 100
	h.cost = 0.01
	h.run(&s, 5)
	h.live = 880 * mib
	if got := h.run(&s, 50); len(got) != 1 || !got[0].alarm {
		t.Errorf("the second time: %+v", got)
	}
}

func TestAHeavyCollectorWithoutALimitIsNoThrashing(t *testing.T) {
	h := heap{live: 400 * mib, memory: 1000 * mib, limit: noMemoryLimit, gogc: 100, cost: 0.5}
	var s gcState
	if got := h.run(&s, 100); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}
