package tune

import (
	"testing"

	"github.com/whylate/whylate/service/internal/check"
)

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
