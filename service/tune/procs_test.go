package tune

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
)

func TestProcsFor(t *testing.T) {
	for _, c := range []struct {
		quota              float64
		cpus               int
		ceil, floor, round int
	}{
		{0, 8, 8, 8, 8},
		{0, 0, 1, 1, 1},
		{0.1, 8, 1, 1, 1},
		{0.25, 8, 1, 1, 1},
		{0.5, 8, 1, 1, 1},
		{1, 8, 1, 1, 1},
		{1.1, 8, 2, 1, 1},
		{1.5, 8, 2, 1, 2},
		{2, 8, 2, 2, 2},
		{2.4, 8, 3, 2, 2},
		{2.9, 8, 3, 2, 3},
		{2.9999, 8, 3, 3, 3},
		{3.0001, 8, 3, 3, 3},
		{8.5, 96, 9, 8, 9},
		{8.5, 4, 4, 4, 4},
		{4, 4, 4, 4, 4},
		{1000, 2, 2, 2, 2},
		{-1, 2, 2, 2, 2},
		{math.NaN(), 2, 2, 2, 2},
		{math.Inf(1), 2, 2, 2, 2},
	} {
		for policy, want := range map[Policy]int{PolicyCeil: c.ceil, PolicyFloor: c.floor, PolicyRound: c.round, PolicyLatency: c.ceil} {
			got, reason := procsFor(procsInput{policy: policy, quota: c.quota, cpus: c.cpus})
			check.Equal(t, got, want, "%v of quota %v on %d CPUs: (%s)", policy, c.quota, c.cpus, reason)
			check.True(t, reason != "", "%v of quota %v on %d CPUs: no reason", policy, c.quota, c.cpus)
		}
	}
}

func TestRuntimeDefault(t *testing.T) {
	for _, c := range []struct {
		quota float64
		cpus  int
		want  int
	}{{0, 8, 8}, {0.5, 8, 2}, {0.5, 1, 1}, {2, 8, 2}, {2.1, 8, 3}, {8.5, 4, 4}} {
		check.Equal(t, runtimeDefault(c.quota, c.cpus), c.want, "quota %v, %d CPUs", c.quota, c.cpus)
	}
}

func TestParse(t *testing.T) {
	for _, p := range []Policy{PolicyCeil, PolicyFloor, PolicyRound, PolicyLatency} {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	for _, m := range []Mode{ModeObserve, ModeApply, ModeOff} {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	if _, err := ParsePolicy("fast"); err == nil || !strings.Contains(err.Error(), "fast") {
		t.Errorf("unknown policy: %v", err)
	}
	var o struct {
		Mode   Mode
		Policy Policy
	}
	if err := json.Unmarshal([]byte(`{"Mode":"apply","Policy":"floor"}`), &o); err != nil || o.Mode != ModeApply || o.Policy != PolicyFloor {
		t.Errorf("%+v, %v", o, err)
	}
	if b, err := json.Marshal(o); err != nil || string(b) != `{"Mode":"apply","Policy":"floor"}` {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := json.Marshal(Mode(7)); err == nil {
		t.Error("a mode that does not exist was written")
	}
	if _, err := ParseMode(""); err == nil {
		t.Error("an empty mode was accepted")
	}
}

// feedWindow passes the same window n times, with the chosen GOMAXPROCS, and returns
// the values of GOMAXPROCS and the number of windows before each.
func feedWindow(s *latencyState, w latencyWindow, n int) (values, steppedAt []int) {
	for i := range n {
		if got, _ := s.step(w); got != w.current {
			w.current = got
			values, steppedAt = append(values, got), append(steppedAt, i+1)
		}
	}
	return values, steppedAt
}

func TestLatencyPolicy(t *testing.T) {
	throttled := latencyWindow{quota: 2.5, cpus: 16, current: 4, periods: 10, throttled: 5, usedCPUs: 2.4, measured: true}
	backlog := latencyWindow{quota: 2.5, cpus: 16, current: 3, periods: 10, runnable: 12, usedCPUs: 1.2, measured: true}
	calm := latencyWindow{quota: 2.5, cpus: 16, current: 3, periods: 10, runnable: 0.5, usedCPUs: 0.5, measured: true}
	for _, c := range []struct {
		name      string
		w         latencyWindow
		values    []int
		steppedAt []int
	}{
		// Steps of one, after 5 windows, with 20 of rest between.
		{"throttled: down to the floor of the quota", throttled, []int{3, 2}, []int{5, 30}},
		{"backlog: up to twice its ceiling", backlog, []int{4, 5, 6}, []int{5, 30, 55}},
		{"calm: nothing", calm, nil, nil},
		{"throttled and backlog: throttling counts", with(backlog, func(w *latencyWindow) { w.throttled = 9 }), []int{2}, []int{5}},
		{"backlog but the quota is used", with(backlog, func(w *latencyWindow) { w.usedCPUs = 2.4 }), nil, nil},
		{"rare throttling", with(throttled, func(w *latencyWindow) { w.throttled, w.periods = 9, 100 }), nil, nil},
		{"not measurable: nothing", with(throttled, func(w *latencyWindow) { w.measured = false }), nil, nil},
		{"no quota: nothing", with(backlog, func(w *latencyWindow) { w.quota, w.current = 0, 16 }), nil, nil},
		{"above the bound: at once", with(calm, func(w *latencyWindow) { w.current = 96 }), []int{6}, []int{1}},
		{"below the bound: at once", with(calm, func(w *latencyWindow) { w.current = 1 }), []int{2}, []int{1}},
		{"the machine is the bound", with(backlog, func(w *latencyWindow) { w.cpus = 4 }), []int{4}, []int{5}},
	} {
		var s latencyState
		values, steppedAt := feedWindow(&s, c.w, 100)
		check.True(t, equalInts(values, c.values) && equalInts(steppedAt, c.steppedAt),
			"%s: %v after %v windows, want %v after %v", c.name, values, steppedAt, c.values, c.steppedAt)
	}
}

func with(w latencyWindow, f func(*latencyWindow)) latencyWindow {
	f(&w)
	return w
}

func equalInts(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestLatencyPolicyDoesNotFlap tests that a service with a backlog at 3 Ps and throttling
// at 4 is changed rarely, because each change stops the world.
func TestLatencyPolicyDoesNotFlap(t *testing.T) {
	var s latencyState
	current, changes, lastHour := 3, 0, 0
	const hour = 3600
	for i := range 2 * hour {
		w := latencyWindow{quota: 2.5, cpus: 16, current: current, periods: 10, measured: true}
		if current >= 4 {
			w.throttled, w.usedCPUs = 6, 2.5
		} else {
			w.runnable, w.usedCPUs = 9, 1.5
		}
		if got, _ := s.step(w); got != current {
			if d := got - current; d != 1 && d != -1 {
				t.Fatalf("a step from %d to %d", current, got)
			}
			current = got
			changes++
			if i >= hour {
				lastHour++
			}
		}
	}
	// Each reversal doubles the patience, up to 16 times 5 windows; a cycle then has
	// at least 80 + 20 + 5 + 20 windows.
	check.True(t, lastHour <= 2*hour/100, "%d changes in the second hour", lastHour)
	check.True(t, changes != 0, "the policy did nothing")
	// Windows that contradict each other change nothing.
	s = latencyState{}
	for i := range 1000 {
		w := latencyWindow{quota: 2.5, cpus: 16, current: 3, periods: 10, usedCPUs: 1, measured: true}
		if i%2 == 0 {
			w.throttled = 10
		} else {
			w.runnable = 9
		}
		if got, reason := s.step(w); got != 3 {
			t.Fatalf("window %d of contradicting ones: %d (%s)", i, got, reason)
		}
	}
}

// crowdedService is a window of a service under a quota of 1 CPU with a backlog. With one P
// it gets cpusWithOneP; with two it uses the quota and is throttled.
func crowdedService(current int, cpusWithOneP float64) latencyWindow {
	w := latencyWindow{quota: 1, cpus: 4, current: current, periods: 10, runnable: 3, usedCPUs: cpusWithOneP, measured: true}
	if current > 1 {
		w.throttled, w.usedCPUs = 9, 1
	}
	return w
}

func TestCrowdedState(t *testing.T) {
	for _, c := range []struct {
		name      string
		window    func(current, i int) latencyWindow
		high      int
		values    []int
		steppedAt []int
	}{
		{"they stay: more Ps, and longer each time that fewer are tried", func(n, _ int) latencyWindow { return crowdedService(n, 0.6) }, 2,
			[]int{2, 1, 2, 1, 2}, []int{3, 28, 31, 76, 79}},
		{"they leave: back for good", func(n, i int) latencyWindow {
			if i > 10 {
				return crowdedService(n, 1)
			}
			return crowdedService(n, 0.6)
		}, 2, []int{2, 1}, []int{3, 28}},
		{"the quota is used", func(n, _ int) latencyWindow { return crowdedService(n, 0.95) }, 2, nil, nil},
		{"no goroutine waits", func(n, _ int) latencyWindow {
			return with(crowdedService(n, 0.3), func(w *latencyWindow) { w.runnable = 0.4 })
		}, 2, nil, nil},
		{"a quota holds it back", func(n, _ int) latencyWindow {
			return with(crowdedService(n, 0.6), func(w *latencyWindow) { w.throttled = 5 })
		}, 2, nil, nil},
		{"not measurable", func(n, _ int) latencyWindow {
			return with(crowdedService(n, 0.6), func(w *latencyWindow) { w.measured = false })
		}, 2, nil, nil},
		{"the runtime would take no more", func(n, _ int) latencyWindow { return crowdedService(n, 0.6) }, 1, nil, nil},
		{"now and then", func(n, i int) latencyWindow {
			if i%3 == 0 {
				return crowdedService(n, 1)
			}
			return crowdedService(n, 0.6)
		}, 2, nil, nil},
	} {
		var s crowdedState
		var values, steppedAt []int
		current := 1
		for i := range 100 {
			n, reason := s.step(c.window(current, i), 1, c.high)
			check.Equal(t, reason != "", n != current, "%s: from %d to %d because %q", c.name, current, n, reason)
			if n != current {
				current = n
				values, steppedAt = append(values, n), append(steppedAt, i+1)
			}
		}
		check.True(t, equalInts(values, c.values) && equalInts(steppedAt, c.steppedAt),
			"%s: %v after %v windows, want %v after %v", c.name, values, steppedAt, c.values, c.steppedAt)
	}
	// In an hour with busy neighbours, nearly all windows have two Ps, and there are few
	// changes.
	var s crowdedState
	current, changes, withTwoPs := 1, 0, 0
	for range 3600 {
		n, _ := s.step(crowdedService(current, 0.6), 1, 2)
		if n != current {
			current = n
			changes++
		}
		if n == 2 {
			withTwoPs++
		}
	}
	check.True(t, changes <= 40 && withTwoPs >= 3400, "%d changes, %d of 3600 windows with two Ps", changes, withTwoPs)
}

// TestLatencyPolicyIsPatient counts the windows before a step up that is then reversed: five at first, twice as many
// each time, up to sixteen times five.
func TestLatencyPolicyIsPatient(t *testing.T) {
	var s latencyState
	var waited []int
	for range 7 {
		windows := 0
		for current := 3; current == 3; windows++ {
			w := latencyWindow{quota: 2.5, cpus: 16, current: 3, periods: 10, runnable: 9, usedCPUs: 1.5, measured: true}
			if current, _ = s.step(w); windows > 1000 {
				t.Fatalf("no step after %v", waited)
			}
		}
		waited = append(waited, windows)
		for current := 4; current == 4; windows++ {
			w := latencyWindow{quota: 2.5, cpus: 16, current: 4, periods: 10, throttled: 6, usedCPUs: 2.5, measured: true}
			if current, _ = s.step(w); windows > 1000 {
				t.Fatalf("no step back after %v", waited)
			}
		}
	}
	rest := func(n int) int { return windowsToRest + n*windowsToAct }
	if want := []int{windowsToAct, rest(2), rest(4), rest(8), rest(16), rest(16), rest(16)}; !equalInts(waited, want) {
		t.Errorf("it waits for %v windows, want %v", waited, want)
	}
}
