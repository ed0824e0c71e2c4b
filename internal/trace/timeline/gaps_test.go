package timeline

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
)

// TestGaps compares the gaps of each thread with those found by reading all of its events. It detects a skipped
// interval between waypoints that contains a long gap, or whose end does.
func TestGaps(t *testing.T) {
	for _, name := range []string{"preempt", "gcstress", "http1", "generations", "cpusamples", "iterpull"} {
		t.Run(name, func(t *testing.T) {
			n := 0
			for _, g := range decodeAll(testprog.Trace(t, name), 2).gens {
				for _, minLength := range []int64{0, 20_000, 300_000, 3_000_000} {
					i := 0
					for m, got := range g.Gaps(g.Base, minLength) {
						s := g.streams[i]
						i++
						must.Equal(t, m, s.m, "thread")
						var want [][2]int64
						last := g.Base
						add := func(t int64) {
							if t-last > minLength {
								want = append(want, [2]int64{last, t})
							}
							last = max(last, t)
						}
						for _, e := range streamTimes(g, s) {
							add(e)
						}
						add(g.End)
						n += len(want)
						var gaps [][2]int64
						for _, gap := range got {
							gaps = append(gaps, [2]int64{gap.From, gap.To})
							if gap.Running && gap.Called || gap.Stopped && !gap.Ended || gap.Ended && gap.To > g.End {
								t.Errorf("generation %d, thread %d: %+v", g.Num, m, gap)
							}
						}
						check.True(t, slices.Equal(gaps, want),
							"generation %d, thread %d, %d ns: %d gaps, want %d", g.Num, m, minLength, len(gaps), len(want))
					}
					check.Equal(t, i, len(g.streams), "generation %d: threads", g.Num)
				}
			}
			check.True(t, n != 0, "no gap was found")
		})
	}
}

// streamTimes returns the times of all events of a thread.
func streamTimes(g *Gen, s stream) (times []int64) {
	if s.index[0] == s.index[1] {
		return nil
	}
	for r := g.index[s.index[0]].rec; ; r++ {
		rec := g.record(r)
		if rec.kind() == kindLink {
			r = rec.link()
			rec = g.record(r)
		}
		if rec.kind() == kindEnd {
			return times
		}
		times = append(times, g.Base+rec.time())
	}
}
