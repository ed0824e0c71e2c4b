package timeline

import (
	"cmp"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestUnattributedWakes compares the wakes by timers and by the poller with those that the spans of all goroutines show.
func TestUnattributedWakes(t *testing.T) {
	pollerCount, timerCount := 0, 0
	for _, name := range []string{"http1", "generations", "preempt"} {
		decoded := decodeAll(testprog.Trace(t, name), 2)
		for _, g := range decoded.gens {
			var pollers []PollerWake
			var timers, early [][3]int64 // time, goroutine and start of the run; early are waits that began before the generation
			win := Window{Gens: []*Gen{g}}
			g.Goroutines(func(id uint64) {
				spans := win.Spans(id, g.Base, g.End+1, nil)
				for i, s := range spans {
					if s.State != Waiting || !s.Woken || s.Waker != 0 || s.Origin == OriginCreated {
						continue
					}
					switch runs := i+2 < len(spans) && spans[i+2].State == Running; {
					case s.Reason == g.network && s.Origin != OriginStatus:
						pollers = append(pollers, PollerWake{s.End, id})
					case runs && s.Origin == OriginStatus:
						early = append(early, [3]int64{s.End, int64(id), spans[i+2].Start})
					case runs:
						timers = append(timers, [3]int64{s.End, int64(id), spans[i+2].Start})
					}
				}
			})
			var got, found [][3]int64
			g.TimerWakes(func(w TimerWake) {
				got = append(got, [3]int64{w.Time, int64(w.G), w.Start})
				if last := got[len(got)-1]; !slices.Contains(early, last) {
					found = append(found, last)
				}
			})
			byTime := func(a, b [3]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }
			check.True(t, slices.IsSortedFunc(got, byTime), "%s, generation %d: wakes by timers in order", name, g.Num)
			slices.SortFunc(timers, byTime)
			check.True(t, slices.Equal(found, timers), "%s, generation %d: %d wakes by timers, want %d", name, g.Num, len(found), len(timers))
			slices.SortFunc(pollers, func(a, b PollerWake) int { return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.G, b.G)) })
			for i, w := range pollers {
				const distance, limit = 100_000, 3
				after := i + 1
				for after < len(pollers) && pollers[after].Time == w.Time {
					after++
				}
				from, to := after, after
				for ; from > 0 && after-from < limit && w.Time-pollers[from-1].Time <= distance; from-- {
				}
				for to < len(pollers) && to-after < limit && pollers[to].Time-w.Time < distance {
					to++
				}
				if near := g.PollerWakesNear(w.Time, distance, limit); !slices.Equal(near, pollers[from:to]) {
					t.Fatalf("%s, generation %d: wakes near %d are %v, want %v", name, g.Num, w.Time, near, pollers[from:to])
				}
			}
			pollerCount, timerCount = pollerCount+len(pollers), timerCount+len(timers)
		}
	}
	check.True(t, pollerCount > 100 && timerCount > 100, "%d wakes by the poller, %d by timers", pollerCount, timerCount)
}
