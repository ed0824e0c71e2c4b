package request

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestRepeatedObservations: observations between two waits can be left out if they equal those since the wait before, not if one has
// another stack or another state, or if there are fewer.
func TestRepeatedObservations(t *testing.T) {
	x := new(observationCollector)
	x.reset()
	c := &NewFinder(new(tracefmt.Symbols), new(timeline.Window), Options{}).collector
	want := 0
	now := int64(0)
	add := func(state timeline.State, stack tracefmt.StackID) {
		x.add(c, []timeline.Span{{Start: now, End: now + 10, State: state, Stack: stack}})
		now += 10
	}
	iterate := func(isNew bool, states ...timeline.State) {
		for _, state := range states {
			if add(state, tracefmt.StackID(state)+100); isNew {
				want++
			}
		}
		add(timeline.Waiting, 1)
		want++
	}
	iterate(true)
	iterate(true, timeline.Running, timeline.Syscall)
	iterate(false, timeline.Running, timeline.Syscall)
	iterate(false, timeline.Running, timeline.Syscall)
	iterate(true, timeline.Running)
	iterate(false, timeline.Running)
	iterate(true, timeline.Running, timeline.Syscall)
	iterate(true, timeline.Syscall, timeline.Running)
	goroutine := &loopGoroutine{collector: x, endObservation: x.states.length}
	yielded, ends := 0, int64(0)
	for obs := range goroutine.observations(nil) {
		yielded++
		if obs.skipsRepeated = true; obs.state == timeline.Waiting {
			check.True(t, obs.end > ends, "a wait until %d follows one until %d", obs.end, ends)
			ends = obs.end
		}
	}
	check.True(t, yielded == want && ends == now, "%d observations until %d, want %d until %d", yielded, ends, want, now)
}
