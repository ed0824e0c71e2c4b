package tune

import (
	"testing"

	"github.com/whylate/whylate/service/internal/check"
)

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
